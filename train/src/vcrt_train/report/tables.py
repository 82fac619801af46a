"""Make the tables of results, and list all tables of a report in the order in which they are shown.

Rates are percentages; changes and differences are percentage points. The arithmetic is in
:mod:`vcrt_train.report.analysis`. Tables about the data and the plan are in :mod:`vcrt_train.report.provenance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from vcrt.printable import counted, listed
from vcrt.randomness import derive_seed
from vcrt.words.evidence_words import is_sampled
from vcrt_train.protocol.plan import OWN
from vcrt_train.report.analysis import HELD_OUT, SOURCE, Analysis, analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.coverage import coverage_table
from vcrt_train.report.estimates import FROZEN, Comparison
from vcrt_train.report.provenance import provenance_tables
from vcrt_train.report.summary import RETENTION_GUARDRAIL, resolves_guardrail, within_guardrail
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.task import chance, methods_note, steps_text, task_note
from vcrt_train.report.training_tables import learning_table, validation_table
from vcrt_train.report.wording import (
    INTERVALS,
    MISSING,
    OVER_ITEMS,
    TWO_INTERVALS,
    counted_range,
    difference_cells,
    fold_cells,
    interval_text,
    label,
    percent,
    points,
    rate_cells,
)

#: The tables that a terminal shows; the others are in the files.
SHOWN = ("main", "difference", "mechanism", "test-sets", "test-sets-differences")


def report_tables(analysis: Analysis) -> tuple[Table, ...]:
    """Make all tables of a report; tables of differences are left out if there is nothing to compare."""
    tables = [main_table(analysis), fold_table(analysis)]
    if analysis.headline is not None:
        tables.append(difference_table(analysis.headline, analysis.folds))
    if len(analysis.comparisons) > (2 if analysis.headline else 1):
        tables.append(mechanism_table(analysis))
    if analysis.comparisons:
        tables += [by_fold_table(analysis), by_run_table(analysis)]
    if analysis.by_update:
        tables.append(update_table(analysis))
    tables += tables_of_test_sets(analysis)
    if (spread := spread_table(analysis.contents)) is not None:
        tables.append(spread)
    tables += [run_table(analysis), retention_table(analysis)]
    optional = (learning_table(analysis), validation_table(analysis.contents))
    tables += [*(table for table in optional if table is not None), coverage_table()]
    return (*tables, *provenance_tables(analysis.contents))


def main_table(analysis: Analysis) -> Table:
    """Make the table of held-out pass rates in percent: the frozen backbone and each method."""
    num_runs = {len(runs) for r in analysis.results for runs in r.run_rates.values()}
    return Table(
        name="main",
        title="Held-out pass rate (%), one greedy answer per item",
        columns=("Method", *map(label, analysis.folds), "Macro", f"Macro, {INTERVALS[0]}"),
        rows=tuple(
            (
                label(method),
                *fold_cells(rates, analysis.folds, percent),
                *rate_cells(macro)[:2],
            )
            for method, rates, macro in analysis.rates
        ),
        note=(
            f"{task_note(analysis.contents)} Mean over {counted_range(num_runs, 'run')} and {_items(analysis)}; macro "
            f"is the mean over folds with equal weight. "
            f"{methods_note(analysis.contents.methods)}"
        ).rstrip(),
    )


def spread_table(contents: ReportContents) -> Table | None:
    """Make the table of pass@k and evenness within the orbit by method; None if no run has them."""
    by_method = {FROZEN: [score.spread for score in contents.frozen.values()]}
    by_method |= {
        method: [run.spread for run in contents.runs if run.method == method]
        for method in contents.methods
    }
    rows: list[tuple[Cell, ...]] = []
    for method, found in by_method.items():
        known = [spread for spread in found if spread is not None]
        if known:
            ks = tuple(known[0].pass_at)
            even = [spread.evenness for spread in known if spread.evenness is not None]
            rows.append(
                (
                    label(method),
                    *(percent(float(np.mean([spread.pass_at[k] for spread in known]))) for k in ks),
                    percent(float(np.mean(even))) if even else MISSING,
                )
            )
    if not rows:
        return None
    return Table(
        name="spread",
        title="Held-out pass@k (%) of sampled answers, and evenness within the orbit (%)",
        columns=("Method", *(f"pass@{k}" for k in ks), "Evenness"),
        rows=tuple(rows),
        note=(
            "From the policy's own probabilities: pass@k is the mean over items of 1 - (1 - Z)^k, where Z is the "
            "probability of the certified orbit, an estimate where not all certified orders are scored. Evenness is "
            "the entropy within the orbit over its largest value: 100 if all certified orders are equally probable, 0 "
            "if one has all. Means over runs and folds; "
            f"{counted_range({s.items for f in by_method.values() for s in f if s}, 'item')} each."
        ),
    )


def fold_table(analysis: Analysis) -> Table:
    """Make the table of each method's pass rate on each fold with both intervals, and the range of its runs."""
    runs = {result.method: result.run_rates for result in analysis.results}
    rows: list[tuple[Cell, ...]] = []
    for method, by_fold, _ in analysis.rates:
        for fold, estimate in by_fold.items():
            single = [run.estimate for run in runs.get(method, {}).get(fold, {}).values()]
            extremes = (percent(min(single)), percent(max(single))) if single else (MISSING,) * 2
            rows.append((label(method), label(fold), *rate_cells(estimate), *extremes))
    return Table(
        name="rates",
        title="Held-out pass rate (%) by fold",
        columns=("Method", "Held out", "Pass rate", *INTERVALS, "Lowest run", "Highest run"),
        rows=tuple(rows),
        note=TWO_INTERVALS,
    )


