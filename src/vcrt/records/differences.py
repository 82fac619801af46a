"""Find where two JSON values differ: the first field, by name, with both values as short text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcrt.hashing import Json, canonical_json


@dataclass(frozen=True, slots=True)
class Difference:
    """The first field in which two JSON values differ, and both values as short text."""

    field: tuple[str | int, ...]
    found: str
    expected: str

    @property
    def name(self) -> str:
        """The field as ``replays[3].rejection``."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.field)
        return text.removeprefix(".")


def first_difference(
    found: Json, expected: Json, field: tuple[str | int, ...] = ()
) -> Difference | None:
    """The first field, in the order of ``expected``, in which two JSON values differ; None if they are equal."""
    ours, theirs = children(found), children(expected)
    if (
        ours is None
        or theirs is None
        or isinstance(found, Mapping) != isinstance(expected, Mapping)
    ):
        # By their bytes: in Python, True and 1.0 are equal to 1.
        if canonical_json(found) == canonical_json(expected):
            return None
        return Difference(field, short(found), short(expected))
    for name in dict.fromkeys((*theirs, *ours)):
        inner = (*field, name)
        if name not in ours:
            return Difference(inner, "nothing", short(theirs[name]))
        if name not in theirs:
            return Difference(inner, short(ours[name]), "nothing")
        difference = first_difference(ours[name], theirs[name], inner)
        if difference is not None:
            return difference
    return None


def short(value: Json) -> str:
    """A value as canonical JSON, cut where it gets long."""
    text = canonical_json(value).decode()
    return text if len(text) <= 160 else f"{text[:160]}..."


def children(value: Json) -> dict[str | int, Json] | None:
    """The values that a list or an object holds, by place or name; None for any other value."""
    if not isinstance(value, (Mapping, list, tuple)):
        return None
    items: Iterable[tuple[str | int, Json]]
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    return dict(items)
