"""Judge replays by ``lean`` commands: in one batch, and by themselves where a batch gave no verdict.

Promises a verdict for every replay or an error; never a verdict that Lean did not give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.environments.contract import Replay
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.printable import counted
from vcrt_lean.messages import Message, Unreadable, by_part, read_messages
from vcrt_lean.process import run_lean
from vcrt_lean.program import Program
from vcrt_lean.reading import read_alone
from vcrt_lean.rendering import PRELUDE, Line, Part, Rendered, part_text
from vcrt_lean.toolchain import Toolchain

#: The most replays that one batch can hold: their number has four digits.
MAX_REPLAYS = 10_000


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
    if len(jobs) > MAX_REPLAYS:
        raise ValueError(f"{counted(len(jobs), 'replay')} in one batch; at most {MAX_REPLAYS}")
    batch = [Rendered(job.program, index) for index, job in enumerate(jobs)]
    parts = [_parts(rendered, job) for rendered, job in zip(batch, jobs, strict=True)]
    text = PRELUDE + "".join(part_text(part) for own in parts for part in own)
    output = run_lean(
        toolchain.command,
        text,
        seconds=seconds,
        max_heartbeats=limits.max_heartbeats,
        max_memory_mb=limits.max_memory_mb,
        needs=toolchain.needs,
    )
    try:
        messages = read_messages(output.text, complete=output.failure is None)
        flat = [part for own in parts for part in own]
        said = iter(by_part(messages, flat, first=PRELUDE.count("\n") + 1))
    except Unreadable as problem:
        return [problem] * len(jobs)
    verdicts = [
        _verdict(rendered, job.sequence, [next(said) for _ in own])
        for rendered, job, own in zip(batch, jobs, parts, strict=True)
    ]
    if output.failure is None:
        return verdicts
    broken = Unreadable(f"the Lean process broke: {output.failure}")
    return [broken if isinstance(verdict, Unreadable) else verdict for verdict in verdicts]


def _parts(rendered: Rendered, job: Job) -> list[Part]:
    """The parts of a replay, and the line at its end, which shows that Lean read that far."""
    mark = Line(role="cut", text=f"#print {rendered.end_mark}")
    return [*rendered.parts(job.sequence), (mark,)]


def _verdict(
    rendered: Rendered, sequence: tuple[int, ...], said: Sequence[list[Message]]
) -> Replay | Unreadable:
    *of_parts, at_end = said
    if [m.is_error and rendered.end_mark in m.text for m in at_end] != [True]:
        return Unreadable("Lean did not report the mark at the end of the replay")
    return read_alone(rendered, sequence, of_parts)


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
        remedy="if a limit was reached, raise it in vcrt_lean.judging.Limits",
    )
