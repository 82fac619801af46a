"""List the methods as a table of what each one changes.

Everything that is not a field of :class:`Method` (records, backbone, prompts drawn, optimiser, sampling) is the same
for all methods. A new method is a new row of ``_ROWS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from vcrt.errors import UnknownNameError
from vcrt.hashing import Json
from vcrt.records.policy_view import Serialisation
from vcrt_train.config import Interface
from vcrt_train.objective.terms import TERMS, constrained, settings_of

#: ``trajectory``: the ratio of the sampled order; ``orbit``: that of its certified orbit; ``both_classes``: that of the
#: orbit for successes, and that of all failing answers for failures; ``shuffled_orbit``: that of a random set of the
#: orbit's size, drawn once for each record; ``steps``: that of each choice, with an advantage of its own.
Ratio: TypeAlias = Literal["trajectory", "orbit", "both_classes", "shuffled_orbit", "steps"]
#: ``native``: between the certified orbit and the other orders; ``shuffled``: between the random set and the others.
Margin: TypeAlias = Literal["native", "shuffled"]
#: ``none``: rewards count as they are; ``group``: in deviations of their group, as in the original GRPO.
ScaleRewards: TypeAlias = Literal["none", "group"]
_CHOICES = {
    **{"interface": Interface, "serialisation": Serialisation},
    **{"ratio": Ratio, "margin": Margin, "scale_rewards": ScaleRewards},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """One row of the method table. Raises ``ValueError`` for a row that contradicts itself."""

    name: str
    #: One sentence for tables and help texts.
    summary: str
    #: How the policy answers, see :mod:`vcrt_train.policy.scoring`.
    interface: Interface = "pointers"
    #: How the record is rendered, see :func:`vcrt.records.policy_view.render`.
    serialisation: Serialisation = "sorted"
    #: The terms of the objective, names of :data:`vcrt_train.objective.terms.TERMS`.
    terms: tuple[str, ...] = ("policy_loss",)
    #: The orders whose probability gives a successful sample its policy ratio.
    ratio: Ratio = "trajectory"
    #: The sets between which the anti-diamond loss requires a margin, if the method has this loss.
    margin: Margin = "native"
    #: How rewards of a group are scaled; the name and the values are TRL's.
    scale_rewards: ScaleRewards = "none"

    def __post_init__(self) -> None:
        # A plan gives the terms as a list.
        object.__setattr__(self, "terms", tuple(self.terms))
        unknown = [name for name in self.terms if name not in TERMS]
        if unknown:
            raise ValueError(f"{self.name}: no term of the objective is called {unknown[0]!r:.80}")
        for field, names in _CHOICES.items():
            if (found := getattr(self, field)) not in get_args(names):
                raise ValueError(
                    f"{self.name}: {field} is none of {get_args(names)}: {found!r:.80}"
                )
        if self.margin == "shuffled" and self.ratio != "shuffled_orbit":
            raise ValueError(f"{self.name}: a shuffled margin needs the shuffled orbit's set")
        if self.ratio == "steps" and self.interface != "pointers":
            raise ValueError(f"{self.name}: an answer that is no order has no steps to compare")
        if self.ratio == "steps" and self.scale_rewards != "none":
            raise ValueError(f"{self.name}: rewards of steps are compared as they are")
        if all(TERMS[name].cap is not None for name in self.terms):
            raise ValueError(f"{self.name}: nothing is left to train on")

    @property
    def has_credit(self) -> bool:
        """Whether a success stands for a set of orders."""
        return self.ratio not in ("trajectory", "steps")

    @property
    def needs_certified_failures(self) -> bool:
        """Whether every order outside of the orbit is taken for a failure, not only the sampled ones."""
        return self.ratio == "both_classes" or "log_odds_loss" in self.terms

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of a search's settings that affect this method."""
        found = settings_of(self.terms)
        of_objective = (f"objective.{name}" for name in ("alpha", "margin", "mu") if name in found)
        return ("optimiser.learning_rate", *of_objective)

    def without(self, *names: str) -> tuple[str, ...]:
        """Return the terms except these."""
        return tuple(name for name in self.terms if name not in names)

    def definition(self) -> dict[str, Json]:
        """Return the row in the form of plans and searches: ``Method(**row)`` is the method."""
        return {**asdict(self), "terms": list(self.terms)}


_VCRT = Method(
    name="vcrt",
    summary="the complete objective: orbit ratio, anti-diamond margin and three constraints",
    terms=("policy_loss", "commutation", "retention", "action_kl", "anti_diamond_loss"),
    ratio="orbit",
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
        terms=_VCRT.without("anti_diamond_loss"),
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
        terms=_VCRT.without("policy_loss"),
    ),
    replace(
        _VCRT,
        name="no-constraints",
        summary="vcrt without the commutation, retention and action-KL penalties",
        terms=_VCRT.without(*constrained()),
    ),
    Method(
        name="orbit-grpo",
        summary="canonical-grpo with the ratio of the whole orbit, and nothing else",
        ratio="orbit",
    ),
    Method(
        name="contrastive",
        summary="canonical-grpo that also contrasts correct samples with incorrect ones, in the manner of MCPO",
        terms=("policy_loss", "contrastive_loss"),
    ),
    Method(
        name="augmentation",
        summary="supervised training on all certified orders alike, nothing learnt from rewards",
        terms=("augmentation_loss",),
    ),
    Method(
        name="exact-reward",
        summary="the exact gradient of the orbit's probability: canonical-grpo with all samples at once",
        terms=("reward_loss",),
    ),
    Method(
        name="exact-log-reward",
        summary="the exact gradient of the logarithm of the orbit's probability, from the verdict on every order",
        terms=("log_reward_loss",),
    ),
    Method(
        name="exact-log-odds",
        summary="the exact gradient of the log-odds of the orbit, from the verdict on every order",
        terms=("log_odds_loss",),
    ),
    Method(
        name="both-classes",
        summary="orbit-grpo whose failures stand for all failing answers",
        ratio="both_classes",
    ),
    Method(
        name="margin-alone",
        summary="the anti-diamond margin and nothing else",
        terms=("anti_diamond_loss",),
    ),
    *(
        Method(
            name=f"orbit-{name.replace('_', '-')}",
            summary=f"orbit-grpo with the constraint {name} alone",
            terms=("policy_loss", name),
            ratio="orbit",
        )
        for name in constrained()
    ),
    Method(
        name="scaled-grpo",
        summary="canonical-grpo with rewards in deviations of their group",
        scale_rewards="group",
    ),
    Method(
        name="step-groups",
        summary="canonical-grpo that also compares the steps of samples at equal states, in the manner of GiGPO",
        ratio="steps",
    ),
    Method(
        name="uniform-orbit",
        summary="orbit-grpo that also spreads its probability evenly over the orbit, in the manner of UCPO",
        terms=("policy_loss", "uniformity"),
        ratio="orbit",
    ),
)

#: The six methods of the paper, in its order.
PAPER_METHODS = tuple(row.name for row in _ROWS[:6])

METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in _ROWS})


def method(name: str) -> Method:
    """Return the method of that name; raises :class:`vcrt.errors.UnknownNameError`."""
    try:
        return METHODS[name]
    except KeyError:
        raise UnknownNameError.of("method", name, METHODS) from None
