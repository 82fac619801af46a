"""The methods as a table: what each one changes, and nothing else.

Everything that is not a field of :class:`Method` (records, backbone, prompts drawn, optimiser, sampling) is shared by
all methods. A new method is a new entry of ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from vcrt.errors import UnknownNameError
from vcrt.policy.interface import Interface
from vcrt.records.policy_view import Serialisation

#: ``trajectory``: the ratio of the sampled order; ``orbit``: of its certified orbit; ``shuffled_orbit``: of a random
#: set of the orbit's size, drawn once for each record.
Ratio: TypeAlias = Literal["trajectory", "orbit", "shuffled_orbit"]
#: ``native``: the certified orbit against the other orders; ``shuffled``: the random set against the others.
Margin: TypeAlias = Literal["native", "shuffled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One row of the method table. Raises ``ValueError`` for a row that contradicts itself."""

    name: str
    #: One sentence for tables and help texts.
    summary: str
    #: How the policy answers, see :mod:`vcrt.policy.interface`.
    interface: Interface = "pointers"
    #: How the record is rendered, see :func:`vcrt.records.policy_view.render`.
    serialisation: Serialisation = "sorted"
    #: Whether the clipped policy loss is part of the objective.
    policy_term: bool = True
    #: Whose probability the policy ratio of a successful sample is.
    ratio: Ratio = "trajectory"
    #: Between which sets the anti-diamond loss demands a margin; None leaves it out.
    margin: Margin | None = None
    #: Whether the commutation, retention and action-KL penalties are part of the objective.
    constraints: bool = False
    #: Whether correct samples are contrasted with incorrect ones, see :mod:`vcrt.objective.contrastive`.
    contrast: bool = False

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of the settings of a search that are of consequence for this method."""
        of_consequence = {
            "learning_rate": True,
            "alpha": self.margin is not None or self.contrast,
            "margin": self.margin is not None,
            "mu": self.constraints,
        }
        return tuple(name for name, matters in of_consequence.items() if matters)

    def __post_init__(self) -> None:
        if self.margin == "shuffled" and self.ratio != "shuffled_orbit":
            raise ValueError(f"{self.name}: a shuffled margin needs the shuffled orbit's set")
        if not (self.policy_term or self.margin):
            raise ValueError(f"{self.name}: nothing is left to train on")


_VCRT = Method(
    name="vcrt",
    summary="the complete objective: orbit ratio, anti-diamond margin and three constraints",
    ratio="orbit",
    margin="native",
    constraints=True,
)

_ROWS = (
    Method(
        name="outcome-grpo",
        summary="native reward on free token answers to records as a verifier would serialise them",
        interface="tokens",
        serialisation="shuffled",
    ),
    Method(
        name="canonical-grpo",
        summary="native reward through the pointer interface on canonically sorted records",
    ),
    _VCRT,
    replace(
        _VCRT,
        name="no-orbit",
        summary="vcrt with the ratio of the sampled order alone",
        ratio="trajectory",
    ),
    replace(
        _VCRT,
        name="shuffled-orbit",
        summary="vcrt with the ratio of a frozen random set of the orbit's size; margin and reward stay native",
        ratio="shuffled_orbit",
    ),
    replace(
        _VCRT,
        name="no-anti",
        summary="vcrt without the anti-diamond margin",
        margin=None,
    ),
    replace(
        _VCRT,
        name="shuffled-all",
        summary="vcrt with the ratio and the margin of one frozen random set; the reward alone stays native",
        ratio="shuffled_orbit",
        margin="shuffled",
    ),
    replace(
        _VCRT,
        name="margin-only",
        summary="vcrt without the policy term: margin and constraints, nothing learnt from rewards",
        policy_term=False,
    ),
    replace(
        _VCRT,
        name="no-constraints",
        summary="vcrt without the commutation, retention and action-KL penalties",
        constraints=False,
    ),
    Method(
        name="orbit-grpo",
        summary="canonical-grpo with the ratio of the whole orbit, and nothing else",
        ratio="orbit",
    ),
    Method(
        name="contrastive",
        summary="canonical-grpo that also contrasts correct samples with incorrect ones, in the manner of MCPO",
        contrast=True,
    ),
)

#: The six methods of the paper, in its order.
PAPER_METHODS = tuple(row.name for row in _ROWS[:6])

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})


def method(name: str) -> Method:
    """The method of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    try:
        return METHODS[name]
    except KeyError:
        raise UnknownNameError.of("method", name, METHODS) from None
