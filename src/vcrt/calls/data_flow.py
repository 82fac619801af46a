"""Find calls that use a value from an earlier output: dependencies that replay with fixed arguments cannot see.

If the value of an argument is first seen in an earlier output, it may have been taken from there, even if later texts
repeat it. Values of one or two characters, and numbers below ten, are found everywhere by chance: such a value counts
only where the argument's name has a word of the value's name in the output; of an ``id``, also of what it is the ``id``
of; of a value without a name, also of the tool. Nothing certifies or refutes this; such flows are kept apart from
replayed evidence. Pure.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias
from unicodedata import category

from vcrt.environments.tool_calls import Span
from vcrt.hashing import Json

#: Texts of fewer characters, and whole numbers below this, are short; inside of texts, numbers below the third are.
_LEAST_TEXT, _LEAST_NUMBER, _LEAST_INSIDE = 3, 10, 100
#: Words inside of a longer text, with the signs that identifiers have.
_WORD = re.compile(r"\w[\w.-]*", re.ASCII)
#: The words of a name such as ``task_ids`` or ``taskId``.
_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[^\W_]+")
#: A short value, by a word of its name; the empty word stands for any.
_Short: TypeAlias = tuple[str, str]


@dataclass(frozen=True, order=True, slots=True)
class DataFlow:
    """The value of argument ``argument`` of call ``second`` is first seen in the output of call ``first``."""

    first: int
    second: int
    argument: str
    value: str


def data_flow(
    arguments: Sequence[Mapping[str, Json]],
    outputs: Sequence[str | None],
    known: Sequence[Sequence[str]] = (),
    spans: Sequence[Span | None] = (),
    names: Sequence[str] = (),
) -> tuple[DataFlow, ...]:
    """Return the flows between calls, sorted: each argument's value flows from the call that gave it first.

    ``outputs`` are canonical JSON; ``known[k]`` are the texts before call ``k``, and ``spans[k]`` gives the places of
    the call and its output in the log; without ``spans``, each output follows its call. ``names`` are the tools.
    A value flows from a call if the call's output contains all of it and no earlier text or argument does.

    >>> data_flow([{}, {"id": "a-17"}], ['{"made":"a-17"}', "null"])
    (DataFlow(first=0, second=1, argument='id', value='a-17'),)
    >>> data_flow([{}, {"to": "see /orders/a-17, please"}], ['"made a-17."', "null"])
    (DataFlow(first=0, second=1, argument='to', value='a-17'),)
    >>> data_flow([{}, {"price": 214}], ["214", "null"], [["at most 2140"], ["at most 2140", "It is 214."]])
    (DataFlow(first=0, second=1, argument='price', value='214'),)
    >>> data_flow([{}, {"task": 7}], ['{"id":7}', "null"], names=["create_task", "close"])
    (DataFlow(first=0, second=1, argument='task', value='7'),)
    """
    timeline = _timeline(arguments, outputs, known, spans, names)
    first = _first_seen([(source, text) for source, text, _ in timeline])
    shorts: dict[_Short, tuple[int, int | None]] = {}
    for place, (source, _, some) in enumerate(timeline):
        for short in some:
            shorts.setdefault(short, (place, source))
    found: set[DataFlow] = set()
    for number, each in enumerate(arguments):
        for name, value in each.items():
            sources = [(text, first(text)) for text in dict.fromkeys(_values(value))]
            for word, text in _shorts({name: value}):
                places = [shorts[key] for key in ((word, text), ("", text)) if key in shorts]
                sources.append((text, min(places)[1]))
            found |= {
                DataFlow(source, number, name, text)
                for text, source in sources
                if source is not None and source < number
            }
    return tuple(sorted(found))


def _timeline(
    arguments: Sequence[Mapping[str, Json]],
    outputs: Sequence[str | None],
    known: Sequence[Sequence[str]],
    spans: Sequence[Span | None],
    names: Sequence[str],
) -> list[tuple[int | None, str, list[_Short]]]:
    """List texts and short values of a log in order, each with the number of the call whose output it is, or None."""
    events: list[tuple[float, int, int | None, Any]] = []
    have = [span for span in spans if span is not None]
    for number, each in enumerate(arguments):
        span = have[number] if len(have) == len(arguments) else Span(made=2 * number)
        texts = len(known[number]) if known else 0
        events.append((span.made, texts, None, each))
        output = outputs[number]
        if output is not None:
            told = span.answered is not None
            when = span.answered if span.answered is not None else span.made + 0.5
            events.append((when, span.texts if told else texts, number, _parsed(output)))
    said = max(known, key=len, default=())
    timeline: list[tuple[int | None, str, list[_Short]]] = []
    heard = 0
    for _, texts, source, value in sorted(events, key=lambda event: event[0]):
        for text in said[heard:texts]:
            words = (word for word in re.findall(r"\w+", text) if len(word) < _LEAST_TEXT)
            timeline.append((None, text, [("", word) for word in words]))
        heard = max(heard, texts)
        whole = list(value.values()) if source is None else value
        tool = _name_words(names[source]) if source is not None and names else ()
        timeline.append((source, "\n".join(_words(whole)), list(_shorts(value, around=tool))))
    return timeline


def _first_seen(timeline: Sequence[tuple[int | None, str]]) -> Callable[[str], int | None]:
    """Return a function that finds the call whose output first contains a text; None if no output is first."""
    whole = "\n".join(text for _, text in timeline)
    starts = [0, *accumulate(len(text) + 1 for _, text in timeline)]

    @cache
    def first(text: str) -> int | None:
        place = whole.find(text)
        while place >= 0 and not _stands_alone(whole, place, place + len(text)):
            place = whole.find(text, place + 1)
        return timeline[bisect_right(starts, place) - 1][0] if place >= 0 else None

    return first


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Tell whether this part of a text is no part of a longer word or number, as 214 is of 2140, 1,214 or 214.5."""
    around = (
        (text[max(start - 2, 0) : start][::-1], text[start]),
        (text[end : end + 2], text[end - 1]),
    )
    return not any(_goes_on(beyond, edge) for beyond, edge in around)


