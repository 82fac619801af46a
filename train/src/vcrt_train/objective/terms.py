"""List the terms of the objective: each is a row here, and a method that computes its value from a policy's scores.

The sum, the log of every update, the trackers, the curves and the report follow from the rows. A method has the terms
that it trains on in a field (:mod:`vcrt_train.training.methods`). This module loads no PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Literal

from vcrt_train.config import ObjectiveConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One term, which is either weighted and added, or kept below a cap by a penalty with a multiplier."""

    #: Its name in methods, logs and reports.
    name: str
    #: Its value on a batch, a scalar tensor with gradient, from a :class:`vcrt_train.objective.batch.Reading`.
    value: Callable[[Any], Any]
    #: Its weight, or the field of :class:`ObjectiveConfig` that holds it.
    weight: float | str = 1.0
    #: Its upper bound, or the field that holds it; None for a term that is added.
    cap: float | str | None = None
    #: Further fields of :class:`ObjectiveConfig` that it depends on.
    settings: tuple[str, ...] = ()
    #: What records must have for it, or it is always 0: steps that commute, such with two more steps after them, or
    #: orders that fail.
    needs: Literal["commutations", "swaps", "failures"] | None = None
    #: Its title in a report, and one sentence on how to read it.
    title: str
    note: str
    #: Whether its curve is shown at once; the curves of constraints always are.
    shown: bool = False

    def weight_in(self, config: ObjectiveConfig) -> float:
        """Return the weight of a term that is added."""
        return _number(self.weight, config)

    def cap_in(self, config: ObjectiveConfig) -> float:
        """Return the upper bound of a term that has one."""
        assert self.cap is not None
        return _number(self.cap, config)


TERMS: dict[str, Term] = {
    term.name: term
    for term in (
        Term(
            name="policy_loss",
            value=methodcaller("policy_loss"),
            settings=("clip",),
            title="Policy loss",
            note="The clipped loss of the sampled orders.",
        ),
        Term(
            name="commutation",
            value=methodcaller("commutation"),
            cap="commutation_cap",
            needs="swaps",
            title="commutation divergence (nats)",
            note="How much the next choices depend on the order of two steps that commute.",
        ),
        Term(
            name="retention",
            value=methodcaller("retention"),
            cap="retention_cap",
            title="decline of source orbit mass",
            note="Below zero, the orbits of source prompts are more probable than before training.",
        ),
        Term(
            name="action_kl",
            value=methodcaller("action_kl"),
            cap="action_kl_cap",
            title="action KL (nats per choice)",
            note="From the policy that was sampled from to the updated one.",
        ),
        Term(
            name="anti_diamond_loss",
            value=methodcaller("separation"),
            weight="alpha",
            settings=("margin",),
            needs="failures",
            title="Anti-diamond loss",
            note="Half the squared shortfall of each prompt's margin; logged for methods that do not train on it as "
            "well.",
            shown=True,
        ),
        Term(
            name="contrastive_loss",
            value=methodcaller("contrast"),
            weight="alpha",
            needs="failures",
            title="Contrastive loss",
            note="Logged for methods that do not train on it as well.",
        ),
        Term(
            name="augmentation_loss",
            value=methodcaller("augmentation_loss"),
            title="Augmentation loss (nats an order)",
            note="The mean negative log-likelihood of the certified orders; logged for methods that do not train on "
            "it as well.",
        ),
        Term(
            name="reward_loss",
            value=methodcaller("reward_loss"),
            title="Reward loss",
            note="Minus the probability of the orbit: the loss of all samples at once.",
        ),
        Term(
            name="log_reward_loss",
            value=methodcaller("log_reward_loss"),
            title="Log-reward loss (nats)",
            note="Minus the logarithm of the probability of the orbit.",
        ),
        Term(
            name="log_odds_loss",
            value=methodcaller("log_odds_loss"),
            needs="failures",
            title="Log-odds loss (nats)",
            note="Minus the log-odds of the orbit; a prompt that no order fails counts for nothing.",
        ),
        Term(
            name="uniformity",
            value=methodcaller("uniformity"),
            weight="alpha",
            needs="commutations",
            title="Unevenness within the orbit (nats)",
            note="How far the policy is from an even spread over the orbit, whatever the orbit's probability is.",
        ),
    )
}


def constrained() -> list[str]:
    """Return the names of the terms with a cap, in the order of the table."""
    return [term.name for term in TERMS.values() if term.cap is not None]


def settings_of(names: Sequence[str]) -> frozenset[str]:
    """Return the fields of :class:`ObjectiveConfig` that an objective of these terms depends on."""
    rows = [TERMS[name] for name in names]
    found = {field for row in rows for field in (row.weight, row.cap, *row.settings)}
    mu = {"mu"} if any(row.cap is not None for row in rows) else set()
    return frozenset({field for field in found if isinstance(field, str)} | mu)


def _number(value: float | str, config: ObjectiveConfig) -> float:
    return float(getattr(config, value)) if isinstance(value, str) else value