def run_table(analysis: Analysis) -> Table:
    """Make the table of single runs: held-out pass rate (percent), source retention (points), intervals over items."""
    rows = tuple(
        (
            label(result.method),
            label(fold),
            seed,
            percent(rate.estimate),
            interval_text(rate, signed=False),
            points((change := result.run_retention[fold][seed]).estimate),
            interval_text(change),
        )
        for result in analysis.results
        for fold, by_seed in result.run_rates.items()
        for seed, rate in by_seed.items()
    )
    return Table(
        name="runs",
        title="Single runs",
        columns=(
            *("Method", "Held out", "Seed", "Pass rate (%)", OVER_ITEMS),
            *("Source retention (points)", f"Retention, {OVER_ITEMS}"),
        ),
        rows=rows,
        note="Intervals are over items, for exactly this run.",
    )


def retention_table(analysis: Analysis) -> Table:
    """Make the table of pass rates on source items not trained on, minus the frozen backbone's, with the guardrail."""
    rows = tuple(
        (
            label(result.method),
            label(fold),
            (items := analysis.num_retention_items(fold)),
            percent(_frozen_retention(analysis.contents, result.method, fold)),
            *difference_cells(estimate),
            points(worst := min(run.estimate for run in result.run_retention[fold].values())),
            _guardrail(worst, items),
        )
        for result in analysis.results
        for fold, estimate in result.retention.items()
    )
    return Table(
        name="retention",
        title="Source retention: change on source items not trained on (points)",
        columns=(
            *("Method", "Held out", "Items", "Frozen (%)", "Change", *INTERVALS),
            *("Worst run", "Guardrail"),
        ),
        rows=rows,
        note=(
            f"The guardrail is held if no run declines by more than {RETENTION_GUARDRAIL:.0f} points; it is not "
            f"resolvable where a single item is more than that. {TWO_INTERVALS}"
        ),
    )


def _guardrail(worst: float, num_items: int) -> str:
    if not resolves_guardrail(num_items):
        return f"not resolvable ({counted(num_items, 'item')})"
    return "held" if within_guardrail(worst) else "broken"


def _frozen_retention(contents: ReportContents, method: str, fold: str) -> float:
    """Return the frozen backbone's pass rate on the retention items, with the method's view."""
    run, *_ = contents.runs_of(method, fold).values()
    return float(contents.frozen_of(run).retention_passes.mean())


