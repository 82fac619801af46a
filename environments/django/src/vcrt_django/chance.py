"""Give the same time and random numbers in each run of a step, and find the values that it still draws by chance.

``django.utils.timezone.now``, ``uuid.uuid4`` and ``random`` are replaced; another ``luck`` gives other numbers. For
``datetime.now``, the database's own clock and ``secrets``, one order runs twice. A value that only one of the runs has
in a column was drawn; its places replace it, so that two drawn keys and their references stay distinct. Only rows may
differ between the runs.
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

#: A project state, and the content of the database.
Form: TypeAlias = tuple[Json, dict[str, Json]]


class Steady:
    """A replacement for the clock and for random numbers, active from its creation on."""

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
        """Start a step of this name."""
        self._name, self._drawn = f"{name}{self.luck}", count()
        random.seed(self._name)


class Inseparable(Exception):
    """Two runs of one order that differ in more than drawn values; the arguments are differences, a text each."""


def separated(one: Form, other: Form) -> tuple[Form, tuple[str, ...]]:
    """Return the form of either run without drawn values, and the columns that hold them, each with its table.

    Raise :class:`Inseparable` if the rest differs.
    """
    if one == other:
        return one, ()
    columns = sorted({*_drawn(one, other), *_drawn(other, one)})
    found, again = _told(one, other), _told(other, one)
    if found != again:
        raise Inseparable(*differences(found, again))
    return found, tuple(f"{table}, column {name}" for table, name in columns)


def _cells(form: Form) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each row: its table, the names of its columns, and its cells."""
    names = columns_of(form[1])
    rows: Any = form[1]["rows"]
    for table, of_table in rows:
        for row in of_table:
            yield table, names[table], row


def _drawn(one: Form, other: Form) -> dict[tuple[str, str], set[Any]]:
    """Return the values of each column that the other run does not have there."""
    held: list[dict[tuple[str, str], set[Any]]] = [defaultdict(set), defaultdict(set)]
    for values, form in zip(held, (one, other), strict=True):
        for table, names, row in _cells(form):
            for name, cell in zip(names, row, strict=True):
                values[table, name].add(cell)
    found = {where: values - held[1][where] for where, values in held[0].items()}
    return {where: values for where, values in found.items() if values}


def _told(form: Form, other: Form) -> Form:
    """Return the form with each drawn value replaced by its places: the columns, and the cells beside it."""
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
