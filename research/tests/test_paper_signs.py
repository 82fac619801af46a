"""Signs beside the paper's: every case of agreement, and the published numbers among themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from report_support import (
    FOLDS,
    invented,
    passes,
    sentence,
    six_methods,
    synthetic_contents,
    with_passes,
)
from vcrt_research.paper import printed
from vcrt_research.paper.signs import (
    Agreement,
    SignRow,
    ablation_signs,
    comparison_sentences,
    sign_rows,
)
from vcrt_research.paper.tables import sign_table, text_table
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.analysis import analyse
from vcrt_train.report.estimates import Estimate
from vcrt_train.report.wording import display_name


def test_signs_are_compared_with_the_paper_only_where_there_is_one() -> None:
    """Lean gains in every run, ProofWriter loses in every run, and CLRS gains on average but loses in one."""
    contents = synthetic_contents(rates={"canonical-grpo": (0.5,) * 3, "vcrt": (0.5,) * 3})
    ours = {"lean": (150, 155, 160), "proofwriter": (50, 55, 60), "clrs": (60, 150, 190)}
    runs = tuple(
        replace(
            run,
            held_out_passes=passes(ours[run.held_out][run.seed] if run.method == "vcrt" else 100),
        )
        for run in contents.runs
    )
    contents = replace(contents, runs=runs)
    line = sentence(comparison_sentences(analyse(contents)), "sign of")
    assert "by fold it is the paper's on Lean, is not the paper's on ProofWriter" in line
    assert "and is not determined here on CLRS." in line
    # A single run determines no sign, however clear its items are.
    one = replace(contents, runs=tuple(run for run in runs if run.seed == 2))
    line = sentence(comparison_sentences(analyse(one)), "sign of")
    assert "by fold it is not determined here, by a single run, on Lean, ProofWriter" in line


def test_published_numbers_agree_with_each_other() -> None:
    for row in printed.MAIN_TABLE:
        assert row.macro == pytest.approx(np.mean(list(row.folds.values())), abs=0.011), row.method
    for difference in (printed.HEADLINE, *printed.MECHANISM_TABLE):
        assert difference.macro == pytest.approx(
            np.mean(list(difference.folds.values())), abs=0.011
        ), difference.minus
    ours, baseline = (printed.published_scores(m) for m in ("vcrt", "canonical_grpo"))
    assert ours is not None
    assert baseline is not None
    for fold, value in printed.HEADLINE.folds.items():
        assert value == pytest.approx(ours.folds[fold] - baseline.folds[fold], abs=0.011)
    assert display_name("no_orbit") == "No-Orbit"
    assert display_name("my method") == "my method"


@pytest.mark.parametrize(
    ("ours", "interval", "theirs", "their_interval", "expected"),
    [
        (0.2, (0.1, 0.3), 13.06, (12.58, 13.54), Agreement.AGREES),
        (-0.2, (-0.3, -0.1), -8.43, None, Agreement.AGREES),
        (-0.2, (-0.3, -0.1), 13.06, (12.58, 13.54), Agreement.DISAGREES),
        (0.2, (0.1, 0.3), -8.43, None, Agreement.DISAGREES),
        (0.2, (-0.1, 0.3), 13.06, None, Agreement.WITH),
        (-0.2, (-0.3, 0.1), 13.06, None, Agreement.AGAINST),
        # An end at zero, also one that is zero but for rounding, is not a sign.
        (-0.2, (-0.3, 0.0), 13.06, None, Agreement.AGAINST),
        (-0.2, (-0.3, -1e-17), 13.06, None, Agreement.AGAINST),
        (0.0, (0.0, 0.0), 13.06, None, Agreement.ZERO),
        (0.0, (-0.9, 0.9), 13.06, None, Agreement.ZERO),
        (1e-17, (-0.9, 0.9), -13.06, None, Agreement.ZERO),
        # Where the paper has no sign, there is none to disagree with.
        (0.2, (0.1, 0.3), -0.58, (-3.38, 2.36), Agreement.OPEN),
        (0.2, (0.1, 0.3), 0.0, None, Agreement.OPEN),
        (0.0, (0.0, 0.0), 0.0, None, Agreement.OPEN),
    ],
)
@pytest.mark.parametrize("over_runs", [False, True])
def test_every_case_of_agreement(
    ours, interval, theirs, their_interval, expected, over_runs: bool
) -> None:
    both = Interval(estimate=ours, low=interval[0], high=interval[1], over_runs=over_runs)
    items = Interval(estimate=ours, low=-1.0, high=1.0)
    if not over_runs and expected is not Agreement.OPEN:
        expected = Agreement.ONE_RUN
    row = SignRow(
        method="vcrt",
        minus="no-orbit",
        fold="lean",
        estimate=Estimate(items=items, runs_and_items=both),
        published=theirs,
        published_interval=their_interval,
    )
    assert row.agreement is expected


def test_every_disagreement_is_said_in_words_and_with_its_interval() -> None:
    lines = comparison_sentences(
        analyse(six_methods(no_anti=(200, 200, 390), canonical_grpo=(280, 350, 290)))
    )
    line = sentence(lines, "Ours disagrees in sign with the paper: ")
    assert "VCRT minus No-Anti on CLRS, -22.50 [-" in line
    assert "] here and +4.68 in the paper" in line
    assert "VCRT minus Canonical-GRPO on ProofWriter, -12.50 [-" in line
    # The baseline without the interface passes as much as the method: zero is no disagreement.
    assert "Outcome-GRPO on" not in line.replace("Canonical-GRPO minus Outcome-GRPO on", "")
    assert "Canonical-GRPO minus Outcome-GRPO on Lean, -5.00 [" in line
    assert "No-Orbit" not in line


def test_an_ablation_that_helps_is_a_disagreement_on_its_macro() -> None:
    lines = comparison_sentences(analyse(six_methods(no_anti=(350, 350, 350))))
    line = sentence(lines, "Ours disagrees in sign with the paper: ")
    assert "VCRT minus No-Anti as macro, -12.50 [" in line
    assert "] here and +12.09 in the paper" in line
    # The paper's own macro intervals for these include zero.
    for other in ("No-Orbit as macro", "Shuffled-Orbit as macro"):
        assert other not in line


def test_an_estimate_on_the_other_side_is_said_without_being_called_a_sign() -> None:
    contents = six_methods()
    counts = {("no-anti", "lean"): [290, 330, 300], ("no-anti", "clrs"): [200] * 3}
    lines = comparison_sentences(analyse(with_passes(contents, counts)))
    line = sentence(lines, "on the other side of zero")
    assert "VCRT minus No-Anti on Lean, -1.67 [-" in line
    assert not [text for text in lines if text.startswith("Ours disagrees")]


def test_what_one_lucky_run_makes_is_no_sign_anywhere() -> None:
    """As at the paper's scale here: the baseline fails on one fold in one run and a little in another."""
    found = six_methods(outcome_grpo=(200, 200, 200))
    counts = {("canonical-grpo", "lean"): [279, 300, 201], ("no-anti", "lean"): [200] * 3}
    contents = with_passes(found, counts)
    analysis = analyse(contents)
    lines = comparison_sentences(analysis)
    assert "The sign of the macro difference is not determined here" in sentence(lines, "sign of")
    assert "on Lean" not in sentence(lines, "sign of").split("is not determined here on")[0]
    rows = {row[:3]: row[5] for row in sign_table(analysis).rows}
    for fold in ("Lean", "Macro"):
        assert rows["VCRT", "Canonical-GRPO", fold].startswith("same side, but our interval")
        assert rows["VCRT", "No-Anti", fold] == "agrees"
    assert ablation_signs(analysis) == {"no-anti": 1, "no-orbit": 0, "shuffled-orbit": 0}
    shares = {row[0]: row[1:4] for row in text_table(analysis).rows}
    assert shares["Share of Lean in the macro difference from Canonical-GRPO (%)"][0] == "n/a"


