"""Longer changes: groups of statements that depend on each other, each on a table of its own, among others that do not.

Nothing here is trusted: whether the statements have the relations that are noted comes out of the replays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, permutations

from vcrt.environments.contract import Schema
from vcrt.environments.posets import MAX_ANTI_DIAMONDS, draw_extension
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import Generator
from vcrt_sqlite.statements import WORDS

#: The schemas, with how many statements their episodes have.
LONG = tuple(
    Schema(
        name=f"statements{size}",
        summary=f"{size} statements, some of which make, need or change what others do",
        relation="either",
        num_steps=size,
    )
    for size in (6, 12)
)
#: What all episodes have: rows of goods from 1 to 12, and people from 1 to 6.
SHOP = (
    "CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price INTEGER, stock INTEGER)",
    "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
)
GOODS, PEOPLE = range(1, 13), range(1, 7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Statements in their order, the table that they need, and which of them (before, after) must not be swapped."""

    setup: tuple[str, ...] = ()
    statements: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]


class Draws:
    """New names, and numbers."""

    def __init__(self, rng: Generator) -> None:
        self.rng = rng
        words = rng.permutation(WORDS.split())
        self._names = chain(words, map("_".join, permutations(words, 2)))

    def name(self) -> str:
        """A name that was not drawn before."""
        return next(self._names)

    def number(self, low: int = 2, high: int = 1000) -> int:
        """An integer from ``low`` up to, not including, ``high``."""
        return self.rng.integers(low, high)

    def below(self, number: int) -> int:
        """An integer from 0 up to, not including, ``number``."""
        return self.number(0, number)


def draw_long(num_steps: int, rng: Generator) -> tuple[list[str], list[str]]:
    """The statements of a setup, and ``num_steps`` statements with one to six pairs that must keep their order."""
    draws = Draws(rng)
    groups = _groups(draws, num_steps)
    statements = [statement for group in groups for statement in group.statements]
    others = _others(draws)
    missing = num_steps - len(statements)
    statements += [others[i] for i in rng.permutation(len(others))[:missing]]
    pairs, start = [], 0
    for group in groups:
        pairs += [(start + a, start + b) for a, b in group.pairs]
        start += len(group.statements)
    # Singles stand anywhere, and so do the groups among each other.
    names = rng.permutation(num_steps)
    renamed = PartialOrder.of(num_steps, [(names[a], names[b]) for a, b in pairs])
    order = draw_extension(renamed, draws.below)
    setup = [*SHOP, *_rows(draws), *(text for group in groups for text in group.setup)]
    return setup, [statements[names.index(step)] for step in order]


def _groups(draws: Draws, num_steps: int) -> list[Group]:
    """Groups with as many pairs as were drawn and no more statements than there is room for."""
    number = 1 + draws.below(MAX_ANTI_DIAMONDS)
    while True:
        groups: list[Group] = []
        while (left := number - sum(len(group.pairs) for group in groups)) > 0:
            drawn = KINDS[draws.below(len(KINDS))](draws, left)
            groups += [drawn] if len(drawn.pairs) <= left else []
        if sum(len(group.statements) for group in groups) <= num_steps:
            return groups


def _new_column(draws: Draws, left: int) -> Group:
    table, column = draws.name(), draws.name()
    uses = 1 + draws.below(left)
    return Group(
        setup=_table(draws, table, uses),
        statements=(
            f"ALTER TABLE {table} ADD COLUMN {column} INTEGER",
            *(
                f"UPDATE {table} SET {column} = {draws.number()} WHERE id = {row}"
                for row in range(1, uses + 1)
            ),
        ),
        pairs=tuple((0, use) for use in range(1, uses + 1)),
    )


def _new_table(draws: Draws, left: int) -> Group:
    table, uses = draws.name(), 1 + draws.below(left)
    return Group(
        statements=(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, price INTEGER)",
            *(
                f"INSERT INTO {table} (id, price) VALUES ({row}, {draws.number()})"
                for row in range(1, uses + 1)
            ),
        ),
        pairs=tuple((0, use) for use in range(1, uses + 1)),
    )


def _unique_name(draws: Draws, left: int) -> Group:
    """All rows but the first have to go before their common name may be unique."""
    table, name, doubles = draws.name(), draws.name(), 1 + draws.below(left)
    return Group(
        setup=(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT)",
            *(f"INSERT INTO {table} VALUES ({row}, '{name}')" for row in range(1, doubles + 2)),
        ),
        statements=(
            *(f"DELETE FROM {table} WHERE id = {row}" for row in range(2, doubles + 2)),
            f"CREATE UNIQUE INDEX {table}_name ON {table} (name)",
        ),
        pairs=tuple((double, doubles) for double in range(doubles)),
    )


