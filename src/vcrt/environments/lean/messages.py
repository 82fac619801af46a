"""Reading Lean's JSON messages: verdicts and canonical states, or that there is no verdict.

A step is refused when Lean reports an error on its lines, or when what it declares depends on an axiom. States are
made of what Lean printed, with the names of the replay undone. Anything that is not understood (a missing end mark, a
message where none belongs, a state that was not printed whole, a limit that was reached) is :class:`NoVerdict`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcrt.environments.contract import Rejected, Replay
from vcrt.environments.lean.program import Declarations
from vcrt.environments.lean.rendering import (
    BatchText,
    Line,
    ReplayText,
    cut_mark,
    end_mark,
    suffix,
)
from vcrt.hashing import Json, json_digest

_SUFFIX = re.compile(r"_r\d{4}(?!\d)")
#: Lean's complaint about a constant; if the text does not speak of it, Lean itself was looking for it.
_UNKNOWN = re.compile(r"[Uu]nknown (?:constant|identifier) [`']([^`']+)[`']")
_WORD = re.compile(r"\w+")
_ADVICE = re.compile(r"\n\n(?:Hint|Note):")
#: Where a failed term stood in the batch, as Lean prints it.
_POSITION = re.compile(r"`_stdin[\w.@]*")
_METAVARIABLE = re.compile(r"\?(m|u)\.\d+")
#: Lean's words for a limit of its own that was reached: that says nothing about the step.
_LIMITS = (
    "maximum number of heartbeats",
    "maximum recursion depth",
    "Stack overflow",
    "interrupted",
)
#: What shows that a state was not printed whole, or that it is one of Lean's recovery from an error.
_PARTIAL = ("⋯", "pretty print", "sorryAx")


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message of Lean; ``line`` counts from 1."""

    line: int
    severity: str
    text: str

    @property
    def is_error(self) -> bool:
        """Whether Lean calls it an error."""
        return self.severity == "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class NoVerdict:
    """Lean did not answer in a way that can be understood; ``malformed`` if the episode's own start is refused."""

    reason: str
    malformed: bool = False


class _Unreadable(Exception):
    """A reason why a replay has no verdict."""

    def __init__(self, reason: str, *, malformed: bool = False) -> None:
        super().__init__(reason)
        self.verdict = NoVerdict(reason=reason, malformed=malformed)


