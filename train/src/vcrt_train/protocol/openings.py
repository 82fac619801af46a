"""Record the openings of held-out folds in an experiment's ledger and in the one beside its dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from vcrt.errors import RunError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.records.dataset import Dataset
from vcrt.records.ledger import (
    Entry,
    Ledger,
    field_of,
    openings_path,
    recorded_openings,
    untrusted,
)
from vcrt_train.protocol.experiment import Experiment
from vcrt_train.protocol.scores import SCORES_FILE


def openings(experiment: Experiment) -> list[dict[str, Any]]:
    """Every opening of the held-out folds, as the ledger records it."""
    return [_opening(entry, experiment.ledger) for entry in experiment.ledger.entries("opening")]


def other_openings(experiment: Experiment, dataset: Dataset) -> list[dict[str, Any]]:
    """The openings of this dataset's held-out folds by other plans, as the ledger beside the dataset records them.

    Whoever has seen one plan's scores may have made the next plan with them in mind. A copy of the dataset begins a
    ledger of its own.
    """
    ledger = openings_of_dataset(dataset)
    return [
        _opening(entry, ledger)
        for entry in recorded_openings(dataset.path)
        if field_of(entry, "plan_hash", str, ledger.path) != experiment.plan.plan_hash
    ]


@dataclass(frozen=True, slots=True)
class UnsharedOpenings:
    """How many openings of one plan only the experiment's ledger records, and how many only the dataset's."""

    here_alone: int
    beside_dataset_alone: int


def unshared_openings(experiment: Experiment, dataset: Dataset) -> UnsharedOpenings:
    """The openings of the experiment's plan that one of the two ledgers does not record.

    Beside the dataset alone: a copy of the experiment was opened, or rows were taken out of its ledger. Here alone: the
    ledger beside the dataset was removed or replaced, or the dataset is a copy.
    """
    ledger = openings_of_dataset(dataset)
    beside = Counter(
        _identity(_opening(entry, ledger))
        for entry in recorded_openings(dataset.path)
        if entry.body.get("plan_hash") == experiment.plan.plan_hash
    )
    here = Counter(map(_identity, openings(experiment)))
    return UnsharedOpenings((here - beside).total(), (beside - here).total())


def is_evaluated(experiment: Experiment, dataset: Dataset) -> bool:
    """Whether the held-out folds were opened, as both ledgers record it, and scores came of it."""
    kinds = [entry.kind for entry in experiment.ledger.entries()]
    scored = "opening" in kinds and "scores" in kinds[kinds.index("opening") :]
    return scored and not unshared_openings(experiment, dataset).here_alone


def _identity(opening: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """What tells two openings of a plan apart, in two ledgers; their clocks alone may agree, or be set to."""
    return opening["at"], opening["reason"], opening.get("nonce")


def _opening(entry: Entry, ledger: Ledger) -> dict[str, Any]:
    field_of(entry, "at", str, ledger.path)
    if entry.body.get("reason") is not None:
        field_of(entry, "reason", str, ledger.path)
    return {"reason": None, **entry.body}


def openings_of_dataset(dataset: Dataset) -> Ledger:
    """The ledger beside a dataset: every opening of its folds, by whatever plan."""
    return Ledger(openings_path(dataset.path))


def record_opening(experiment: Experiment, datasets: Sequence[Dataset], reason: str | None) -> None:
    """Record that the folds are opened now, in all ledgers, unless an interrupted evaluation has done so.

    ``datasets`` are the plan's own and its further test sets; each has a ledger beside it.

    Raises :class:`RunError` if they were opened and scored before and there is no ``reason``.
    """
    entries = experiment.ledger.entries()
    kinds = [entry.kind for entry in entries if entry.kind in ("opening", "scores")]
    if not kinds and (experiment.path / SCORES_FILE).exists():
        raise untrusted(
            "there are scores, but the ledger records no opening",
            where=str(experiment.path),
            found=f"{SCORES_FILE} and a ledger of {counted(len(entries), 'row')}",
            expected="an opening in the ledger",
        )
    if kinds and kinds[-1] == "opening":
        _record_beside(experiment, datasets, openings(experiment)[-1])
        return
    if kinds and not reason:
        raise RunError(
            "the held-out folds were opened before",
            where=str(experiment.path),
            found=f"opened at {openings(experiment)[-1]['at']} and scored",
            expected="one opening",
            remedy="read the scores with `vcrt report`; a second opening needs --reopen with a reason, "
            "which every later report shows",
        )
    at = datetime.now(UTC).isoformat(timespec="seconds")
    body: dict[str, Json] = {"at": at, "reason": reason, "nonce": token_hex(8)}
    _record_beside(experiment, datasets, experiment.ledger.append("opening", body).body)


def _record_beside(
    experiment: Experiment, datasets: Sequence[Dataset], opening: dict[str, Any]
) -> None:
    """Record an opening beside the datasets too, unless a call that was interrupted after it has done so."""
    body = {"plan_hash": experiment.plan.plan_hash, **opening}
    for dataset in datasets:
        if body not in [entry.body for entry in recorded_openings(dataset.path)]:
            openings_of_dataset(dataset).append("opening", body)
