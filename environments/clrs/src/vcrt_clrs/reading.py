"""Read the JSON of CLRS episodes: each reader returns checked plain values or names the field that is wrong.

The inputs of an episode are read once and shared by all of its states. A graph is a matrix of weights, in which zero
means no edge, as in dm-clrs. ``order`` has the elements by position: ``order[i]`` is the number of the element at
position ``i``, whose key is ``values[order[i]]``, as in dm-clrs's ``A_pos``.

The cross-check of a schema tells whether dm-clrs would produce an episode.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt_clrs.trace import MAX_LENGTH, Trace

Edge: TypeAlias = tuple[int, int]
Given = ParamSpec("Given")
Value = TypeVar("Value")


def malformed(field: str, found: object, expected: str) -> MalformedInputError:
    """Return the error about ``field`` (a dotted path within the episode)."""
    text = repr(found)
    return MalformedInputError(
        "malformed CLRS episode",
        where=field,
        found=text if len(text) <= 80 else f"{text[:77]}...",
        expected=expected,
    )


def read_member(
    initial: Json,
    name: str,
    read: Callable[Concatenate[Json, str, Given], Value],
    *given: Given.args,
    **options: Given.kwargs,
) -> Value:
    """Read member ``name`` of an episode's initial state with ``read``."""
    if not isinstance(initial, dict):
        raise malformed("initial", initial, "an object")
    if name not in initial:
        raise malformed(f"initial.{name}", "nothing", f"a member {name!r}")
    return read(initial[name], f"initial.{name}", *given, **options)


def read_list(value: Json, field: str, length: int | None = None) -> list[Json]:
    """Read a JSON list, of ``length`` elements if given."""
    if not isinstance(value, list | tuple):
        raise malformed(field, value, "a list")
    if length is not None and len(value) != length:
        raise malformed(field, f"{counted(len(value), 'element')}", f"{length} elements")
    return list(value)


def read_input(value: Json, field: str) -> list[Json]:
    """Read a list with as many elements as an input may have: 2 to :data:`MAX_LENGTH`."""
    elements = read_list(value, field)
    if not 2 <= len(elements) <= MAX_LENGTH:
        raise malformed(
            field, f"{counted(len(elements), 'element')}", f"2 to {MAX_LENGTH} elements"
        )
    return elements


def read_real(value: Json, field: str) -> float:
    """Read a finite number that is not negative; a negative zero becomes zero."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= sys.float_info.max
    ):
        raise malformed(field, value, "a finite number, not negative")
    return float(value) + 0.0


def read_reals(value: Json, field: str, length: int) -> tuple[float, ...]:
    """Read ``length`` numbers in the form of :func:`read_real`."""
    numbers = read_list(value, field, length)
    # Whole matrices are read for each episode, so the usual case is checked without a test of each number.
    if set(map(type, numbers)) == {float}:
        floats: list[float] = numbers  # type: ignore[assignment]
        if min(floats) >= 0 and math.isfinite(sum(floats)):
            return tuple([number + 0.0 for number in floats])
    return tuple([read_real(number, f"{field}[{i}]") for i, number in enumerate(numbers)])


def read_int(value: Json, field: str, low: int, high: int) -> int:
    """Read an integer from ``low`` to ``high``, both included."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise malformed(field, value, f"an integer from {low} to {high}")
    return value


def read_ints(value: Json, field: str, length: int, limit: int) -> tuple[int, ...]:
    """Read ``length`` integers, each at least 0 and below ``limit``."""
    numbers = read_list(value, field, length)
    if set(map(type, numbers)) == {int}:
        ints: list[int] = numbers  # type: ignore[assignment]
        if min(ints) >= 0 and max(ints) < limit:
            return tuple(ints)
    return tuple([read_int(n, f"{field}[{i}]", 0, limit - 1) for i, n in enumerate(numbers)])


