"""The tables: means, paired differences and counts are those of the contents, beside the paper's."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from report_support import (
    FOLDS,
    RATES,
    Page,
    passes,
    synthetic_contents,
)
from vcrt_train.protocol.crossed import crossed_interval
from vcrt_train.protocol.statistics import paired_bootstrap
from vcrt_train.randomness import generator
from vcrt_train.report.analysis import analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.estimates import FROZEN
from vcrt_train.report.provenance import provenance_tables
from vcrt_train.report.summary import _negative
from vcrt_train.report.table import Table, to_csv, to_html, to_text
from vcrt_train.report.tables import report_tables
from vcrt_train.report.wording import display_name


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return synthetic_contents()


def test_main_table_shows_means(contents: ReportContents) -> None:
    table = report_tables(analyse(contents))[0]
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == [FROZEN, *map(display_name, RATES)]
    passes = [
        np.mean([r.held_out_passes for r in contents.runs_of("vcrt", fold).values()])
        for fold in FOLDS
    ]
    assert rows["VCRT"][1:4] == pytest.approx([100 * p for p in passes], abs=0.005)
    assert rows["VCRT"][4] == pytest.approx(100 * np.mean(passes), abs=0.005)


def test_headline_is_the_paired_difference_from_the_stronger_baseline(
    contents: ReportContents,
) -> None:
    headline = analyse(contents).headline
    assert headline is not None
    assert (headline.method, headline.minus) == ("vcrt", "canonical-grpo")
    differences = {
        fold: np.array(
            [
                contents.runs_of("vcrt", fold)[s].held_out_passes * 1.0
                - contents.runs_of("canonical-grpo", fold)[s].held_out_passes
                for s in range(3)
            ]
        )
        for fold in FOLDS
    }
    macro = headline.macro
    assert macro is not None
    other = paired_bootstrap(differences, generator(99, "other"), 20_000)
    width = other.high - other.low
    assert macro.items.estimate == pytest.approx(other.estimate)
    assert macro.items.low == pytest.approx(other.low, abs=0.1 * width)
    assert macro.items.high == pytest.approx(other.high, abs=0.1 * width)
    assert macro.runs_and_items == crossed_interval(differences)
    worse = replace(
        contents,
        runs=tuple(
            replace(r, held_out_passes=np.zeros_like(r.held_out_passes))
            if r.method == "canonical-grpo"
            else r
            for r in contents.runs
        ),
    )
    assert analyse(worse).strongest_baseline == "outcome-grpo"


def test_difference_table_counts_negative_comparisons(contents: ReportContents) -> None:
    table = next(t for t in report_tables(analyse(contents)) if t.name == "difference")
    headline = analyse(contents).headline
    assert headline is not None
    negative = sum(
        np.mean(contents.runs_of("vcrt", f)[s].held_out_passes)
        < np.mean(contents.runs_of("canonical-grpo", f)[s].held_out_passes)
        for f in FOLDS
        for s in range(3)
    )
    assert table.note.startswith(f"{negative} of 9 fold-by-run")
    assert [row[0] for row in table.rows] == ["Lean", "ProofWriter", "CLRS", "Macro"]
    assert all(re.fullmatch(r"\[.+, .+\]", str(cell)) for row in table.rows for cell in row[2:])


def test_pairs_are_made_by_seed_not_by_place() -> None:
    contents = synthetic_contents(folds=("lean",))
    turned = replace(
        contents,
        runs=tuple(
            sorted(contents.runs, key=lambda r: (r.method, -r.seed if r.method == "vcrt" else 0))
        ),
    )
    before = analyse(contents).comparisons["canonical-grpo"]
    after = analyse(turned).comparisons["canonical-grpo"]
    assert before.num_negative == after.num_negative
    assert before.folds["lean"].value == pytest.approx(after.folds["lean"].value)
    some = replace(
        contents, runs=tuple(r for r in contents.runs if (r.method, r.seed) != ("vcrt", 0))
    )
    assert analyse(some).comparisons["canonical-grpo"].num_comparisons == 2


def test_construction_and_cross_checks_add_up(contents: ReportContents) -> None:
    tables = {table.name: table for table in provenance_tables(contents)}
    assert tables["construction"].rows[-1] == ("All", "", 660, 600, 14400, 7200, 3000, 600, 0)
    assert "24 orders an episode, 12 of them legal" in tables["construction"].note
    assert tables["folds"].rows[0][:4] == ("Lean", "ProofWriter + CLRS", 400, 9600)
    checks = {row[1]: row[2:] for row in tables["cross-checks"].rows}
    assert checks["clingo"][:3] == (9600, 9599, "0.0104")
    assert checks["command line"] == (480, 480, "0.0000", "[0.0000, 0.7656]")
    assert checks["replayed again in fresh processes"][:2] == (14400, 14400)
    exclusions = [row for row in tables["exclusions"].rows if row[0] == "Lean"]
    assert exclusions[0] == ("Lean", "cite", "duplicate", 7, "6.36%")
    assert ("training.learning_rate", "5e-06") in tables["plan"].rows
    assert ("Lean", "libraries.numpy", "2.4.6") in tables["versions"].rows


def test_notes_count_runs_and_items(contents: ReportContents) -> None:
    assert "Mean over 3 runs and 200 items a fold;" in report_tables(analyse(contents))[0].note
    small = synthetic_contents(rates={"vcrt": (0.5, 0.5)}, folds=("lean", "clrs"), num_runs=1)
    assert "Mean over 1 run and 200 items a fold;" in report_tables(analyse(small))[0].note
    small = replace(
        small,
        frozen={
            **small.frozen,
            "clrs": replace(small.frozen["clrs"], held_out_passes=passes(3, 40)),
        },
        runs=(small.runs[0], replace(small.runs[1], held_out_passes=passes(3, 40))),
    )
    note = report_tables(analyse(small))[0].note
    assert "Mean over 1 run and 200 items on Lean and 40 items on CLRS;" in note


def test_the_root_hash_stands_once_unless_the_plan_names_another(contents: ReportContents) -> None:
    def hashes(root_hash: str) -> list[tuple[object, ...]]:
        planned = replace(contents, plan={"root_hash": root_hash, "seed": 0})
        table = next(t for t in provenance_tables(planned) if t.name == "plan")
        return [row for row in table.rows if "root" in str(row[0])]

    assert hashes("cd" * 32) == [("dataset root hash", "cd" * 32)]
    assert hashes("ab" * 32)[1:] == [("root_hash", "ab" * 32)]


def test_contents_that_do_not_match_are_refused(contents: ReportContents) -> None:
    with pytest.raises(ValueError, match="at least one evaluated run"):
        replace(contents, runs=())
    with pytest.raises(ValueError, match="two runs have one name"):
        replace(contents, runs=(contents.runs[0], contents.runs[0]))
    with pytest.raises(ValueError, match=r"vcrt/lean/0"):
        replace(
            contents,
            runs=(replace(contents.runs_of("vcrt", "lean")[0], held_out_passes=np.ones(3, bool)),),
        )
    with pytest.raises(ValueError, match="frozen backbone was not scored"):
        replace(contents, frozen={})


def test_cells_are_equal_in_all_renderings() -> None:
    table = Table(
        name="t",
        title="A title",
        columns=("Name", "Value", "Other"),
        rows=(('a,"b"', -0.5, "x\ny"), ("<i>", 12, "=1+1")),
        note="A note & more",
    )
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert rows[1:] == [['a,"b"', "-0.50", "x\\ny"], ["<i>", "12", "=1+1"]]
    page = Page(str(to_html(table)))
    assert page.tables["t"] == rows
    text = to_text(table)
    assert "A note & more" in text
    assert all(cell in text for row in rows for cell in row)
    with pytest.raises(ValueError, match="columns"):
        replace(table, rows=(("too", "few"),))


def test_a_table_without_rows_says_so_on_the_page() -> None:
    table = Table(name="x", title="Excluded", columns=("Kind", "Number"), rows=())
    assert '<tr><td colspan="2">none</td></tr>' in to_html(table)


@pytest.mark.parametrize(
    ("number", "total", "words"),
    [
        (0, 1, "0 of 1 fold-by-run comparison is negative"),
        (1, 6, "1 of 6 fold-by-run comparisons is negative"),
        (2, 6, "2 of 6 fold-by-run comparisons are negative"),
    ],
)
def test_one_comparison_is_told_in_the_singular(
    contents: ReportContents, number: int, total: int, words: str
) -> None:
    comparison = next(iter(analyse(contents).comparisons.values()))
    assert _negative(replace(comparison, num_negative=number, num_comparisons=total)) == words
