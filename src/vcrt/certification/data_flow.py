"""Find which calls take a value that an earlier call gave: dependencies that replay with fixed arguments cannot see.

A value of an argument that is first seen in an earlier output may have been taken from there. Nothing certifies it, and
nothing refutes it; it is kept apart from what was replayed. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcrt.hashing import Json

#: Texts of fewer characters, and whole numbers below this, are found everywhere by chance.
_LEAST_TEXT, _LEAST_NUMBER = 3, 10
#: Words inside of a longer text that look made up: of four or more characters, with a digit and a letter or sign.
_IDENTIFIER = re.compile(
    r"\b(?=[\w.-]{0,63}\d)(?=[\w.-]{0,63}[A-Za-z_-])\w[\w.-]{2,62}\w\b", re.ASCII
)


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
) -> tuple[DataFlow, ...]:
    """The flows between calls, sorted: for each value of an argument, from the call that gave it first.

    ``outputs`` are canonical JSON; ``known[k]`` are texts that stand before call ``k``: a value that is in one of them,
    or in an argument before it was given, flows from no call.

    >>> data_flow([{}, {"id": "a-17"}], ['{"made":"a-17"}', "null"])
    (DataFlow(first=0, second=1, argument='id', value='a-17'),)
    >>> data_flow([{}, {"to": "see /orders/a-17, please"}], ['"made a-17."', "null"])
    (DataFlow(first=0, second=1, argument='to', value='a-17'),)
    """
    given: dict[str, int] = {}
    used: set[str] = set()
    found: list[DataFlow] = []
    for number, each in enumerate(arguments):
        texts = known[number] if number < len(known) else ()
        for name, value in each.items():
            for text in dict.fromkeys(_values(value)):
                source = given.get(text)
                if source is not None and not any(text in before for before in texts):
                    found.append(DataFlow(source, number, name, text))
        used.update(text for value in each.values() for text in _values(value))
        output = outputs[number]
        for text in () if output is None else _values(_parsed(output)):
            if text not in used:
                given.setdefault(text, number)
    return tuple(sorted(found))


def _values(value: Any) -> Iterator[str]:
    """The values in JSON that are no containers and say enough to be recognised."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _values(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _values(each)
    elif isinstance(value, str):
        if len(value.strip()) >= _LEAST_TEXT:
            yield value.strip()
        yield from _IDENTIFIER.findall(value)
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, float) or abs(value) >= _LEAST_NUMBER:
        yield json.dumps(value)


def _parsed(output: str) -> Any:
    try:
        return json.loads(output)
    except ValueError:
        return output
