"""Name the quantities of a training curve: title, what it says in words, and with which it is drawn.

The terms of the objective come from their table (:data:`vcrt_train.objective.terms.TERMS`). Not covered: values
(:mod:`vcrt_train.report.curve_figures`).
"""

from __future__ import annotations

from dataclasses import dataclass

from vcrt_train.objective.terms import TERMS, Term, constrained
from vcrt_train.protocol.source_validation import RATE

#: Follows from the two masses; every other quantity is logged.
LOG_MARGIN = "log_margin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """One quantity. ``limit`` names the setting of the objective that is drawn as a line, and what to call it.

    ``dual`` names the quantity that is drawn below it.
    """

    title: str
    note: str
    #: Drawn on the whole scale from 0 to 1.
    share: bool = False
    limit: tuple[str, str] | None = None
    dual: str | None = None


def core() -> dict[str, Quantity]:
    """What is shown at once."""
    return {
        "mean_reward": Quantity(
            title="Mean reward of sampled orders",
            note="The share of sampled orders that end in the certified state. Of the behaviour policy, which drew "
            "them, before the update's first step.",
            share=True,
        ),
        RATE: Quantity(
            title="Source pass rate on untrained items",
            note="The share of source items set aside that pass, one greedy order each. Of the policy after the "
            "update.",
            share=True,
        ),
        "orbit_mass": Quantity(
            title="Probability of the certified orbit",
            note="All certified orders of a prompt together; the mean over an update's prompts. Of the behaviour "
            "policy, before the update's first step.",
            share=True,
        ),
        "illegal_mass": Quantity(
            title="Probability of other orders",
            note="All orders outside the certified orbit together. Of the behaviour policy.",
            share=True,
        ),
        LOG_MARGIN: Quantity(
            title="Margin of the orbit over other orders (nats)",
            note="The logarithm of the mean orbit mass over the mean mass of other orders. The anti-diamond loss asks "
            "for its margin of each prompt by itself.",
            limit=("margin", "margin"),
        ),
        **_losses(shown=True),
        **{term.name: _constraint(term) for term in TERMS.values() if term.cap is not None},
        "clip_fraction": Quantity(
            title="Share of clipped ratios",
            note="Of the samples of an update's last epoch.",
            share=True,
        ),
        "zero_advantage_share": Quantity(
            title="Share of prompts without advantage",
            note="All samples of such a prompt had the same reward, so the policy term learns nothing from it.",
            share=True,
        ),
    }


def more() -> dict[str, Quantity]:
    """What is a click away."""
    return {
        "loss": Quantity(title="Loss", note="The sum of all terms of the method."),
        **_losses(shown=False),
        **{
            f"penalty_{name}": Quantity(
                title=f"{_capital(name)} penalty", note="The term of the augmented Lagrangian."
            )
            for name in constrained()
        },
        "orbit_mass_last_epoch": Quantity(
            title="Probability of the certified orbit in the last epoch",
            note="After all steps of the update but the last, on the prompts of those very steps: it rises there even "
            "where the policy is being destroyed.",
            share=True,
        ),
        "malformed_mass": Quantity(
            title="Probability of malformed answers",
            note="Answers that are no orders; 0 where the policy can only point. Of the behaviour policy.",
            share=True,
        ),
        "orbit_log_mass_error": Quantity(
            title="Standard error of the orbit's log-mass (nats)",
            note="Of records whose orders are not all scored; 0 where all legal prefixes are.",
        ),
        "effective_path_share": Quantity(
            title="Share of masked paths that are effective",
            note="In the posterior weights of the orbit mass's gradient; 0 where that is exact.",
            share=True,
        ),
        "gradient_norm": Quantity(title="Gradient norm", note="Before it was scaled down."),
        "start_log_ratio": Quantity(
            title="Largest log-ratio before the first step",
            note="0 where scoring is exact.",
        ),
    }


def duals() -> dict[str, Quantity]:
    """The multipliers, each drawn below its constraint."""
    return {
        f"dual_{name}": Quantity(title=f"{TERMS[name].title}: multiplier", note="")
        for name in constrained()
    }


def quantities() -> dict[str, Quantity]:
    """All of them by name, in the order in which they are shown."""
    return {**core(), **more(), **duals()}


def _losses(*, shown: bool) -> dict[str, Quantity]:
    return {
        term.name: Quantity(title=term.title, note=term.note)
        for term in TERMS.values()
        if term.cap is None and term.shown is shown
    }


def _constraint(term: Term) -> Quantity:
    return Quantity(
        title=f"Constraint: {term.title}",
        note=term.note,
        limit=(term.cap, "cap") if isinstance(term.cap, str) else None,
        dual=f"dual_{term.name}",
    )


def _capital(name: str) -> str:
    words = name.replace("_", " ").replace("kl", "KL")
    return words[:1].upper() + words[1:]