def _one_price(draws: Draws, left: int) -> Group:
    """Changes of one price, any two of which give another one when swapped."""
    table = draws.name()
    # Odd and large: no change leaves the price as it is, or makes it 0.
    changes = (
        f"price * {draws.number()}",
        f"price + {draws.number()}",
        f"{20_000_001 + 2 * draws.number()} - price",
    )[: 2 if left < 3 else 2 + draws.below(2)]
    return Group(
        setup=_table(draws, table, 1),
        statements=tuple(f"UPDATE {table} SET price = {c} WHERE id = 1" for c in changes),
        pairs=((0, 1),) if len(changes) == 2 else ((0, 1), (0, 2), (1, 2)),
    )


def _two_columns(draws: Draws, left: int) -> Group:
    table = draws.name()
    return Group(
        setup=_table(draws, table, 1),
        statements=(
            f"ALTER TABLE {table} ADD COLUMN {draws.name()} INTEGER",
            f"ALTER TABLE {table} ADD COLUMN {draws.name()} TEXT",
        ),
        pairs=((0, 1),),
    )


def _grown_table(draws: Draws, left: int) -> Group:
    table, column = draws.name(), draws.name()
    return Group(
        statements=(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)",
            f"ALTER TABLE {table} ADD COLUMN {column} INTEGER",
            f"INSERT INTO {table} (id, {column}) VALUES (1, {draws.number()})",
        ),
        pairs=((0, 1), (1, 2)),
    )


def _new_name(draws: Draws, left: int) -> Group:
    """One change speaks of a column by its old name, the other by its new one."""
    table, column = draws.name(), draws.name()
    return Group(
        setup=_table(draws, table, 2),
        statements=(
            f"UPDATE {table} SET price = price + {draws.number()} WHERE id = 1",
            f"ALTER TABLE {table} RENAME COLUMN price TO {column}",
            f"UPDATE {table} SET {column} = {column} + {draws.number()} WHERE id = 2",
        ),
        pairs=((0, 1), (1, 2)),
    )


def _column_and_changes(draws: Draws, left: int) -> Group:
    """A column, and two changes of one value in it, any two of which give another one when swapped."""
    table, column = draws.name(), draws.name()
    return Group(
        setup=_table(draws, table, 1),
        statements=(
            f"ALTER TABLE {table} ADD COLUMN {column} INTEGER DEFAULT {draws.number(1000, 2000)}",
            f"UPDATE {table} SET {column} = {draws.number()} WHERE id = 1",
            f"UPDATE {table} SET {column} = {column} * {draws.number()} WHERE id = 1",
        ),
        pairs=((0, 1), (0, 2), (1, 2)),
    )


#: The kinds of groups; each is given the most pairs that it should have.
KINDS: tuple[Callable[[Draws, int], Group], ...] = (
    _new_column,
    _new_table,
    _unique_name,
    _one_price,
    _two_columns,
    _grown_table,
    _new_name,
    _column_and_changes,
)


def _table(draws: Draws, table: str, rows: int) -> tuple[str, ...]:
    return (
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, price INTEGER)",
        *(f"INSERT INTO {table} VALUES ({row}, {draws.number()})" for row in range(1, rows + 1)),
    )


def _rows(draws: Draws) -> Iterator[str]:
    for row in GOODS:
        yield f"INSERT INTO goods VALUES ({row}, '{draws.name()}', {draws.number()}, {draws.number()})"
    for row in PEOPLE:
        yield f"INSERT INTO people VALUES ({row}, '{draws.name()}', '{draws.name()}')"


def _others(draws: Draws) -> list[str]:
    """Statements that commute with each other and with every group: each about a row, or a table, of its own."""
    goods = [GOODS[i] for i in draws.rng.permutation(len(GOODS))]
    return [
        *(f"UPDATE goods SET stock = stock - {draws.number()} WHERE id = {i}" for i in goods[:6]),
        *(f"DELETE FROM goods WHERE id = {row}" for row in goods[6:10]),
        *(f"UPDATE people SET name = '{draws.name()}' WHERE id = {row}" for row in PEOPLE),
        *(
            f"INSERT INTO people (id, name) VALUES ({new}, '{draws.name()}')"
            for new in (draws.number(10, 500), draws.number(500, 1000))
        ),
        *(
            f"CREATE TABLE {draws.name()} (id INTEGER PRIMARY KEY, person INTEGER)"
            for _ in range(3)
        ),
        f"ALTER TABLE people RENAME COLUMN city TO {draws.name()}",
        "CREATE INDEX people_by_name ON people (name)",
    ]