def test_without_any_difference_no_sign_is_claimed() -> None:
    lines = comparison_sentences(analyse(six_methods()))
    counts = sentence(lines, "differences that the paper has too")
    assert "the sign is the paper's in 0, the opposite in 0, not determined here in 21" in counts
    assert counts.endswith("and not determined in the paper in 3.")
    assert not [line for line in lines if "disagrees" in line or "other side" in line]


def test_the_table_of_signs_has_every_published_difference() -> None:
    analysis = analyse(six_methods(no_anti=(350, 250, 350)))
    rows = sign_rows(analysis)
    assert len(rows) == 6 * 4
    table = sign_table(analysis)
    assert len(table.rows) == len(rows)
    shown = {row[:3]: row[3:] for row in table.rows}
    verdicts = [shown["VCRT", "No-Anti", f][2] for f in ("Lean", "ProofWriter", "CLRS", "Macro")]
    assert verdicts == ["disagrees", "agrees", "disagrees", "disagrees"]
    assert shown["VCRT", "No-Orbit", "Lean"][1:] == ("0.00", "the paper's is not determined")
    assert all("[" in str(row[3]) for row in table.rows)


def test_on_other_folds_no_macro_is_compared() -> None:
    contents = synthetic_contents(
        rates={"canonical-grpo": (0.2, 0.2), "vcrt": (0.9, 0.9)}, folds=("lean", "clrs")
    )
    assert [row.fold for row in sign_rows(analyse(contents))] == ["lean", "clrs"]


