"""Ways to tamper with a dataset's folder, one at a time; each names the files of which one must be blamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import POLICY_COLUMNS
from vcrt.records.rows import read_rows, write_rows
from vcrt.records.sealing.integrity import examine_integrity


@dataclass(frozen=True)
class Tampering:
    """What is done to a copy of a dataset, and what of the damage found must say where it was done."""

    name: str
    do: Callable[[Path], object]
    blamed: str


def files_of(path):
    return sorted(f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file())


def flips(path, name, positions, masks):
    """Flip bytes in place, one at a time; gives what was found each time and puts the byte back."""
    original = (path / name).read_bytes()
    descriptor = os.open(path / name, os.O_WRONLY)
    try:
        for position in positions if positions is not None else range(len(original)):
            for mask in masks(position):
                os.pwrite(descriptor, bytes([original[position] ^ mask]), position)
                yield position, mask, examine_integrity(path).damage
            os.pwrite(descriptor, original[position : position + 1], position)
    finally:
        os.close(descriptor)
        assert (path / name).read_bytes() == original


def blames(damage, place):
    """Whether a place, and nothing but it, is blamed."""
    return bool(damage) and all(one.place.startswith(place) for one in damage)


def row_tamperings(path, name) -> Iterator[Tampering]:
    """Drop, duplicate, swap, alter and add every row of a file."""
    columns = AUDIT_COLUMNS if name.startswith("audit") else POLICY_COLUMNS
    rows = read_rows(path / name, columns)
    key = columns[0]

    def rewritten(change):
        def do(copy):
            new = [dict(row) for row in rows]
            change(new)
            write_rows(new, copy / name)

        return do

    def swap(a, b):
        def change(new):
            new[a], new[b] = new[b], new[a]

        return change

    for i, row in enumerate(rows):
        label = row[key]
        missing = label if key == "episode_id" else name
        yield Tampering(f"drop row {i}", rewritten(lambda new, i=i: new.pop(i)), missing)
        yield Tampering(
            f"duplicate row {i}",
            rewritten(lambda new, i=i: new.insert(i, new[i])),
            f"row {i + 1}, ",
        )
        yield Tampering(
            f"add a row like row {i}",
            rewritten(lambda new, i=i: new.append({**new[i], key: "x/" + new[i][key]})),
            f"row {len(rows)}, ",
        )
        for column in columns:
            yield Tampering(
                f"alter {column} of row {i}",
                rewritten(
                    lambda new, i=i, column=column: new[i].update({column: new[i][column] + " "})
                ),
                f"row {i}, ",
            )
        for other, another in enumerate(rows):
            if other != i:
                yield Tampering(
                    f"overwrite row {i} by row {other}",
                    rewritten(lambda new, i=i, another=another: new.__setitem__(i, another)),
                    f"row {max(i, other)}, ",
                )
    for a, b in combinations(range(len(rows)), 2):
        yield Tampering(f"swap rows {a} and {b}", rewritten(swap(a, b)), f"row {a}, ")
    yield Tampering("drop all rows", rewritten(lambda new: new.clear()), name)
    yield Tampering(
        "drop a column",
        lambda copy: write_rows([{c: r[c] for c in columns[:-1]} for r in rows], copy / name),
        name,
    )


def line_tamperings(path, name) -> Iterator[Tampering]:
    """Drop, duplicate and swap with the next every line of a text file."""
    lines = (path / name).read_bytes().splitlines(keepends=True)

    def written(new):
        return lambda copy: (copy / name).write_bytes(b"".join(new))

    for i in range(len(lines)):
        yield Tampering(f"drop line {i + 1}", written(lines[:i] + lines[i + 1 :]), name)
        yield Tampering(f"duplicate line {i + 1}", written(lines[: i + 1] + lines[i:]), name)
        swapped = [*lines[:i], *lines[i : i + 2][::-1], *lines[i + 2 :]]
        if swapped != lines:
            yield Tampering(f"swap lines {i + 1} and {i + 2}", written(swapped), name)


def folder_tamperings(path) -> Iterator[Tampering]:
    """Remove, empty, cut, link and swap every file, and put things beside them."""
    names = files_of(path)
    for name in names:
        if name != "agreement.json":
            yield Tampering("remove", lambda copy, name=name: (copy / name).unlink(), name)
        yield Tampering("empty", lambda copy, name=name: (copy / name).write_bytes(b""), name)
        yield Tampering("cut", lambda copy, name=name: _cut(copy / name), name)
        yield Tampering("lengthen", lambda copy, name=name: _lengthen(copy / name), name)
        yield Tampering("link", lambda copy, name=name: _link(copy / name), name)
        yield Tampering("directory", lambda copy, name=name: _directory(copy / name), name)
        for folder in ("", "audit/", "policy/"):
            extra = f"{folder}copy-of-{Path(name).name}"
            yield Tampering(
                f"add {extra}",
                lambda copy, name=name, extra=extra: shutil.copy(copy / name, copy / extra),
                extra,
            )
    for one, other in combinations(names, 2):
        yield Tampering(
            f"swap with {other}",
            lambda copy, one=one, other=other: _swap(copy / one, copy / other),
            one,
        )
    for name, make in {
        "audit/.hidden": lambda p: p.write_bytes(b""),
        "other": lambda p: p.mkdir(),
        "policy/other": lambda p: p.mkdir(),
        "pipe": os.mkfifo,
        "loop": lambda p: p.symlink_to(p.parent),
        "dangling": lambda p: p.symlink_to("nowhere"),
        "audit/.seal.json.unfinished-x": lambda p: p.write_bytes(b""),
    }.items():
        yield Tampering(f"add {name}", lambda copy, name=name, make=make: make(copy / name), name)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _lengthen(path):
    path.write_bytes(path.read_bytes() + b"\n")


def _link(path):
    elsewhere = Path(os.fspath(path.parent) + f"-{path.name}")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _directory(path):
    path.unlink()
    path.mkdir()


def _swap(one, other):
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
