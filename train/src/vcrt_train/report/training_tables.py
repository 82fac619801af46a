"""Make the tables on training: how soon methods learn, and source pass rates on untrained items.

All methods of a plan draw equally many orders, and runs of one fold and seed see the same records in the same order. So
the mean native reward over a whole training compares how often the drawn orders pass, and how soon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vcrt.printable import counted
from vcrt_train.protocol.crossed import runs_interval
from vcrt_train.protocol.source_validation import (
    IN_A_ROW,
    RULE,
    TOO_FEW,
    Validated,
    flagged_at,
    validations,
)
from vcrt_train.protocol.statistics import FloatArray, Interval
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.contents import ReportContents, RunReport
from vcrt_train.report.curve_figures import last_update
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.wording import decisive_cell, label, percent, points

PARTS = 4
REWARD = "mean_reward"
OVER_RUNS = "95% over runs"

#: ``[PARTS + 1]`` by fold and seed: the mean reward of each part of a run's training, and of the whole training.
Rewards = Mapping[str, Mapping[int, FloatArray]]
#: The most runs that a sentence names.
MOST_NAMED = 3


def part_ends(contents: ReportContents) -> list[int]:
    """Return the last update of each part."""
    last = last_update(contents)
    return [last * part // PARTS for part in range(1, PARTS + 1)]


def rewards_of(contents: ReportContents, method: str) -> Rewards:
    """Return the rewards of a method's runs; empty if one of them has not logged every update's reward."""
    ends = part_ends(contents)
    found: dict[str, dict[int, FloatArray]] = {}
    for fold in contents.folds:
        for seed, run in contents.runs_of(method, fold).items():
            rewards = np.array([row.get(REWARD, np.nan) for row in run.curve])
            if rewards.size != ends[-1] or ends[0] == 0 or not np.isfinite(rewards).all():
                return {}
            parts = [*np.split(rewards, ends[:-1]), rewards]
            found.setdefault(fold, {})[seed] = np.array([part.mean() for part in parts])
    return found


def difference(first: Rewards, second: Rewards) -> Interval | None:
    """Return the macro difference over whole trainings on the same folds; None if a fold has no seed in common."""
    seeds = {fold: [seed for seed in first[fold] if seed in second[fold]] for fold in first}
    if not all(seeds.values()):
        return None
    return runs_interval(
        {
            fold: [first[fold][seed][-1] - second[fold][seed][-1] for seed in paired]
            for fold, paired in seeds.items()
        },
        seeds=seeds,
    )


def learning_table(analysis: Analysis) -> Table | None:
    """Make the table of methods' rewards and their differences from the studied one; None if none logged them all."""
    contents = analysis.contents
    of = {method: rewards_of(contents, method) for method in contents.methods}
    complete = {method: found for method, found in of.items() if set(found) == set(contents.folds)}
    if not complete:
        return None
    ends = part_ends(contents)
    begins = [1, *(end + 1 for end in ends[:-1])]
    studied = complete.get(analysis.method or "")
    columns = (
        "Method",
        *(f"{begin} to {end}" for begin, end in zip(begins, ends, strict=True)),
        "All updates",
    )
    against: tuple[str, ...] = ()
    if studied is not None and len(complete) > 1:
        against = (f"{label(analysis.method or '')} minus it", OVER_RUNS)
    rows: list[tuple[Cell, ...]] = []
    for method, found in complete.items():
        means = np.mean(
            [np.mean([*by_seed.values()], axis=0) for by_seed in found.values()], axis=0
        )
        cells: tuple[Cell, ...] = (label(method), *(percent(float(mean)) for mean in means))
        if against and studied is not None:
            more = None if found is studied else difference(studied, found)
            cells += ("", "") if more is None else (points(more.estimate), decisive_cell(more))
        rows.append(cells)
    return Table(
        name="learning",
        title="Native reward of the orders drawn while training (%), by updates",
        columns=(*columns, *against),
        rows=tuple(rows),
        note=(
            "Of the policy that draws them, before each update's first step, on source items; a mean over runs, then "
            "over folds with equal weight. All methods draw equally many, so the mean over all updates says how often "
            "they pass, and how soon; the held-out pass rates say the end. Differences are in points, over all "
            "updates, of the seeds that both have, with a t interval for new runs: of the seeds' means over folds or, "
            "where folds have other seeds, with their deviations added. A single run has none."
        ),
    )


def flag_sentences(runs: Sequence[RunReport]) -> tuple[str, ...]:
    """Say which runs are flagged, at which update, and their rates beside the frozen backbone's; empty if none is."""
    found = [(run, one) for run in runs if (one := flagged_at(run.curve))]
    if not found:
        return ()
    named = "; ".join(f"{run.name} {one.in_words()}" for run, one in found[:MOST_NAMED])
    more = f"; {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    are = "is" if len(found) == 1 else "are"
    return (f"{len(found)} of {counted(len(runs), 'run')} {are} flagged: {named}{more}. {RULE}",)


def validation_table(contents: ReportContents) -> Table | None:
    """Make the table of runs' source pass rates in training, beside the frozen backbone's; None without validations."""
    rows = [
        (label(run.method), label(run.held_out), run.seed, *_cells(found))
        for run in contents.runs
        if (found := validations(run.curve))
    ]
    if not rows:
        return None
    return Table(
        name="source-validation",
        title="Source pass rate (%) on untrained items while runs trained",
        columns=(
            *("Method", "Held out", "Seed", "Frozen", "Lowest", "At update"),
            *("Last", "Last, 95% interval", "Flagged"),
        ),
        rows=tuple(rows),
        note=f"Greedy orders; exact intervals over items. {RULE}",
    )


def _cells(found: Sequence[Validated]) -> tuple[Cell, ...]:
    last, lowest = found[-1], min(found, key=lambda one: one.rate)
    ends = f"[{percent(last.low):.2f}, {percent(last.high):.2f}]"
    unflagged = TOO_FEW if len(found) < IN_A_ROW else ""
    flag = next((f"at update {one.update}" for one in found if one.flagged), unflagged)
    return (
        *(percent(last.frozen), percent(lowest.rate), lowest.update),
        *(percent(last.rate), ends, flag),
    )
