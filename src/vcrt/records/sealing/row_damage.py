"""Find which rows of a file are not those that were sealed: altered, added, missing, repeated or moved.

It reads files that are known to be wrong, as far as they can be read. Not covered: whether a file is wrong (see
:mod:`vcrt.records.sealing.integrity`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vcrt.errors import DatasetError
from vcrt.hashing import sha256_hex
from vcrt.records.folder import Damage
from vcrt.records.rows import read_lines, row_of
from vcrt.records.sealing.leaves import Leaf


def damaged_rows(
    path: Path, name: str, columns: tuple[str, ...], leaves: Sequence[Leaf]
) -> Iterator[Damage]:
    """What differs between the rows of file ``name`` at ``path`` and the sealed ``leaves`` of its environment."""
    is_audit = columns[0] == "episode_id"
    if is_audit:
        sealed = {leaf.audit: f"episode {leaf.episode}" for leaf in leaves}
    else:
        sealed = {leaf.policy: f"the record of episode {leaf.episode}" for leaf in leaves}
    # By place; the rows of a policy file stand in another order.
    episodes = list(sealed.values()) if is_audit else []
    labels: list[str] = []
    digests: list[str] = []
    broken: DatasetError | None = None
    try:
        for place, line in enumerate(read_lines(path)):
            digests.append(sha256_hex(line))
            labels.append(_label(line, columns) or next(iter(episodes[place:]), "no row"))
    except DatasetError as error:
        broken = error
    found = list(_altered(name, labels, digests, sealed))
    if broken is not None:
        reached = [f"row {len(digests)}", *episodes[len(digests) : len(digests) + 1]]
        place_of_it = f"{name}, {', '.join(reached)} and what follows"
        found.append(Damage(what=broken.what, place=place_of_it, found=broken.found))
    else:
        found += _missing(name, labels, digests, sealed)
    expected = (
        list(sealed) if is_audit else [d for _, d in sorted(zip(labels, digests, strict=True))]
    )
    yield from found or _moved(name, labels, digests, expected)


def _label(line: bytes, columns: tuple[str, ...]) -> str | None:
    """What a line calls itself; None if it is no row."""
    try:
        row = row_of(line, columns)
    except ValueError:
        return None
    return f"{'episode' if columns[0] == 'episode_id' else 'record'} {row[columns[0]][:200]}"


def _altered(
    name: str, labels: Sequence[str], digests: Sequence[str], sealed: Mapping[str, str]
) -> Iterator[Damage]:
    """Rows that were not sealed, and those that stand there twice; ``sealed`` are the labels by digest."""
    by_label = {label: digest for digest, label in sealed.items()}
    first_place: dict[str, int] = {}
    for place, (label, digest) in enumerate(zip(labels, digests, strict=True)):
        where = f"{name}, row {place}, {label}"
        if digest in first_place:
            yield Damage(
                what="a row of the dataset stands there twice",
                place=where,
                found=f"the same as row {first_place[digest]}",
            )
        elif digest not in sealed:
            original = by_label.get(label)
            yield Damage(
                what=f"a row of the dataset was altered{' or added' * (original is None)}",
                place=where,
                found=f"SHA-256 {digest}",
                expected=f"SHA-256 {original}" if original else "one of the rows that were sealed",
            )
        first_place.setdefault(digest, place)


def _missing(
    name: str, labels: Sequence[str], digests: Sequence[str], sealed: Mapping[str, str]
) -> Iterator[Damage]:
    there = {*labels, *(sealed[digest] for digest in digests if digest in sealed)}
    for digest, label in sealed.items():
        if label not in there:
            yield Damage(
                what="a row of the dataset is missing",
                place=f"{name}, {label}",
                expected=f"a row with SHA-256 {digest}",
            )


def _moved(
    name: str, labels: Sequence[str], digests: Sequence[str], expected: Sequence[str]
) -> Iterator[Damage]:
    """Rows that are all there, but not in the order of the seal; policy rows are sorted by their record."""
    places = {digest: place for place, digest in enumerate(expected)}
    for place, digest in enumerate(digests):
        if expected[place] != digest:
            yield Damage(
                what="a row of the dataset is not in its place",
                place=f"{name}, row {place}, {labels[place]}",
                expected=f"row {places[digest]}",
            )
