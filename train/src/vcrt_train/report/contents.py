"""Hold the contents of a report: plain values and NumPy arrays, complete before anything is drawn or written.

The report depends only on these contents, so equal contents give equal bytes. Not covered: how the numbers were
obtained. Nothing here reads a clock or a disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vcrt.errors import VcrtError
from vcrt_train.protocol.scores import Spread
from vcrt_train.protocol.search import Search

BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class FoldScore:
    """Greedy passes of the frozen backbone on one fold: ``[held-out items]`` and ``[retention items]``."""

    held_out_passes: BoolArray
    retention_passes: BoolArray
    #: What sampled answers on held-out items come to; None if it was not read.
    spread: Spread | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TestSetScores:
    """Greedy passes ``[items]`` on the held-out items of one further test set.

    ``frozen`` is by fold, with the view of Canonical-GRPO; ``runs`` is by method, fold and seed. ``dataset`` is the
    manifest as JSON; ``opened_by_others`` counts openings by other plans; ``sources`` is as in a report.
    """

    __test__ = False

    dataset: Mapping[str, Any]
    frozen: Mapping[str, BoolArray]
    runs: Mapping[tuple[str, str, int], BoolArray]
    opened_by_others: int = 0
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunReport(FoldScore):
    """One run: a method trained on one fold with one seed, and its passes.

    Items have the same order for all runs of the fold and for the frozen backbone. ``curve`` has one mapping for each
    logged update, with its number as ``update``.
    """

    method: str
    held_out: str
    seed: int
    curve: tuple[Mapping[str, float], ...] = ()
    #: The frozen backbone with the view of this run's method; None if that is ``ReportContents.frozen``.
    frozen: FoldScore | None = None
    #: Greedy passes of the run's earlier checkpoints by update, on the same items; its last update is the run itself.
    checkpoints: Mapping[int, FoldScore] = field(default_factory=dict)
    #: CPU time of the run's training, in seconds; None if it was not recorded.
    cpu_seconds: float | None = None

    @property
    def name(self) -> str:
        """``method/held-out/seed``, as in the plan."""
        return f"{self.method}/{self.held_out}/{self.seed}"

    @property
    def last_update(self) -> int:
        """The last update that was logged or scored; 0 if there is none."""
        return int(max([0, *self.checkpoints, *(row["update"] for row in self.curve)]))


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportContents:
    """All contents of a report; ``runs`` are in the order of the plan, which orders methods and folds.

    ``dataset`` is the frozen dataset's manifest as JSON; ``agreement`` has ``replays`` and ``agreed``; ``opening``
    has ``reopened`` and may have ``opened_at`` and ``reason``. ``seed`` draws the bootstrap resamples. Raises
    :class:`vcrt.errors.VcrtError` if there is no run, if two runs have one name, or if items do not match.
    """

    title: str
    backbone: str
    dataset: Mapping[str, Any]
    agreement: Mapping[str, int]
    plan: Mapping[str, Any]
    plan_hash: str
    opening: Mapping[str, Any]
    frozen: Mapping[str, FoldScore]
    runs: tuple[RunReport, ...]
    not_measured: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    #: Reasons why held-out environments may not be new or methods not matched; the report begins with them.
    warnings: tuple[str, ...] = ()
    #: Unchecked assumptions of the plan.
    remarks: tuple[str, ...] = ()
    #: The search of the plan; None if there was none.
    search: Search | None = None
    #: The source (a theory, a run, a draw) of each held-out item by fold, and of each retention item by held-out fold;
    #: if empty, sources are not known and items count as independent.
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    retention_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: The scores on further test sets, by their names.
    also_test: Mapping[str, TestSetScores] = field(default_factory=dict)
    seed: int = 0
    num_resamples: int = 10_000
    #: The address of the explorer, if there is one beside the report.
    explorer: str | None = None

    def __post_init__(self) -> None:
        if not self.runs:
            raise VcrtError("a report needs at least one evaluated run", found="no run")
        names = Counter((run.method, run.held_out, run.seed) for run in self.runs)
        if max(names.values()) > 1:
            raise VcrtError(
                "two runs have one name",
                found=f"{names.most_common(1)[0][0]}",
                expected="each run once",
            )
        for run in self.runs:
            _check_items(run, self.frozen)

    @property
    def folds(self) -> tuple[str, ...]:
        """The held-out environments, in the order of the plan."""
        return tuple(dict.fromkeys(run.held_out for run in self.runs))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order of the plan."""
        return tuple(dict.fromkeys(run.method for run in self.runs))

    def frozen_of(self, run: RunReport) -> FoldScore:
        """Return the score of the frozen backbone that a run is compared with."""
        return run.frozen or self.frozen[run.held_out]

    def runs_of(self, method: str, held_out: str) -> dict[int, RunReport]:
        """Return the runs of a method on a fold by seed; empty if there are none."""
        return {
            run.seed: run for run in self.runs if (run.method, run.held_out) == (method, held_out)
        }


def _check_items(run: RunReport, frozen: Mapping[str, FoldScore]) -> None:
    where = f"run {run.name}"
    if run.held_out not in frozen:
        raise VcrtError("the frozen backbone was not scored on a fold", where=where)
    kinds = {"held-out items": "held_out_passes", "retention items": "retention_passes"}
    for score in (run, *run.checkpoints.values()):
        for what, name in kinds.items():
            passes, expected = getattr(score, name), getattr(frozen[run.held_out], name)
            if passes.ndim != 1 or passes.size == 0 or passes.shape != expected.shape:
                raise VcrtError(
                    f"{what} do not match those of the frozen backbone",
                    where=where,
                    found=f"shape {passes.shape}",
                    expected=f"shape {expected.shape} with at least one item",
                )