def _goes_on(beyond: str, edge: str) -> bool:
    if not _is_word(edge) or not beyond:
        return False
    # A letter without case is of a script that may put no spaces between words.
    if edge.isascii() and category(beyond[0]) == "Lo":
        return False
    between, then = beyond[0], beyond[1:]
    digits = edge.isdigit() and then.isdigit()
    return (
        _is_word(between) or (between in ".-@" and _is_word(then)) or (between in ",:" and digits)
    )


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _values(value: Any) -> Iterator[str]:
    """Give the scalar values in JSON that are distinctive enough to be recognised."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _identifiers(str(key))
            yield from _values(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _values(each)
    elif isinstance(value, str):
        if len(value.strip()) >= _LEAST_TEXT:
            yield value.strip()
        inner = _parsed(value) if value.lstrip()[:1] in ("{", "[") else value
        yield from _identifiers(value) if isinstance(inner, str) else _values(inner)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, float) or abs(value) >= _LEAST_NUMBER:
        yield from _numbers(value)


def _shorts(value: Any, words: Sequence[str] = (), around: Sequence[str] = ()) -> Iterator[_Short]:
    """Give the short values in JSON, each by words of its name; ``around`` are those of what has it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if str(key).isdigit() and len(str(key)) < _LEAST_TEXT:
                yield from ((word, str(key)) for word in words or around)
            yield from _shorts(each, _name_words(str(key)), words or around)
        return
    if isinstance(value, list | tuple):
        for each in value:
            yield from _shorts(each, words, around)
        return
    text = ""
    if isinstance(value, str):
        inner = _parsed(value) if value.lstrip()[:1] in ("{", "[") else value
        if not isinstance(inner, str):
            yield from _shorts(inner, words, around)
        text = value.strip() if len(value.strip()) < _LEAST_TEXT else ""
    elif isinstance(value, int | float) and not isinstance(value, bool):
        text = f"{value:.0f}" if value in range(1 - _LEAST_NUMBER, _LEAST_NUMBER) else ""
    if text:
        named = words if words and words[-1] != "id" else {*words, *around}
        yield from ((word, text) for word in named)


def _name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name, in lower case and without a plural's s."""
    return tuple(word.lower().removesuffix("s") for word in _NAME.findall(name))


def _identifiers(text: str) -> Iterator[str]:
    """Give numbers, and words that look generated: at least four characters with a digit and a letter or sign."""
    for found in _WORD.finditer(text):
        word = found[0].rstrip(".-")
        if word.isdigit():
            if len(word) >= len(str(_LEAST_INSIDE)) and word[0] != "0":
                yield word
        elif len(word) >= _LEAST_TEXT + 1 and any(map(str.isdigit, word)):
            yield word


def _words(value: Any) -> Iterator[str]:
    """Give all texts, numbers and keys in JSON, also inside texts that are JSON themselves."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _words(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _words(each)
    elif isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ("{", "["):
            inner = _parsed(value)
            yield from () if isinstance(inner, str) else _words(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _numbers(value)


def _numbers(value: float) -> Iterator[str]:
    """Give a number as a text; a whole one that is written with a point, also without it."""
    yield json.dumps(value)
    if isinstance(value, float) and value.is_integer() and abs(value) >= _LEAST_NUMBER:
        yield json.dumps(int(value))


def _parsed(output: str) -> Any:
    try:
        return json.loads(output)
    except (ValueError, RecursionError):
        return output
