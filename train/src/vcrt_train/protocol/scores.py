"""Write and read what an evaluation leaves: openings in the ledgers of experiment and datasets, and greedy passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from vcrt.documents import read_limited
from vcrt.errors import RunError
from vcrt.forms import ClosedModel, in_a_line
from vcrt.hashing import Json, json_digest
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
from vcrt_train.training.methods import Method

SCORES_FILE = "scores.json"
#: The largest file of scores that is read, in bytes; an item of a run takes one byte.
MAX_SCORES = 128 * 2**20
#: The frozen backbone's own row in a report is scored as this method sees the records.
FROZEN_AS = "canonical-grpo"

# Greedy passes, one character an item: ``1`` passed, ``0`` failed.
_Passes: TypeAlias = Annotated[str, Field(pattern="^[01]*$")]


class FoldPasses(ClosedModel):
    """Greedy passes, one character an item: ``1`` passed, ``0`` failed."""

    held_out: _Passes
    retention: _Passes


class TestSetPasses(ClosedModel):
    """Greedy passes on the held-out items of one further test set, as :class:`Scores` has them of the plan's own."""

    __test__ = False

    frozen: dict[str, dict[str, _Passes]]
    runs: dict[str, _Passes]


class Scores(ClosedModel):
    """The passes of the frozen backbone, by view and held-out environment, and of every run by its name.

    ``runs`` are the runs at their last update; ``checkpoints`` are they at each scheduled update before it. A *view* is
    what a method's policy gets and gives: its interface and its serialisation (:func:`view_of`).
    """

    left_out = ("also_test",)

    frozen: dict[str, dict[str, FoldPasses]]
    runs: dict[str, FoldPasses]
    checkpoints: dict[str, dict[int, FoldPasses]]
    #: By further test set, of runs at their last update; left out of the file if the plan names none.
    also_test: dict[str, TestSetPasses] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the scores' canonical JSON."""
        return json_digest(self.model_dump(mode="json"))


def passes_array(text: str) -> npt.NDArray[np.bool_]:
    """``[items]``: the passes that a string of ``0`` and ``1`` says."""
    return np.array([character == "1" for character in text])


def view_of(chosen: Method) -> str:
    """The name of a method's view of the records, in which the frozen backbone is its matched reference."""
    return f"{chosen.interface}, {chosen.serialisation}"


def read_scores(experiment: Experiment) -> Scores:
    """The scores; raises :class:`RunError` if there are none or if they are not those that the ledger records."""
    path = experiment.path / SCORES_FILE
    ledger = experiment.ledger
    recorded = [field_of(entry, "digest", str, ledger.path) for entry in ledger.entries("scores")]
    if not path.is_file() or not recorded:
        raise RunError(
            "the experiment was not evaluated",
            where=str(path),
            remedy=f"run `vcrt evaluate {experiment.path}` first",
        )
    try:
        scores = Scores.model_validate_json(read_limited(path, MAX_SCORES))
        found = scores.digest
        if set(scores.runs) != {run.name for run in experiment.plan.runs}:
            raise ValueError("other runs than were planned")
        if set(scores.also_test) != {one.name for one in experiment.plan.also_test}:
            raise ValueError("other test sets than were planned")
    except ValueError as error:
        found, scores = in_a_line(error), None
    if scores is None or found != recorded[-1]:
        raise RunError(
            "the scores were changed after they were recorded",
            where=str(path),
            found=found,
            expected=f"digest {recorded[-1]}",
            remedy="restore the original file",
        )
    return scores


def keep_earlier_scores(experiment: Experiment) -> None:
    """Keep the recorded scores of an earlier opening beside those that replace them."""
    path = experiment.path / SCORES_FILE
    number = len(experiment.ledger.entries("scores"))
    kept = path.with_name(f"scores-of-opening-{number}.json")
    # If it is kept already, an interrupted evaluation wrote the file that is there now and recorded nothing.
    if number and path.exists() and not kept.exists():
        path.replace(kept)


def openings(experiment: Experiment) -> list[dict[str, Any]]:
    """Every opening of the held-out folds, as the ledger records it."""
    return [_opening(entry, experiment.ledger) for entry in experiment.ledger.entries("opening")]


def other_openings(experiment: Experiment, dataset: Dataset) -> list[dict[str, Any]]:
    """The openings of this dataset's held-out folds by other plans, as the ledger beside the dataset records them.

    A copy of the dataset begins a ledger of its own.
    """
    ledger = openings_of_dataset(dataset)
    return [
        _opening(entry, ledger)
        for entry in recorded_openings(dataset.path)
        if field_of(entry, "plan_hash", str, ledger.path) != experiment.plan.plan_hash
    ]


class UnsharedOpenings(NamedTuple):
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
