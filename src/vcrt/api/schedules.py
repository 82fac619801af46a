"""Say which steps of an episode, or which calls of a log, may run at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vcrt.api.datasets import show
from vcrt.api.logs import lift_log
from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.log_lifting import flows_of
from vcrt.certification.schedules import Schedule, schedule_of
from vcrt.certification.shards import EnvironmentFactory
from vcrt.environments.contract import Episode
from vcrt.errors import VcrtError
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """The schedule of some steps, ``names`` in the reference order; ``name`` says where they are from.

    Without a schedule, ``problem`` says why.
    """

    name: str
    names: tuple[str, ...]
    schedule: Schedule | None
    problem: str | None = None


def schedule(
    source: str | Path,
    *,
    environment: str | EnvironmentFactory | None = None,
    dataset: Dataset | str | Path | None = None,
    window: int | None = None,
    redact: bool = False,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> tuple[Scheduled, ...]:
    """Which steps may run at once, which wait, and why: ``vcrt schedule``.

    ``source`` is an episode as :func:`vcrt.show` takes it; or, with an ``environment``, a log as :func:`vcrt.lift_log`
    takes it, of which each trace (or each ``window`` of so many calls) has a schedule; ``redact`` is as there. Raises
    what those raise.
    """
    if environment is None:
        if window is not None or redact:
            raise VcrtError(
                "a window of an episode, or an episode to redact",
                found="no environment",
                expected="a log, with the environment that its calls are of",
            )
        examined = show(str(source), dataset, progress=progress).examined
        replays = examined.evidence.replays
        episode, found, problem = replays.episode, None, None
        try:
            found = schedule_of(replays.tree, flows_of(replays.tree, episode))
        except UncertifiedError as error:
            problem = f"{error.kind}: {error}"
        return (
            Scheduled(
                name=episode.episode_id, names=_names(episode), schedule=found, problem=problem
            ),
        )
    lifted = lift_log(
        [source],
        environment=environment,
        window=window,
        redact=redact,
        jobs=jobs,
        progress=progress,
    )
    return tuple(
        Scheduled(
            name=f"{calls.trace.name}, calls {calls.first} to {calls.first + calls.episode.num_operations - 1}",
            names=_names(calls.episode),
            schedule=calls.schedule,
            problem=calls.problem,
        )
        for calls in lifted.calls
    )


def _names(episode: Episode) -> tuple[str, ...]:
    return tuple(operation.signature for operation in episode.operations)
