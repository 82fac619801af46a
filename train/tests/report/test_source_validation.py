"""Source pass rates of training in the report: which runs are flagged, the table, and the curve beside the backbone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from report_support import Page, synthetic_contents
from vcrt_train.protocol.source_validation import FLAGGED, FROZEN, HIGH, LOW, RATE, RULE
from vcrt_train.report.analysis import analyse
from vcrt_train.report.charts import LineChart
from vcrt_train.report.curve_figures import curve_figures, how_to_read
from vcrt_train.report.page import all_figures, render_page
from vcrt_train.report.table import cell_text
from vcrt_train.report.tables import report_tables
from vcrt_train.report.training_tables import flag_sentences, validation_table

#: Source pass rates by update: of runs that learn, and of the one that is destroyed.
LEARNING = {10: 0.5, 20: 0.75, 30: 0.9}
DESTROYED = {10: 0.25, 20: 0.125, 30: 0.25}
FROZEN_RATE = {"lean": 0.5, "clrs": 0.625}


def validated(run, rates):
    """The run with validations in its log; the last flags it if it is below its backbone then."""
    frozen = FROZEN_RATE[run.held_out]
    rows = []
    for row in run.curve:
        rate = rates.get(int(row["update"]))
        if rate is not None:
            is_flagged = float(row["update"] == 30 and rate < frozen)
            values = {RATE: rate, LOW: rate - 0.1, HIGH: rate + 0.1, FROZEN: frozen}
            row = {**row, **values, FLAGGED: is_flagged}
        rows.append(row)
    return replace(run, curve=tuple(rows))


@pytest.fixture(scope="module")
def contents():
    made = synthetic_contents(
        rates={"vcrt": (0.9, 0.9), "no-anti": (0.6, 0.6)}, folds=("lean", "clrs"), num_runs=2
    )
    destroyed = ("no-anti", "clrs", 1)
    runs = tuple(
        validated(
            run,
            DESTROYED if (run.method, run.held_out, run.seed) == destroyed else LEARNING,
        )
        for run in made.runs
    )
    return replace(made, runs=runs, warnings=flag_sentences(runs), num_resamples=200)


def test_a_sentence_names_the_flagged_runs_and_their_rates(contents):
    (sentence,) = flag_sentences(contents.runs)
    assert sentence == (
        "1 of 8 runs is flagged: no-anti/clrs/1 at update 30, 25% [15, 35] of the source items set aside against the "
        f"frozen backbone's 62%. {RULE}"
    )
    assert flag_sentences(contents.runs[:2]) == ()
    assert flag_sentences(synthetic_contents().runs) == ()
    many = [replace(contents.runs[-1], seed=seed) for seed in range(5)]
    (sentence,) = flag_sentences(many)
    assert sentence.startswith("5 of 5 runs are flagged: ")
    assert sentence.count("at update 30") == 3
    assert "; 2 more. " in sentence


def test_the_table_has_a_row_for_each_run(contents):
    table = validation_table(contents)
    assert len(table.rows) == 8
    by_run = {row[:3]: [cell_text(cell) for cell in row[3:]] for row in table.rows}
    # Below the lowest and the last rate stands the backbone's on the same items.
    assert by_run["No-Anti", "CLRS", 1] == [
        *("62.50", "12.50", "20"),
        *("25.00", "[15.00, 35.00]", "at update 30"),
    ]
    assert by_run["VCRT", "Lean", 0] == ["50.00", "50.00", "10", "90.00", "[80.00, 100.00]", ""]
    assert validation_table(synthetic_contents()) is None


@pytest.mark.parametrize("rates", [{10: 0.1}, {10: 0.1, 20: 0.1}])
def test_a_run_with_too_few_validations_is_not_called_fine(rates):
    made = synthetic_contents()
    table = validation_table(replace(made, runs=(validated(made.runs[0], rates),)))
    assert [row[-1] for row in table.rows] == ["too few validations to flag"]


def test_the_curve_stands_beside_the_frozen_backbone(contents):
    figures = {figure.name: figure for figure in curve_figures(contents)}
    assert list(figures)[:3] == ["curve-mean-reward", "curve-source-pass-rate", "curve-orbit-mass"]
    figure = figures["curve-source-pass-rate"]
    assert "Dotted: the frozen backbone on the same items." in figure.caption
    for fold, panel in zip(contents.folds, figure.panels, strict=True):
        assert isinstance(panel.chart, LineChart)
        assert [one.value for one in panel.chart.references] == [FROZEN_RATE[fold]]
        assert panel.chart.y_domain == (0.0, 1.0)
        for line in panel.chart.lines.values():
            assert [point.x for point in line] == [10, 20, 30]
    lean, _ = figure.panels
    assert {point.y for line in lean.chart.lines.values() for point in line} == {0.5, 0.75, 0.9}
    assert "of the policy after the update" in figure.caption.lower()
    for name in ("curve-mean-reward", "curve-orbit-mass"):
        assert "of the behaviour policy" in figures[name].caption.lower()
    assert "behaviour policy" in how_to_read(contents)


def test_the_page_shows_all_of_it(contents):
    analysis = analyse(contents)
    text = render_page(analysis, report_tables(analysis), all_figures(analysis))
    page = Page(text)
    assert len(page.tables["source-validation"]) == 9
    assert "figure-curve-source-pass-rate" in page.ids
    assert any("1 of 8 runs is flagged" in line for line in page.text)
