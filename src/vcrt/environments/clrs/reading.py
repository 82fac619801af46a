"""Readers for the JSON of CLRS episodes: each returns checked plain values or names the field that is wrong.

Not covered: whether an episode is one that dm-clrs would produce; the cross-check of its schema tells that.
"""

from __future__ import annotations

import sys

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

#: Larger graphs are refused: node numbers are two bytes wide in canonical states, and no sampler here comes close.
MAX_NODES = 1024


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
        raise malformed(field, f"{len(value)} elements", f"{length} elements")
    return list(value)


def read_reals(value: Json, field: str, length: int) -> tuple[float, ...]:
    """``length`` finite numbers that are not negative; a negative zero becomes zero."""
    reals = []
    for i, number in enumerate(read_list(value, field, length)):
        if (
            isinstance(number, bool)
            or not isinstance(number, int | float)
            or not 0 <= number <= sys.float_info.max
        ):
            raise malformed(f"{field}[{i}]", number, "a finite number, not negative")
        reals.append(float(number) + 0.0)
    return tuple(reals)


def read_ints(value: Json, field: str, length: int, limit: int) -> tuple[int, ...]:
    """``length`` integers, each at least 0 and below ``limit``."""
    ints = []
    for i, number in enumerate(read_list(value, field, length)):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < limit:
            raise malformed(f"{field}[{i}]", number, f"an integer from 0 to {limit - 1}")
        ints.append(number)
    return tuple(ints)


def read_edges(value: Json, field: str, num_nodes: int) -> tuple[tuple[int, int], ...]:
    """A list of distinct undirected edges, the smaller node first."""
    edges: dict[tuple[int, int], None] = {}
    for i, pair in enumerate(read_list(value, field)):
        u, v = read_ints(pair, f"{field}[{i}]", 2, num_nodes)
        if u >= v or (u, v) in edges:
            raise malformed(f"{field}[{i}]", pair, "a new edge, the smaller node first")
        edges[u, v] = None
    return tuple(edges)


def read_payload_edge(payload: Json, num_nodes: int) -> tuple[int, int]:
    """The two nodes of an operation's payload ``{"edge": [u, v]}``."""
    edge = payload.get("edge") if isinstance(payload, dict) else None
    if isinstance(edge, list | tuple) and len(edge) == 2:
        u, v = edge
        # `type(...) is int` leaves booleans out; this line is run once for each replayed step.
        if type(u) is int and type(v) is int and 0 <= u < num_nodes and 0 <= v < num_nodes:
            return u, v
    raise malformed("operation.payload.edge", payload, f"a pair of nodes from 0 to {num_nodes - 1}")
