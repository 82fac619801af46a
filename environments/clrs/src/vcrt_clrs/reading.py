"""Read the JSON of CLRS episodes: each reader returns checked plain values or names the field that is wrong.

Not covered: whether an episode is one that dm-clrs would produce; the cross-check of its schema tells that.
"""

from __future__ import annotations

import math
import sys

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt.printable import counted

#: Larger inputs are refused: places (nodes, positions) are one byte wide in states, and no sampler here comes close.
MAX_LENGTH = 256


def malformed(field: str, found: object, expected: str) -> MalformedInputError:
    """The error for ``field`` (a dotted path within the episode)."""
    text = repr(found)
    return MalformedInputError(
        "malformed CLRS episode",
        where=field,
        found=text if len(text) <= 80 else f"{text[:77]}...",
        expected=expected,
    )


def read_member(initial: Json, name: str) -> Json:
    """Member ``name`` of an episode's initial state."""
    if not isinstance(initial, dict):
        raise malformed("initial", initial, "an object")
    if name not in initial:
        raise malformed(f"initial.{name}", "nothing", f"a member {name!r}")
    value: Json = initial[name]
    return value


def read_list(value: Json, field: str, length: int | None = None) -> list[Json]:
    """A JSON list, of ``length`` elements if given."""
    if not isinstance(value, list | tuple):
        raise malformed(field, value, "a list")
    if length is not None and len(value) != length:
        raise malformed(field, f"{counted(len(value), 'element')}", f"{length} elements")
    return list(value)


def read_input(value: Json, field: str) -> list[Json]:
    """A list with as many elements as an input may have: 2 to :data:`MAX_LENGTH`."""
    elements = read_list(value, field)
    if not 2 <= len(elements) <= MAX_LENGTH:
        raise malformed(
            field, f"{counted(len(elements), 'element')}", f"2 to {MAX_LENGTH} elements"
        )
    return elements


def read_real(value: Json, field: str) -> float:
    """A finite number that is not negative; a negative zero becomes zero."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= sys.float_info.max
    ):
        raise malformed(field, value, "a finite number, not negative")
    return float(value) + 0.0


def read_reals(value: Json, field: str, length: int) -> tuple[float, ...]:
    """``length`` numbers as :func:`read_real` takes them."""
    numbers = read_list(value, field, length)
    # Whole matrices are read for each episode: the usual case is decided without a look at each number.
    if set(map(type, numbers)) == {float}:
        floats: list[float] = numbers  # type: ignore[assignment]
        if min(floats) >= 0 and math.isfinite(sum(floats)):
            return tuple([number + 0.0 for number in floats])
    return tuple([read_real(number, f"{field}[{i}]") for i, number in enumerate(numbers)])


def read_int(value: Json, field: str, low: int, high: int) -> int:
    """An integer from ``low`` to ``high``, both included."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise malformed(field, value, f"an integer from {low} to {high}")
    return value


def read_ints(value: Json, field: str, length: int, limit: int) -> tuple[int, ...]:
    """``length`` integers, each at least 0 and below ``limit``."""
    numbers = read_list(value, field, length)
    if set(map(type, numbers)) == {int}:
        ints: list[int] = numbers  # type: ignore[assignment]
        if min(ints) >= 0 and max(ints) < limit:
            return tuple(ints)
    return tuple([read_int(n, f"{field}[{i}]", 0, limit - 1) for i, n in enumerate(numbers)])


def read_set(value: Json, field: str, limit: int) -> int:
    """A list of distinct integers below ``limit``, as a bit set."""
    bits = 0
    for i, member in enumerate(read_ints(value, field, len(read_list(value, field)), limit)):
        if bits >> member & 1:
            raise malformed(f"{field}[{i}]", member, "each member once")
        bits |= 1 << member
    return bits


def read_permutation(value: Json, field: str, length: int) -> bytes:
    """A permutation of the integers below ``length``, as bytes."""
    places = read_ints(value, field, length, length)
    read_set(value, field, length)
    return bytes(places)


def read_edges(value: Json, field: str, num_nodes: int) -> tuple[tuple[int, int], ...]:
    """A list of distinct undirected edges, the smaller node first."""
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
    """The one member that an operation's payload has."""
    if not isinstance(payload, dict) or list(payload) != [name]:
        raise malformed("operation.payload", payload, f"an object with the one member {name!r}")
    value: Json = payload[name]
    return value


def read_payload_pair(payload: Json, name: str, limit: int) -> tuple[int, int]:
    """The two integers below ``limit`` of a payload such as ``{"edge": [u, v]}``."""
    field = f"operation.payload.{name}"
    first, second = read_ints(read_payload(payload, name), field, 2, limit)
    return first, second
