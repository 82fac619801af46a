"""An experiment's numbers beside those that the paper prints: rates, shares, counts, scale, and the command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from report_support import FOLDS, invented, passes, sentence, synthetic_contents, with_passes
from vcrt_research.paper.__main__ import main, print_comparison
from vcrt_research.paper.signs import comparison_sentences, sign_rows
from vcrt_research.paper.tables import backbone_table, paper_tables, text_table
from vcrt_train.report.analysis import analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.table import Cell


def text_rows(contents: ReportContents) -> Mapping[Cell, tuple[Cell, ...]]:
    return {row[0]: row[1:] for row in text_table(analyse(contents)).rows}


def test_shares_are_of_the_differences_and_sum_to_the_whole() -> None:
    made = synthetic_contents(
        rates=dict.fromkeys(("canonical-grpo", "vcrt"), (0.5,) * 3), num_items=400, num_updates=1
    )
    counts = {("vcrt", f): [c] * 3 for f, c in zip(FOLDS, (360, 220, 240), strict=True)}
    counts |= {("canonical-grpo", fold): [200] * 3 for fold in FOLDS}
    rows = text_rows(with_passes(made, counts))
    shares = [
        rows[f"Share of {fold} in the macro difference from Canonical-GRPO (%)"]
        for fold in ("Lean", "ProofWriter", "CLRS")
    ]
    assert [row[0] for row in shares] == [72.73, 9.09, 18.18]
    assert [row[-1] for row in shares] == ["85", "n/a", "n/a"]
    for value, items, both, _ in shares:
        for interval in (items, both):
            low, high = map(float, re.findall(r"[-\d.]+", str(interval)))
            assert low < float(value) < high
    mean = rows["Mean difference from Canonical-GRPO on ProofWriter and CLRS (points)"]
    assert (mean[0], mean[-1]) == ("+7.50", "+2.85")


def test_counts_and_the_largest_decline_stand_beside_the_papers() -> None:
    rows = text_rows(invented())
    assert rows["Fold-by-run comparisons with Canonical-GRPO that are negative"] == (
        "2 of 6",
        "n/a",
        "n/a",
        "2 of 9",
    )
    assert rows["Runs whose macro difference from Canonical-GRPO is positive"][0] == "2 of 2"
    # With so few items some resample of the whole difference is zero, and there is no share of nothing.
    share = rows["Share of Lean in the macro difference from Canonical-GRPO (%)"]
    assert share == ("n/a", "n/a", "n/a", "85")
    assert rows["Canonical-GRPO minus Outcome-GRPO on Lean (points)"][0] == "+20.00"
    assert rows["Canonical-GRPO minus Outcome-GRPO on Lean (points)"][-1] == "+9.16"
    lowest = next(row for name, row in rows.items() if str(name).startswith("Lowest source"))
    assert (lowest[0], lowest[-1]) == ("-1.67", "-0.96")
    assert re.fullmatch(r"\[.+, .+\]", str(lowest[2]))


def test_another_task_than_the_papers_is_said_and_its_signs_are_not_compared() -> None:
    contents = invented()
    assert sign_rows(analyse(contents))
    for change in (
        {"orbit_size": None},
        {"orbit_size": 8},
        {"record_form": {"relations": "reduced"}},
    ):
        other = replace(contents, dataset={**contents.dataset, **change})
        assert sign_rows(analyse(other)) == ()
        said = " ".join(comparison_sentences(analyse(other)))
        assert "asks something else here" in said
        assert "the paper: +" not in said


def test_on_other_folds_the_papers_shares_and_macros_are_left_out() -> None:
    contents = synthetic_contents(
        rates=dict.fromkeys(("outcome-grpo", "canonical-grpo", "vcrt"), (0.5, 0.6)),
        folds=("lean", "clrs"),
        num_updates=1,
    )
    rows = text_rows(contents)
    assert rows["Canonical-GRPO minus Outcome-GRPO, macro (points)"][-1] == "n/a"
    assert rows["VCRT minus the frozen backbone, macro (points)"][-1] == "n/a"
    assert not [name for name in rows if str(name).startswith("Mean difference")]


def test_a_backbone_is_named_in_few_words_beside_the_paper_s() -> None:
    long = "mine (0123456789ab), from a file (SHA-256 ab), of unknown training, relations in words"
    rows = backbone_table(analyse(replace(synthetic_contents(num_updates=1), backbone=long))).rows
    assert [row[0] for row in rows] == [
        *["mine (0123456789ab)"] * 2,
        "Qwen3.5-2B (paper)",
        "Granite-4.1-3B (paper)",
    ]


@pytest.mark.parametrize(
    ("folds", "same"),
    [(FOLDS, True), (FOLDS[::-1], True), (FOLDS[:2], False), ((*FOLDS[:2], "sat"), False)],
)
def test_the_published_macro_stands_only_beside_its_own_folds(
    folds: tuple[str, ...], same: bool
) -> None:
    contents = synthetic_contents(
        rates=dict.fromkeys(("canonical-grpo", "vcrt", "no-anti"), (0.5,) * 3), folds=folds
    )
    contents = replace(
        contents,
        runs=tuple(
            replace(r, held_out_passes=passes(150 if r.method == "vcrt" else 50))
            for r in contents.runs
        ),
    )
    tables = {table.name: table for table in paper_tables(analyse(contents))}
    rates = {row[:2]: row[-1] for row in tables["rates"].rows}
    assert rates["VCRT", "Lean"] == 100.00
    assert rates.get(("VCRT", "Macro")) == (77.60 if same else None)
    signs = {row[:3]: row[4] for row in tables["signs"].rows}
    assert signs["VCRT", "Canonical-GRPO", "Lean"] == "+33.49"
    macros = [signs.get(("VCRT", minus, "Macro")) for minus in ("Canonical-GRPO", "No-Anti")]
    assert macros == (["+13.06 [+12.58, +13.54]", "+12.09"] if same else [None, None])
    line = sentence(comparison_sentences(analyse(contents)), "sign of")
    assert ("+13.06" in line) is same
    assert ("the sign of the macro difference is not compared" in line) is not same
    # A fold's own value does not depend on which other folds there are.
    assert "it is the paper's on" in line


def test_data_and_compute_stand_beside_the_papers() -> None:
    scale = {table.name: table for table in paper_tables(analyse(invented()))}["scale"]
    assert scale.rows[:2] == (
        ("Source episodes, Lean held out", 400, 5_000),
        ("Replays, Lean held out", 9_600, 120_000),
    )
    assert scale.rows[-1] == ("Training of all runs", "0.60 CPU hours", "376.55 GPU hours")


def test_environments_that_the_paper_does_not_have_are_beside_nothing() -> None:
    contents = synthetic_contents(rates={"canonical-grpo": (0.5,), "vcrt": (0.9,)}, folds=("sat",))
    tables = {table.name: table for table in paper_tables(analyse(contents))}
    assert tables["rates"].rows == tables["signs"].rows == ()
    (line,) = comparison_sentences(analyse(contents))
    assert "is not compared" in line


def test_all_is_printed_and_bad_input_is_one_error(capsys, tmp_path) -> None:
    print_comparison(analyse(invented()))
    out = " ".join(capsys.readouterr().out.split())
    for title in ("beside the paper's", "running text", "Data and compute", "matched canonical"):
        assert title in out
    assert "- Of 16 differences that the paper has too" in out
    with pytest.raises(SystemExit, match="EXPERIMENT"):
        main([])
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])
    assert capsys.readouterr().err.startswith("error: ")
