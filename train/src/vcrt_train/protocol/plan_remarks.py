"""Say in sentences what a plan must say of itself: warnings, which mark every report, and remarks.

They follow from the plan alone. Not covered: what happens after it was made (:mod:`vcrt_train.protocol.same_code`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.printable import printable
from vcrt_train.protocol.aliases import same_under_another_name

if TYPE_CHECKING:
    from vcrt_train.protocol.plan import Plan


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """What makes a held-out environment less than held out, as far as the plan shows it."""
    return tuple(printable(line) for line in (*_trained_on_held_out(plan), *_aliases(plan)))


def plan_remarks(plan: Plan) -> tuple[str, ...]:
    """What the plan rests on and nobody has checked."""
    lines = []
    if not plan.provenance.is_known:
        lines.append(
            f"The backbone {plan.backbone.name} is {plan.provenance.in_words()}: whether it was trained on a held-out "
            "environment is not known."
        )
    if plan.search is not None and plan.search_check is None:
        lines.append(
            "The search is unverified: none of its trials was run again when the plan was made, so the settings rest "
            "on the pass rates that its file states."
        )
    if plan.search is not None and plan.search_code != plan.code:
        lines.append("The search was run by other code than the plan's.")
    return tuple(lines)


def _trained_on_held_out(plan: Plan) -> list[str]:
    lines = []
    for fold in plan.held_out:
        for one in plan.provenance.trainings:
            run = f"{one.run} of plan {one.plan_hash[:12]}"
            if fold in one.environments:
                lines.append(
                    f"The backbone {plan.backbone.name} was trained on {fold}, which is held out here: by {run}, on "
                    f"the dataset {one.dataset[:12]}{' (this one)' if one.dataset == plan.root_hash else ''}."
                )
                continue
            versions = plan.environment_versions[fold]
            others = same_under_another_name(versions, one.environments)
            if others:
                lines.append(
                    f"The backbone {plan.backbone.name} was trained by {run} on {', '.join(others)}, with the "
                    f"verifier, adapter and canonicalizer of {fold}, which is held out here: they may be one."
                )
    return lines


def _aliases(plan: Plan) -> list[str]:
    lines = []
    for one in plan.aliases:
        common = []
        if one.same_versions:
            common.append("the same verifier, adapter and canonicalizer")
        if one.same_episodes:
            common.append(
                f"{one.same_episodes} episode{'s' if one.same_episodes > 1 else ''} in common but for the names"
            )
        lines.append(
            f"{one.held_out} is held out while {one.source} is trained on, and they have {' and '.join(common)}: they "
            "may be one environment under two names."
        )
    return lines
