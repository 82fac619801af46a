"""Find the relations between the arguments of two calls that no comparison of the two has tried.

Two tools may interfere only if an argument of one equals an argument of the other, or lies inside it. Calls that
commuted are evidence only for the relations that their arguments had. Pure. Not covered: relations to the state, and
relations of three arguments that are not pairs of one call's and the other's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import Any, Literal, TypeAlias

from vcrt.calls.conditions import Arguments, begins_path, begins_text
from vcrt.hashing import Json

#: ``inside``: one of two values is in the other, as path, as text, or as a part. ``output``: what a call gave back is
#: in an argument of the other.
Kind: TypeAlias = Literal["equal", "different", "inside", "output"]
#: The arguments of two calls that were compared, and what each gave.
Case: TypeAlias = tuple[Arguments, Arguments, str | None, str | None]
#: The most arguments that are asked to be equal at once, of so many that were equal one by one.
_AT_ONCE, _EQUAL = 3, 12


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of arguments, each one of ``a`` and one of ``b``; several are equal at once; outputs have none."""

    kind: Kind
    arguments: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """As a person reads it.

        >>> Relation("equal", (("item", "item"), ("shop", "place"))).text
        'a.item = b.item and a.shop = b.place'
        """
        if self.kind == "output":
            return "an output of one in an argument of the other"
        if self.kind == "inside":
            ((one, other),) = self.arguments
            return f"one of a.{one} and b.{other} inside the other"
        sign = "=" if self.kind == "equal" else "!="
        return " and ".join(f"a.{one} {sign} b.{other}" for one, other in self.arguments)

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        return {"kind": self.kind, "arguments": [list(pair) for pair in self.arguments]}


def untried(cases: Iterable[Case], *, one_tool: bool) -> tuple[Relation, ...]:
    """Return the relations that no case has, the most usual first.

    These relations are considered: any two arguments of one kind or of one name are equal, up to three pairs at once;
    arguments of one name (or any, if no name is shared) differ; one lies inside the other, for texts of one name and
    for values with parts (paths, lists, objects); for outputs that differ, one is in an argument. ``one_tool``: the
    calls have no fixed order.
    """
    known = _Seen(one_tool)
    for case in cases:
        known.add(case)
    return tuple(known.untried())


class _Seen:
    """The relations in the cases so far, and the kinds of each argument's values."""

    def __init__(self, one_tool: bool) -> None:
        self.one_tool = one_tool
        self.relations: set[tuple[Kind, str, str]] = set()
        self.equal: set[frozenset[tuple[str, str]]] = set()
        self.kinds: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        self.outputs: tuple[set[object], set[object]] = (set(), set())
        self.met_output = False
        self._arguments: set[object] = set()

    def add(self, case: Case) -> None:
        first, second, output, other_output = case
        self._add_outputs(first, second, output, other_output)
        key = (*sorted(first.items()), None, *sorted(second.items()))
        if key in self._arguments:
            return
        self._arguments.add(key)
        for one, other in ((first, second), (second, first))[: 1 + self.one_tool]:
            equal = set()
            for kinds, call in zip(self.kinds, (one, other), strict=True):
                for name, value in call.items():
                    kinds.setdefault(name, set()).update(_kinds(value))
            for x, y in product(one, other):
                relation = _relation(one[x], other[y])
                self.relations.add((relation, x, y))
                if relation == "equal":
                    equal.add((x, y))
            self.equal.add(frozenset(equal))

    def _add_outputs(
        self, first: Arguments, second: Arguments, output: str | None, other_output: str | None
    ) -> None:
        given, taken = _leaves_of(first), _leaves_of(second)
        # What a call gives back of its own arguments is no news to the other.
        own = _leaves(output) - given if output else frozenset()
        other = _leaves(other_output) - taken if other_output else frozenset()
        self.outputs[0].update(own)
        self.outputs[1].update(other)
        self.met_output = self.met_output or bool(own & taken or other & given)

    def untried(self) -> Iterator[Relation]:
        """Give the relations that were not seen."""
        every = [pair for pair in product(*self.kinds) if self._comparable(*pair)]
        # Arguments of one name first.
        every.sort(key=lambda pair: (pair[0] != pair[1], pair))
        pairs = [(x, y) for x, y in every if not (self.one_tool and x > y)]
        alike = [pair for pair in pairs if pair[0] == pair[1]]
        for x, y in pairs:
            if ("equal", x, y) not in self.relations:
                yield Relation("equal", ((x, y),))
        yield from self._untried_at_once(every)
        for x, y in alike or pairs:
            if not {("different", x, y), ("inside", x, y)} & self.relations:
                yield Relation("different", ((x, y),))
        for x, y in pairs:
            if ("inside", x, y) not in self.relations and self._may_be_inside(x, y):
                yield Relation("inside", ((x, y),))
        if not self.met_output and any(len(values) > 1 for values in self.outputs):
            yield Relation("output")

    def _untried_at_once(self, pairs: list[tuple[str, str]]) -> Iterator[Relation]:
        """Give the smallest sets of argument pairs that were equal one by one, but never all at once."""
        tried = [pair for pair in pairs if ("equal", *pair) in self.relations][:_EQUAL]
        found: list[frozenset[tuple[str, str]]] = []
        for number in range(2, _AT_ONCE + 1):
            for some in combinations(tried, number):
                each = frozenset(some)
                turned = frozenset((y, x) for x, y in some) if self.one_tool else each
                has_others = len(dict(some)) == len({y for _, y in some}) == number
                if not has_others or any(one <= each or one <= turned for one in found):
                    continue
                if not any(each <= equal for equal in self.equal):
                    found.append(each)
                    yield Relation("equal", some)

    def _comparable(self, x: str, y: str) -> bool:
        shared = self.kinds[0][x] & self.kinds[1][y]
        return x == y or bool(shared & {"text", "number"})

    def _may_be_inside(self, x: str, y: str) -> bool:
        one, other = self.kinds[0][x], self.kinds[1][y]
        have_parts = "parts" in one or "parts" in other
        return have_parts or (x == y and "text" in one & other)


def _relation(one: str, other: str) -> Kind:
    """Return the relation of two values, each as canonical JSON."""
    if one == other:
        return "equal"
    if _parts(one) & _leaves(other) or _parts(other) & _leaves(one):
        return "inside"
    for a, b in ((one, other), (other, one)):
        if a != '""' and (begins_path(a, b) or begins_text(a, b)):
            return "inside"
    return "different"


def _leaves_of(arguments: Arguments) -> frozenset[object]:
    return frozenset().union(*(_leaves(value) for value in arguments.values()))


@lru_cache(maxsize=4096)
def _leaves(value: str) -> frozenset[object]:
    """Give the texts and numbers of a value."""
    return frozenset(each for each in _scalars(_read(value)) if _kind(each) in ("text", "number"))


def _parts(value: str) -> frozenset[object]:
    """Return the texts and numbers in a list or an object; none for other values."""
    return _leaves(value) if value[:1] in ("[", "{") else frozenset()


@lru_cache(maxsize=4096)
def _kinds(value: str) -> frozenset[str]:
    """Return the kinds of a value's scalars, and whether it has parts: a path, a list or an object."""
    read = _read(value)
    has_parts = isinstance(read, list | dict) or (isinstance(read, str) and "/" in read)
    kinds = {_kind(each) for each in _scalars(read)}
    return frozenset(kinds | {"parts"} if has_parts else kinds)


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, list | dict):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _scalars(each)
    else:
        yield value


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else "other"


def _read(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:  # an output that is kept by its hash
        return value
