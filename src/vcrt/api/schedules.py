"""Say which steps of an episode, or which calls of a log, may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.api.logs import LiftedCalls, lift_log
from vcrt.calls.call_logs import read_traces
from vcrt.calls.log_lifting import LeftOut, RunTrace, flows_of
from vcrt.calls.schedules import Schedule, schedule_of
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.probes import probed_pairs, require_not_told_apart
from vcrt.environments.contract import Episode
from vcrt.errors import VcrtError
from vcrt.progress import SILENT, Progress
from vcrt.replay.shards import EnvironmentFactory

if TYPE_CHECKING:
    from vcrt.records.dataset import Dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """The schedule of some steps; ``names`` lists them in the reference order, ``name`` says where they come from.

    If there is no schedule, ``problem`` says why. ``left_out`` lists the calls of the same trace that are in no
    schedule, and why.
    """

    name: str
    names: tuple[str, ...]
    schedule: Schedule | None
    problem: str | None = None
    left_out: tuple[LeftOut, ...] = ()


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
    """Say which calls of a log, or steps of an episode, may run at once, which must wait, and why each waits.

    Example: vcrt schedule trace.jsonl --environment shop.py:Shop

    Args:
        source: A log of calls, with its environment; or an episode as environment/schema/seed, or a certificate's file.
        environment: The environment of the log's calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        dataset: Take the sealed evidence of this dataset for an episode.
        window: Schedule each window of this many calls instead of whole traces.
        redact: Print and keep only the SHA-256 of a log's outputs and refusals; arguments are not hidden.

    Returns:
        A schedule for the episode, or for each trace or window of the log. If all calls of a trace are left out, its
        entry says so.

    Raises:
        VcrtError: Options exclude each other; also every error of :func:`vcrt.show` and :func:`vcrt.lift_log`.
    """
    if environment is not None and dataset is not None:
        raise VcrtError(
            "a log has no sealed evidence, and an episode of a dataset needs no environment",
            found=f"{source} with --environment and --dataset",
            expected="one of them",
            remedy="vcrt schedule EPISODE --dataset DATASET, or vcrt schedule LOG --environment NAME",
        )
    if environment is None:
        if window is not None or redact:
            raise VcrtError(
                "a window of an episode, or an episode to redact",
                found="no environment",
                expected="a log, with the environment that its calls are of",
            )
        if dataset is None and _is_log(Path(source)):
            raise VcrtError(
                "a log without the environment of its calls",
                where=str(source),
                expected="--environment FILE.py:CLASS, or the name of a registered environment",
                remedy=f"vcrt schedule {source} --environment FILE.py:CLASS",
            )
        from vcrt.api.datasets import show

        examined = show(str(source), dataset, progress=progress).examined
        replays = examined.evidence.replays
        episode, found, problem = replays.episode, None, None
        try:
            checks = examined.evidence.cross_checks
            require_not_told_apart(checks)
            found = schedule_of(replays.tree, flows_of(replays.tree, episode))
            found = replace(found, probes=probed_pairs(checks))
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
    rest = iter(lifted.calls)
    return tuple(
        one for run in lifted.traces for one in _of_trace(run, list(islice(rest, len(run.windows))))
    )


def _is_log(path: Path) -> bool:
    """Tell by its name or content whether a file is a log of calls; a certificate is one document."""
    if not path.is_file() or path.suffix == ".jsonl":
        return path.is_file()
    try:
        return bool(read_traces(path))
    except (OSError, ValueError):
        return False


def _of_trace(run: RunTrace, lifted: Sequence[LiftedCalls]) -> list[Scheduled]:
    if run.left_out and not run.windows:
        problem = "; ".join(one.text for one in run.left_out)
        name = run.trace.name
        return [
            Scheduled(name=name, names=(), schedule=None, problem=problem, left_out=run.left_out)
        ]
    return [
        Scheduled(
            name=f"{calls.trace.name}, calls {calls.first} to {calls.first + calls.episode.num_operations - 1}",
            names=_names(calls.episode),
            schedule=calls.schedule,
            problem=calls.problem,
            left_out=run.left_out,
        )
        for calls in lifted
    ]


def _names(episode: Episode) -> tuple[str, ...]:
    return tuple(operation.signature for operation in episode.operations)
