"""The quantities of a training curve: title, what it says in words, and with which it is drawn.

``CORE`` is shown at once, ``MORE`` a click away. Not covered: their values (:mod:`vcrt.report.curves`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


CORE: Mapping[str, Quantity] = {
    "mean_reward": Quantity(
        title="Mean reward of sampled orders",
        note="The share of sampled orders that end in the certified state.",
        share=True,
    ),
    "orbit_mass": Quantity(
        title="Probability of the certified orbit",
        note="All certified orders of a prompt together; the mean over an update's prompts.",
        share=True,
    ),
    "illegal_mass": Quantity(
        title="Probability of other orders",
        note="All orders outside the certified orbit together.",
        share=True,
    ),
    LOG_MARGIN: Quantity(
        title="Margin of the orbit over other orders (nats)",
        note="The logarithm of the mean orbit mass over the mean mass of other orders. The anti-diamond loss asks for "
        "its margin of each prompt by itself.",
        limit=("margin", "margin"),
    ),
    "anti_diamond_loss": Quantity(
        title="Anti-diamond loss",
        note="Half the squared shortfall of each prompt's margin; logged for methods that do not train on it as well.",
    ),
    "commutation": Quantity(
        title="Constraint: commutation divergence (nats)",
        note="How much the next choices depend on the order of two steps that commute.",
        limit=("commutation_cap", "cap"),
        dual="dual_commutation",
    ),
    "retention": Quantity(
        title="Constraint: decline of source orbit mass",
        note="Below zero, the orbits of source prompts are more probable than before training.",
        limit=("retention_cap", "cap"),
        dual="dual_retention",
    ),
    "action_kl": Quantity(
        title="Constraint: action KL (nats per choice)",
        note="From the policy that was sampled from to the updated one.",
        limit=("action_kl_cap", "cap"),
        dual="dual_action_kl",
    ),
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
MORE: Mapping[str, Quantity] = {
    "loss": Quantity(title="Loss", note="The sum of all terms of the method."),
    "policy_loss": Quantity(title="Policy loss", note="The clipped loss of the sampled orders."),
    "contrastive_loss": Quantity(
        title="Contrastive loss", note="Logged for methods that do not train on it as well."
    ),
    "penalty_commutation": Quantity(
        title="Commutation penalty", note="The term of the augmented Lagrangian."
    ),
    "penalty_retention": Quantity(
        title="Retention penalty", note="The term of the augmented Lagrangian."
    ),
    "penalty_action_kl": Quantity(
        title="Action KL penalty", note="The term of the augmented Lagrangian."
    ),
    "malformed_mass": Quantity(
        title="Probability of malformed answers",
        note="Answers that are no orders; 0 where the policy can only point.",
        share=True,
    ),
    "gradient_norm": Quantity(title="Gradient norm", note="Before it was scaled down."),
    "start_log_ratio": Quantity(
        title="Largest log-ratio before the first step",
        note="0 where scoring is exact.",
    ),
}
DUALS: Mapping[str, Quantity] = {
    quantity.dual: Quantity(
        title=f"{quantity.title.removeprefix('Constraint: ')}: multiplier", note=""
    )
    for quantity in CORE.values()
    if quantity.dual is not None
}
#: All of them by name, in the order in which they are shown.
QUANTITIES: Mapping[str, Quantity] = {**CORE, **MORE, **DUALS}
