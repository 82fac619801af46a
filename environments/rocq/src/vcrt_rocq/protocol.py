"""Write calls to ``coqidetop`` and read its answers: XML, in which no text of a proof can pass for an answer.

It supports the five calls that are used, as Coq 8.16 writes them. :mod:`vcrt_rocq.session` runs processes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape

#: The end of an answer; their number shows whether all answers are there.
END = b"</value>"
INIT = '<call val="Init"><option val="none"/></call>'
GOALS = '<call val="Goal"><unit/></call>'
STATUS = '<call val="Status"><bool val="true"/></call>'
_QUOTES = {"'": "&apos;", '"': "&quot;"}
#: Holes, which the prover numbers as it meets them.
_HOLE = re.compile(r"\?([MX])\d+")
#: Universe names, whose numbers depend on what the process has done before.
_UNIVERSE = re.compile(r"\b(?:[A-Z][\w']*\.)+\d+\b")


class UnreadableAnswer(Exception):
    """An answer that this module does not expect from a coqidetop."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The prover's message against a sentence, and the characters that it is about."""

    message: str
    start: int | None = None
    stop: int | None = None

    @property
    def text(self) -> str:
        """The message, after its place in the sentence."""
        if self.start is None:
            return self.message
        return f"characters {self.start}-{self.stop}: {self.message}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A printed goal: its name, its hypotheses (one a line) and its conclusion."""

    name: str
    hypotheses: tuple[str, ...]
    conclusion: str


@dataclass(frozen=True, slots=True)
class Goals:
    """The goals of the proof in progress: in focus, behind it from the innermost out, shelved, and given up."""

    focused: tuple[Goal, ...]
    background: tuple[tuple[tuple[Goal, ...], tuple[Goal, ...]], ...]
    shelved: tuple[Goal, ...]
    given_up: tuple[Goal, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its value, or the refusal of the call; and the messages before it."""

    value: ElementTree.Element
    messages: tuple[str, ...]
    refusal: Refusal | None


def add(sentence: str, state: int) -> str:
    """Return the call that adds a sentence after a state, which is the last one."""
    return (
        f'<call val="Add"><pair><pair><pair><pair><string>{_text(sentence)}</string><int>-1</int></pair>'
        f'<pair><state_id val="{state}"/><bool val="false"/></pair></pair><int>0</int></pair>'
        "<pair><int>0</int><int>0</int></pair></pair></call>"
    )


def back_to(state: int) -> str:
    """Return the call that forgets everything added after a state."""
    return f'<call val="Edit_at"><state_id val="{state}"/></call>'


def query(sentence: str, state: int) -> str:
    """Return the call that runs a command in a state without changing it."""
    return (
        f'<call val="Query"><pair><route_id val="0"/><pair><string>{_text(sentence)}</string>'
        f'<state_id val="{state}"/></pair></pair></call>'
    )


def read_answers(text: str) -> list[Answer]:
    """Return the answers in the output; raise :class:`UnreadableAnswer` for another form."""
    try:
        root = ElementTree.fromstring(f"<all>{text.replace('&nbsp;', ' ')}</all>")
    except ElementTree.ParseError as error:
        raise UnreadableAnswer(f"{error}: {text[-200:]!r}") from error
    answers = list[Answer]()
    messages = list[str]()
    for element in root:
        if element.tag == "value":
            answers.append(Answer(element, tuple(messages), _refusal(element)))
            messages = []
        elif element.tag == "feedback":
            messages += [
                _shown(message[2])
                for message in element.iterfind(".//message")
                if message[0].get("val") == "notice"
            ]
    return answers


def state_in(answer: Answer) -> int:
    """Return the state in an answer; raise :class:`UnreadableAnswer` if it has none."""
    element = answer.value.find(".//state_id")
    if element is None:
        raise UnreadableAnswer("no state in an answer")
    return int(element.get("val", ""))


def goals_in(answer: Answer) -> Goals | None:
    """Return the goals in an answer, None if no proof is in progress; raise :class:`UnreadableAnswer` for others."""
    found = answer.value.find("option/goals")
    if found is None:
        return None
    try:
        focused, background, shelved, given_up = found
        return Goals(
            focused=_goals(focused),
            background=tuple((_goals(pair[0]), _goals(pair[1])) for pair in background),
            shelved=_goals(shelved),
            given_up=_goals(given_up),
        )
    except (ValueError, IndexError) as error:
        raise UnreadableAnswer("goals of another form") from error


def without_numbers(text: str) -> str:
    """Return the text without the numbers of universes."""
    return _UNIVERSE.sub("Type", text)


def _goals(element: ElementTree.Element) -> tuple[Goal, ...]:
    return tuple(_goal(goal) for goal in element)


def _goal(element: ElementTree.Element) -> Goal:
    _, hypotheses, conclusion, name = element
    return Goal(
        name=_plain(name),
        hypotheses=tuple(_shown(each) for each in hypotheses),
        conclusion=_shown(conclusion),
    )


def _refusal(element: ElementTree.Element) -> Refusal | None:
    if element.get("val") == "good":
        return None
    place = element.find("option/loc")
    # Since Coq 8.17 the place is inside the message; before, it belongs to the answer.
    start, stop = (
        (element.get("loc_s"), element.get("loc_e"))
        if place is None
        else (place.get("start"), place.get("stop"))
    )
    message = element.find("richpp")
    return Refusal(
        _HOLE.sub(r"?\1", _shown(message) if message is not None else _plain(element)),
        None if start is None else int(start),
        None if stop is None else int(stop),
    )


def _shown(element: ElementTree.Element) -> str:
    """Return the printed text, on one line."""
    return without_numbers(" ".join("".join(element.itertext()).split()))


def _plain(element: ElementTree.Element) -> str:
    return "".join(element.itertext()).strip()


def _text(sentence: str) -> str:
    return escape(sentence, _QUOTES)
