"""Which rows of a Parquet file are not those that were sealed: altered, added, missing, repeated or moved.

It reads files that are known to be wrong, as far as they can be read. Not covered: whether a file is wrong (see
:mod:`vcrt.records.sealing.integrity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.errors import DatasetError
from vcrt.records.sealing.leaves import Leaf, row_digest
from vcrt.records.tables import BROKEN, Table, open_table


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """One thing that is not as it was sealed; ``place`` is a path within the dataset, and what is meant in it."""

    what: str
    place: str
    found: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that can be read, and the number of the first of them."""

    start: int
    rows: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A part of the file that cannot be read, and why; the part of the whole file is empty."""

    part: str
    why: str


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What was sealed of one row, in its place: what it is called, and its digest."""

    label: str
    digest: str


def damaged_rows(
    path: Path, name: str, columns: tuple[str, ...], leaves: Sequence[Leaf]
) -> Iterator[Damage]:
    """What differs between the rows of file ``name`` at ``path`` and the sealed ``leaves`` of its environment."""
    rows: dict[int, dict[str, str]] = {}
    broken = False
    for group in _groups(path, columns):
        if isinstance(group, _Group):
            rows.update(enumerate(group.rows, start=group.start))
            continue
        broken = True
        yield Damage(
            what="a file of the dataset cannot be read",
            place=f"{name}{group.part}",
            found=group.why,
        )
    audit = columns[0] == "episode_id"
    if audit:
        sealed = [_Sealed(f"episode {leaf.episode}", leaf.audit) for leaf in leaves]
        labels = {i: f"episode {row['episode_id']}" for i, row in rows.items()}
    else:
        sealed = [_Sealed(f"the record of episode {leaf.episode}", leaf.policy) for leaf in leaves]
        labels = {i: f"record {row['record_id']}" for i, row in rows.items()}
    digests = {i: row_digest(row) for i, row in rows.items()}
    found = list(_compared(name, labels, digests, sealed, whole=not broken))
    yield from found
    if not found and not broken:
        yield from _moved(name, labels, digests, sealed if audit else None)


def _groups(path: Path, columns: tuple[str, ...]) -> Iterator[_Group | _Unreadable]:
    try:
        with open_table(path, columns) as table:
            start = 0
            for group, num_rows in enumerate(each.num_rows for each in table.groups):
                try:
                    yield _Group(start, table.rows(group))
                except BROKEN as error:
                    yield from _broken_columns(table, group, start, error)
                start += num_rows
    except BROKEN as error:
        yield _Unreadable("", _short(error))


def _broken_columns(
    table: Table, group: int, start: int, whole: BaseException
) -> Iterator[_Unreadable]:
    """The columns that cannot be read, or the rows as a whole if each of them can."""
    rows = f", rows {start} to {start + table.groups[group].num_rows - 1}"
    broken = False
    for column, name in enumerate(table.columns):
        try:
            table.require_column(group, column)
        except BROKEN as error:
            broken = True
            yield _Unreadable(f"{rows}, column {name}", _short(error))
    if not broken:
        yield _Unreadable(rows, _short(whole))


def _compared(
    name: str,
    labels: Mapping[int, str],
    digests: Mapping[int, str],
    sealed: Sequence[_Sealed],
    *,
    whole: bool,
) -> Iterator[Damage]:
    by_digest = {one.digest: one for one in sealed}
    known = {one.label: one for one in sealed}
    first_place: dict[str, int] = {}
    altered = set()
    for place, digest in digests.items():
        where = f"{name}, row {place}, {labels[place]}"
        if digest in first_place:
            yield Damage(
                what="a row of the dataset stands there twice",
                place=where,
                found=f"the same as row {first_place[digest]}",
            )
        elif digest not in by_digest and labels[place] in known:
            altered.add(labels[place])
            yield Damage(
                what="a row of the dataset was altered",
                place=where,
                found=f"SHA-256 {digest}",
                expected=f"SHA-256 {known[labels[place]].digest}",
            )
        elif digest not in by_digest:
            yield Damage(
                what="a row of the dataset was altered or added",
                place=where,
                found=f"SHA-256 {digest}",
                expected="one of the rows that were sealed",
            )
        first_place.setdefault(digest, place)
    for one in sealed if whole else ():
        if one.digest not in first_place and one.label not in altered:
            yield Damage(
                what="a row of the dataset is missing",
                place=f"{name}, {one.label}",
                expected=f"a row with SHA-256 {one.digest}",
            )


def _moved(
    name: str,
    labels: Mapping[int, str],
    digests: Mapping[int, str],
    sealed: Sequence[_Sealed] | None,
) -> Iterator[Damage]:
    """Rows that are all there, but not in the order of the seal; policy rows (None) are sorted by their record."""
    by_label = sorted(labels, key=lambda place: labels[place])
    expected = [digests[i] for i in by_label] if sealed is None else [s.digest for s in sealed]
    places = {digest: place for place, digest in enumerate(expected)}
    for place, digest in digests.items():
        if expected[place] != digest:
            yield Damage(
                what="a row of the dataset is not in its place",
                place=f"{name}, row {place}, {labels[place]}",
                expected=f"row {places[digest]}",
            )


def _short(error: BaseException) -> str:
    if isinstance(error, DatasetError) and error.found:
        return f"{error.what}: {error.found}"[:160]
    return (str(error).splitlines() or [type(error).__name__])[0][:160]
