"""The model of a finished run as it was after the updates that were kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcrt.policy.backbone import Backbone
from vcrt.policy.scoring import CausalModel
from vcrt.protocol.experiment import Experiment, recorded_checkpoints
from vcrt.protocol.plan import PlannedRun
from vcrt.training.checkpoint import load_weights
from vcrt.training.run import start
from vcrt.training.run_directory import checkpoint_path


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A run's model after ``update``, with the digest of the checkpoint that it was read from."""

    update: int
    digest: str
    model: CausalModel


def trained_models(
    experiment: Experiment,
    run: PlannedRun,
    backbone: Backbone,
    *,
    updates: Sequence[int] | None = None,
) -> Iterator[TrainedModel]:
    """The run's model after each of ``updates``, by default all that were kept, in their order.

    ``backbone`` is changed in place, and so is the one model, which is to be used before the next is taken. Only the
    heads and weights of those checkpoints are read. Raises :class:`vcrt.errors.RunError` if the run is not finished or
    a file is not the one that was recorded, and ``KeyError`` for an update that was not kept.
    """
    plan = experiment.plan
    digests = recorded_checkpoints(experiment, run)
    directory = experiment.run_directory(run)
    model = start(plan.config_of(run), backbone, seed=plan.run_seed(run.seed)).model
    for update in sorted(digests) if updates is None else updates:
        path, digest = checkpoint_path(directory, update), digests[update]
        load_weights(model, path, identity=plan.identity(run), expected_digest=digest)
        yield TrainedModel(update=update, digest=digest, model=model)
