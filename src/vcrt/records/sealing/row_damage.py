"""Which rows of a file are not those that were sealed: altered, added, missing, repeated or moved.

It reads files that are known to be wrong, as far as they can be read. Not covered: whether a file is wrong (see
:mod:`vcrt.records.sealing.integrity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.documents import in_a_line
from vcrt.errors import DatasetError
from vcrt.hashing import sha256_hex
from vcrt.records.rows import read_lines, row_of
from vcrt.records.sealing.leaves import Leaf


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """One thing that is not as it was sealed; ``place`` is a path within the dataset, and what is meant in it."""

    what: str
    place: str
    found: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class _Sealed:
    """What was sealed of one row, in its place: what it is called, and its digest."""

    label: str
    digest: str


def damaged_rows(
    path: Path, name: str, columns: tuple[str, ...], leaves: Sequence[Leaf]
) -> Iterator[Damage]:
    """What differs between the rows of file ``name`` at ``path`` and the sealed ``leaves`` of its environment."""
    audit = columns[0] == "episode_id"
    if audit:
        sealed = [_Sealed(f"episode {leaf.episode}", leaf.audit) for leaf in leaves]
    else:
        sealed = [_Sealed(f"the record of episode {leaf.episode}", leaf.policy) for leaf in leaves]
    labels: list[str] = []
    digests: list[str] = []
    broken: DatasetError | None = None
    try:
        for line in read_lines(path):
            digests.append(sha256_hex(line))
            labels.append(_label(line, columns))
    except DatasetError as error:
        broken = error
    found = list(_compared(name, labels, digests, sealed, whole=broken is None))
    yield from found
    if broken is not None:
        yield Damage(
            what=broken.what,
            place=f"{name}, row {len(digests)} and what follows",
            found=broken.found,
        )
    elif not found:
        yield from _moved(name, labels, digests, sealed if audit else None)


def _label(line: bytes, columns: tuple[str, ...]) -> str:
    """What a line calls itself."""
    try:
        row = row_of(line, columns)
    except ValueError as error:
        return f"which is no row: {in_a_line(error)}"
    return f"{'episode' if columns[0] == 'episode_id' else 'record'} {row[columns[0]][:200]}"


def _compared(
    name: str,
    labels: Sequence[str],
    digests: Sequence[str],
    sealed: Sequence[_Sealed],
    *,
    whole: bool,
) -> Iterator[Damage]:
    by_digest = {one.digest: one for one in sealed}
    known = {one.label: one for one in sealed}
    first_place: dict[str, int] = {}
    altered = set()
    for place, digest in enumerate(digests):
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
    labels: Sequence[str],
    digests: Sequence[str],
    sealed: Sequence[_Sealed] | None,
) -> Iterator[Damage]:
    """Rows that are all there, but not in the order of the seal; policy rows (None) are sorted by their record."""
    by_label = sorted(range(len(labels)), key=lambda place: labels[place])
    expected = [digests[i] for i in by_label] if sealed is None else [s.digest for s in sealed]
    places = {digest: place for place, digest in enumerate(expected)}
    for place, digest in enumerate(digests):
        if expected[place] != digest:
            yield Damage(
                what="a row of the dataset is not in its place",
                place=f"{name}, row {place}, {labels[place]}",
                expected=f"row {places[digest]}",
            )
