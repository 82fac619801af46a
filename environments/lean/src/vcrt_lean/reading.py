"""Read verdicts and canonical states from Lean's messages, part by part; all ways to run Lean use this.

A step is refused if Lean reports an error on its lines, or if its declaration depends on an axiom. States consist of
what Lean printed, with the original names restored. Nothing after a refused step is read. Anything that is not
understood (an unexpected message, a state that was not printed whole, a limit that was reached) is :class:`Unreadable`,
never a verdict.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from vcrt.environments.contract import Rejected, Replay
from vcrt.hashing import Json, json_digest
from vcrt_lean.program import Declarations, Line, Part, Rendered

_SUFFIX = re.compile(r"_r\d{4}(?!\d)")
#: Lean's error about an unknown constant; if it is not in the text, Lean itself needed it.
_UNKNOWN = re.compile(r"[Uu]nknown (?:constant|identifier) [`']([^`']+)[`']")
_ADVICE = re.compile(r"\n\n(?:Hint|Note):")
#: The place of a failed term in the text, as Lean prints it.
_POSITION = re.compile(r"`_stdin[\w.@]*")
_METAVARIABLE = re.compile(r"\?(m|u)\.\d+")
#: The part that makes a binder named by Lean unique; it holds the place in the text.
_HYGIENE = re.compile(r"\._@\.[\w.]*_hyg\.\d+")
#: Lean's words for a limit of its own: reaching it says nothing about the step. No step can contain them, as names are
#: single letters, or end in a digit.
LIMITS = (
    "(deterministic) timeout",
    "(kernel) deterministic timeout",
    "(kernel) excessive memory consumption",
    "(kernel) deep recursion detected",
    "(kernel) interrupted",
    "maximum recursion depth",
    "deep recursion was detected",
    "excessive memory consumption detected",
    "out of memory",
)
_INTERRUPTED = "interrupted"
#: Signs that a state was not printed whole, or comes from Lean's recovery from an error.
_PARTIAL = ("⋯", "pretty print", "sorryAx")
#: Roles of lines that print nothing: Lean may only refuse them or warn about them.
_SILENT_ROLES = frozenset(("setup", "step", "closing", "cut"))
_Sequence = tuple[int, ...]


class Message(NamedTuple):
    """One message of Lean; ``line`` counts from 1."""

    line: int
    severity: str
    text: str

    @property
    def is_error(self) -> bool:
        """Whether Lean calls it an error."""
        return self.severity == "error"


class Unreadable(Exception):
    """The reason for a missing verdict; ``malformed`` if the episode's own start is refused."""

    def __init__(self, reason: str, *, malformed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.malformed = malformed


def read_messages(output: str, *, complete: bool) -> list[Message]:
    """Return the messages in Lean's output, one JSON object a line; drop a cut last line if not ``complete``.

    Raise :class:`Unreadable` for other output.
    """
    lines = output.split("\n")
    if not complete:
        lines.pop()
    try:
        return [
            Message(int(value["pos"]["line"]), str(value["severity"]), str(value["data"]))
            for value in map(json.loads, filter(None, lines))
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"output that is not Lean's JSON: {error}") from None


def by_part(
    messages: Iterable[Message], parts: Sequence[Part], *, first: int = 1
) -> list[list[Message]]:
    """Return the messages about each of ``parts``, which follow each other from line ``first`` on, by its own lines.

    Raise :class:`Unreadable` for a message elsewhere.
    """
    starts = list(accumulate(map(len, parts), initial=first))
    said: list[list[Message]] = [[] for _ in parts]
    for message in messages:
        place = bisect_right(starts, message.line) - 1
        if not 0 <= place < len(parts):
            where = "in the prelude" if place < 0 else "after the end"
            raise Unreadable(f"a message {where}, line {message.line}: {message.text}")
        said[place].append(message._replace(line=message.line - starts[place] + 1))
    return said


class Answers:
    """Lean's checked messages at each line of one part, whose first line is 1. Raises :class:`Unreadable`."""

    def __init__(self, rendered: Rendered, part: Part, messages: Iterable[Message]) -> None:
        self._rendered = rendered
        self._pairs: list[tuple[Line, list[Message]]] = [(line, []) for line in part]
        for message in messages:
            if not 1 <= message.line <= len(part):
                raise Unreadable(f"a message at line {message.line} of {len(part)}: {message.text}")
            line, found = self._pairs[message.line - 1]
            self._check(line, message)
            found.append(message)

    def printed(self, role: str) -> dict[str, str]:
        """Return Lean's output at the lines of one role, by queried name."""
        return {
            line.name: self._state_text(line, messages)
            for line, messages in self._pairs
            if line.role == role
        }

    def trace(self) -> str | None:
        """Return the goals that Lean printed, in lines, or None if it did not print them whole."""
        ((_, messages),) = (pair for pair in self._pairs if pair[0].role == "trace")
        infos = [m for m in messages if m.severity == "information"]
        if len(infos) != 1 or not _is_whole(infos[0].text):
            return None
        return self._restored(infos[0].text)

    def first_error(self, *roles: str) -> str | None:
        """Return the first error at the lines of these roles, or None."""
        return next(map(self._plain, self._errors(roles)), None)

    def reached_cut(self) -> bool:
        """Return whether Lean reported the mark where the proof was cut off."""
        return any(self._rendered.cut_mark in text for text in self._errors(("cut",)))

    def _errors(self, roles: Iterable[str]) -> Iterable[str]:
        return (
            message.text
            for line, messages in self._pairs
            if line.role in roles
            for message in messages
            if message.is_error
        )

    def _state_text(self, line: Line, messages: Sequence[Message]) -> str:
        # A missing instance is an answer too; Lean gives it as an error.
        answered = len(messages) == 1 and (
            messages[0].severity == "information" or line.role == "synth"
        )
        if not answered or not (line.role == "axioms" or _is_whole(messages[0].text)):
            raise Unreadable(f"{line.text!r} was not answered by one whole text")
        return self._plain(messages[0].text)

    def _check(self, line: Line, message: Message) -> None:
        """Raise :class:`Unreadable` for a limit, a gap in the prelude, or an unexpected message."""
        text = message.text
        if text == _INTERRUPTED or any(limit in text for limit in LIMITS):
            raise Unreadable(f"Lean ran into a limit: {self._plain(text)}")
        lacking = _UNKNOWN.search(text)
        if lacking is not None and lacking[1].partition(".")[0] not in self._rendered.words:
            raise Unreadable(f"the prelude lacks what Lean needs: {text}")
        if line.role in _SILENT_ROLES and message.severity not in ("error", "warning"):
            raise Unreadable(f"a message that was not asked for: {text}")

    def _restored(self, text: str) -> str:
        """Return a text of Lean with the names restored, without advice and without parts that depend on the place."""
        text = _POSITION.sub("`_stdin", _ADVICE.split(text)[0])
        suffix = self._rendered.suffix
        if set(_SUFFIX.findall(text)) - {suffix}:
            raise Unreadable(f"a name of another replay: {text}")
        numbers: dict[str, str] = {}
        scopes: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            return numbers.setdefault(match[0], f"?{match[1]}.{len(numbers) + 1}")

        def scope(match: re.Match[str]) -> str:
            return scopes.setdefault(match[0], f"✝{len(scopes) + 1}")

        return _METAVARIABLE.sub(number, _HYGIENE.sub(scope, text.replace(suffix, "")))

    def _plain(self, text: str) -> str:
        """Return a restored text on one line."""
        return " ".join(self._restored(text).split())


class _State:
    """A canonical state: its content and its digest."""

    def __init__(self, content: dict[str, Json]) -> None:
        self.content = content
        self.digest = json_digest(content)


class Transcript:
    """Lean's messages about sequences of the steps of one program.

    ``steps`` has the messages about the last step of each prefix (for the empty one, about the start), and ``ends``
    those about the start and the end of proofs, as Lean reports open goals at the beginning of a proof.
    """

    def __init__(self, rendered: Rendered) -> None:
        self.rendered = rendered
        self.steps: dict[_Sequence, list[Message]] = {}
        self.ends: dict[_Sequence, tuple[list[Message], list[Message]]] = {}
        self._outcomes: dict[_Sequence, _State | Rejected] = {}

    def verdict(self, sequence: _Sequence) -> Replay | Unreadable:
        """Return the verdict on a sequence, or the reason for none; raise ``KeyError`` for one that was not run."""
        try:
            return self._replay(sequence)
        except Unreadable as problem:
            return problem

    def _replay(self, sequence: _Sequence) -> Replay:
        hashes: list[str] = []
        for count in range(len(sequence) + 1):
            state = self._outcome(sequence[:count])
            if isinstance(state, Rejected):
                return Replay(sequence, tuple(hashes), state)
            hashes.append(state.digest)
        # A proof must be ended; an incomplete one has an end only in a text of its own.
        whole = self.rendered.is_complete(sequence)
        if isinstance(self.rendered.program, Declarations) or not (whole or sequence in self.ends):
            return Replay(sequence, tuple(hashes))
        ended = self._end(sequence, whole=whole)
        if isinstance(ended, Rejected):
            return Replay(sequence, tuple(hashes), ended)
        return Replay(sequence, (*hashes[:-1], ended.digest))

    def _outcome(self, prefix: _Sequence) -> _State | Rejected:
        """Return the state after a prefix whose steps but the last were accepted, or Lean's refusal of the last."""
        if prefix not in self._outcomes:
            part = self.rendered.steps[prefix[-1]] if prefix else self.rendered.start
            answers = Answers(self.rendered, part, self.steps[prefix])
            self._outcomes[prefix] = (
                self._step(prefix[:-1], answers) if prefix else self._start(answers)
            )
        return self._outcomes[prefix]

    def _accepted(self, prefix: _Sequence) -> _State:
        state = self._outcome(prefix)
        assert isinstance(state, _State), "what follows a refused step is not judged"
        return state

    def _start(self, answers: Answers) -> _State:
        if isinstance(self.rendered.program, Declarations):
            error = answers.first_error("setup", "show")
            if error is not None:
                raise Unreadable(error, malformed=True)
            return _declared({}, answers)
        error = answers.first_error("opening")
        goals = answers.trace()
        if error is None and goals is None:
            error = answers.first_error("setup", "trace")
        if error is not None:
            raise Unreadable(error, malformed=True)
        return _open_goals(goals)

    def _step(self, before: _Sequence, answers: Answers) -> _State | Rejected:
        if not isinstance(self.rendered.program, Declarations):
            error = answers.first_error("step", "trace")
            # After a refused step Lean may print goals too, in recovery; ignore them.
            return _open_goals(answers.trace()) if error is None else Rejected(error)
        error = answers.first_error("step", "axioms") or _axiom(answers)
        if error is not None:
            return Rejected(error)
        return _declared(self._accepted(before).content["declared"], answers)

    def _end(self, sequence: _Sequence, *, whole: bool) -> _State | Rejected:
        """Return the state after a whole proof, or Lean's refusal of the whole; for a prefix, its last state."""
        state = self._accepted(sequence)
        said_to_start, said_to_end = self.ends[sequence]
        refusal = Answers(self.rendered, self.rendered.start, said_to_start).first_error("setup")
        end = Answers(self.rendered, self.rendered.parts(sequence)[-1], said_to_end)
        if not whole:
            if refusal is not None:
                raise Unreadable(refusal, malformed=True)
            if not end.reached_cut():
                raise Unreadable("Lean did not report the mark where the proof is cut off")
            return state
        refusal = refusal or end.first_error("closing", "show", "axioms") or _axiom(end)
        if refusal is not None:
            return Rejected(refusal)
        return _State({**state.content, "theorem": end.printed("show")})


def read_alone(
    rendered: Rendered, sequence: _Sequence, said: Sequence[list[Message]]
) -> Replay | Unreadable:
    """Return the verdict on a sequence that ran by itself, from Lean's messages about each of its parts."""
    *steps, end = said
    transcript = Transcript(rendered)
    transcript.steps = {sequence[:count]: messages for count, messages in enumerate(steps)}
    transcript.ends[sequence] = steps[0], end
    return transcript.verdict(sequence)


def _is_whole(text: str) -> bool:
    return not any(sign in text for sign in _PARTIAL)


def _declared(before: Json, answers: Answers) -> _State:
    """Return the state after a declaration, whose answers add to the declarations ``before`` it."""
    assert isinstance(before, dict)
    declared = {**before, **answers.printed("show")}
    return _State({"declared": declared, "instances": answers.printed("synth")})


def _axiom(answers: Answers) -> str | None:
    """Return Lean's words about the first declaration that depends on an axiom, or None."""
    for name, text in answers.printed("axioms").items():
        if text != f"'{name}' does not depend on any axioms":
            return text
    return None


def _open_goals(printed: str | None) -> _State:
    if printed is None:
        raise Unreadable("the goals were not printed whole")
    goals = [_goal(text) for text in printed.split("\n\n") if text]
    return _State({"goals": sorted(goals)})


def _goal(text: str) -> list[str]:
    """Return the tag of a goal, its target and its hypotheses, one for each name, sorted."""
    entries: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" ") and entries:
            entries[-1] += line
        else:
            entries.append(line)
    tag = entries.pop(0) if entries[0].startswith("case ") else ""
    *hypotheses, target = (" ".join(entry.split()) for entry in entries)
    if not target.startswith("⊢ ") or not all(" : " in entry for entry in hypotheses):
        raise Unreadable(f"a goal that cannot be read: {text}")
    parts = (entry.split(" : ", 1) for entry in hypotheses)
    return [
        tag,
        target,
        *sorted(f"{name} : {kind}" for names, kind in parts for name in names.split()),
    ]
