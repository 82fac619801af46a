"""Transitions and states of the CLRS algorithms: reasons, bytes, outside oracles, and input that is malformed."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph

from clrs_support import (
    ENVIRONMENT,
    SMALL,
    each_schema,
    path_graph,
    read,
    run,
    short_chain,
    small_array,
    small_heap,
    triangle,
    with_initial,
)
from vcrt.environments.contract import Accepted, Operation, Rejected, ReplayRequest
from vcrt.errors import MalformedInputError
from vcrt_clrs import mst_kruskal
from vcrt_clrs.environment import ALGORITHMS

# --- Transitions ---------------------------------------------------------------------------------


def test_relaxations_reject_with_their_reason() -> None:
    state = read("bellman_ford", path_graph())
    assert run(state, {"edge": [1, 2]}) == Rejected("node 1 is not reached yet")
    assert run(state, {"edge": [0, 2]}) == Rejected("there is no edge 0->2")
    assert run(state, {"edge": [0, 0]}) == Rejected("there is no edge 0->0")
    reached = run(state, {"edge": [0, 1]}).state
    longer = Rejected("edge 1->0 does not shorten the way to node 0")
    assert run(reached, {"edge": [1, 0]}) == longer


def test_fills_reject_with_their_reason() -> None:
    state = read("matrix_chain_order", short_chain() | {"m": [0, 0, 0], "s": [0, 0, 0]})
    assert run(state, {"cell": [1, 3]}) == Rejected("no split of cell (1,3) has both sides filled")
    filled = run(state, {"cell": [1, 2]}).state
    assert run(filled, {"cell": [1, 2]}) == Rejected("no split makes cell (1,2) cheaper")


def test_a_fill_takes_the_cheapest_of_the_splits_that_are_possible() -> None:
    """2x3 times 3x4 times 4x5: 24 + 40 from the left, 60 + 30 from the right."""
    state = read("matrix_chain_order", short_chain() | {"m": [0, 0, 60], "s": [0, 0, 2]})
    right = run(state, {"cell": [1, 3]}).state
    written = ALGORITHMS["matrix_chain_order"].write_state(right)
    assert (written["m"], written["s"]) == ([0, 90, 60], [0, 1, 2])  # type: ignore[index,call-overload]
    both = run(run(right, {"cell": [1, 2]}).state, {"cell": [1, 3]}).state
    written = ALGORITHMS["matrix_chain_order"].write_state(both)
    assert (written["m"], written["s"]) == ([24, 64, 60], [1, 2, 2])  # type: ignore[index,call-overload]


def test_considerations_reject_with_their_reason() -> None:
    initial = triangle()
    initial["adjacency"][0][2] = initial["adjacency"][2][0] = 0
    state = read("mst_kruskal", initial)
    assert run(state, {"edge": [0, 2]}) == Rejected("there is no edge {0,2}")
    considered = run(state, {"edge": [0, 1]}).state
    again = Rejected("edge {0,1} has been considered")
    assert run(considered, {"edge": [0, 1]}) == again


def test_heap_steps_reject_with_their_reason() -> None:
    state = read("heapsort", small_heap())
    assert run(state, {"heapify": [3, 6]}) == Rejected("node 3 has been heapified")
    assert run(state, {"heapify": [2, 5]}) == Rejected("the heap has 6 nodes, not 5")
    unready = Rejected("a node of the heap has not been heapified")
    assert run(state, {"extract": 5}) == unready
    assert run(state, {"extract": 4}) == Rejected("the heap has 6 nodes, not 5")


def test_a_key_sinks_until_no_child_is_larger() -> None:
    state = read("heapsort", small_heap())
    for node, order in ((2, [0, 1, 5, 3, 4, 2]), (1, [0, 4, 5, 3, 1, 2]), (0, [5, 4, 2, 3, 1, 0])):
        state = run(state, {"heapify": [node, 6]}).state
        assert list(state.order) == order
    extracted = run(state, {"extract": 5}).state
    assert (list(extracted.order), extracted.heap_size) == ([0, 4, 2, 3, 1, 5], 5)
    assert run(extracted, {"extract": 4}) == Rejected("a node of the heap has not been heapified")
    assert list(run(extracted, {"heapify": [0, 5]}).state.order) == [4, 3, 2, 0, 1, 5]


def test_exchanges_reject_with_their_reason() -> None:
    state = read("bubble_sort", small_array())
    assert run(state, {"exchange": 1}) == Rejected("positions 0 and 1 are not out of order")
    exchanged = run(state, {"exchange": 2}).state
    assert list(exchanged.order) == [0, 2, 1]
    assert list(run(exchanged, {"exchange": 1}).state.order) == [2, 0, 1]


def test_equal_keys_are_not_out_of_order() -> None:
    state = read("bubble_sort", {"keys": [0.5, 0.5], "order": [1, 0]})
    assert isinstance(run(state, {"exchange": 1}), Rejected)


# --- Canonical bytes -----------------------------------------------------------------------------


def test_canonical_bytes_have_the_documented_layout() -> None:
    state = read("bellman_ford", path_graph())
    moved = run(state, {"edge": [0, 1]}).state
    assert moved.canonical() == struct.pack(
        "<32s3d3BB", state.graph.digest, 0.0, 1.0, 0.0, 0, 0, 2, 0b011
    )
    state = read("mst_kruskal", triangle())
    for edge in ([0, 1], [1, 2], [0, 2]):
        state = run(state, {"edge": edge}).state
    tree, considered = (1 << 1) + (1 << 5), (1 << 1) + (1 << 2) + (1 << 5)
    assert state.canonical() == struct.pack(
        "<32s3BHH", state.graph.digest, *(2, 2, 2), tree, considered
    )
    state = read("matrix_chain_order", short_chain())
    assert state.canonical() == struct.pack(
        "<32s4d4B", state.dimensions.digest, 0, 24, 0, 0, 1, 1, 0, 0
    )
    state = read("heapsort", small_heap())
    assert state.canonical() == struct.pack("<32s6BHB", state.keys.digest, *range(6), 6, 0b111000)
    state = read("bubble_sort", small_array())
    assert state.canonical() == state.keys.digest + bytes([0, 1, 2])


@each_schema
def test_every_canonical_state_of_a_run_is_as_long_as_the_first(schema: str) -> None:
    state = ENVIRONMENT.initial_state(ENVIRONMENT.sample(schema, 0))
    length = len(state.canonical())
    for operation in ENVIRONMENT.sample(schema, 0).operations:
        state = ENVIRONMENT.step(state, operation).state  # type: ignore[union-attr]
        assert len(state.canonical()) == length


def test_pointers_count_by_their_roots_only() -> None:
    initial = triangle() | {"considered": [[0, 1], [1, 2]], "in_mst": [[0, 1], [1, 2]]}
    long = read("mst_kruskal", initial | {"pi": [1, 2, 2]})
    short = read("mst_kruskal", initial | {"pi": [2, 2, 2]})
    assert long != short
    assert long.canonical() == short.canonical()
    other = read("mst_kruskal", initial | {"pi": [1, 1, 2]})
    assert other.canonical() != short.canonical()


@each_schema
def test_the_inputs_are_part_of_the_canonical_state(schema: str) -> None:
    initial = SMALL[schema][0]()
    other = copy.deepcopy(initial)
    if "adjacency" in other:
        other["adjacency"][1][2] = other["adjacency"][2][1] = 5
    else:
        other["p" if "p" in other else "keys"][1] = 5
    one, another = read(schema, initial).canonical(), read(schema, other).canonical()
    assert one[:32] != another[:32]
    assert one[32:] == another[32:]


def test_a_negative_zero_is_zero() -> None:
    zero = read("bellman_ford", path_graph())
    assert read("bellman_ford", path_graph() | {"d": [-0.0, 0.0, -0.0]}) == zero
    negative = read("bellman_ford", path_graph() | {"d": [-0.0, 0, 0]})
    assert negative.canonical() == zero.canonical()
    keys = [0.0, 1.0]
    one, other = ({"keys": k, "order": [0, 1]} for k in (keys, [-0.0, 1.0]))
    assert read("bubble_sort", one).canonical() == read("bubble_sort", other).canonical()


# --- Outside oracles -----------------------------------------------------------------------------


@st.composite
def symmetric_weights(draw: st.DrawFn) -> list[list[float]]:
    size = draw(st.integers(2, 7))
    weights = [[0.0] * size for _ in range(size)]
    for u, v in itertools.combinations(range(size), 2):
        weights[u][v] = weights[v][u] = float(draw(st.integers(0, 9)))
    return weights


def run_until_none_moves(state: Any, payloads: list[Any]) -> Any:
    """Take any step that is accepted until none is; each must change the canonical state."""
    moved = True
    while moved:
        moved = False
        for payload in payloads:
            transition = run(state, payload)
            if isinstance(transition, Accepted):
                assert transition.state.canonical() != state.canonical()
                state, moved = transition.state, True
    return state


@settings(deadline=None)
@given(weights=symmetric_weights(), data=st.data())
def test_relaxing_in_any_order_ends_at_scipys_distances(
    weights: list[list[float]], data: st.DataObject
) -> None:
    size = len(weights)
    initial = {
        "adjacency": weights,
        "d": [0] * size,
        "pi": list(range(size)),
        "msk": [1] + [0] * (size - 1),
    }
    edges = data.draw(st.permutations(list(itertools.permutations(range(size), 2))))
    state = run_until_none_moves(
        read("bellman_ford", initial), [{"edge": list(edge)} for edge in edges]
    )
    expected = csgraph.bellman_ford(np.array(weights), indices=0)
    found = [d if state.reached >> n & 1 else math.inf for n, d in enumerate(state.distances)]
    assert found == expected.tolist()


@settings(deadline=None)
@given(weights=symmetric_weights(), data=st.data())
def test_considering_in_any_order_spans_scipys_components(
    weights: list[list[float]], data: st.DataObject
) -> None:
    size = len(weights)
    initial = {"adjacency": weights, "pi": list(range(size)), "in_mst": [], "considered": []}
    pairs = data.draw(st.permutations(list(itertools.combinations(range(size), 2))))
    state = run_until_none_moves(
        read("mst_kruskal", initial), [{"edge": list(pair)} for pair in pairs]
    )
    assert state.considered.bit_count() == sum(weights[u][v] > 0 for u, v in pairs)
    count, labels = csgraph.connected_components(np.array(weights))
    roots = [mst_kruskal.root_of(state.pointers, node) for node in range(size)]
    assert list(state.roots) == roots
    assert state.tree.bit_count() == size - count
    assert all(
        (roots[u] == roots[v]) == (labels[u] == labels[v])
        for u, v in itertools.combinations(range(size), 2)
    )
    assert all(root == max(v for v in range(size) if roots[v] == root) for root in roots)


def least_cost(p: list[float], i: int, j: int) -> float:
    if i == j:
        return 0
    return min(
        least_cost(p, i, k) + least_cost(p, k + 1, j) + p[i - 1] * p[k] * p[j] for k in range(i, j)
    )


@settings(deadline=None, max_examples=50)
@given(p=st.lists(st.integers(1, 9), min_size=2, max_size=7), data=st.data())
def test_filling_in_any_order_ends_at_the_least_costs(p: list[int], data: st.DataObject) -> None:
    cells = list(itertools.combinations(range(1, len(p)), 2))
    empty = [0] * len(cells)
    order = data.draw(st.permutations(cells))
    state = run_until_none_moves(
        read("matrix_chain_order", {"p": p, "m": empty, "s": empty}),
        [{"cell": list(cell)} for cell in order],
    )
    written = ALGORITHMS["matrix_chain_order"].write_state(state)
    assert written["m"] == [least_cost(p, *cell) for cell in cells]  # type: ignore[index,call-overload]


@settings(deadline=None)
@given(keys=st.lists(st.integers(0, 9), min_size=2, max_size=8), data=st.data())
def test_exchanging_in_any_order_sorts(keys: list[int], data: st.DataObject) -> None:
    size = len(keys)
    positions = data.draw(st.permutations(range(1, size)))
    state = run_until_none_moves(
        read("bubble_sort", {"keys": keys, "order": list(range(size))}),
        [{"exchange": position} for position in positions],
    )
    assert [keys[element] for element in state.order] == sorted(keys)


@settings(deadline=None)
@given(keys=st.lists(st.integers(0, 9), min_size=2, max_size=12))
def test_heapifying_from_the_last_node_builds_a_heap_and_extracting_sorts(keys: list[int]) -> None:
    size = len(keys)
    initial = {"keys": keys, "order": list(range(size)), "heap_size": size, "heapified": []}
    state = read("heapsort", initial)
    for node in reversed(range(size)):
        state = run(state, {"heapify": [node, size]}).state
    heap = [keys[element] for element in state.order]
    assert all(heap[(node - 1) // 2] >= heap[node] for node in range(1, size))
    for last in reversed(range(1, size)):
        state = run(run(state, {"extract": last}).state, {"heapify": [0, last]}).state
    assert [keys[element] for element in state.order] == sorted(keys)


# --- Bad payloads --------------------------------------------------------------------------------

NO_PAYLOADS: list[Any] = [None, 3, "x", [0, 1], {}, {"edges": [0, 1]}, {"x": 1, "edge": [0, 1]}]
NO_PAIRS: list[Any] = [None, 1, "01", {}, [], [1], [1, 2, 3], [1, "2"], [1, 2.0], [1, None]]
NO_PAIRS += [[True, 2], [1, False], [1, 99], [-1, 1], [1, [2]]]
NO_NUMBERS: list[Any] = [None, "1", 1.0, True, [], {}, 0, -1, 99]
MEMBERS = {"bellman_ford": "edge", "matrix_chain_order": "cell", "mst_kruskal": "edge"} | {
    "heapsort": "heapify"
}


@each_schema
@pytest.mark.parametrize("payload", NO_PAYLOADS, ids=repr)
def test_payloads_of_another_form_are_named(schema: str, payload: Any) -> None:
    with pytest.raises(MalformedInputError, match=r"where: operation\.payload\n"):
        run(read(schema, SMALL[schema][0]()), payload)


@pytest.mark.parametrize("schema", MEMBERS)
@pytest.mark.parametrize("pair", NO_PAIRS, ids=repr)
def test_bad_pairs_name_the_field(schema: str, pair: Any) -> None:
    name = MEMBERS[schema]
    with pytest.raises(MalformedInputError, match=rf"where: operation\.payload\.{name}(\[.\])?\n"):
        run(read(schema, SMALL[schema][0]()), {name: pair})


@pytest.mark.parametrize(("schema", "name"), [("bubble_sort", "exchange"), ("heapsort", "extract")])
@pytest.mark.parametrize("number", NO_NUMBERS, ids=repr)
def test_bad_numbers_name_the_field(schema: str, name: str, number: Any) -> None:
    with pytest.raises(MalformedInputError, match=rf"where: operation\.payload\.{name}\n"):
        run(read(schema, SMALL[schema][0]()), {name: number})


@pytest.mark.parametrize(
    ("schema", "payload", "expected"),
    [
        ("mst_kruskal", {"edge": [1, 0]}, "smaller node first"),
        ("mst_kruskal", {"edge": [1, 1]}, "smaller node first"),
        ("matrix_chain_order", {"cell": [2, 1]}, "1 <= i < j < 4"),
        ("matrix_chain_order", {"cell": [0, 1]}, "1 <= i < j < 4"),
        ("matrix_chain_order", {"cell": [2, 2]}, "1 <= i < j < 4"),
        ("heapsort", {"heapify": [3, 3]}, "below the size"),
        ("heapsort", {"heapify": [0, 0]}, "below the size"),
    ],
)
def test_pairs_that_mean_nothing_say_what_is_expected(
    schema: str, payload: Any, expected: str
) -> None:
    with pytest.raises(MalformedInputError, match=expected):
        run(read(schema, SMALL[schema][0]()), payload)


@each_schema
def test_replay_refuses_an_episode_with_any_bad_payload(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    bad = Operation(signature="bad", payload={"bad": 0})
    altered = dataclasses.replace(episode, operations=(*episode.operations[:3], bad))
    with pytest.raises(MalformedInputError, match=r"operation\.payload"):
        ENVIRONMENT.replay([ReplayRequest(altered, (0, 1))])


# --- Bad initial states --------------------------------------------------------------------------

WRONG: list[Any] = [None, "x", True, -1, [], {}, [[]], math.nan, math.inf, 10**400, 1000.5]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within a JSON value, itself left out."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from places(child, (*path, key))


def written(path: tuple[Any, ...]) -> str:
    first, *rest = path
    return f"initial.{first}" + "".join(f"[{n}]" for n in rest)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    altered = copy.deepcopy(value)
    at(altered, path[:-1])[path[-1]] = new
    return altered


def full_initial(schema: str) -> Any:
    """An episode's initial state in which no list is empty."""
    episodes = (ENVIRONMENT.sample(schema, seed) for seed in itertools.count())
    return next(e.initial for e in episodes if all(e.initial.values()))  # type: ignore[union-attr]