def _items(analysis: Analysis) -> str:
    """Write ``40 items a fold``, or the number of each fold if they differ."""
    numbers = {label(fold): analysis.num_items(fold) for fold in analysis.folds}
    if len(set(numbers.values())) == 1:
        return f"{counted(analysis.num_items(analysis.folds[0]), 'item')} a fold"
    return listed([f"{counted(number, 'item')} on {fold}" for fold, number in numbers.items()])


def difference_table(comparison: Comparison, folds: tuple[str, ...]) -> Table:
    """Make the table of one paired difference by fold and macro, with both intervals."""
    estimates = (*map(comparison.folds.get, folds), comparison.macro)
    method, minus = label(comparison.method), label(comparison.minus)
    return Table(
        name="difference",
        title=f"{method} minus {minus}, the strongest baseline (points)",
        columns=("Held out", "Difference", *INTERVALS),
        rows=tuple(
            (name, *difference_cells(estimate))
            for name, estimate in zip((*map(label, folds), "Macro"), estimates, strict=True)
        ),
        note=f"{comparison.negative_text} fold-by-run comparisons are negative. {TWO_INTERVALS}",
    )


def mechanism_table(analysis: Analysis) -> Table:
    """Make the table of the method under study minus each other one: fold differences, macro and both intervals."""
    method = label(analysis.method or "")
    return Table(
        name="mechanism",
        title=f"{method} minus each other method (points); positive values favour {method}",
        columns=("Minus", *map(label, analysis.folds), "Macro", *INTERVALS, "Negative"),
        rows=tuple(
            (
                label(minus),
                *fold_cells(comparison.folds, analysis.folds, points),
                *difference_cells(comparison.macro),
                comparison.negative_text,
            )
            for minus, comparison in analysis.comparisons.items()
        ),
        note=(
            "Intervals belong to the macro difference; those of the folds are in the table of differences by fold. "
            f"Negative: fold-by-run comparisons below zero. {TWO_INTERVALS}"
        ),
    )


def by_fold_table(analysis: Analysis) -> Table:
    """Make the table of every comparison on every fold with both intervals."""
    rows = tuple(
        (label(c.method), label(c.minus), label(fold), *difference_cells(estimate))
        for c in analysis.all_comparisons
        for fold, estimate in c.folds.items()
    )
    return Table(
        name="differences-by-fold",
        title="Differences by fold (points)",
        columns=("Method", "Minus", "Held out", "Difference", *INTERVALS),
        rows=rows,
        note=TWO_INTERVALS,
    )


def by_run_table(analysis: Analysis) -> Table:
    """Make the table of every seed's macro difference, which shows how runs differ."""
    rows = tuple(
        (label(c.method), label(c.minus), seed, points(value.estimate), interval_text(value))
        for c in analysis.all_comparisons
        for seed, value in c.run_macros.items()
    )
    return Table(
        name="differences-by-run",
        title="Macro differences by run (points)",
        columns=("Method", "Minus", "Seed", "Macro", OVER_ITEMS),
        rows=rows,
        note="How runs differ. Intervals are over items, for exactly this pair of runs.",
    )


def update_table(analysis: Analysis) -> Table:
    """Make the table of each method at each update: held-out pass rates by fold and macro, source pass rate."""
    rates = {
        (p.method, p.update, p.kind, p.fold): f"{percent(p.interval.estimate):.2f} "
        f"{interval_text(p.interval, signed=False)}"
        for p in analysis.by_update
    }
    columns = [*((HELD_OUT, fold) for fold in analysis.folds), (HELD_OUT, None), (SOURCE, None)]
    return Table(
        name="by-update",
        title="Source and held-out pass rate (%) by update",
        columns=("Method", "Update", *map(label, analysis.folds), "Macro", "Source, macro"),
        rows=tuple(
            (
                label(method),
                update,
                *(rates.get((method, update, *column), MISSING) for column in columns),
            )
            for method, update in dict.fromkeys((p.method, p.update) for p in analysis.by_update)
        ),
        note=(
            "Columns of folds and macro: held-out items, read after the opening. Source: items of the source "
            "environments that were not trained on. Update 0 is the backbone before training; its held-out row is as "
            "the canonical interface sees the records. 95% intervals over runs and items, over items for a single run."
        ),
    )