def test_differences_of_printed_means_are_marked() -> None:
    assert printed.OVER_OUTCOME.of_means
    assert (printed.OVER_OUTCOME.macro, printed.INTERFACE.macro) == (19.88, 6.81)
    assert printed.INTERFACE.folds == {"Lean": 9.16, "ProofWriter": 1.15, "CLRS": 10.13}
    assert printed.REPLICATION.macro == pytest.approx(
        np.mean(list(printed.REPLICATION.folds.values())), abs=0.011
    )
    share = 100 * printed.HEADLINE.folds["Lean"] / sum(printed.HEADLINE.folds.values())
    assert share == pytest.approx(printed.LARGEST_SHARE[1], abs=0.6)
    others = [value for fold, value in printed.HEADLINE.folds.items() if fold != "Lean"]
    assert pytest.approx(np.mean(others)) == printed.MEAN_OF_OTHERS
    # With the weaker baseline as the stronger one, the sentence names where the number is from.
    weak = six_methods(canonical_grpo=(100,) * 3, outcome_grpo=(200,) * 3)
    line = sentence(comparison_sentences(analyse(weak)), "The sign of the macro difference")
    assert "+19.88 points on Qwen3.5-2B, by subtraction of its means" in line


def test_the_criterion_on_ablations() -> None:
    def lines(**counts: int) -> list[str]:
        rates = dict.fromkeys(("vcrt", "no-anti", "no-orbit", "shuffled-orbit"), (0.5,) * 3)
        made = synthetic_contents(rates=rates, num_items=400, num_updates=1, num_resamples=300)
        by_name = {"vcrt": 300, **{k.replace("_", "-"): v for k, v in counts.items()}}
        return comparison_sentences(
            analyse(with_passes(made, {(n, f): [c] * 3 for n, c in by_name.items() for f in FOLDS}))
        )

    all_lower = sentence(lines(no_anti=200, no_orbit=250, shuffled_orbit=200), "criterion")
    assert "is met here (it is lower for No-Anti, No-Orbit and Shuffled-Orbit); in the" in all_lower
    mixed = sentence(lines(no_anti=200, no_orbit=300, shuffled_orbit=350), "criterion")
    assert "is not met here (it is lower for No-Anti, higher for Shuffled-Orbit, not de" in mixed
    assert not [line for line in comparison_sentences(analyse(invented())) if "criterion" in line]


def test_the_signs_of_a_gain_of_a_loss_and_of_nothing() -> None:
    def signs(baseline: float, ours: float) -> str:
        rates = {"canonical-grpo": (baseline,) * 3, "vcrt": (ours,) * 3}
        return sentence(comparison_sentences(analyse(synthetic_contents(rates=rates))), "sign of")

    assert "The sign of the macro difference is the paper's" in signs(0.5, 0.9)
    assert "is not the paper's" in signs(0.8, 0.5)
    assert "it is not the paper's on Lean, ProofWriter and CLRS." in signs(0.8, 0.5)
    assert "macro difference is not determined here" in signs(1.0, 1.0)
    assert "is not the paper's" not in signs(1.0, 1.0)