#: Members that are sets, which may be empty, and members of real numbers.
SETS, REALS = {"considered", "in_mst", "heapified"}, {"adjacency", "d", "m", "p", "keys"}


@each_schema
def test_every_value_of_a_wrong_type_or_range_is_named(schema: str) -> None:
    initial = full_initial(schema)
    tried = 0
    for path in places(initial):
        if not set(path[1:]) <= {0, 1}:
            continue
        is_number = not isinstance(at(initial, path), list)
        for wrong in WRONG:
            if (wrong == [] and path[0] in SETS) or (
                wrong == 1000.5 and path[0] in REALS and is_number
            ):
                continue
            with pytest.raises(MalformedInputError) as caught:
                read(schema, replaced(initial, path, wrong))
            named = str(caught.value.where)
            assert named == written(path) or (wrong == [[]] and named == f"{written(path)}[0]")
            tried += 1
    assert tried > 30


COMMON: list[tuple[dict[str, Any], str]] = [
    ({"adjacency": None}, r"initial\.adjacency\n"),
    ({"adjacency": [[0]]}, r"initial\.adjacency\n"),
    ({"adjacency": [[0] * 257] * 257}, r"initial\.adjacency\n"),
    ({"adjacency": [[0, 1, 0], [1, 0], [0, 0, 0]]}, r"initial\.adjacency\[1\]\n"),
    ({"adjacency": [[0, 1, 0], [1, 0, "2"], [0, 2, 0]]}, r"initial\.adjacency\[1\]\[2\]\n"),
    ({"adjacency": [[0.0, -1.0, 0.0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    ({"adjacency": [[0.0, 1e999, 0.0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    (
        {"adjacency": [[0.0, float("nan"), 0.0], [1, 0, 2], [0, 2, 0]]},
        r"initial\.adjacency\[0\]\[1\]\n",
    ),
    ({"pi": [0, 1]}, r"initial\.pi\n"),
    ({"pi": [0, 1, 3]}, r"initial\.pi\[2\]\n"),
    ({"pi": [0, 1, 2.0]}, r"initial\.pi\[2\]\n"),
]
CASES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "bellman_ford": [
        *COMMON,
        ({"d": [0, 0]}, r"initial\.d\n"),
        ({"d": [0, -0.5, 0]}, r"initial\.d\[1\]\n"),
        ({"msk": [1, 2, 0]}, r"initial\.msk\[1\]\n"),
        ({"d": [0, 1, 0]}, r"initial\.msk\[1\]\n"),
        ({"pi": [0, 0, 2]}, r"initial\.msk\[1\]\n"),
    ],
    "matrix_chain_order": [
        ({"p": [1]}, r"initial\.p\n"),
        ({"p": [1.0] * 257}, r"initial\.p\n"),
        ({"p": [1, 2, 3]}, r"initial\.m\n"),
        ({"s": [1, 0]}, r"initial\.s\n"),
        ({"s": [2, 0, 0]}, r"initial\.s\[0\]\n"),
        ({"s": [1, 3, 0]}, r"initial\.s\[1\]\n"),
        ({"s": [1, 0, 1]}, r"initial\.s\[2\]\n"),
        ({"m": [24, 5, 0]}, r"initial\.s\[1\]\n"),
    ],
    "mst_kruskal": [
        *COMMON,
        ({"adjacency": [[0, 1, 3], [1, 0, 2], [3, 4, 0]]}, r"initial\.adjacency\[1\]\[2\]\n"),
        ({"pi": [0, 0, 2]}, r"initial\.pi\[1\]\n"),
        ({"considered": [[0, 1], [0, 1]]}, r"initial\.considered\[1\]\n"),
        ({"considered": [[1, 0]]}, r"initial\.considered\[0\]\n"),
        ({"considered": [[True, 2]]}, r"initial\.considered\[0\]\[0\]\n"),
        ({"considered": [[0, 3]]}, r"initial\.considered\[0\]\[1\]\n"),
        ({"considered": [7]}, r"initial\.considered\[0\]\n"),
        ({"considered": ["01"]}, r"initial\.considered\[0\]\n"),
        ({"in_mst": [[0, 1]]}, r"initial\.in_mst\n"),
    ],
    "heapsort": [
        ({"keys": [0.5]}, r"initial\.keys\n"),
        ({"order": [0, 1, 2, 3, 4]}, r"initial\.order\n"),
        ({"order": [0, 1, 2, 3, 4, 4]}, r"initial\.order\[5\]\n"),
        ({"heap_size": 0}, r"initial\.heap_size\n"),
        ({"heap_size": 7}, r"initial\.heap_size\n"),
        ({"heapified": [6]}, r"initial\.heapified\[0\]\n"),
        ({"heapified": [5, 5]}, r"initial\.heapified\[1\]\n"),
    ],
    "bubble_sort": [
        ({"keys": [0.5, 0.1]}, r"initial\.order\n"),
        ({"order": [0, 1, 1]}, r"initial\.order\[2\]\n"),
        ({"order": [0, 1, 3]}, r"initial\.order\[2\]\n"),
    ],
}


@pytest.mark.parametrize(
    ("schema", "change", "where"),
    [(schema, *case) for schema, cases in CASES.items() for case in cases],
)
def test_bad_initial_states_name_the_field(schema: str, change: dict[str, Any], where: str) -> None:
    initial = SMALL[schema][0]()
    assert isinstance(run(read(schema, initial), SMALL[schema][1]), Accepted)
    with pytest.raises(MalformedInputError, match=f"where: {where}"):
        read(schema, initial | change)


@each_schema
def test_missing_members_are_named(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    for name in episode.initial:  # type: ignore[union-attr]
        altered = with_initial(episode, lambda initial, name=name: initial.pop(name))  # type: ignore[misc]
        with pytest.raises(MalformedInputError, match=rf"where: initial\.{name}\n"):
            ENVIRONMENT.initial_state(altered)
    with pytest.raises(MalformedInputError, match="where: initial\n"):
        ENVIRONMENT.initial_state(dataclasses.replace(episode, initial=[1]))


def test_an_edge_that_the_graph_lacks_cannot_have_been_considered() -> None:
    initial = triangle() | {"considered": [[0, 2]]}
    initial["adjacency"][0][2] = initial["adjacency"][2][0] = 0
    with pytest.raises(MalformedInputError, match="edges of the graph"):
        read("mst_kruskal", initial)
