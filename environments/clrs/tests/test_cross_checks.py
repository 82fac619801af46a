"""Second opinions of the CLRS environment: they agree with dm-clrs at every size, and each of them can fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csgraph

from clrs_support import (
    ENVIRONMENT,
    ORDERS,
    SCHEMAS,
    anti_diamonds,
    by_name,
    certified,
    drawn,
    each_schema,
    matrix,
    sampled,
    state_after,
    trace_of,
    with_bit,
    with_initial,
)
from vcrt.environments.contract import Accepted, CrossCheck, Episode, Operation, Rejected
from vcrt.errors import MalformedInputError
from vcrt_clrs import heapsort, matrix_chain, mst_kruskal
from vcrt_clrs.bellman_ford import BellmanFordState
from vcrt_clrs.bubble_sort import BubbleSortState
from vcrt_clrs.environment import ALGORITHMS
from vcrt_clrs.episodes import completion
from vcrt_clrs.heapsort import HeapsortState
from vcrt_clrs.matrix_chain import MatrixChainState
from vcrt_clrs.mst_kruskal import KruskalState

CHECKERS = {"dm-clrs trace", "dm-clrs hint rows", "dm-clrs outputs"}


def same_rows(schema: str, length: int, seed: int) -> None:
    trace = drawn(schema, length, seed)
    rows = ALGORITHMS[schema].hint_rows(trace)
    assert rows.keys() == trace.hints.keys()
    for name, genuine in trace.hints.items():
        assert np.array_equal(rows[name], genuine), name


def same_end(schema: str, length: int, seed: int) -> None:
    """The run, taken up at any of its states, ends as the genuine one."""
    trace = drawn(schema, length, seed)
    steps = ALGORITHMS[schema].steps(trace)
    for done, step in enumerate(steps):
        check = completion(ALGORITHMS[schema], trace, step.before, done)
        assert check.checked == check.agreed > 0


# --- Agreement -----------------------------------------------------------------------------------


@each_schema
@pytest.mark.parametrize("length", [2, 3, 4, 5, 7, 8, 9, 11, 16, 17, 21])
def test_the_transition_gives_every_hint_row(schema: str, length: int) -> None:
    for seed in range(4):
        same_rows(schema, length, seed)


@pytest.mark.slow
@each_schema
@pytest.mark.parametrize("length", [*range(2, 25), 32, 40])
def test_the_transition_gives_every_hint_row_of_many_runs(schema: str, length: int) -> None:
    for seed in range(10, 20):
        same_rows(schema, length, seed)


@each_schema
@pytest.mark.parametrize("length", [3, 6, 12])
def test_a_run_that_goes_on_from_any_state_ends_as_the_genuine_one(
    schema: str, length: int
) -> None:
    for seed in range(3):
        same_end(schema, length, seed)


@each_schema
def test_cross_checks_agree_on_every_episode(schema: str) -> None:
    for episode in sampled(schema, range(40)):
        checks = by_name(ENVIRONMENT.cross_check(episode))
        assert set(checks) == CHECKERS
        assert all(check.agreed == check.checked for check in checks.values())
        trace = trace_of(episode.provenance.source)
        assert checks["dm-clrs hint rows"].checked == trace.num_rows > 2
        assert checks["dm-clrs trace"].checked == 6
        assert checks["dm-clrs outputs"].checked >= 1


# --- Wrong transitions ---------------------------------------------------------------------------

ORIGINAL = {
    "bellman_ford": BellmanFordState.take,
    "matrix_chain_order": MatrixChainState.take,
    "mst_kruskal": KruskalState.take,
    "heapsort": HeapsortState._heapify,
    "bubble_sort": BubbleSortState.take,
}


def edited(transition: Any, **changes: Callable[[Any], Any]) -> Any:
    if isinstance(transition, Rejected):
        return transition
    state = transition.state
    return Accepted(state._replace(**{n: c(getattr(state, n)) for n, c in changes.items()}))


def relax_in_place(state: Any, edge: Any, before: Any = None) -> Any:
    return ORIGINAL["bellman_ford"](state, edge, state)


def relax_without_predecessor(state: Any, edge: Any, before: Any = None) -> Any:
    found = ORIGINAL["bellman_ford"](state, edge, before)
    return edited(found, predecessors=lambda _: state.predecessors)


def relax_one_bit_off(state: Any, edge: Any, before: Any = None) -> Any:
    found = ORIGINAL["bellman_ford"](state, edge, before)
    head = edge[1]
    return edited(
        found, distances=lambda d: (*d[:head], float(np.nextafter(d[head], 9)), *d[head + 1 :])
    )


def relax_forgetful(state: Any, edge: Any, before: Any = None) -> Any:
    """Overwrites also what is shorter already: its rounds need not come to an end."""
    open_head = state._replace(reached=with_bit(state.reached, edge[1], False))
    return ORIGINAL["bellman_ford"](open_head, edge, before)


def fill_in_place(state: Any, step: Any, before: Any = None) -> Any:
    return ORIGINAL["matrix_chain_order"](state, step, state)


def fill_without_last_split(state: Any, step: Any, before: Any = None) -> Any:
    fewer = dataclasses.replace(step, splits=step.splits[:-1] or step.splits)
    return ORIGINAL["matrix_chain_order"](state, fewer, before)


def fill_with_the_next_split(state: Any, step: Any, before: Any = None) -> Any:
    later = tuple((*sides, k + 1, product) for *sides, k, product in step.splits)
    moved = dataclasses.replace(step, splits=later)
    return ORIGINAL["matrix_chain_order"](state, moved, before)


def fill_too_dear(state: Any, step: Any, before: Any = None) -> Any:
    dear = tuple((*rest, float(np.nextafter(product, 9))) for *rest, product in step.splits)
    costly = dataclasses.replace(step, splits=dear)
    return ORIGINAL["matrix_chain_order"](state, costly, before)


def consider_greedily(state: Any, edge: Any) -> Any:
    u, v = edge
    bit = u * len(state.pointers) + v
    return edited(ORIGINAL["mst_kruskal"](state, edge), tree=lambda t: with_bit(t, bit, True))


def consider_never(state: Any, edge: Any) -> Any:
    found = ORIGINAL["mst_kruskal"](state, edge)
    return edited(
        found,
        tree=lambda _: state.tree,
        pointers=lambda _: state.pointers,
        roots=lambda _: state.roots,
    )


def consider_uncompressed(state: Any, edge: Any) -> Any:
    """The right tree and the right components, but other pointers than dm-clrs keeps."""
    pointers = list(state.pointers)
    roots = sorted(mst_kruskal.root_of(pointers, node) for node in edge)
    pointers[roots[0]] = roots[1]
    return edited(ORIGINAL["mst_kruskal"](state, edge), pointers=lambda _: bytes(pointers))


def heapify_one_level(state: Any, node: int) -> Any:
    order = bytearray(state.order)
    heapsort.sink(state.keys.values, order, node, state.heap_size)
    return edited(ORIGINAL["heapsort"](state, node), order=lambda _: bytes(order))


def heapify_never(state: Any, node: int) -> Any:
    return edited(ORIGINAL["heapsort"](state, node), order=lambda _: state.order)


def heapify_without_record(state: Any, node: int) -> Any:
    """Never has heapified a node: its run does not come to an end by itself."""
    return edited(ORIGINAL["heapsort"](state, node), heapified=lambda _: state.heapified)


def exchange_never(state: Any, position: int) -> Any:
    return Rejected("never")


def exchange_always(state: Any, position: int) -> Any:
    order = bytearray(state.order)
    order[position - 1], order[position] = order[position], order[position - 1]
    return Accepted(state._replace(order=bytes(order)))


MUTANTS: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("bellman_ford", BellmanFordState, "take", relax_in_place),
    ("bellman_ford", BellmanFordState, "take", relax_without_predecessor),
    ("bellman_ford", BellmanFordState, "take", relax_one_bit_off),
    ("bellman_ford", BellmanFordState, "take", relax_forgetful),
    ("matrix_chain_order", MatrixChainState, "take", fill_in_place),
    ("matrix_chain_order", MatrixChainState, "take", fill_without_last_split),
    ("matrix_chain_order", MatrixChainState, "take", fill_with_the_next_split),
    ("matrix_chain_order", MatrixChainState, "take", fill_too_dear),
    ("mst_kruskal", KruskalState, "take", consider_greedily),
    ("mst_kruskal", KruskalState, "take", consider_never),
    ("mst_kruskal", KruskalState, "take", consider_uncompressed),
    ("heapsort", HeapsortState, "_heapify", heapify_one_level),
    ("heapsort", HeapsortState, "_heapify", heapify_never),
    ("heapsort", HeapsortState, "_heapify", heapify_without_record),
    ("bubble_sort", BubbleSortState, "take", exchange_never),
    ("bubble_sort", BubbleSortState, "take", exchange_always),
]


@pytest.mark.parametrize(("schema", "states", "name", "mutant"), MUTANTS)
def test_a_wrong_transition_shows_in_the_hint_rows(
    schema: str,
    states: Any,
    name: str,
    mutant: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    monkeypatch.setattr(states, name, mutant)
    rows = by_name(ENVIRONMENT.cross_check(episode))["dm-clrs hint rows"]
    assert 0 < rows.agreed < rows.checked


@pytest.mark.parametrize(
    ("schema", "states", "name", "mutant"),
    [m for m in MUTANTS if m[3] in (consider_greedily, consider_never, heapify_never)],
)
def test_a_wrong_transition_misses_the_outputs(
    schema: str,
    states: Any,
    name: str,
    mutant: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    trace = trace_of(episode.provenance.source)
    step = ALGORITHMS[schema].steps(trace)[0]
    monkeypatch.setattr(states, name, mutant)
    check = completion(ALGORITHMS[schema], trace, step.before, 0)
    assert check.agreed < check.checked


# --- Wrong states: the completion check of each schema can fail -----------------------------------


def ended(schema: str, seed: int = 0) -> tuple[Episode, Any, Callable[[Any], CrossCheck]]:
    """An episode, its terminal state, and the completion check of any state in its place."""
    episode = ENVIRONMENT.sample(schema, seed)
    trace = trace_of(episode.provenance.source)
    initial = ENVIRONMENT.initial_state(episode).canonical()
    steps = ALGORITHMS[schema].steps(trace)
    place = next(n for n, step in enumerate(steps) if step.before.canonical() == initial)

    def check(state: Any) -> CrossCheck:
        return completion(ALGORITHMS[schema], trace, state, place + 4)

    terminal = state_after(episode, range(4))
    assert check(terminal).agreed == check(terminal).checked
    return episode, terminal, check


def fails(check: CrossCheck) -> bool:
    return check.agreed < check.checked


@pytest.mark.parametrize("seed", range(5))
def test_bubble_sort_does_not_complete_from_any_other_array(seed: int) -> None:
    _, terminal, check = ended("bubble_sort", seed)
    order = terminal.order
    for i in range(len(order)):
        for j in range(i):
            wrong = bytearray(order)
            wrong[i], wrong[j] = wrong[j], wrong[i]
            assert fails(check(terminal._replace(order=bytes(wrong))))


def test_bubble_sort_does_not_complete_from_another_place_in_the_run() -> None:
    episode, terminal, _ = ended("bubble_sort")
    trace = trace_of(episode.provenance.source)
    num_steps = len(ALGORITHMS["bubble_sort"].steps(trace))
    agreeing = [
        done
        for done in range(num_steps + 1)
        if not fails(completion(ALGORITHMS["bubble_sort"], trace, terminal, done))
    ]
    assert len(agreeing) == 1


@pytest.mark.parametrize("seed", range(5))
def test_bellman_ford_does_not_complete_from_a_wrong_state(seed: int) -> None:
    episode, terminal, check = ended("bellman_ford", seed)
    for operation in episode.operations:
        tail, head = operation.payload["edge"]  # type: ignore[index,call-overload]
        short = list(terminal.distances)
        short[head] /= 2
        assert fails(check(terminal._replace(distances=tuple(short))))
        trace = trace_of(episode.provenance.source)
        if trace.outputs["pi"][head] == tail:
            wrong = bytearray(terminal.predecessors)
            wrong[head] = next(n for n in range(len(wrong)) if n != tail)
            if trace.hints["d"][-1][head] == terminal.distances[head]:
                assert fails(check(terminal._replace(predecessors=bytes(wrong))))
    apart = next((n for n in range(len(short)) if not terminal.reached >> n & 1), None)
    if apart is not None:
        far = list(terminal.distances)
        far[apart] = 1e-9
        reached = with_bit(terminal.reached, apart, True)
        assert fails(check(terminal._replace(distances=tuple(far), reached=reached)))


@pytest.mark.parametrize("seed", range(5))
def test_matrix_chain_order_does_not_complete_from_a_wrong_state(seed: int) -> None:
    episode, terminal, check = ended("matrix_chain_order", seed)
    finished = ALGORITHMS["matrix_chain_order"].finish(terminal, 0)
    for operation in episode.operations:
        fill = terminal.read(operation.payload)
        place, (i, j) = fill.place, fill.cell
        costs = np.frombuffer(terminal.costs, "<f8").copy()
        final = costs[place] == finished["m"][0, i, j]
        costs[place] = finished["m"][0, i, j] / 2
        assert fails(check(terminal._replace(costs=costs.tobytes())))
        splits = bytearray(terminal.splits)
        splits[place] = next(k for k in range(i, j + 1) if k != splits[place])
        assert fails(check(terminal._replace(splits=bytes(splits)))) == final


@pytest.mark.parametrize("seed", range(5))
def test_mst_kruskal_does_not_complete_from_a_wrong_state(seed: int) -> None:
    episode, terminal, check = ended("mst_kruskal", seed)
    size = len(terminal.pointers)
    for operation in episode.operations:
        u, v = operation.payload["edge"]  # type: ignore[index,call-overload]
        bit = u * size + v
        turned = with_bit(terminal.tree, bit, not terminal.tree >> bit & 1)
        assert fails(check(terminal._replace(tree=turned)))
    separate = bytes(range(size))
    assert fails(check(terminal._replace(pointers=separate, roots=separate)))


@pytest.mark.parametrize("seed", range(5))
def test_heapsort_does_not_complete_from_a_wrong_state(seed: int) -> None:
    episode, terminal, check = ended("heapsort", seed)
    keys = terminal.keys.values
    for operation in episode.operations:
        node, _ = operation.payload["heapify"]  # type: ignore[index,call-overload]
        children = [c for c in (2 * node + 1, 2 * node + 2) if c < len(keys)]
        for child in children:
            wrong = bytearray(terminal.order)
            wrong[node], wrong[child] = wrong[child], wrong[node]
            if keys[wrong[node]] < keys[wrong[child]]:
                assert fails(check(terminal._replace(order=bytes(wrong))))
    assert fails(check(terminal._replace(heap_size=terminal.heap_size - 1)))
    everything = (1 << len(keys)) - 1
    assert fails(check(terminal._replace(heapified=everything)))


@pytest.mark.parametrize("schema", ["mst_kruskal", "heapsort"])
def test_the_reversal_does_not_complete(schema: str) -> None:
    """What certification calls another state is one from which the algorithm goes wrong."""
    for seed in range(20):
        episode, _, check = ended(schema, seed)
        ((first, second, _),) = anti_diamonds(certified(episode))
        order = next(o for o in ORDERS if o.index(second) < o.index(first))
        assert fails(check(state_after(episode, order)))


@each_schema
def test_nothing_completes_without_a_state_or_its_place(schema: str) -> None:
    episode, terminal, _ = ended(schema)
    trace = trace_of(episode.provenance.source)
    assert completion(ALGORITHMS[schema], trace, None, 3).checked == 0
    lost = completion(ALGORITHMS[schema], trace, terminal, None)
    assert (lost.checked, lost.agreed) == (len(trace.outputs), 0)


# --- Wrong episodes ------------------------------------------------------------------------------


def nudged(value: float) -> float:
    return float(np.nextafter(value, 9))


@each_schema
def test_an_altered_input_shows_in_the_trace(schema: str) -> None:
    def nudge(initial: Any) -> None:
        if "adjacency" in initial:
            rows = initial["adjacency"]
            u, v = next((i, j) for i, r in enumerate(rows) for j, w in enumerate(r) if i < j and w)
            rows[u][v] = rows[v][u] = nudged(rows[u][v])
        else:
            member = "p" if "p" in initial else "keys"
            initial[member][0] = nudged(initial[member][0])

    altered = with_initial(ENVIRONMENT.sample(schema, 0), nudge)
    checks = by_name(ENVIRONMENT.cross_check(altered))
    assert checks["dm-clrs trace"].agreed == 0
    assert checks["dm-clrs outputs"].agreed == 0


def delay(initial: Any) -> None:
    initial["d"][initial["msk"].index(1)] += 0.5


def cheapen(initial: Any) -> None:
    cell = next(n for n, cost in enumerate(initial["m"]) if cost)
    initial["m"][cell] /= 2


def forget(initial: Any) -> None:
    initial["in_mst"].pop()


def unheapify(initial: Any) -> None:
    initial["heapified"].pop()


def disorder(initial: Any) -> None:
    order = initial["order"]
    order[0], order[-1] = order[-1], order[0]


@pytest.mark.parametrize(
    ("schema", "change"),
    [
        ("bellman_ford", delay),
        ("matrix_chain_order", cheapen),
        ("mst_kruskal", forget),
        ("heapsort", unheapify),
        ("heapsort", disorder),
        ("bubble_sort", disorder),
    ],
)
def test_an_altered_initial_state_shows_in_the_trace(
    schema: str, change: Callable[[Any], None]
) -> None:
    episode = next(
        e
        for e in sampled(schema, range(20))
        if all(e.initial.get(n, [1]) for n in ("in_mst", "heapified"))  # type: ignore[union-attr]
        and any(e.initial.get("m", [1]))  # type: ignore[union-attr,arg-type]
    )
    altered = with_initial(episode, change)
    checks = by_name(ENVIRONMENT.cross_check(altered))
    assert (checks["dm-clrs trace"].checked, checks["dm-clrs trace"].agreed) == (6, 1)
    assert checks["dm-clrs outputs"].agreed == 0
    assert checks["dm-clrs hint rows"].agreed == checks["dm-clrs hint rows"].checked


@each_schema
def test_another_seed_in_the_provenance_shows(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    other = ENVIRONMENT.sample(schema, 1).provenance
    checks = by_name(ENVIRONMENT.cross_check(dataclasses.replace(episode, provenance=other)))
    assert checks["dm-clrs trace"].agreed == 0
    assert checks["dm-clrs outputs"].agreed == 0
    assert checks["dm-clrs hint rows"].agreed == checks["dm-clrs hint rows"].checked


def test_kruskal_operations_must_stand_in_genuine_order() -> None:
    episode = ENVIRONMENT.sample("mst_kruskal", 0)
    ((first, second, _),) = anti_diamonds(certified(episode))
    swapped = list(episode.operations)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    altered = dataclasses.replace(episode, operations=tuple(swapped))
    checks = by_name(ENVIRONMENT.cross_check(altered))
    assert checks["dm-clrs trace"].agreed == 4
    assert checks["dm-clrs outputs"].agreed == 0


FOREIGN = {
    "bellman_ford": {"edge": [0, 0]},
    "matrix_chain_order": {"cell": [1, 2]},
    "mst_kruskal": {"edge": [0, 1]},
    "heapsort": {"heapify": [0, 1]},
    "bubble_sort": {"exchange": 1},
}


@each_schema
def test_operations_must_be_steps_of_the_run(schema: str) -> None:
    foreign = Operation(signature="foreign", payload=FOREIGN[schema])
    episode = ENVIRONMENT.sample(schema, 0)
    altered = dataclasses.replace(episode, operations=(*episode.operations[:3], foreign))
    assert by_name(ENVIRONMENT.cross_check(altered))["dm-clrs trace"].agreed == 5


def test_exchanges_must_be_the_next_ones() -> None:
    episode = ENVIRONMENT.sample("bubble_sort", 0)
    trace = trace_of(episode.provenance.source)
    initial = ENVIRONMENT.initial_state(episode)
    steps = ALGORITHMS["bubble_sort"].steps(trace)
    place = next(n for n, step in enumerate(steps) if step.before == initial)
    operations = [ALGORITHMS["bubble_sort"].operation(taken.step) for taken in steps[place + 4 :]]
    later = next(operation for operation in operations if operation not in episode.operations)
    altered = dataclasses.replace(episode, operations=(*episode.operations[:3], later))
    assert by_name(ENVIRONMENT.cross_check(altered))["dm-clrs trace"].agreed == 5


@each_schema
def test_provenance_of_another_algorithm_is_malformed(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    other = SCHEMAS[SCHEMAS.index(schema) - 1]
    provenance = ENVIRONMENT.sample(other, 0).provenance
    with pytest.raises(MalformedInputError, match=r"provenance\.source"):
        ENVIRONMENT.cross_check(dataclasses.replace(episode, provenance=provenance))


# --- Outside oracles -----------------------------------------------------------------------------


def way_lengths(state: Any, predecessors: Any, source: int) -> np.ndarray:
    """Distances by walking the predecessors back to ``source``; infinite where there is no way."""
    weights = matrix(state)
    lengths = np.full(len(weights), np.inf)
    for node in range(len(weights)):
        walk, at = 0.0, node
        while at != source and predecessors[at] != at:
            walk, at = walk + weights[predecessors[at], at], predecessors[at]
        if at == source:
            lengths[node] = walk
    return lengths


def test_finishing_bellman_ford_gives_scipys_distances() -> None:
    for episode in sampled("bellman_ford", range(30)):
        source = int(np.argmax(trace_of(episode.provenance.source).inputs["s"]))
        state = state_after(episode, range(4))
        finished = ALGORITHMS["bellman_ford"].finish(state, 0)
        expected = csgraph.bellman_ford(matrix(state), indices=source)
        assert np.allclose(way_lengths(state, finished["pi"], source), expected, rtol=1e-12)
        reached = np.where(finished["msk"][0], finished["d"][0], np.inf)
        assert np.allclose(reached, expected, rtol=1e-12)


def test_finishing_kruskal_gives_scipys_tree() -> None:
    for episode in sampled("mst_kruskal", range(30)):
        state = state_after(episode, range(4))
        tree = csgraph.minimum_spanning_tree(np.triu(matrix(state), 1)).toarray() > 0
        finished = ALGORITHMS["mst_kruskal"].finish(state, 0)
        assert np.array_equal(finished["in_mst"], tree | tree.T)


def cheapest(p: tuple[float, ...], i: int, j: int) -> float:
    """The cost of the product i to j by plain recursion."""
    if i == j:
        return 0.0
    return min(
        cheapest(p, i, k) + cheapest(p, k + 1, j) + p[i - 1] * p[k] * p[j] for k in range(i, j)
    )


def test_finishing_matrix_chain_order_gives_the_least_costs() -> None:
    for episode in sampled("matrix_chain_order", range(10)):
        state = state_after(episode, range(4))
        costs = ALGORITHMS["matrix_chain_order"].finish(state, 0)["m"][0]
        p = state.dimensions.values
        for i, j in matrix_chain.cells_of(len(p)):
            if j - i < 6:
                assert costs[i, j] == pytest.approx(cheapest(p, i, j), rel=1e-12)


def test_finishing_heapsort_gives_the_sorted_keys() -> None:
    for episode in sampled("heapsort", range(30)):
        state = state_after(episode, range(4))
        before = ALGORITHMS["heapsort"].finish(state, 0)["pred"]
        order = np.argsort(state.keys.values)
        assert before[order[0]] == order[0]
        assert np.array_equal(before[order[1:]], order[:-1])
