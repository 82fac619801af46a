"""Replays judged by ``lean`` commands: in one batch, and by themselves where a batch gave no verdict.

Promises a verdict for every replay or an error; never a verdict that Lean did not give.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vcrt.environments.contract import Replay
from vcrt.environments.lean.messages import (
    Answers,
    Language,
    Message,
    Unreadable,
    read_messages,
)
from vcrt.environments.lean.process import run_lean
from vcrt.environments.lean.program import Program
from vcrt.environments.lean.reading import Known, read_replay
from vcrt.environments.lean.rendering import (
    BatchText,
    ReplayText,
    end_mark,
    is_complete,
    render_batch,
)
from vcrt.environments.lean.toolchain import Toolchain
from vcrt.errors import MalformedInputError, VerifierFailure


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a replay may use.

    ``max_step_chars`` is the longest text of a step; ``max_heartbeats`` Lean's limit on the work for one declaration
    (thousands of allocations); ``batch_seconds`` and ``lone_seconds`` are wall-clock limits on the process of a batch,
    and on a replay or an episode that is run by itself; ``max_memory_mb`` is what a Lean process may have in use.
    """

    max_step_chars: int = 2000
    max_heartbeats: int = 20_000
    batch_seconds: float = 300.0
    lone_seconds: float = 60.0
    max_memory_mb: float = 1500.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A program, the sequence of its steps to run, and the name by which errors call it."""

    label: str
    program: Program
    sequence: tuple[int, ...]


def judge(toolchain: Toolchain, jobs: Sequence[Job], limits: Limits) -> list[Replay]:
    """The verdicts on ``jobs``, in order, from one batch and as many retries as it takes.

    The first job without a verdict is the suspect: it is run by itself, and the rest of those without one as a new
    batch. Raises :class:`VerifierFailure` if a job has no verdict even by itself, and :class:`MalformedInputError` if
    Lean refuses what stands before the steps.
    """
    verdicts: list[Replay | Unreadable] = _run(toolchain, jobs, limits, limits.batch_seconds)
    while pending := [i for i, verdict in enumerate(verdicts) if isinstance(verdict, Unreadable)]:
        suspect, *rest = pending
        (alone,) = _run(toolchain, [jobs[suspect]], limits, limits.lone_seconds)
        if isinstance(alone, Unreadable):
            raise no_verdict(jobs[suspect], alone, toolchain)
        verdicts[suspect] = alone
        others = _run(toolchain, [jobs[i] for i in rest], limits, limits.batch_seconds)
        for index, verdict in zip(rest, others, strict=True):
            verdicts[index] = verdict
    return [verdict for verdict in verdicts if isinstance(verdict, Replay)]


def _run(
    toolchain: Toolchain, jobs: Sequence[Job], limits: Limits, seconds: float
) -> list[Replay | Unreadable]:
    if not jobs:
        return []
    batch = render_batch([(job.program, job.sequence) for job in jobs])
    output = run_lean(
        toolchain.command,
        batch.source,
        seconds=seconds,
        max_heartbeats=limits.max_heartbeats,
        max_memory_mb=limits.max_memory_mb,
        needs=toolchain.needs,
    )
    try:
        messages = read_messages(output.text, complete=output.failure is None)
        verdicts = _judge_batch(batch, messages)
    except Unreadable as problem:
        return [problem] * len(jobs)
    if output.failure is None:
        return verdicts
    broken = Unreadable(f"the Lean process broke: {output.failure}")
    return [broken if isinstance(verdict, Unreadable) else verdict for verdict in verdicts]


def _judge_batch(batch: BatchText, messages: Sequence[Message]) -> list[Replay | Unreadable]:
    """The verdict on each replay of a batch, in order."""
    last_replay = batch.replays[-1]
    first, end = batch.replays[0].first_line, last_replay.first_line + last_replay.num_lines
    by_line: dict[int, list[Message]] = {}
    for message in messages:
        if not first <= message.line < end:
            where = "in the prelude" if message.line < first else "after the end"
            raise Unreadable(f"a message {where}, line {message.line}: {message.text}")
        by_line.setdefault(message.line, []).append(message)
    known: defaultdict[int, Known] = defaultdict(dict)
    return [
        _judge_replay(replay, by_line, known[id(replay.rendered.program)])
        for replay in batch.replays
    ]


def _judge_replay(
    replay: ReplayText, by_line: Mapping[int, list[Message]], known: Known
) -> Replay | Unreadable:
    rendered = replay.rendered
    mark = by_line.get(replay.first_line + replay.num_lines - 1, [])
    if [m.is_error and end_mark(rendered.index) in m.text for m in mark] != [True]:
        return Unreadable("Lean did not report the mark at the end of the replay")
    try:
        return read_replay(
            rendered.program,
            replay.sequence,
            _answers(replay, by_line),
            known,
            complete=is_complete(rendered.program, replay.sequence),
        )
    except Unreadable as problem:
        return problem


def _answers(replay: ReplayText, by_line: Mapping[int, list[Message]]) -> Iterator[Answers]:
    language = Language(replay.rendered)
    line = replay.first_line
    for part, asked in zip(replay.parts, replay.asked, strict=True):
        messages = [by_line.get(line + k, []) for k in range(len(part))]
        yield Answers(language, part, messages, asked=asked)
        line += len(part)


def no_verdict(
    job: Job, problem: Unreadable, toolchain: Toolchain
) -> VerifierFailure | MalformedInputError:
    """The error for a job that has no verdict."""
    where = f"{job.label}, steps {', '.join(map(str, job.sequence)) or 'none'}"
    if problem.malformed:
        return MalformedInputError(
            "Lean refuses what stands before the steps of an episode",
            where=where,
            found=problem.reason,
            expected=f"a text that {toolchain.label} accepts",
        )
    return VerifierFailure(
        "Lean gave no verdict, not even on this replay by itself",
        where=where,
        found=problem.reason,
        expected=f"an answer of {toolchain.label} ({toolchain.origin})",
        remedy="if a limit was reached, raise it in vcrt.environments.lean.judging.Limits",
    )
