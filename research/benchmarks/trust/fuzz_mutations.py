"""Seeded mutations of valid inputs: of bytes, of text, and of JSON values by their structure.

Equal generators give equal mutations, so that an input is known by its reader, its number and the seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Path = tuple[str | int, ...]
Reseal = Callable[[Any], Any]

#: Numbers, texts and shapes that readers tend not to expect. Long ones are made by :func:`odd_value`.
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**53 + 1, 2**63, 2**64, -(2**64), 10**30),
    *(0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")),
    *("", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u2028", "\ufeff", "٣", "İ", "🜁" * 3),
    *("../x", "/etc/passwd", "..", ".", "a/b", "a\\b", "con:", "~", "%s%n", "{0}", "'; --"),
    *("0" * 64, "f" * 64, "g" * 64, "x" * 300, "commutes", "precedes", "conflicts", "1", "-1"),
    *([], {}, [[]], [{}], {"": None}, [None] * 9, [0, 1, 2, 3], [[0, 1, "precedes"]] * 3),
)
TOKENS: tuple[bytes, ...] = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\n",
        b"\r\n",
        b'"',
        b"\\",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"(",
        b")",
        b"->",
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"null",
    ),
    *(
        b"\\ud800",
        b"\\u0000",
        b"9" * 5000,
        b"-",
        b"--",
        b"/-",
        b"-/",
        b":=",
        b" by ",
        b"\xe2\x9f\xa8",
    ),
    *(
        b"someone",
        b"If ",
        b" then ",
        b" and ",
        b"not ",
        b"~",
        b'"+"',
        b"\xc2\xa0",
        b"PAR1",
        b"SQLite",
    ),
)
#: Sizes of what is made long, and how rarely.
LONG = (1_000, 10_000, 100_000, 1_000_000)
LONGEST = 4_000_000


def mutated_bytes(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One to four small changes: bits, bytes, cuts, repeats, splices with another input, odd tokens."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        place = rng.randrange(size + 1)
        kind = rng.randrange(9)
        if kind == 0 and size:
            changed[place % size] ^= 1 << rng.randrange(8)
        elif kind == 1 and size:
            changed[place % size] = rng.randrange(256)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + rng.randrange(1, 17)]
        elif kind == 4:
            changed[place:place] = rng.choice(TOKENS)
        elif kind == 5:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            changed[place:] = other[start:]
        elif kind == 6:
            piece = bytes(changed[place : place + rng.randrange(1, 65)])
            changed[place:place] = piece * rng.choice((1, 2, 3, 50))
        elif kind == 7 and size >= 4:
            place = min(place, size - 4)
            number = rng.choice((0, 1, 0x7F, 0xFF, 2**31 - 1, 2**32 - 1, size))
            changed[place : place + 4] = number.to_bytes(4, rng.choice(("little", "big")))
        else:
            changed[place:place] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
    if rng.random() < 0.0005:
        token = rng.choice(TOKENS)
        place = rng.randrange(len(changed) + 1)
        changed[place:place] = token * min(rng.choice(LONG), LONGEST // len(token))
    return bytes(changed)


def paths_of(value: Any, path: Path = ()) -> list[Path]:
    """The place of every value within a JSON value, itself included."""
    found = [path]
    if isinstance(value, dict):
        for name, child in value.items():
            found += paths_of(child, (*path, name))
    elif isinstance(value, list):
        for place, child in enumerate(value):
            found += paths_of(child, (*path, place))
    return found


def odd_value(rng: random.Random) -> Any:
    """A value that is odd, or long, or deep."""
    chance = rng.random()
    if chance < 0.995:
        return rng.choice(ODD)
    size = rng.choice(LONG)
    return rng.choice(
        ("x" * size, "é" * size, list(range(min(size, 100_000))), 10 ** min(size, 4200))
    )


def replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy of ``value`` with what stands at ``path`` changed; all else is shared."""
    if not path:
        return change(value)
    head, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[head] = replaced(copy[head], tuple(rest), change)
    return copy


def mutated_value(value: Any, paths: Sequence[Path], rng: random.Random) -> Any:
    """One to three changes of structure: another value, a missing, added, doubled, moved or swapped one."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(paths)
        kind = rng.randrange(8)

        def change(old: Any, kind: int = kind) -> Any:
            if kind <= 3:
                return odd_value(rng)
            if kind == 4 and isinstance(old, dict) and old:
                gone = rng.choice(list(old))
                return {name: part for name, part in old.items() if name != gone}
            if kind == 4 and isinstance(old, list) and old:
                gone = rng.randrange(len(old))
                return old[:gone] + old[gone + 1 :]
            if kind == 5 and isinstance(old, dict):
                return {**old, rng.choice(("extra", "", "__class__", "../x", "0")): odd_value(rng)}
            if kind == 5 and isinstance(old, list):
                return [*old, *(old[:1] or [odd_value(rng)])] * rng.choice((1, 1, 2, 30))
            if kind == 6 and isinstance(old, int) and not isinstance(old, bool):
                return old + rng.choice((-1, 1, 2**40, -(2**40)))
            if kind == 6 and isinstance(old, str):
                return old + rng.choice(("x", "\0", "\ud800", " ", "/..", old))
            if kind == 7:
                return [old] if rng.random() < 0.5 else {"value": old}
            return rng.choice(ODD)

        try:
            value = replaced(value, path, change)
        except (KeyError, IndexError, TypeError):
            # An earlier change took the place away.
            continue
    return value


def json_bytes(value: Any, rng: random.Random) -> bytes:
    """JSON text of a value, NaN included; now and then an object's first field twice, or 100,000 deep."""
    text = json.dumps(value)
    chance = rng.random()
    if chance < 0.01 and text.startswith("{") and len(text) > 2:
        text = "{" + text[1:-1] + "," + text[1:]
    elif chance < 0.0105:
        depth = rng.choice((70, 500, 3_000, 100_000))
        opening, closing = rng.choice((("[", "]"), ('{"a":', "}")))
        inner = opening * depth + "0" + closing * depth
        place = text.find(":") + 1
        text = inner if place == 0 or rng.random() < 0.5 else f"{text[:place]}{inner}}}"
    return text.encode()
