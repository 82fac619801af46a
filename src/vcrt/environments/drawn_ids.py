"""Give each call random numbers of its own, and find the ids that a log's calls drew.

A tool that draws an id draws another one in each replay. Within :func:`own_draws` what Python gives it (``uuid.uuid4``,
``secrets``, ``os.urandom``, the functions of ``random``) follows from the call alone, so that the same call draws the
same id in every order, and another call another one. Not covered: other processes, libraries in C, NumPy, and clocks.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from typing import Any

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

#: What may stand for an id: four or more characters with a letter and a digit, but no date; or eight digits.
_ID = re.compile(r"(?!\d{4}-\d\d-\d\d)(?=\D*\d)(?:(?=.*[A-Za-z])|\d{8,}$)[A-Za-z0-9_.:/+=-]{4,}")


@contextmanager
def own_draws(seed: str) -> Iterator[None]:
    """Let Python's random numbers follow from ``seed``; those of the process go on afterwards as if none were drawn."""
    blocks = (sha256(f"{seed} {number}".encode()).digest() for number in count())
    left = bytearray()

    def drawn(size: int) -> bytes:
        while len(left) < size:
            left.extend(next(blocks))
        taken = bytes(left[:size])
        del left[:size]
        return taken

    module: Any = random
    before = os.urandom, module._urandom, random.getstate()
    os.urandom = module._urandom = drawn
    random.seed(seed)
    try:
        yield
    finally:
        os.urandom, module._urandom = before[:2]
        random.setstate(before[2])


def ids_at(output: Any, places: str | Collection[str]) -> list[Any]:
    """Return what an output has at these places, such as ``order.id`` or ``*.id``; "" is the whole.

    >>> ids_at([{"id": "a1"}, {"id": "b2"}], "*.id")
    ['a1', 'b2']
    """
    found = []
    for place in [places] if isinstance(places, str) else places:
        parts = [output]
        for step in filter(None, place.split(".")):
            parts = [inner for part in parts for inner in _inside(part, step)]
        found += parts
    return found


def _inside(part: Any, step: str) -> list[Any]:
    if step == "*":
        return list(part) if isinstance(part, list) else []
    return [part[step]] if isinstance(part, Mapping) and step in part else []


def own_ids(
    logged: list[Any], drawn: list[Any], *, before: Json, log: Json, where: str
) -> dict[str, str]:
    """Return the ids that a replay drew by those of the log, where they differ.

    ``before`` is all that the log has before the call's output, and ``log`` all that it has. Raises
    :class:`MalformedInputError` for ids that may stand for something else, too.
    """
    found: dict[str, str] = {}
    for one, other in zip(logged, drawn, strict=False):
        if one == other:
            continue
        texts = [each for each in (one, other) if isinstance(each, str) and _ID.fullmatch(each)]
        fault = ""
        if len(texts) < 2 or len(logged) != len(drawn):
            fault = "a text of letters and digits, and no date, in the log and in replay"
        elif replaced(before, {one: ""}) != before:
            fault = "an id that stands nowhere before the call that drew it"
        elif replaced(log, {other: ""}) != log:
            fault = "an id in replay that stands nowhere in the log"
        elif found.setdefault(one, other) != other or list(found.values()).count(other) > 1:
            fault = "one id in replay for each id of the log"
        if fault:
            raise MalformedInputError(
                "an id may stand for something else, too",
                where=where,
                found=f"{canonical_json(one).decode()[:80]}, replayed as {canonical_json(other).decode()[:80]}",
                expected=fault,
                remedy="take the place out of `ids`, and let the tool take the id from `initial`",
            )
    return found


def replaced(value: Any, ids: Mapping[str, str]) -> Any:
    """Return JSON with ids replaced wherever they stand as whole words, in keys too.

    >>> replaced({"note": "see ev-77 and ev-771"}, {"ev-77": "ev-1"})
    {'note': 'see ev-1 and ev-771'}
    """
    if not ids:
        return value
    words = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
    whole = re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])")

    def of(part: Any) -> Any:
        if isinstance(part, str):
            return whole.sub(lambda word: ids[word[0]], part)
        if isinstance(part, Mapping):
            return {of(key): of(inner) for key, inner in part.items()}
        return [of(inner) for inner in part] if isinstance(part, list | tuple) else part

    return of(value)