def read_set(value: Json, field: str, limit: int) -> int:
    """Read a list of distinct integers below ``limit``, as a bit set."""
    bits = 0
    for i, member in enumerate(read_ints(value, field, len(read_list(value, field)), limit)):
        if bits >> member & 1:
            raise malformed(f"{field}[{i}]", member, "each member once")
        bits |= 1 << member
    return bits


def read_permutation(value: Json, field: str, length: int) -> bytes:
    """Read a permutation of the integers below ``length``, as bytes."""
    places = read_ints(value, field, length, length)
    read_set(value, field, length)
    return bytes(places)


def read_edges(value: Json, field: str, num_nodes: int) -> tuple[tuple[int, int], ...]:
    """Read a list of distinct undirected edges, the smaller node first."""
    edges: dict[tuple[int, int], None] = {}
    for i, pair in enumerate(read_list(value, field)):
        match pair:
            case [u, v] if (
                type(u) is type(v) is int and 0 <= u < v < num_nodes and (u, v) not in edges
            ):
                edges[u, v] = None
            case _:
                read_ints(pair, f"{field}[{i}]", 2, num_nodes)
                raise malformed(f"{field}[{i}]", pair, "a new edge, the smaller node first")
    return tuple(edges)


def read_payload(payload: Json, name: str) -> Json:
    """Return the one member of an operation's payload."""
    if not isinstance(payload, dict) or list(payload) != [name]:
        raise malformed("operation.payload", payload, f"an object with the one member {name!r}")
    value: Json = payload[name]
    return value


def read_payload_pair(payload: Json, name: str, limit: int) -> tuple[int, int]:
    """Return the two integers below ``limit`` of a payload such as ``{"edge": [u, v]}``."""
    field = f"operation.payload.{name}"
    first, second = read_ints(read_payload(payload, name), field, 2, limit)
    return first, second


def _digest(size: int, *numbers: float) -> bytes:
    """Return the SHA-256 of a size and of little-endian doubles."""
    return sha256(struct.pack(f"<H{len(numbers)}d", size, *numbers)).digest()


@dataclass(frozen=True, slots=True)
class WeightedGraph:
    """A dense weight matrix; ``digest`` is the SHA-256 of its size and its little-endian doubles."""

    weights: tuple[tuple[float, ...], ...]
    digest: bytes

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.weights)

    def edges(self) -> list[Edge]:
        """Return the directed edges, row by row."""
        return [
            (u, v) for u, row in enumerate(self.weights) for v, weight in enumerate(row) if weight
        ]

    def to_json(self) -> Json:
        """Return the member ``adjacency`` of an initial state."""
        return [list(row) for row in self.weights]


def _graph(weights: tuple[tuple[float, ...], ...]) -> WeightedGraph:
    return WeightedGraph(weights, _digest(len(weights), *chain.from_iterable(weights)))


def read_graph(initial: Json) -> WeightedGraph:
    """Read the graph in member ``adjacency`` of an initial state: a square list of rows of numbers, none negative."""
    rows = read_member(initial, "adjacency", read_input)
    size = len(rows)
    return _graph(
        tuple([read_reals(row, f"initial.adjacency[{i}]", size) for i, row in enumerate(rows)])
    )


def graph_of(trace: Trace) -> WeightedGraph:
    """Return the graph of a genuine trace: its input ``A``."""
    return _graph(tuple(map(tuple, trace.inputs["A"].tolist())))


@dataclass(frozen=True, slots=True)
class Keys:
    """The key of each element; ``digest`` is the SHA-256 of their number and their little-endian doubles."""

    values: tuple[float, ...]
    digest: bytes

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return len(self.values)


def read_keys(initial: Json, name: str = "keys") -> Keys:
    """Read the keys in a member of an initial state: a list of numbers, none negative."""
    numbers = read_member(initial, name, read_input)
    values = read_reals(numbers, f"initial.{name}", len(numbers))
    return Keys(values, _digest(len(values), *values))


def keys_of(trace: Trace, name: str = "key") -> Keys:
    """Return the keys of a genuine trace: one of its inputs."""
    values = tuple(trace.inputs[name].tolist())
    return Keys(values, _digest(len(values), *values))
