"""Judge replays by ``lean`` commands: in one batch, and by themselves where a batch gave no verdict.

Promises a verdict for every replay or an error; never a verdict that Lean did not give.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from vcrt.environments.contract import Replay
from vcrt.environments.lean.messages import Language, Message, Unreadable, read_messages
from vcrt.environments.lean.process import run_lean
from vcrt.environments.lean.program import Declarations, Program
from vcrt.environments.lean.reading import Reached, read_text
from vcrt.environments.lean.rendering import (
    PRELUDE,
    Part,
    Rendered,
    end_mark,
    end_part,
    part_text,
    replay_parts,
    silent,
)
from vcrt.environments.lean.toolchain import Toolchain
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.printable import counted

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
    batch = [Rendered(program=job.program, index=index) for index, job in enumerate(jobs)]
    known: dict[int, dict[tuple[int, ...], Reached]] = {id(job.program): {} for job in jobs}
    parts = _parts(batch, jobs)
    output = run_lean(
        toolchain.command,
        PRELUDE + "".join(part_text(part) for replay in parts for part in replay),
        seconds=seconds,
        max_heartbeats=limits.max_heartbeats,
        max_memory_mb=limits.max_memory_mb,
        needs=toolchain.needs,
    )
    try:
        said = _by_replay(read_messages(output.text, complete=output.failure is None), parts)
    except Unreadable as problem:
        return [problem] * len(jobs)
    verdicts = [
        _verdict(rendered, job.sequence, own, messages, known[id(job.program)])
        for rendered, job, own, messages in zip(batch, jobs, parts, said, strict=True)
    ]
    if output.failure is None:
        return verdicts
    broken = Unreadable(f"the Lean process broke: {output.failure}")
    return [broken if isinstance(verdict, Unreadable) else verdict for verdict in verdicts]


def _parts(batch: Sequence[Rendered], jobs: Sequence[Job]) -> list[list[Part]]:
    """The parts of each replay and its mark; of declarations, only the first that has a prefix asks for its state.

    What the parser says of a step without an end speaks of the next line. After a declaration that is always the one
    about its axioms, but after a tactic it is the one that asks for the goals.
    """
    asked: set[tuple[int, tuple[int, ...]]] = set()
    found = []
    for rendered, job in zip(batch, jobs, strict=True):
        parts = [*replay_parts(rendered, job.sequence), end_part(rendered.index)]
        for count in range(len(job.sequence) + 1):
            prefix = id(job.program), job.sequence[:count]
            if isinstance(job.program, Declarations) and prefix in asked:
                parts[count] = silent(parts[count])
            asked.add(prefix)
        found.append(parts)
    return found


def _by_replay(messages: Sequence[Message], parts: Sequence[Sequence[Part]]) -> list[list[Message]]:
    """The messages about each replay of a batch, by its own lines, of which the first is line 1."""
    sizes = [sum(map(len, replay)) for replay in parts]
    starts = list(accumulate(sizes, initial=PRELUDE.count("\n") + 1))
    said: list[list[Message]] = [[] for _ in parts]
    for message in messages:
        place = bisect_right(starts, message.line) - 1
        if not 0 <= place < len(parts):
            where = "in the prelude" if place < 0 else "after the end"
            raise Unreadable(f"a message {where}, line {message.line}: {message.text}")
        said[place].append(replace(message, line=message.line - starts[place] + 1))
    return said


def _verdict(
    rendered: Rendered,
    sequence: tuple[int, ...],
    parts: Sequence[Part],
    messages: Sequence[Message],
    known: dict[tuple[int, ...], Reached],
) -> Replay | Unreadable:
    end = sum(map(len, parts))
    mark = [m.is_error and end_mark(rendered.index) in m.text for m in messages if m.line == end]
    if mark != [True]:
        return Unreadable("Lean did not report the mark at the end of the replay")
    try:
        language = Language(rendered)
        return read_text(rendered.program, sequence, language, parts[:-1], messages, known)
    except Unreadable as problem:
        return problem


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
