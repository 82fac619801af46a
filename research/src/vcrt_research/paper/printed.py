"""Hold the numbers that the paper published; its tables are in ``printed.toml``, with where they stand in it.

"From Reasoning Strings to Partial Orders: Verifier-Certified Rule Transport through Quotient Policy Optimization".
Pass rates are percentages and differences are percentage points, as printed. They were measured on Qwen3.5-2B with
LoRA, three runs of 400 updates a fold: other backbones and scales cannot be compared with them in size.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from vcrt_train.report.wording import CANONICAL, METHOD, OUTCOME, display_name, same_name

BACKBONE = "Qwen3.5-2B"
#: "three folds" of Tables 1 to 4, in the order of Table 2 (held-out pass rate).
ENVIRONMENTS = ("Lean", "ProofWriter", "CLRS")


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedScores:
    """Held-out pass rates of one method in percent."""

    method: str
    folds: Mapping[str, float]
    macro: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedDifference:
    """A difference in percentage points, with its 95% interval where the paper prints one."""

    method: str
    minus: str
    folds: Mapping[str, float]
    macro: float
    interval: tuple[float, float] | None = None
    backbone: str = BACKBONE
    #: Whether it is not printed as such but is the difference of two printed means.
    of_means: bool = False


_TABLES: Mapping[str, Any] = tomllib.loads(
    files("vcrt_research.paper").joinpath("printed.toml").read_text(encoding="utf-8")
)


def _difference(row: Mapping[str, Any]) -> PublishedDifference:
    interval = row.get("interval")
    return PublishedDifference(**{**row, "interval": interval and tuple(interval)})


def _of_means(method: str, minus: str) -> PublishedDifference:
    """The difference of two rows of the main table."""
    first, second = (row for name in (method, minus) for row in MAIN_TABLE if row.method == name)
    return PublishedDifference(
        method=method,
        minus=minus,
        folds={fold: round(first.folds[fold] - second.folds[fold], 2) for fold in first.folds},
        macro=round(first.macro - second.macro, 2),
        of_means=True,
    )


MAIN_TABLE = tuple(PublishedScores(**row) for row in _TABLES["main"])
MECHANISM_TABLE = tuple(map(_difference, _TABLES["mechanism"]))
HEADLINE = _difference(_TABLES["headline"])
#: The other backbone.
REPLICATION = _difference(_TABLES["replication"])
#: "two of nine fold-by-run comparisons are negative", same section.
NEGATIVE_COMPARISONS = (2, 9)

#: "Averaging by run also yields positive gains", same section.
POSITIVE_RUNS = "all"
#: "The prespecified 'all ablations decrease' criterion is therefore not met", section "Mechanism and Ablations".
LOWER_ABLATIONS = "not all"

#: What tab:main gives by subtraction; the folds of the second also stand in the text of the same section.
OVER_OUTCOME = _of_means(METHOD, OUTCOME)
INTERFACE = _of_means(CANONICAL, OUTCOME)

#: "Lean contributes approximately 85% of the macro gain; ProofWriter and CLRS improve by 2.85 points on average."
LARGEST_SHARE = ("Lean", 85.0)
MEAN_OF_OTHERS = 2.85

#: "Frozen LOEO construction", tab:data: source episodes and replayed orders of each fold.
SOURCE_EPISODES = 5_000
SOURCE_REPLAYS = 120_000
LEGAL_ORDERS_PER_EPISODE = 12

#: Section "Retention, Robustness, and Compute", in points.
LARGEST_SOURCE_DECLINE = 0.96
#: "Training consumes 376.55 aggregate GPU hours", same section.
GPU_HOURS = 376.55


def same_folds(folds: Sequence[str]) -> bool:
    """Whether the folds are the paper's three in any order, so that its macro averages stand for the same thing."""
    return len(folds) == len(ENVIRONMENTS) and {*map(display_name, folds)} == {*ENVIRONMENTS}


def published_scores(method: str) -> PublishedScores | None:
    """The row of the paper's main table for a method, if it has one."""
    return next((row for row in MAIN_TABLE if same_name(row.method, method)), None)


def published_difference(method: str, minus: str) -> PublishedDifference | None:
    """What the paper has for ``method`` minus another method, printed or as a difference of printed means."""
    rows = (HEADLINE, OVER_OUTCOME, INTERFACE, *MECHANISM_TABLE)
    return next(
        (r for r in rows if same_name(r.method, method) and same_name(r.minus, minus)), None
    )


def is_ablation(method: str) -> bool:
    """Whether a method is one of the paper's ablations."""
    return any(same_name(row.minus, method) for row in MECHANISM_TABLE)


def in_fold(folds: Mapping[str, float], environment: str) -> float | None:
    """The value of an environment in a published row, if it has one."""
    return next((value for name, value in folds.items() if same_name(name, environment)), None)


def in_points(value: float, interval: tuple[float, float] | None = None) -> str:
    """``+13.06 [+12.58, +13.54]`` of what is in percentage points; zero has no sign."""
    signs = [
        f"{number:+.2f}" if round(number, 2) else "0.00" for number in (value, *(interval or ()))
    ]
    return signs[0] if interval is None else "{} [{}, {}]".format(*signs)