def read_messages(output: str, *, complete: bool) -> list[Message] | NoVerdict:
    """The messages in Lean's output, one JSON object a line; a cut last line is dropped if not ``complete``."""
    lines = output.split("\n")
    if not complete:
        lines.pop()
    try:
        return [_message(json.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError) as error:
        return NoVerdict(reason=f"output that is not Lean's JSON: {error}")


def judge_batch(batch: BatchText, messages: Sequence[Message]) -> list[Replay | NoVerdict]:
    """The verdict on each replay of a batch, in order."""
    first, last = batch.replays[0].first_line, _last_line(batch.replays[-1])
    by_line: dict[int, list[Message]] = {}
    for message in messages:
        if not first <= message.line <= last:
            where = "in the prelude" if message.line < first else "after the end"
            text = f"a message {where}, line {message.line}: {message.text}"
            return [NoVerdict(reason=text)] * len(batch.replays)
        by_line.setdefault(message.line, []).append(message)
    return [_judge(replay, by_line) for replay in batch.replays]


def _message(value: dict[str, object]) -> Message:
    position = value["pos"]
    if not isinstance(position, dict):
        raise TypeError("a message without a position")
    return Message(
        line=int(position["line"]),
        severity=str(value["severity"]),
        text=str(value["data"]),
    )


def _last_line(replay: ReplayText) -> int:
    return replay.first_line + len(replay.lines) - 1


def _judge(replay: ReplayText, by_line: dict[int, list[Message]]) -> Replay | NoVerdict:
    numbers = range(replay.first_line, _last_line(replay) + 1)
    answers = _Answers(replay, [by_line.get(number, []) for number in numbers])
    try:
        answers.check_end()
        if isinstance(replay.program, Declarations):
            return _judge_declarations(answers)
        return _judge_tactics(answers)
    except _Unreadable as problem:
        return problem.verdict


class _Answers:
    """Lean's answers to the lines of one replay, with its names undone."""

    def __init__(self, replay: ReplayText, messages: Sequence[Sequence[Message]]) -> None:
        self.replay = replay
        self.sequence = replay.sequence
        self._words = frozenset(word for line in replay.lines for word in _WORD.findall(line.text))
        self._pairs = list(zip(replay.lines, messages, strict=True))

    def check_end(self) -> None:
        """Lean must have read the replay to its end, within its limits, and said nothing unasked for."""
        *rest, (_, last) = self._pairs
        if [m.is_error and end_mark(self.replay.index) in m.text for m in last] != [True]:
            raise _Unreadable("Lean did not report the mark at the end of the replay")
        for line, messages in rest:
            for message in messages:
                if any(limit in message.text for limit in _LIMITS):
                    raise _Unreadable(f"Lean ran into a limit: {self.plain(message.text)}")
                lacking = _UNKNOWN.search(message.text)
                if lacking is not None and lacking[1].partition(".")[0] not in self._words:
                    raise _Unreadable(f"the prelude lacks what Lean needs: {message.text}")
                if line.role in ("setup", "step", "closing", "cut") and message.severity not in (
                    "error",
                    "warning",
                ):
                    raise _Unreadable(f"a message that was not asked for: {message.text}")

    def restored(self, text: str) -> str:
        """A text of Lean with the names restored, without advice and what depends on the place in the batch."""
        text = _POSITION.sub("`_stdin", _ADVICE.split(text)[0])
        own = suffix(self.replay.index)
        if set(_SUFFIX.findall(text)) - {own}:
            raise _Unreadable(f"a name of another replay: {text}")
        numbers: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            return numbers.setdefault(match[0], f"?{match[1]}.{len(numbers) + 1}")

        return _METAVARIABLE.sub(number, text.replace(own, ""))

    def plain(self, text: str) -> str:
        """A restored text on one line."""
        return " ".join(self.restored(text).split())

    def printed(self, role: str, step: int) -> dict[str, str]:
        """What Lean printed at the lines of one role after ``step`` steps, by the name asked about."""
        return {
            line.name: self._state_text(line, messages)
            for line, messages in self._pairs
            if line.role == role and line.step == step
        }

    def trace(self, step: int) -> str:
        """The goals that Lean printed after ``step`` steps, in lines; without any, the statement is at fault."""
        for line, messages in self._pairs:
            if line.role == "trace" and line.step == step:
                infos = [m for m in messages if m.severity == "information"]
                if len(infos) != 1 or not _is_whole(infos[0].text):
                    fault = self.first_error(("setup", "trace"), 0) if step == 0 else None
                    reason = f"the goals after step {step} were not printed whole"
                    raise _Unreadable(fault or reason, malformed=fault is not None)
                return self.restored(infos[0].text)
        raise _Unreadable(f"the goals after step {step} were not asked for")

    def first_error(self, roles: Iterable[str], step: int | None = None) -> str | None:
        """The first error at the lines of these roles (after ``step`` steps), or None."""
        wanted = frozenset(roles)
        for line, messages in self._pairs:
            if line.role in wanted and step in (None, line.step):
                for message in messages:
                    if message.is_error:
                        return self.plain(message.text)
        return None

    def reached_cut(self) -> bool:
        """Whether Lean reported the mark where the proof was cut off."""
        mark = cut_mark(self.replay.index)
        return any(
            mark in message.text
            for line, messages in self._pairs
            if line.role == "cut"
            for message in messages
        )

    def _state_text(self, line: Line, messages: Sequence[Message]) -> str:
        # That there is no instance is an answer too; Lean gives it as an error.
        answered = len(messages) == 1 and (
            messages[0].severity == "information" or line.role == "synth"
        )
        if not answered or not (line.role == "axioms" or _is_whole(messages[0].text)):
            raise _Unreadable(f"{line.text!r} was not answered by one whole text")
        return self.plain(messages[0].text)


def _is_whole(text: str) -> bool:
    return not any(sign in text for sign in _PARTIAL)


def _judge_declarations(answers: _Answers) -> Replay:
    sequence = answers.sequence
    error = answers.first_error(("setup",)) or answers.first_error(("show",), 0)
    if error is not None:
        raise _Unreadable(error, malformed=True)
    shown = answers.printed("show", 0)
    hashes = [_declared_state(shown, answers.printed("synth", 0))]
    for step in range(1, len(sequence) + 1):
        refusal = answers.first_error(("step", "axioms"), step) or _axiom(answers, step)
        if refusal is not None:
            return Replay(sequence, tuple(hashes), Rejected(refusal))
        latest = answers.printed("show", step)
        changed = [name for name, text in latest.items() if shown.get(name, text) != text]
        if changed:
            raise _Unreadable(f"printed differently at the end: {', '.join(changed)}")
        shown = {**shown, **latest}
        hashes.append(_declared_state(shown, answers.printed("synth", step)))
    return Replay(sequence, tuple(hashes))


def _declared_state(shown: dict[str, str], instances: dict[str, str]) -> str:
    state: Json = {"declared": shown, "instances": instances}
    return json_digest(state)


def _axiom(answers: _Answers, step: int) -> str | None:
    """Lean's words about the first declaration that depends on an axiom, or None."""
    for name, text in answers.printed("axioms", step).items():
        if text != f"'{name}' does not depend on any axioms":
            return text
    return None


def _judge_tactics(answers: _Answers) -> Replay:
    sequence = answers.sequence
    opening = answers.first_error(("opening",))
    if opening is not None:
        raise _Unreadable(opening, malformed=True)
    # A refused step leaves Lean in recovery: the later steps may still print goals, which mean nothing.
    errors = (answers.first_error(("step", "trace"), k) for k in range(1, len(sequence) + 1))
    accepted = 0
    for error in errors:
        if error is not None:
            states = [_goal_state(answers, k) for k in range(accepted + 1)]
            return Replay(sequence, tuple(map(json_digest, states)), Rejected(error))
        accepted += 1
    states = [_goal_state(answers, k) for k in range(accepted + 1)]
    refusal = _ending(answers)
    if answers.replay.complete and refusal is None:
        states[-1]["theorem"] = answers.printed("show", len(sequence))
    rejection = None if refusal is None else Rejected(refusal)
    return Replay(sequence, tuple(map(json_digest, states)), rejection)


def _goal_state(answers: _Answers, step: int) -> dict[str, Json]:
    goals = [_goal(text) for text in answers.trace(step).split("\n\n") if text]
    return {"goals": sorted(goals)}


def _goal(text: str) -> list[str]:
    """The tag of a goal, its target and its hypotheses, one a name, sorted."""
    entries: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" ") and entries:
            entries[-1] += line
        else:
            entries.append(line)
    tag = entries.pop(0) if entries[0].startswith("case ") else ""
    *hypotheses, target = (" ".join(entry.split()) for entry in entries)
    if not target.startswith("⊢ ") or not all(" : " in entry for entry in hypotheses):
        raise _Unreadable(f"a goal that cannot be read: {text}")
    parts = (entry.split(" : ", 1) for entry in hypotheses)
    return [
        tag,
        target,
        *sorted(f"{name} : {kind}" for names, kind in parts for name in names.split()),
    ]


def _ending(answers: _Answers) -> str | None:
    """Why a proof without a refused step is refused as a whole, or None."""
    error = answers.first_error(("setup", "closing", "show", "axioms"))
    if not answers.replay.complete:
        if error is not None:
            raise _Unreadable(error, malformed=True)
        if not answers.reached_cut():
            raise _Unreadable("Lean did not report the mark where the proof is cut off")
        return None
    return error or _axiom(answers, len(answers.sequence))
