"""Replays judged by a worker: the sequences of an episode as a tree, so that a prefix that they share is judged once.

Reads Lean's answers in the same way as the command-line route. In the ``declarations`` form every prefix is a state of
its own, and whatever follows goes on from there. In the ``tactics`` form the whole proof of each sequence is run by
itself, and Lean prints the goals after a prefix in the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vcrt.environments.contract import Rejected, Replay
from vcrt.environments.lean.inprocess import Answer, Elaborators, Text, WorkerBroken
from vcrt.environments.lean.judging import Job, Limits, no_verdict
from vcrt.environments.lean.messages import Answers, Language, Message, Unreadable
from vcrt.environments.lean.program import Declarations, Program
from vcrt.environments.lean.reading import Reached, read_end, read_start, read_step
from vcrt.environments.lean.rendering import Line, Part, Rendered, is_complete, part_text
from vcrt.environments.lean.toolchain import Toolchain

_Sequence = tuple[int, ...]
_Outcome = Reached | Rejected | Unreadable
_BLANK = Line(role="trace", text="")


def judge_shared(
    toolchain: Toolchain, elaborators: Elaborators, jobs: Sequence[Job], limits: Limits
) -> list[Replay]:
    """The verdicts on ``jobs``, in order; one request to the worker for all jobs of a program.

    Raises :class:`vcrt.errors.VerifierFailure` if a job has no verdict, and
    :class:`vcrt.errors.MalformedInputError` if Lean refuses what stands before the steps.
    """
    groups: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(id(job.program), []).append(index)
    replays: dict[int, Replay] = {}
    for indices in groups.values():
        first = jobs[indices[0]]
        prefixes = Prefixes(first.program, [jobs[index].sequence for index in indices])
        try:
            prefixes.judge(elaborators, seconds=limits.lone_seconds)
        except WorkerBroken as broken:
            problem = Unreadable(f"the worker broke: {broken}")
            raise no_verdict(first, problem, toolchain) from None
        for index in indices:
            try:
                replays[index] = prefixes.replay(jobs[index].sequence)
            except Unreadable as problem:
                raise no_verdict(jobs[index], problem, toolchain) from None
    return [replays[index] for index in range(len(jobs))]


@dataclass(slots=True)
class _Prefix:
    """A prefix: the part that its last step adds, the prefixes that it leads to, and what came of it, once known."""

    part: Part
    longer: dict[int, _Prefix] = field(default_factory=dict)
    outcome: _Outcome | None = None


class Prefixes:
    """All prefixes of ``sequences`` of steps of ``program``, and what comes of each."""

    def __init__(self, program: Program, sequences: Sequence[_Sequence]) -> None:
        self._program = program
        self._rendered = Rendered(program=program, index=0)
        self._language = Language(self._rendered)
        self._sequences = list(dict.fromkeys(sequences))
        self._ends: dict[_Sequence, _Outcome] = {}
        self._root = _Prefix(self._rendered.start())
        steps = {k: self._rendered.step(k) for sequence in sequences for k in sequence}
        for sequence in self._sequences:
            prefix = self._root
            for operation in sequence:
                prefix = prefix.longer.setdefault(operation, _Prefix(steps[operation]))

    def judge(self, elaborators: Elaborators, *, seconds: float) -> None:
        """Run everything in the worker. Raises :class:`WorkerBroken`."""
        if isinstance(self._program, Declarations):
            (answer,) = elaborators.run([_text(self._root)], seconds=seconds)
            self._read_declarations(self._root, None, answer)
            return
        texts = []
        asked: set[int] = set()
        for sequence in self._sequences:
            parts = [_asking_once(prefix, asked) for prefix in self._path(sequence)]
            parts.append(self._end(sequence))
            texts.append(Text("".join(map(part_text, parts)), 0, []))
        for sequence, answer in zip(
            self._sequences, elaborators.run(texts, seconds=seconds), strict=True
        ):
            self._read_proof(sequence, answer.said)

    def replay(self, sequence: _Sequence) -> Replay:
        """The verdict on a sequence. Raises :class:`Unreadable` if there is none."""
        hashes: list[str] = []
        for outcome in [prefix.outcome for prefix in self._path(sequence)]:
            if isinstance(outcome, Rejected):
                return Replay(sequence, tuple(hashes), outcome)
            hashes.append(_known(outcome).digest)
        end = self._ends.get(sequence)
        if end is None:
            return Replay(sequence, tuple(hashes))
        if isinstance(end, Rejected):
            return Replay(sequence, tuple(hashes), end)
        return Replay(sequence, (*hashes[:-1], _known(end).digest))

    def _path(self, sequence: _Sequence) -> list[_Prefix]:
        prefixes = [self._root]
        for operation in sequence:
            prefixes.append(prefixes[-1].longer[operation])
        return prefixes

    def _end(self, sequence: _Sequence) -> Part:
        return self._rendered.end(complete=is_complete(self._program, sequence))

    def _outcome(self, before: _Outcome | None, answers: Answers) -> _Outcome:
        """What comes of a prefix, from that of the prefix that is one step shorter."""
        if before is None:
            return read_start(self._program, answers)
        return read_step(self._program, _known(before), answers)

    def _read_declarations(self, prefix: _Prefix, before: _Outcome | None, answer: Answer) -> None:
        try:
            (messages,) = _by_part([prefix.part], answer.said)
            prefix.outcome = self._outcome(before, Answers(self._language, prefix.part, messages))
        except Unreadable as problem:
            prefix.outcome = problem
        if isinstance(prefix.outcome, Reached) and answer.longer:
            for longer, found in zip(prefix.longer.values(), answer.longer, strict=True):
                self._read_declarations(longer, prefix.outcome, found)

    def _read_proof(self, sequence: _Sequence, said: Sequence[Message]) -> None:
        prefixes, end = self._path(sequence), self._end(sequence)
        before: _Outcome | None = None
        try:
            parts = [*(prefix.part for prefix in prefixes), end]
            messages = _by_part(parts, said)
        except Unreadable as problem:
            self._ends[sequence] = problem
            return
        for prefix, found in zip(prefixes, messages, strict=False):
            if prefix.outcome is None:
                try:
                    prefix.outcome = self._outcome(
                        before, Answers(self._language, prefix.part, found)
                    )
                except Unreadable as problem:
                    prefix.outcome = problem
            if not isinstance(prefix.outcome, Reached):
                return
            before = prefix.outcome
        try:
            self._ends[sequence] = read_end(
                self._program,
                _known(before),
                Answers(self._language, self._root.part, messages[0]),
                Answers(self._language, end, messages[-1]),
                complete=is_complete(self._program, sequence),
            )
        except Unreadable as problem:
            self._ends[sequence] = problem


def _text(prefix: _Prefix) -> Text:
    """A prefix as a tree of texts; where there is no instance, Lean says so by an error that refuses nothing."""
    guarded = sum(line.role != "synth" for line in prefix.part)
    return Text(part_text(prefix.part), guarded, [_text(p) for p in prefix.longer.values()])


def _asking_once(prefix: _Prefix, asked: set[int]) -> Part:
    """The part of a prefix, without the request for its goals if they were asked for before."""
    if id(prefix) in asked:
        return tuple(_BLANK if line.role == "trace" else line for line in prefix.part)
    asked.add(id(prefix))
    return prefix.part


def _known(outcome: _Outcome | None) -> Reached:
    if isinstance(outcome, Unreadable):
        raise outcome
    assert isinstance(outcome, Reached), "what follows a refused step is not judged"
    return outcome


def _by_part(parts: Sequence[Part], said: Sequence[Message]) -> list[list[list[Message]]]:
    """The messages at each line of each part of a text."""
    lines: list[list[Message]] = [[] for part in parts for _ in part]
    for message in said:
        if not 1 <= message.line <= len(lines):
            raise Unreadable(f"a message at line {message.line} of {len(lines)}: {message.text}")
        lines[message.line - 1].append(message)
    split = []
    for part in parts:
        split.append(lines[: len(part)])
        lines = lines[len(part) :]
    return split
