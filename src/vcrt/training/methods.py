"""The methods as a table: what each one changes, and nothing else.

Everything that is not a field of :class:`Method` (records, backbone, prompts drawn, optimiser, sampling) is shared by
all methods. A new method is a new entry of ``METHODS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from vcrt.errors import UnknownNameError
from vcrt.policy.interface import Interface
from vcrt.records.policy_view import Serialisation

#: ``trajectory``: the ratio of the sampled order; ``orbit``: of its certified orbit; ``shuffled_orbit``: of a random
#: set of the orbit's size, drawn once for each record.
Ratio: TypeAlias = Literal["trajectory", "orbit", "shuffled_orbit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One row of the method table."""

    name: str
    #: One sentence for tables and help texts.
    summary: str
    #: How the policy answers, see :mod:`vcrt.policy.interface`.
    interface: Interface
    #: How the record is rendered, see :func:`vcrt.records.policy_view.render`.
    serialisation: Serialisation
    #: Whose probability the policy ratio of a successful sample is.
    ratio: Ratio
    #: Whether the anti-diamond loss is part of the objective.
    margin: bool
    #: Whether the commutation, retention and action-KL penalties are part of the objective.
    constraints: bool


_ROWS = (
    Method(
        name="outcome-grpo",
        summary="native reward on free token answers to records as a verifier would serialise them",
        interface="tokens",
        serialisation="shuffled",
        ratio="trajectory",
        margin=False,
        constraints=False,
    ),
    Method(
        name="canonical-grpo",
        summary="native reward through the pointer interface on canonically sorted records",
        interface="pointers",
        serialisation="sorted",
        ratio="trajectory",
        margin=False,
        constraints=False,
    ),
    Method(
        name="vcrt",
        summary="the complete objective: orbit ratio, anti-diamond margin and three constraints",
        interface="pointers",
        serialisation="sorted",
        ratio="orbit",
        margin=True,
        constraints=True,
    ),
    Method(
        name="no-orbit",
        summary="vcrt with the ratio of the sampled order alone",
        interface="pointers",
        serialisation="sorted",
        ratio="trajectory",
        margin=True,
        constraints=True,
    ),
    Method(
        name="shuffled-orbit",
        summary="vcrt with the ratio of a frozen random set of the orbit's size; margin and reward stay native",
        interface="pointers",
        serialisation="sorted",
        ratio="shuffled_orbit",
        margin=True,
        constraints=True,
    ),
    Method(
        name="no-anti",
        summary="vcrt without the anti-diamond margin",
        interface="pointers",
        serialisation="sorted",
        ratio="orbit",
        margin=False,
        constraints=True,
    ),
)

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})


def method(name: str) -> Method:
    """The method of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    try:
        return METHODS[name]
    except KeyError:
        raise UnknownNameError.of("method", name, METHODS) from None
