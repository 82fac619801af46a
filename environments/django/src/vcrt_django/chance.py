"""Give the same time and random numbers each time a step is run, and tell what it draws by chance all the same.

Given are ``django.utils.timezone.now``, ``uuid.uuid4`` and ``random``; of other ``luck`` they are other numbers. For
``datetime.now``, the database's own clock and ``secrets`` one order is run twice. A value that only one of the runs has
in a column was drawn; in its place stands where it is found, so that two drawn keys and what refers to them stay apart.
Not covered: what but rows is different each time.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import wraps
from itertools import count
from typing import Any, TypeAlias

from django.conf import settings
from django.utils import timezone

from vcrt.hashing import Json, json_digest
from vcrt_django.catalogue import columns_of, differences

#: A project state, and what the database holds.
Form: TypeAlias = tuple[Json, dict[str, Json]]


class Steady:
    """What stands in place of the clock and of random numbers, from when it is made."""

    def __init__(self, now: str) -> None:
        self.luck = ""
        moment = datetime.fromisoformat(now)
        self.begin("")

        @wraps(timezone.now)
        def fixed() -> datetime:
            return moment if settings.USE_TZ else moment.astimezone().replace(tzinfo=None)

        @wraps(uuid.uuid4)
        def drawn() -> uuid.UUID:
            digest = hashlib.sha256(f"{self._name} {next(self._drawn)}".encode()).digest()
            return uuid.UUID(bytes=digest[:16], version=4)

        timezone.now = fixed
        uuid.uuid4 = drawn

    def begin(self, name: str) -> None:
        """From now on a step of this name is run."""
        self._name, self._drawn = f"{name}{self.luck}", count()
        random.seed(self._name)


class Inseparable(Exception):
    """Two runs of one order that differ in more than what is drawn; the arguments are differences, a text each."""


def separated(one: Form, other: Form) -> tuple[Form, tuple[str, ...]]:
    """The form of either run without what is drawn, and the columns that hold it, each with its table.

    Raises :class:`Inseparable`.
    """
    if one == other:
        return one, ()
    columns = sorted({*_drawn(one, other), *_drawn(other, one)})
    found, again = _told(one, other), _told(other, one)
    if found != again:
        raise Inseparable(*differences(found, again))
    return found, tuple(f"{table}, column {name}" for table, name in columns)


def _cells(form: Form) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each row: its table, the names of its columns, and its cells."""
    names = columns_of(form[1])
    rows: Any = form[1]["rows"]
    for table, of_table in rows:
        for row in of_table:
            yield table, names[table], row


def _drawn(one: Form, other: Form) -> dict[tuple[str, str], set[Any]]:
    """The values of each column that the other run does not have there."""
    held: list[dict[tuple[str, str], set[Any]]] = [defaultdict(set), defaultdict(set)]
    for values, form in zip(held, (one, other), strict=True):
        for table, names, row in _cells(form):
            for name, cell in zip(names, row, strict=True):
                values[table, name].add(cell)
    found = {where: values - held[1][where] for where, values in held[0].items()}
    return {where: values for where, values in found.items() if values}


def _told(form: Form, other: Form) -> Form:
    """The form with, for each value that was drawn, where it is found: in which columns, beside what."""
    drawn = _drawn(form, other)
    signs: dict[Any, str] = dict.fromkeys(set[Any]().union(*drawn.values()), "drawn")

    def told(table: str, names: list[str], row: list[Any]) -> list[Any]:
        return [
            signs[cell] if cell in drawn.get((table, name), ()) else cell
            for name, cell in zip(names, row, strict=True)
        ]

    number = 0
    while len({*signs.values()}) > number:
        number = len({*signs.values()})
        places: dict[Any, list[Json]] = {value: [] for value in signs}
        for table, names, row in _cells(form):
            around: Json = list(told(table, names, row))
            for name, cell in zip(names, row, strict=True):
                if cell in drawn.get((table, name), ()):
                    places[cell].append([table, name, around])
        signs = {
            value: f"drawn {json_digest([signs[value], sorted(found, key=repr)])[:16]}"
            for value, found in places.items()
        }
    rows: dict[str, list[Json]] = {}
    for table, names, row in _cells(form):
        rows.setdefault(table, []).append(told(table, names, row))
    tables: Any = form[1]["rows"]
    ordered: list[Json] = [[t, sorted(rows.get(t, []), key=repr)] for t, _ in tables]
    return form[0], {**form[1], "rows": ordered}
