"""Read Lean's messages, from any route, and what they say at the lines of a text.

Anything that is not understood (a message where none belongs, a state that was not printed whole, a limit that was
reached) is :class:`Unreadable`, never a verdict. Not covered: what follows for a replay (see
:mod:`vcrt_lean.reading`).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from vcrt_lean.rendering import Line, Part, Rendered

_SUFFIX = re.compile(r"_r\d{4}(?!\d)")
#: Lean's complaint about a constant; if the text does not speak of it, Lean itself was looking for it.
_UNKNOWN = re.compile(r"[Uu]nknown (?:constant|identifier) [`']([^`']+)[`']")
_ADVICE = re.compile(r"\n\n(?:Hint|Note):")
#: Where a failed term stood in the text, as Lean prints it.
_POSITION = re.compile(r"`_stdin[\w.@]*")
_METAVARIABLE = re.compile(r"\?(m|u)\.\d+")
#: What makes a binder that Lean itself named unlike any other; it holds the place in the text.
_HYGIENE = re.compile(r"\._@\.[\w.]*_hyg\.\d+")
#: Lean's words for a limit of its own that was reached: that says nothing about the step. No step can say them, as
#: names are single letters, or end in a digit.
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
#: What shows that a state was not printed whole, or that it is one of Lean's recovery from an error.
_PARTIAL = ("⋯", "pretty print", "sorryAx")
#: Roles of lines that ask for nothing: they may only be refused or warned about.
_SILENT_ROLES = frozenset(("setup", "step", "closing", "cut"))


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


class Unreadable(Exception):
    """Why there is no verdict; ``malformed`` if the episode's own start is refused."""

    def __init__(self, reason: str, *, malformed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.malformed = malformed


def read_messages(output: str, *, complete: bool) -> list[Message]:
    """The messages in Lean's output, one JSON object a line; a cut last line is dropped if not ``complete``.

    Raises :class:`Unreadable`.
    """
    lines = output.split("\n")
    if not complete:
        lines.pop()
    try:
        return [_message(json.loads(line)) for line in lines if line]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"output that is not Lean's JSON: {error}") from None


def _message(value: dict[str, object]) -> Message:
    position = value["pos"]
    if not isinstance(position, dict):
        raise TypeError("a message without a position")
    return Message(
        line=int(position["line"]), severity=str(value["severity"]), text=str(value["data"])
    )


def by_part(
    messages: Iterable[Message], parts: Sequence[Part], *, first: int = 1
) -> list[list[Message]]:
    """The messages about each of ``parts``, which stand behind one another from line ``first`` on, by its own lines.

    Raises :class:`Unreadable` for a message that stands elsewhere.
    """
    starts = list(accumulate(map(len, parts), initial=first))
    said: list[list[Message]] = [[] for _ in parts]
    for message in messages:
        place = bisect_right(starts, message.line) - 1
        if not 0 <= place < len(parts):
            where = "in the prelude" if place < 0 else "after the end"
            raise Unreadable(f"a message {where}, line {message.line}: {message.text}")
        said[place].append(replace(message, line=message.line - starts[place] + 1))
    return said


class Answers:
    """Lean's messages at each line of one part, of which the first is line 1, checked. Raises :class:`Unreadable`."""

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
        """What Lean printed at the lines of one role, by the name asked about."""
        return {
            line.name: self._state_text(line, messages)
            for line, messages in self._pairs
            if line.role == role
        }

    def trace(self) -> str | None:
        """The goals that Lean printed, in lines, or None if it did not print them whole."""
        ((_, messages),) = (pair for pair in self._pairs if pair[0].role == "trace")
        infos = [m for m in messages if m.severity == "information"]
        if len(infos) != 1 or not _is_whole(infos[0].text):
            return None
        return self._restored(infos[0].text)

    def first_error(self, *roles: str) -> str | None:
        """The first error at the lines of these roles, or None."""
        return next(map(self._plain, self._errors(roles)), None)

    def reached_cut(self) -> bool:
        """Whether Lean reported the mark where the proof was cut off."""
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
        # That there is no instance is an answer too; Lean gives it as an error.
        answered = len(messages) == 1 and (
            messages[0].severity == "information" or line.role == "synth"
        )
        if not answered or not (line.role == "axioms" or _is_whole(messages[0].text)):
            raise Unreadable(f"{line.text!r} was not answered by one whole text")
        return self._plain(messages[0].text)

    def _check(self, line: Line, message: Message) -> None:
        """Raises :class:`Unreadable` for a limit, a lack of the prelude, or a message that was not asked for."""
        text = message.text
        if text == _INTERRUPTED or any(limit in text for limit in LIMITS):
            raise Unreadable(f"Lean ran into a limit: {self._plain(text)}")
        lacking = _UNKNOWN.search(text)
        if lacking is not None and lacking[1].partition(".")[0] not in self._rendered.words:
            raise Unreadable(f"the prelude lacks what Lean needs: {text}")
        if line.role in _SILENT_ROLES and message.severity not in ("error", "warning"):
            raise Unreadable(f"a message that was not asked for: {text}")

    def _restored(self, text: str) -> str:
        """A text of Lean with the names restored, without advice and what depends on the place in the text."""
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
        """A restored text on one line."""
        return " ".join(self._restored(text).split())


def _is_whole(text: str) -> bool:
    return not any(sign in text for sign in _PARTIAL)
