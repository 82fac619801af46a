"""Judge replays by a worker: the sequences of an episode are a tree, so that a prefix that they share is judged once.

Reads Lean's answers in the same way as the command-line route. Every prefix is a state of Lean's own, from which all
that begins with it goes on. Only where Lean's parser does not take the steps of a proof one by one is the whole proof
of each sequence run by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vcrt.environments.contract import Rejected, Replay
from vcrt.environments.lean.inprocess import Elaborators, WorkerBroken
from vcrt.environments.lean.judging import Job, Limits, no_verdict
from vcrt.environments.lean.messages import Answers, Language, Message, Unreadable
from vcrt.environments.lean.program import Declarations, Program, Tactics
from vcrt.environments.lean.reading import Reached, read_end, read_start, read_step, read_text
from vcrt.environments.lean.rendering import Part, Rendered, is_complete, part_text, replay_parts
from vcrt.environments.lean.toolchain import Toolchain
from vcrt.hashing import sha256_hex

_Sequence = tuple[int, ...]
_Outcome = Reached | Rejected | Unreadable


def judge_shared(
    toolchain: Toolchain,
    elaborators: Elaborators,
    jobs: Sequence[Job],
    limits: Limits,
    *,
    recheck: bool = False,
) -> list[Replay]:
    """The verdicts on ``jobs``, in order; one request to the worker for all jobs of a program.

    With ``recheck``, the kernel alone must accept again what Lean accepts (see
    :mod:`vcrt.environments.lean.recheck`).
    Raises :class:`vcrt.errors.VerifierFailure` if a job has no verdict, and
    :class:`vcrt.errors.MalformedInputError` if Lean refuses what stands before the steps.
    """
    groups: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(id(job.program), []).append(index)
    replays: dict[int, Replay] = {}
    for indices in groups.values():
        first = jobs[indices[0]]
        sequences = [jobs[index].sequence for index in indices]
        prefixes = Prefixes(first.program, sequences, recheck=recheck)
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

    def count(self) -> int:
        """How many prefixes begin with it."""
        return 1 + sum(prefix.count() for prefix in self.longer.values())


class Prefixes:
    """All prefixes of ``sequences`` of steps of ``program``, and what comes of each."""

    def __init__(
        self, program: Program, sequences: Sequence[_Sequence], *, recheck: bool = False
    ) -> None:
        self._program = program
        self._recheck = recheck
        self._rendered = Rendered(program=program, index=0)
        self._language = Language(self._rendered)
        self._sequences = dict.fromkeys(sequences)
        self._ends: dict[_Sequence, _Outcome] = {}
        self._by_text: dict[_Sequence, Replay | Unreadable] = {}
        self._root = _Prefix(self._rendered.start())
        self._steps = [self._rendered.step(k) for k in range(len(program.steps))]
        for sequence in self._sequences:
            prefix = self._root
            for operation in sequence:
                prefix = prefix.longer.setdefault(operation, _Prefix(self._steps[operation]))

    def judge(self, elaborators: Elaborators, *, seconds: float) -> None:
        """Run everything in the worker. Raises :class:`WorkerBroken`."""
        program, recheck = self._texts(), self._recheck
        # All that a request holds but its tree: what is kept for the next one must not be of another program. In
        # ASCII: untrusted text may hold surrogates, which UTF-8 does not.
        mark = sha256_hex(json.dumps([program, recheck], sort_keys=True).encode("ascii"))
        request = {**program, "tree": self._branches(self._root, ()), "program": mark}
        cost = self._root.count()
        found = elaborators.run(
            {**request, "recheck": recheck}, self._read_tree, cost=cost, seconds=seconds
        )
        if not found:
            parts = [replay_parts(self._rendered, s) for s in self._sequences]
            texts = ["".join(map(part_text, each)) for each in parts]
            names = map(self._theorem, self._sequences)
            request = {"texts": list(zip(texts, names, strict=True)), "recheck": recheck}
            elaborators.run(request, self._read_texts, cost=cost, seconds=seconds)

    def replay(self, sequence: _Sequence) -> Replay:
        """The verdict on a sequence. Raises :class:`Unreadable` if there is none."""
        by_text = self._by_text.get(sequence)
        if isinstance(by_text, Unreadable):
            raise by_text
        if by_text is not None:
            return by_text
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

    def _theorem(self, sequence: _Sequence) -> str:
        """The theorem that a sequence proves, by its name for Lean; empty for a part of a proof."""
        return self._rendered.theorem if self._ends_at(sequence) else ""

    def _texts(self) -> dict[str, Any]:
        """What a request says of the program."""
        if isinstance(self._program, Declarations):
            steps = [_declaration(part) for part in self._steps]
            return {"declarations": {"start": _declaration(self._root.part), "steps": steps}}
        end = self._rendered.end(complete=True)
        closing = tuple(line for line in end if line.role == "closing")
        proof = {
            "name": self._rendered.theorem,
            "start": part_text(self._root.part),
            "steps": [part_text(step) for step in self._steps],
            "closing": part_text(closing),
            "questions": part_text(end[len(closing) :]),
        }
        return {"proof": proof}

    def _branches(self, prefix: _Prefix, sequence: _Sequence) -> list[Any]:
        return [
            [k, self._ends_at((*sequence, k)), self._branches(longer, (*sequence, k))]
            for k, longer in prefix.longer.items()
        ]

    def _ends_at(self, sequence: _Sequence) -> bool:
        """Whether a proof is ended behind a sequence."""
        return (
            isinstance(self._program, Tactics)
            and sequence in self._sequences
            and is_complete(self._program, sequence)
        )

    def _answers(self, part: Part, said: Any) -> Answers:
        """What the worker says that Lean said to the lines of a part."""
        return Answers(self._language, part, map(_message, said))

    def _read(self, prefix: _Prefix, before: Reached | None, said: Any) -> Reached | None:
        """Note what comes of a prefix, from that of the prefix that is one step shorter; its state, if it has one."""
        try:
            answers = self._answers(prefix.part, said)
            if before is None:
                prefix.outcome = read_start(self._program, answers)
            else:
                prefix.outcome = read_step(self._program, before, answers)
        except Unreadable as problem:
            prefix.outcome = problem
        return prefix.outcome if isinstance(prefix.outcome, Reached) else None

    def _read_end(self, sequence: _Sequence, state: Reached, start: Any, end: Any) -> None:
        complete = is_complete(self._program, sequence)
        try:
            self._ends[sequence] = read_end(
                self._program,
                state,
                self._answers(self._root.part, start),
                self._answers(self._rendered.end(complete=complete), end),
                complete=complete,
            )
        except Unreadable as problem:
            self._ends[sequence] = problem

    def _read_tree(self, answer: Any) -> bool:
        """False if the worker could not run the steps one by one."""

        def read(prefix: _Prefix, state: Reached, sequence: _Sequence, answers: Any) -> None:
            for (k, longer), answer in zip(prefix.longer.items(), answers, strict=True):
                said, end, more = answer
                reached = self._read(longer, state, said)
                if reached is not None:
                    if self._ends_at((*sequence, k)):
                        self._read_end((*sequence, k), reached, *end)
                    read(longer, reached, (*sequence, k), more)

        if answer is None:
            return False
        state = self._read(self._root, None, answer["said"])
        if state is not None:
            read(self._root, state, (), answer["tree"])
        return True

    def _read_texts(self, answer: Any) -> None:
        """One proof a sequence, each by itself."""
        for sequence, said in zip(self._sequences, answer, strict=True):
            parts, messages = replay_parts(self._rendered, sequence), list(map(_message, said))
            if any(message.line > sum(map(len, parts)) for message in messages):
                raise ValueError("messages after the end")
            try:
                self._by_text[sequence] = read_text(
                    self._program, sequence, self._language, parts, messages, {}
                )
            except Unreadable as problem:
                self._by_text[sequence] = problem


def _message(said: Any) -> Message:
    """A message of the worker; raises ``TypeError`` or ``ValueError`` for what is none."""
    line, severity, text = said
    if not (isinstance(line, int) and isinstance(severity, str) and isinstance(text, str)):
        raise TypeError(f"not a message: {said}")
    return Message(line=line, severity=severity, text=text)


def _declaration(part: Part) -> dict[str, Any]:
    """A declaration as a request has it; where there is no instance, Lean says so by an error that refuses nothing."""
    first = part[0] if part else None
    known = first is not None and first.role == "step" and not first.text.startswith("inductive")
    return {
        "text": part_text(part),
        "guarded": sum(line.role != "synth" for line in part),
        "name": part[1].text.split()[-1] if known else "",
        "declared": [line.text.split()[-1] for line in part if line.role == "axioms"],
    }


def _known(outcome: _Outcome | None) -> Reached:
    if isinstance(outcome, Unreadable):
        raise outcome
    assert isinstance(outcome, Reached), "what follows a refused step is not judged"
    return outcome