def seen_on(contents: ReportContents, name: str) -> ReportContents:
    """Return the contents of a report on one further test set alone: the same runs, at their last update."""
    scores = contents.also_test[name]
    return replace(
        contents,
        dataset=scores.dataset,
        frozen={
            fold: replace(contents.frozen[fold], held_out_passes=passes)
            for fold, passes in scores.frozen.items()
        },
        runs=tuple(
            replace(
                run,
                held_out_passes=scores.runs[run.method, run.held_out, run.seed],
                frozen=replace(
                    contents.frozen_of(run), held_out_passes=scores.frozen[run.held_out]
                ),
                checkpoints={},
                curve=(),
            )
            for run in contents.runs
        ),
        also_test={},
        sources=scores.sources,
        seed=derive_seed(contents.seed, "test set", name),
    )


def tables_of_test_sets(own: Analysis) -> tuple[Table, ...]:
    """Make the tables of pass rates by method and test set, and of differences if any; nothing without a test set."""
    contents = own.contents
    if not contents.also_test:
        return ()
    sets = {OWN: own, **{name: analyse(seen_on(contents, name)) for name in contents.also_test}}
    return (_rates(sets), *([_differences(sets)] if own.comparisons else []))


def _rates(sets: Mapping[str, Analysis]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, analysis in sets.items():
        contents, folds = analysis.contents, analysis.folds
        start = (name, _steps(contents))
        shares = [chance(contents, fold) for fold in (*folds, None)]
        by_chance = [MISSING if share is None else percent(share) for share in shares]
        rows.append((*start, "Random order", *by_chance, MISSING, MISSING))
        rows += [
            (*start, label(method), *fold_cells(rates, folds, percent), *rate_cells(macro))
            for method, rates, macro in analysis.rates
        ]
    own = sets[OWN].contents
    return Table(
        name="test-sets",
        title="Pass rate (%) by test set, one greedy answer per item",
        columns=("Test set", "Steps", "Method", *map(label, own.folds), "Macro", *INTERVALS),
        rows=tuple(rows),
        note=(
            f"The same runs, trained on {steps_text(own.dataset)} steps, on each test set's items of the "
            f"held-out environment: {_sizes(sets)}. Nothing was trained on them; {OWN!r} is the plan's own dataset. "
            f"{TWO_INTERVALS}{_weaknesses(own)}"
        ),
    )


def _differences(sets: Mapping[str, Analysis]) -> Table:
    method = label(sets[OWN].method or "")
    return Table(
        name="test-sets-differences",
        title=f"{method} minus each other method by test set (points)",
        columns=(
            *("Test set", "Steps", "Minus", *map(label, sets[OWN].folds), "Macro"),
            *INTERVALS,
        ),
        rows=tuple(
            (
                *(name, _steps(analysis.contents), label(minus)),
                *fold_cells(comparison.folds, analysis.folds, points),
                *difference_cells(comparison.macro),
            )
            for name, analysis in sets.items()
            for minus, comparison in analysis.comparisons.items()
        ),
        note=f"Positive values favour {method}. Intervals belong to the macro difference. {TWO_INTERVALS}",
    )


def _steps(contents: ReportContents) -> Cell:
    steps = steps_text(contents.dataset)
    return int(steps) if steps.isdecimal() else steps


def _sizes(sets: Mapping[str, Analysis]) -> str:
    numbers = {name: [of.num_items(fold) for fold in of.folds] for name, of in sets.items()}
    return listed([f"{counted_range(of, 'item')} a fold of {name}" for name, of in numbers.items()])


def _weaknesses(contents: ReportContents) -> str:
    """Say which test sets have sampled evidence, and which ones other plans had opened; empty if none."""
    sets, text = contents.also_test, ""
    if sampled := [name for name, of in sets.items() if is_sampled(of.dataset["counts"])]:
        text += f" The evidence of {listed(sampled)} is sampled, not complete; each greedy order was replayed."
    opened = {name: of.opened_by_others for name, of in sets.items() if of.opened_by_others}
    if opened:
        by = [f"{name} by {counted(number, 'other plan')}" for name, number in opened.items()]
        text += f" Opened before: {listed(by)}."
    return text
