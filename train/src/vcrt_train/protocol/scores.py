"""Write and read what an evaluation leaves: greedy passes of every run and of the frozen backbone, and metrics."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

from vcrt.documents import read_limited
from vcrt.errors import RunError
from vcrt.forms import ClosedModel, in_a_line
from vcrt.hashing import json_digest
from vcrt.records.ledger import field_of
from vcrt_train.protocol.experiment import Experiment, read_finished_run
from vcrt_train.protocol.plan import PlannedRun
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


def read_metrics(experiment: Experiment, run: PlannedRun) -> list[dict[str, float]]:
    """The metrics of every update of a finished run."""
    return [
        {name: float(value) for name, value in line.items()}  # type: ignore[arg-type]
        for line in read_finished_run(experiment, run).metrics
    ]
