"""The rewards of training in the report: parts, means over runs and folds, and paired differences over new runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.stats

from report_support import Page, synthetic_contents
from vcrt_train.report.analysis import analyse
from vcrt_train.report.page import all_figures, render_page
from vcrt_train.report.table import cell_text
from vcrt_train.report.tables import report_tables
from vcrt_train.report.training_tables import learning_table, part_ends

#: Rewards of ten updates by method, fold and seed: what is added to each update's number over ten.
ADDED = {
    ("vcrt", "lean"): (0.0, 0.2),
    ("vcrt", "clrs"): (0.1, 0.3),
    ("no-anti", "lean"): (0.0, -0.1),
    ("no-anti", "clrs"): (0.0, 0.1),
}


def with_rewards(run, rewards):
    rows = [{"update": float(number), "mean_reward": r} for number, r in enumerate(rewards, 1)]
    return replace(run, curve=tuple(rows))


def contents(num_runs=2, methods=("vcrt", "no-anti")):
    made = synthetic_contents(
        rates=dict.fromkeys(methods, (0.9, 0.6)), folds=("lean", "clrs"), num_runs=num_runs
    )
    runs = [
        with_rewards(
            run,
            [
                number / 10 + ADDED[run.method, run.held_out][run.seed % 2]
                for number in range(1, 11)
            ],
        )
        for run in made.runs
    ]
    return replace(made, runs=tuple(runs), num_resamples=50)


def rows_of(given):
    return {
        row[0]: [cell_text(cell) for cell in row[1:]] for row in learning_table(analyse(given)).rows
    }


def test_parts_and_differences_by_hand():
    given = contents()
    assert part_ends(given) == [2, 5, 7, 10]
    table = learning_table(analyse(given))
    assert table.columns == (
        *("Method", "1 to 2", "3 to 5", "6 to 7", "8 to 10", "All updates"),
        *("VCRT minus it", "95% over runs"),
    )
    rows = rows_of(given)
    # The means of what is added are 0.15 and 0, of the numbers 1.5, 4, 6.5, 9 and 5.5.
    assert rows["VCRT"] == ["30.00", "55.00", "80.00", "105.00", "70.00", "", ""]
    assert rows["No-Anti"][:6] == ["15.00", "40.00", "65.00", "90.00", "55.00", "+15.00"]
    # By seed: the means over folds of 0 and 0.1, and of 0.3 and 0.2.
    seeds = [0.05, 0.25]
    half = scipy.stats.t.ppf(0.975, 1) * np.std(seeds, ddof=1) / 2**0.5
    assert half > 1
    assert rows["No-Anti"][6] == "[-100.00, +100.00]"


def test_many_runs_have_an_interval():
    given = contents(num_runs=8)
    (text,) = rows_of(given)["No-Anti"][6:]
    half = 100 * scipy.stats.t.ppf(0.975, 7) * np.std([0.05, 0.25] * 4, ddof=1) / 8**0.5
    assert text == f"[{15 - half:+.2f}, {15 + half:+.2f}]"


def test_a_single_run_has_no_interval():
    assert rows_of(contents(num_runs=1))["No-Anti"][5:] == ["+5.00", "n/a"]


def test_without_the_method_under_study_nothing_is_compared():
    table = learning_table(analyse(contents(methods=("no-anti",))))
    assert table.columns[-1] == "All updates"
    assert len(table.rows) == 1


def test_what_was_not_logged_is_not_made_up():
    given = contents()
    none = replace(given, runs=tuple(replace(run, curve=()) for run in given.runs))
    assert learning_table(analyse(none)) is None
    # One run that misses an update, or one reward: nothing is said of its method.
    first = given.runs[-1]
    for curve in (first.curve[:9], first.curve[1:], ({"update": 1.0}, *first.curve[1:])):
        runs = (*given.runs[:-1], replace(first, curve=curve))
        assert list(rows_of(replace(given, runs=runs))) == ["VCRT"]
    # Too few updates for four parts.
    few = [replace(run, curve=run.curve[:3]) for run in given.runs]
    assert learning_table(analyse(replace(given, runs=tuple(few)))) is None


def test_only_seeds_that_both_have_are_compared():
    given = contents(num_runs=3)
    left_out = ("no-anti", "clrs", 0)
    runs = tuple(run for run in given.runs if (run.method, run.held_out, run.seed) != left_out)
    table = learning_table(analyse(replace(given, runs=runs)))
    (row,) = (row for row in table.rows if row[0] == "No-Anti")
    lean, clrs = [0.0, 0.3, 0.0], [0.2, 0.1]
    assert cell_text(row[-2]) == f"{100 * (np.mean(lean) + np.mean(clrs)) / 2:+.2f}"
    unlike = tuple(
        replace(run, seed=run.seed + 10) if run.method == "no-anti" else run for run in given.runs
    )
    table = learning_table(analyse(replace(given, runs=unlike)))
    assert [row[-2:] for row in table.rows] == [("", ""), ("", "")]


def test_the_page_shows_it():
    analysis = analyse(contents())
    text = render_page(analysis, report_tables(analysis), all_figures(analysis))
    assert len(Page(text).tables["learning"]) == 3
