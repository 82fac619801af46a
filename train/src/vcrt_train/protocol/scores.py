"""Write and read what an evaluation records: openings in the ledgers of experiment and datasets, and greedy passes."""

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
#: The method whose view gives the frozen backbone's own row in a report.
FROZEN_AS = "canonical-grpo"

# Greedy passes, one character an item: ``1`` passed, ``0`` failed.
_Passes: TypeAlias = Annotated[str, Field(pattern="^[01]*$")]


class Spread(ClosedModel):
    """What a policy's own probabilities say of answers that are sampled, exactly or by estimates; means over items."""

    #: The number of items.
    items: int
    #: pass@k by k, as fractions.
    pass_at: dict[int, float]
    #: How evenly the probability of an orbit lies on its orders, from 0 to 1; None if no orbit has two orders.
    evenness: float | None


class FoldPasses(ClosedModel):
    """Greedy passes, one character an item: ``1`` passed, ``0`` failed."""

    left_out = ("spread",)

    held_out: _Passes
    retention: _Passes
    #: Of the held-out items, for the frozen backbone and after the last update.
    spread: Spread | None = None


class TestSetPasses(ClosedModel):
    """Greedy passes on the held-out items of one further test set, by the keys of :class:`Scores`."""

    __test__ = False

    frozen: dict[str, dict[str, _Passes]]
    runs: dict[str, _Passes]


class Scores(ClosedModel):
    """The passes of the frozen backbone, by view and held-out environment, and of every run by its name.

    ``runs`` has the runs after their last update; ``checkpoints`` has them after each scheduled update before it. A
    *view* is how a method's policy reads and answers: its serialisation and its interface (:func:`view_of`).
    """

    left_out = ("also_test",)

    frozen: dict[str, dict[str, FoldPasses]]
    runs: dict[str, FoldPasses]
    checkpoints: dict[str, dict[int, FoldPasses]]
    #: Passes by further test set, of runs after their last update; left out of the file if the plan names none.
    also_test: dict[str, TestSetPasses] = Field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the scores' canonical JSON."""
        return json_digest(self.model_dump(mode="json"))


def passes_array(text: str) -> npt.NDArray[np.bool_]:
    """Return passes ``[items]`` from a string of ``0`` and ``1``."""
    return np.array([character == "1" for character in text])


def view_of(chosen: Method) -> str:
    """Return the name of a method's view; the frozen backbone with the same view is the method's reference."""
    return f"{chosen.interface}, {chosen.serialisation}"


def read_scores(experiment: Experiment) -> Scores:
    """Read the scores; raises :class:`RunError` if there are none or if they differ from the ledger's digest."""
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
    """Rename the file with the recorded scores of an earlier opening, before others replace it."""
    path = experiment.path / SCORES_FILE
    number = len(experiment.ledger.entries("scores"))
    kept = path.with_name(f"scores-of-opening-{number}.json")
    # If they were kept already, an interrupted evaluation wrote the present file and did not record it.
    if number and path.exists() and not kept.exists():
        path.replace(kept)


def openings(experiment: Experiment) -> list[dict[str, Any]]:
    """Return every opening of the held-out folds, from the experiment's ledger."""
    return [_opening(entry, experiment.ledger) for entry in experiment.ledger.entries("opening")]


def other_openings(experiment: Experiment, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the openings of this dataset's held-out folds by other plans, from the ledger beside the dataset.

    A copy of the dataset has its own ledger.
    """
    ledger = openings_of_dataset(dataset)
    return [
        _opening(entry, ledger)
        for entry in recorded_openings(dataset.path)
        if field_of(entry, "plan_hash", str, ledger.path) != experiment.plan.plan_hash
    ]


class UnsharedOpenings(NamedTuple):
    """How many openings of one plan are only in the experiment's ledger, and how many only in the dataset's."""

    here_alone: int
    beside_dataset_alone: int


def unshared_openings(experiment: Experiment, dataset: Dataset) -> UnsharedOpenings:
    """Count the openings of the experiment's plan that are in only one of the two ledgers.

    If only beside the dataset, a copy of the experiment was opened, or rows were removed from its ledger. If only here,
    the ledger beside the dataset was removed or replaced, or the dataset is a copy.
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
    """Return whether the held-out folds were opened, both ledgers record this, and scores were recorded after it."""
    kinds = [entry.kind for entry in experiment.ledger.entries()]
    scored = "opening" in kinds and "scores" in kinds[kinds.index("opening") :]
    return scored and not unshared_openings(experiment, dataset).here_alone


def _identity(opening: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """Return what identifies an opening of a plan in two ledgers; times alone may agree, or may be set to agree."""
    return opening["at"], opening["reason"], opening.get("nonce")


def _opening(entry: Entry, ledger: Ledger) -> dict[str, Any]:
    field_of(entry, "at", str, ledger.path)
    if entry.body.get("reason") is not None:
        field_of(entry, "reason", str, ledger.path)
    return {"reason": None, **entry.body}


def openings_of_dataset(dataset: Dataset) -> Ledger:
    """Return the ledger beside a dataset, which has every opening of its folds by any plan."""
    return Ledger(openings_path(dataset.path))


def record_opening(experiment: Experiment, datasets: Sequence[Dataset], reason: str | None) -> None:
    """Record in all ledgers that the folds are opened now, unless an interrupted evaluation has done so.

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
    """Record an opening beside the datasets too, unless an interrupted call has done so."""
    body = {"plan_hash": experiment.plan.plan_hash, **opening}
    for dataset in datasets:
        if body not in [entry.body for entry in recorded_openings(dataset.path)]:
            openings_of_dataset(dataset).append("opening", body)
