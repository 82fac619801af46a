"""Say which steps of an episode, or which calls of a log, may run at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from vcrt.api.logs import WITHIN_S, ScheduledCalls, require_seconds, schedule_log
from vcrt.calls.batches import Batch, BatchTests, batches_of, order_of_log
from vcrt.calls.call_logs import read_traces
from vcrt.calls.differences import difference_of
from vcrt.calls.log_lifting import RunTrace, flows_of
from vcrt.calls.scheduled import Scheduled as Scheduled
from vcrt.calls.schedules import Schedule, checked_schedule, schedule_of, waves_of
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.probes import probed_pairs, require_not_told_apart
from vcrt.environments.contract import Environment, Episode
from vcrt.environments.registry import sendable_factory
from vcrt.environments.tool_calls import require_calls
from vcrt.errors import VcrtError
from vcrt.processes import kept_processes, num_jobs
from vcrt.progress import SILENT, Progress
from vcrt.replay.shards import EnvironmentFactory

if TYPE_CHECKING:
    from vcrt.records.dataset import Dataset


#: Seconds in which the batches of a trace are compared in any case.
BATCHES_S = 1.0


def schedule(
    source: str | Path,
    *,
    environment: str | EnvironmentFactory | None = None,
    dataset: Dataset | str | Path | None = None,
    window: int | None = None,
    redact: bool = False,
    within: float = WITHIN_S,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> tuple[Scheduled, ...]:
    """Say which calls of a log, or steps of an episode, may run at once, which must wait, and why each waits.

    If a message of a log has several calls, also say which of them conflict, what each order gives, and which are safe.

    Example: vcrt schedule trace.jsonl --environment shop.py:Shop

    Args:
        source: A log of calls, with its environment; an episode, as environment/schema/seed; or a certificate's file.
        environment: The environment of the log's calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        dataset: Take the episode's sealed evidence from this dataset.
        window: Schedule each window of this many calls instead of whole traces.
        redact: Print and keep only the SHA-256 of a log's outputs and refusals; arguments are not hidden.
        within: Seconds to replay each trace of a log; further calls, orders from fresh states and batches get as many
            each. Whatever is not settled by then keeps the log's order and is named.

    Returns:
        The schedule of the episode, or of each trace or window of the log, with the log's identifiers, rounds and
            batches (:class:`vcrt.calls.scheduled.Scheduled`). If all calls of a trace are left out, its entry says so.

    Raises:
        VcrtError: Options exclude each other; also every error of :func:`vcrt.show` and :func:`vcrt.lift_log`.
    """
    if environment is not None and dataset is not None:
        raise VcrtError(
            "--environment is for a log, and --dataset for an episode",
            found=f"{source} with --environment and --dataset",
            expected="only one of the two",
            remedy="vcrt schedule EPISODE --dataset DATASET, or vcrt schedule LOG --environment NAME",
        )
    if environment is None:
        if window is not None or redact:
            raise VcrtError(
                "a window or redaction needs a log and its environment",
                found="no environment",
                expected="a log, with the environment of its calls",
            )
        if dataset is None and _is_log(Path(source)):
            raise VcrtError(
                "the environment of the log's calls was not named",
                where=str(source),
                expected="--environment FILE.py:CLASS, the name of a registered environment, or --mcp",
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
    require_seconds(within)
    factory = sendable_factory(environment)
    with kept_processes():
        runs, told, _ = schedule_log(
            source,
            factory=factory,
            window=window,
            redact=redact,
            within=within,
            jobs=num_jobs(jobs),
            progress=progress,
            told=partial(_told, within=within),
        )
    rest = iter(told)
    return tuple(
        one for run in runs for one in _of_trace(run, list(islice(rest, len(run.windows))))
    )


def _is_log(path: Path) -> bool:
    """Tell by its name or content whether a file is a log of calls; a certificate is one document."""
    if not path.is_file() or path.suffix == ".jsonl":
        return path.is_file()
    try:
        return bool(read_traces(path))
    except (OSError, ValueError):
        return False


def _of_trace(run: RunTrace, found: Sequence[Scheduled]) -> list[Scheduled]:
    if run.left_out and not run.windows:
        problem = "; ".join(one.text for one in run.left_out)
        name = run.trace.name
        return [
            Scheduled(name=name, names=(), schedule=None, problem=problem, left_out=run.left_out)
        ]
    return [replace(one, left_out=run.left_out) for one in found]


def _told(
    environment: Environment, calls: ScheduledCalls, within: float | None = None
) -> Scheduled:
    """Test what the log sent together, and find where orders end apart."""
    number = calls.episode.num_operations
    part = range(calls.first, calls.first + number)
    order = order_of_log(calls.trace, part)
    made = Scheduled(
        name=f"{calls.trace.name}, calls {part.start} to {part.stop - 1}",
        names=_names(calls.episode),
        schedule=calls.schedule,
        problem=calls.problem,
        ids=tuple(calls.trace.calls[place].identifier for place in part),
        rounds=waves_of(order),
    )
    if calls.schedule is None:
        return made
    environment = require_calls(environment)
    until = inf if within is None else monotonic() + max(within, BATCHES_S)
    tests = BatchTests(environment, calls.replays, order, until)
    batches = tuple(
        tests.test(
            batch,
            place=calls.trace.places[part[batch.start]],
            raced=calls.trace.raced(range(part[batch.start], part[batch.start] + len(batch))),
            num_cut=calls.trace.num_beside(range(part[batch.start], part[batch[-1]] + 1), part),
        )
        for batch in batches_of(order)
    )
    try:
        schedule = _with_batches(environment, calls, calls.schedule, tests, batches, within)
    except UncertifiedError as error:
        return replace(made, schedule=None, problem=f"{error.kind}: {error}")
    differences = {
        (edge.first, edge.second): difference_of(environment, calls.episode, edge.certificate)
        for edge in schedule.direct
        if edge.certificate is not None
    }
    return replace(made, schedule=schedule, batches=batches, differences=differences)


def _with_batches(
    environment: Environment,
    calls: ScheduledCalls,
    schedule: Schedule,
    tests: BatchTests,
    batches: Sequence[Batch],
    within: float | None,
) -> Schedule:
    """Make a schedule of sampled contexts anew if a batch shows a conflict that it does not know."""
    if tests.answers.contradiction is not None:
        raise UncertifiedError("nondeterministic", tests.answers.contradiction)
    found = {each.calls for batch in batches for each in batch.conflicts}
    if not schedule.unsettled and (found <= {*schedule.order.pairs} or schedule.complete):
        return schedule
    tree = tests.answers.tree(calls.episode.num_operations)
    replays = replace(calls.replays, tree=tree)
    once = calls.was_replayed_once
    made = checked_schedule(environment, replays, calls.flows, once=once, within=within)
    return replace(made, probes=schedule.probes, max_probes=schedule.max_probes)


def _names(episode: Episode) -> tuple[str, ...]:
    return tuple(operation.signature for operation in episode.operations)
