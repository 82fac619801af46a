"""Training curves made ready for drawing: which quantities there are, and their means over bins of updates and runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcrt.report.contents import ReportContents

#: At most this many points a line, so that long runs stay light to draw and to load.
MAX_POINTS = 60

#: Title of each logged quantity, in the order in which they are shown. Others are not drawn.
CURVE_TITLES: Mapping[str, str] = {
    "mean_reward": "Mean reward of sampled orders",
    "orbit_mass": "Probability of the certified orbit",
    "illegal_mass": "Probability of other orders",
    "malformed_mass": "Probability of malformed answers",
    "loss": "Loss",
    "policy_loss": "Policy loss",
    "anti_diamond_loss": "Anti-diamond loss",
    "contrastive_loss": "Contrastive loss",
    "commutation": "Commutation divergence",
    "retention": "Decline of source orbit mass",
    "action_kl": "Action KL",
    "penalty_commutation": "Commutation penalty",
    "penalty_retention": "Retention penalty",
    "penalty_action_kl": "Action KL penalty",
    "dual_commutation": "Commutation multiplier",
    "dual_retention": "Retention multiplier",
    "dual_action_kl": "Action KL multiplier",
    "clip_fraction": "Share of clipped ratios",
    "zero_advantage_share": "Share of prompts without advantage",
    "gradient_norm": "Gradient norm",
    "start_log_ratio": "Largest log-ratio before the first step",
}
#: Quantities drawn on the whole scale from 0 to 1.
SHARES = frozenset({"mean_reward", "orbit_mass", "illegal_mass", "malformed_mass"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The mean over runs of a quantity in one bin of updates, and its range over runs."""

    method: str
    held_out: str
    update: float
    mean: float
    low: float
    high: float


def quantities(contents: ReportContents) -> tuple[str, ...]:
    """The known quantities that some run logged, in the order in which they are shown."""
    logged = {name for run in contents.runs for row in run.curve for name in row}
    return tuple(name for name in CURVE_TITLES if name in logged)


def bin_width(contents: ReportContents) -> int:
    """How many updates one point stands for."""
    last = max((row["update"] for run in contents.runs for row in run.curve), default=1)
    return max(1, math.ceil(last / MAX_POINTS))


def curve_points(contents: ReportContents, quantity: str) -> tuple[CurvePoint, ...]:
    """All points of one quantity, by method, fold and bin. Values that are not finite are left out."""
    width = bin_width(contents)
    bins: dict[tuple[str, str, int], dict[int, list[tuple[float, float]]]] = {}
    for run in contents.runs:
        for row in run.curve:
            value = row.get(quantity, math.nan)
            if math.isfinite(value):
                key = (run.method, run.held_out, int(row["update"] - 1) // width)
                bins.setdefault(key, {}).setdefault(run.seed, []).append((row["update"], value))
    return tuple(
        _point(method, held_out, runs.values()) for (method, held_out, _), runs in bins.items()
    )


def _point(method: str, held_out: str, runs: Iterable[list[tuple[float, float]]]) -> CurvePoint:
    updates = [update for logged in runs for update, _ in logged]
    means = [sum(value for _, value in logged) / len(logged) for logged in runs]
    return CurvePoint(
        method=method,
        held_out=held_out,
        update=sum(updates) / len(updates),
        mean=sum(means) / len(means),
        low=min(means),
        high=max(means),
    )
