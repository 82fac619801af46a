"""Lay out how well relations are inferred as a table."""

from __future__ import annotations

from collections.abc import Iterable

from vcrt_research.relation_scores import NUM_RESAMPLES, Estimate, RelationScores
from vcrt_train.report.table import Table


def relation_table(rows: Iterable[tuple[str, str, int, RelationScores]]) -> Table:
    """A row for each environment and predictor; rows are environment, predictor, runs and scores."""
    return Table(
        name="relations",
        title="How well relations between steps are inferred",
        columns=(
            *("Environment", "Predictor", "Pairs", "Edges", "Missed", "Superfluous", "Turned"),
            *("F1", "AUROC", "Calibration error"),
        ),
        rows=tuple(_row(*row) for row in rows),
        note=(
            "An edge is a pair whose order matters by its certificates. A missed edge breaks something when steps are "
            "reordered, a superfluous one costs speed. Turned: of edges found with a direction, the wrong ones. "
            f"In brackets 95% over sources ({NUM_RESAMPLES:,} resamples), which is not over new runs. The threshold of "
            "shared words is chosen on the other environments; a policy says edge where it puts one step before the "
            "other in three of four orders. Calibration error: of what is said as a probability."
        ),
    )


def _row(
    environment: str, predictor: str, runs: int, scores: RelationScores
) -> tuple[str | int, ...]:
    several = f" ({runs} runs)" if runs > 1 else ""
    return (
        environment,
        f"{predictor}{several}",
        scores.pairs,
        scores.edges,
        scores.missed,
        scores.superfluous,
        f"{scores.turned} of {scores.directed}",
        _estimate(scores.f1),
        "-" if scores.auroc is None else _estimate(scores.auroc),
        "-" if scores.calibration is None else f"{scores.calibration:.3f}",
    )


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
