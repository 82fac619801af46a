"""The CLRS environment: legal orders, purity, cross-checks that can fail, outside oracles and bad input."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph

from vcrt.environments.clrs import bellman_ford, episodes, mst_kruskal
from vcrt.environments.clrs.bellman_ford import BellmanFordState
from vcrt.environments.clrs.environment import ALGORITHMS, ClrsEnvironment
from vcrt.environments.clrs.mst_kruskal import KruskalState
from vcrt.environments.clrs.shim import load_dm_clrs
from vcrt.environments.clrs.trace import Instance, genuine_trace
from vcrt.environments.contract import (
    Accepted,
    CrossCheck,
    Episode,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    operation_to_json,
)
from vcrt.errors import MalformedInputError, UnknownNameError, VcrtError
from vcrt.hashing import canonical_json

SCHEMAS = ("bellman_ford", "mst_kruskal")
ORDERS = tuple(itertools.permutations(range(4)))
ENVIRONMENT = ClrsEnvironment()

both = pytest.mark.parametrize("schema", SCHEMAS)


def replays(episode: Episode, orders: Any = ORDERS) -> list[Replay]:
    return ENVIRONMENT.replay([ReplayRequest(episode, tuple(order)) for order in orders])


def legal_orders(episode: Episode) -> list[tuple[int, ...]]:
    orders = tuple(itertools.permutations(range(episode.num_operations)))
    answers = replays(episode, orders)
    assert answers[0].accepted
    return [a.sequence for a in answers if a.terminal_hash == answers[0].terminal_hash]


def dependent_pairs(orders: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    pairs = itertools.permutations(orders[0], 2)
    return [(a, b) for a, b in pairs if all(o.index(a) < o.index(b) for o in orders)]


def terminal_state(episode: Episode) -> Any:
    state = ENVIRONMENT.initial_state(episode)
    for operation in episode.operations:
        transition = ENVIRONMENT.step(state, operation)
        assert isinstance(transition, Accepted)
        state = transition.state
    return state


# --- Episodes ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("seed", range(12))
def test_exactly_half_of_all_orders_are_legal(schema: str, seed: int) -> None:
    episode = ENVIRONMENT.sample(schema, seed)
    orders = legal_orders(episode)
    assert len(orders) == 12
    (pair,) = dependent_pairs(orders)
    assert set(orders) == {o for o in ORDERS if o.index(pair[0]) < o.index(pair[1])}
    assert orders[0] == (0, 1, 2, 3)


@both
def test_the_reversal_fails_in_the_way_of_the_schema(schema: str) -> None:
    for seed in range(12):
        episode = ENVIRONMENT.sample(schema, seed)
        answers = replays(episode)
        illegal = [a for a in answers if a.terminal_hash != answers[0].terminal_hash]
        if ENVIRONMENT.schema(schema).relation == "precedes":
            assert all(a.rejection and "is not reached yet" in a.rejection.reason for a in illegal)
        else:
            assert all(a.accepted for a in illegal)
            assert len({a.terminal_hash for a in illegal}) == 1


@both
def test_every_accepted_step_changes_the_canonical_state(schema: str) -> None:
    for seed in range(12):
        for answer in replays(ENVIRONMENT.sample(schema, seed)):
            assert len(set(answer.state_hashes)) == len(answer.state_hashes)


@both
def test_two_hundred_seeds_give_distinct_and_varied_episodes(schema: str) -> None:
    sampled = [ENVIRONMENT.sample(schema, seed) for seed in range(200)]
    assert len({e.content_hash() for e in sampled}) == 200
    assert len({e.provenance.source for e in sampled}) == 200
    assert len({e.episode_id for e in sampled}) == 200
    for episode in sampled:
        assert len({o.signature for o in episode.operations}) == 4
    places = Counter(dependent_pairs(legal_orders(e))[0] for e in sampled)
    assert set(places) == set(itertools.combinations(range(4), 2))
    assert min(places.values()) >= 10


@pytest.mark.slow
@both
def test_a_thousand_more_seeds_keep_the_promise(schema: str) -> None:
    seen = set()
    for seed in range(1000, 2000):
        episode = ENVIRONMENT.sample(schema, seed)
        seen.add(episode.content_hash())
        assert len(legal_orders(episode)) == 12
        assert all(c.agreed == c.checked for c in ENVIRONMENT.cross_check(episode))
    assert len(seen) == 1000


@both
@pytest.mark.parametrize("num_operations", [2, 3, 5])
def test_the_number_of_operations_is_a_parameter(schema: str, num_operations: int) -> None:
    environment = ClrsEnvironment(num_operations=num_operations)
    total = len(list(itertools.permutations(range(num_operations))))
    for seed in range(3):
        orders = legal_orders(environment.sample(schema, seed))
        assert len(orders[0]) == num_operations
        assert 2 * len(orders) == total


def test_sizes_out_of_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VcrtError, match="2 or more"):
        ClrsEnvironment(num_operations=1)
    monkeypatch.setattr(episodes, "MAX_DRAWS", 2)
    with pytest.raises(VcrtError, match="ask for fewer operations"):
        ClrsEnvironment(num_operations=40).sample("bellman_ford", 0)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("bellman_ford", "6b637bdc56c33c301475195dec57614d6ab43fa5b1b4678a9ed7b66a52f68c8e"),
        ("mst_kruskal", "a34432fa7e991bf3070a9dbfcba004e6eaab37f4ce447f41f7a7cba4f65e734a"),
    ],
)
def test_an_episode_is_fixed_by_schema_and_seed(schema: str, expected: str) -> None:
    assert ENVIRONMENT.sample(schema, 5).content_hash() == expected
    assert ClrsEnvironment().sample(schema, 5) == ENVIRONMENT.sample(schema, 5)


@both
def test_an_episode_survives_json(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 3)
    operations = [operation_to_json(o) for o in episode.operations]
    text = canonical_json({"initial": episode.initial, "operations": operations})
    read = json.loads(text)
    again = dataclasses.replace(
        episode,
        initial=read["initial"],
        operations=tuple(Operation(**o) for o in read["operations"]),
    )
    assert again.content_hash() == episode.content_hash()
    assert replays(again) == replays(episode)
    genuine = genuine_trace(load_dm_clrs(), Instance.parse(episode.provenance.source))
    assert np.array_equal(read["initial"]["adjacency"], genuine.inputs["A"])


def test_signatures_are_the_textbook_names() -> None:
    relax = ENVIRONMENT.sample("bellman_ford", 0).operations[0]
    u, v = relax.payload["edge"]  # type: ignore[index,call-overload]
    assert relax.signature == f"relax {u}->{v}"
    consider = ENVIRONMENT.sample("mst_kruskal", 0).operations[0]
    u, v = consider.payload["edge"]  # type: ignore[index,call-overload]
    assert consider.signature == f"consider {{{u},{v}}}"
    assert u < v


def test_unknown_schemas_are_named() -> None:
    with pytest.raises(UnknownNameError, match="mst_kruskal"):
        ENVIRONMENT.sample("mst_kruskl", 0)


# --- Replay --------------------------------------------------------------------------------------


@both
def test_replay_depends_on_nothing_but_the_request(schema: str) -> None:
    sampled = [ENVIRONMENT.sample(schema, seed) for seed in range(3)]
    requests = [ReplayRequest(e, order) for e in sampled for order in ORDERS]
    expected = {(r.episode.episode_id, r.sequence): ENVIRONMENT.replay([r])[0] for r in requests}
    shuffled = [requests[i] for i in np.random.default_rng(0).permutation(len(requests))]
    assert ENVIRONMENT.replay(shuffled) == [
        expected[r.episode.episode_id, r.sequence] for r in shuffled
    ]
    sent = pickle.loads(pickle.dumps(ENVIRONMENT))
    assert sent.replay(shuffled) == ENVIRONMENT.replay(shuffled)


@both
def test_a_step_leaves_its_state_alone(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 1)
    state = ENVIRONMENT.initial_state(episode)
    before, canonical = copy.deepcopy(state), ENVIRONMENT.canonical(state)
    for operation in episode.operations * 2:
        ENVIRONMENT.step(state, operation)
    assert state == before
    assert ENVIRONMENT.canonical(state) == canonical
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.graph = None  # type: ignore[misc]
    assert hash(state) == hash(before)


@both
def test_equal_canonical_states_have_equal_futures(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 2)
    futures: dict[bytes, set[Any]] = {}
    for order in ORDERS:
        state = ENVIRONMENT.initial_state(episode)
        for index in order:
            transitions = [ENVIRONMENT.step(state, o) for o in episode.operations]
            answers = tuple(
                ENVIRONMENT.canonical(t.state) if isinstance(t, Accepted) else t.reason
                for t in transitions
            )
            futures.setdefault(ENVIRONMENT.canonical(state), set()).add(answers)
            taken = transitions[index]
            if isinstance(taken, Rejected):
                break
            state = taken.state
    assert len(futures) > 10
    assert all(len(answers) == 1 for answers in futures.values())


def test_a_repeated_operation_is_rejected() -> None:
    for schema, reason in (("bellman_ford", "does not shorten"), ("mst_kruskal", "considered")):
        (answer,) = replays(ENVIRONMENT.sample(schema, 0), [(0, 0)])
        assert answer.rejection is not None
        assert reason in answer.rejection.reason
        assert len(answer.state_hashes) == 2


def small_path() -> dict[str, Any]:
    """Weights 0 -1- 1 -2- 2, seen from node 0."""
    return {
        "adjacency": [[0, 1, 0], [1, 0, 2], [0, 2, 0]],
        "d": [0, 0, 0],
        "pi": [0, 1, 2],
        "msk": [1, 0, 0],
    }


def small_triangle() -> dict[str, Any]:
    return {
        "adjacency": [[0, 1, 3], [1, 0, 2], [3, 2, 0]],
        "pi": [0, 1, 2],
        "in_mst": [],
        "considered": [],
    }


def test_canonical_bytes_have_the_documented_layout() -> None:
    state = ALGORITHMS["bellman_ford"].read_state(small_path())
    moved = state.run({"edge": [0, 1]}).state
    assert moved.canonical() == struct.pack(
        "<32s3d3H3B", state.graph.digest, 0.0, 1.0, 0.0, 0, 0, 2, 1, 1, 0
    )
    state = ALGORITHMS["mst_kruskal"].read_state(small_triangle())
    moved = (
        state.run({"edge": [0, 1]}).state.run({"edge": [1, 2]}).state.run({"edge": [0, 2]}).state
    )
    tree, considered = (1 << 1) + (1 << 5), (1 << 1) + (1 << 2) + (1 << 5)
    assert moved.canonical() == struct.pack(
        "<32s3H2s2s",
        state.graph.digest,
        *(2, 2, 2),
        tree.to_bytes(2, "little"),
        considered.to_bytes(2, "little"),
    )


def test_pointers_count_by_their_roots_only() -> None:
    initial = small_triangle() | {"considered": [[0, 1], [1, 2]], "in_mst": [[0, 1], [1, 2]]}
    read = ALGORITHMS["mst_kruskal"].read_state
    long, short = read(initial | {"pi": [1, 2, 2]}), read(initial | {"pi": [2, 2, 2]})
    assert long != short
    assert long.canonical() == short.canonical()
    assert read(initial | {"pi": [1, 1, 2]}).canonical() != short.canonical()


def test_the_graph_is_part_of_the_canonical_state() -> None:
    for schema, initial in (("bellman_ford", small_path()), ("mst_kruskal", small_triangle())):
        other = copy.deepcopy(initial)
        other["adjacency"][1][2] = other["adjacency"][2][1] = 5
        read = ALGORITHMS[schema].read_state
        assert read(initial).canonical() != read(other).canonical()


def test_transitions_reject_with_their_reason() -> None:
    path = ALGORITHMS["bellman_ford"].read_state(small_path())
    assert path.run({"edge": [1, 2]}) == Rejected("node 1 is not reached yet")
    assert path.run({"edge": [0, 2]}) == Rejected("there is no edge 0->2")
    assert path.run({"edge": [0, 0]}) == Rejected("there is no edge 0->0")
    reached = path.run({"edge": [0, 1]}).state
    assert reached.run({"edge": [1, 0]}) == Rejected("edge 1->0 does not shorten the way to node 0")
    triangle = small_triangle()
    triangle["adjacency"][0][2] = triangle["adjacency"][2][0] = 0
    state = ALGORITHMS["mst_kruskal"].read_state(triangle)
    assert state.run({"edge": [0, 2]}) == Rejected("there is no edge {0,2}")


# --- Cross-checks --------------------------------------------------------------------------------


def by_name(checks: tuple[CrossCheck, ...]) -> dict[str, CrossCheck]:
    return {check.checker: check for check in checks}


@both
def test_cross_checks_agree_on_every_episode(schema: str) -> None:
    for seed in range(40):
        episode = ENVIRONMENT.sample(schema, seed)
        checks = by_name(ENVIRONMENT.cross_check(episode))
        assert set(checks) == {"dm-clrs trace", "dm-clrs hint rows", "dm-clrs outputs"}
        assert all(check.agreed == check.checked for check in checks.values())
        trace = genuine_trace(load_dm_clrs(), Instance.parse(episode.provenance.source))
        assert checks["dm-clrs hint rows"].checked == trace.num_rows > 2
        assert checks["dm-clrs trace"].checked == 6
        assert checks["dm-clrs outputs"].checked == 1


def test_every_hint_of_dm_clrs_is_compared() -> None:
    for schema in SCHEMAS:
        trace = genuine_trace(
            load_dm_clrs(), Instance.parse(ENVIRONMENT.sample(schema, 0).provenance.source)
        )
        for row in ALGORITHMS[schema].hint_rows(trace):
            assert row.keys() == trace.hints.keys()


ORIGINAL_RELAX = bellman_ford.relax
ORIGINAL_CONSIDER = mst_kruskal.consider


def edited(transition: Any, **changes: Callable[[Any], Any]) -> Any:
    if isinstance(transition, Rejected):
        return transition
    state = transition.state
    values = {name: change(getattr(state, name)) for name, change in changes.items()}
    return Accepted(dataclasses.replace(state, **values))


def relax_in_place(state: BellmanFordState, tail: int, head: int, *, before: Any) -> Any:
    return ORIGINAL_RELAX(state, tail, head, before=state)


def relax_without_predecessor(state: BellmanFordState, tail: int, head: int, *, before: Any) -> Any:
    found = ORIGINAL_RELAX(state, tail, head, before=before)
    return edited(found, predecessors=lambda _: state.predecessors)


def relax_one_bit_off(state: BellmanFordState, tail: int, head: int, *, before: Any) -> Any:
    found = ORIGINAL_RELAX(state, tail, head, before=before)
    return edited(
        found,
        distances=lambda d: tuple(
            float(np.nextafter(x, 9)) if node == head else x for node, x in enumerate(d)
        ),
    )


def relax_forgetful(state: BellmanFordState, tail: int, head: int, *, before: Any) -> Any:
    """Overwrites also what is shorter already: its rounds need not come to an end."""
    open_head = tuple(0 if node == head else r for node, r in enumerate(state.reached))
    return ORIGINAL_RELAX(dataclasses.replace(state, reached=open_head), tail, head, before=before)


@pytest.mark.parametrize(
    "mutant", [relax_in_place, relax_without_predecessor, relax_one_bit_off, relax_forgetful]
)
def test_a_wrong_relaxation_shows_in_the_hint_rows(
    mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = ENVIRONMENT.sample("bellman_ford", 0)
    monkeypatch.setattr(bellman_ford, "relax", mutant)
    rows = by_name(ENVIRONMENT.cross_check(episode))["dm-clrs hint rows"]
    assert 0 < rows.agreed < rows.checked


def test_a_relaxation_without_predecessor_misses_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    episode = ENVIRONMENT.sample("bellman_ford", 0)
    monkeypatch.setattr(bellman_ford, "relax", relax_without_predecessor)
    assert by_name(ENVIRONMENT.cross_check(episode))["dm-clrs outputs"].agreed == 0


def consider_greedily(state: KruskalState, u: int, v: int) -> Any:
    found = ORIGINAL_CONSIDER(state, u, v)
    size = len(state.pointers)
    return edited(found, tree=lambda _: state.tree | 1 << (u * size + v))


def consider_never(state: KruskalState, u: int, v: int) -> Any:
    return edited(
        ORIGINAL_CONSIDER(state, u, v),
        tree=lambda _: state.tree,
        pointers=lambda _: state.pointers,
    )


def consider_uncompressed(state: KruskalState, u: int, v: int) -> Any:
    """The right tree and the right components, but other pointers than dm-clrs keeps."""
    pointers = list(state.pointers)
    roots = sorted(mst_kruskal.root_of(pointers, node) for node in (u, v))
    pointers[roots[0]] = roots[1]
    return edited(ORIGINAL_CONSIDER(state, u, v), pointers=lambda _: tuple(pointers))


@pytest.mark.parametrize(
    ("mutant", "reaches_output"),
    [(consider_greedily, 0), (consider_never, 0), (consider_uncompressed, 1)],
)
def test_a_wrong_consideration_shows_in_the_hint_rows(
    mutant: Callable[..., Any], reaches_output: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = ENVIRONMENT.sample("mst_kruskal", 0)
    monkeypatch.setattr(mst_kruskal, "consider", mutant)
    checks = by_name(ENVIRONMENT.cross_check(episode))
    assert 0 < checks["dm-clrs hint rows"].agreed < checks["dm-clrs hint rows"].checked
    assert checks["dm-clrs outputs"].agreed == reaches_output


def with_initial(episode: Episode, change: Callable[[Any], None]) -> Episode:
    initial = copy.deepcopy(episode.initial)
    change(initial)
    return dataclasses.replace(episode, initial=initial)


@both
def test_an_altered_weight_shows_in_the_trace(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)

    def nudge(initial: Any) -> None:
        weights = initial["adjacency"]
        u, v = next(
            (i, j) for i, row in enumerate(weights) for j, w in enumerate(row) if i < j and w
        )
        weights[u][v] = weights[v][u] = float(np.nextafter(weights[u][v], 9))

    altered = with_initial(episode, nudge)
    assert by_name(ENVIRONMENT.cross_check(altered))["dm-clrs trace"].agreed < 6


def test_an_altered_initial_state_shows_in_the_trace() -> None:
    episode = ENVIRONMENT.sample("bellman_ford", 0)
    source = episode.initial["msk"].index(1)  # type: ignore[index,call-overload]

    def delay(initial: Any) -> None:
        initial["d"][source] += 0.5

    trace = by_name(ENVIRONMENT.cross_check(with_initial(episode, delay)))["dm-clrs trace"]
    assert trace.agreed == trace.checked - 1
    episode = next(
        e
        for e in (ENVIRONMENT.sample("mst_kruskal", s) for s in range(9))
        if e.initial["in_mst"]  # type: ignore[index,call-overload]
    )

    def forget(initial: Any) -> None:
        initial["in_mst"].pop()

    checks = by_name(ENVIRONMENT.cross_check(with_initial(episode, forget)))
    assert checks["dm-clrs trace"].agreed == 5
    assert checks["dm-clrs outputs"].agreed == 0


@both
def test_another_seed_in_the_provenance_shows(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    other = ENVIRONMENT.sample(schema, 1).provenance
    checks = by_name(ENVIRONMENT.cross_check(dataclasses.replace(episode, provenance=other)))
    assert checks["dm-clrs trace"].agreed < checks["dm-clrs trace"].checked
    assert checks["dm-clrs outputs"].agreed == 0
    assert checks["dm-clrs hint rows"].agreed == checks["dm-clrs hint rows"].checked


def test_kruskal_operations_must_stand_in_genuine_order() -> None:
    episode = ENVIRONMENT.sample("mst_kruskal", 0)
    first, second = dependent_pairs(legal_orders(episode))[0]
    swapped = list(episode.operations)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    altered = dataclasses.replace(episode, operations=tuple(swapped))
    checks = by_name(ENVIRONMENT.cross_check(altered))
    assert checks["dm-clrs trace"].agreed == 4
    assert checks["dm-clrs outputs"].agreed == 0


def test_relaxations_must_be_ones_of_the_trace() -> None:
    """An edge through which the genuine run never wrote, and an order that the transition rejects."""
    episode = ENVIRONMENT.sample("bellman_ford", 0)
    tail = episode.initial["msk"].index(1)  # type: ignore[index,call-overload]
    strange = Operation(signature=f"relax {tail}->{tail}", payload={"edge": [tail, tail]})
    altered = dataclasses.replace(episode, operations=(*episode.operations[:3], strange))
    checks = by_name(ENVIRONMENT.cross_check(altered))
    assert checks["dm-clrs trace"].agreed == 5
    assert checks["dm-clrs outputs"].agreed == 0


@both
def test_provenance_of_another_algorithm_is_malformed(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    (other,) = set(SCHEMAS) - {schema}
    provenance = ENVIRONMENT.sample(other, 0).provenance
    with pytest.raises(MalformedInputError, match=r"provenance\.source"):
        ENVIRONMENT.cross_check(dataclasses.replace(episode, provenance=provenance))


# --- Outside oracles -----------------------------------------------------------------------------


def matrix(state: Any) -> np.ndarray:
    return np.array(state.graph.weights)


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
    for seed in range(30):
        episode = ENVIRONMENT.sample("bellman_ford", seed)
        trace = genuine_trace(load_dm_clrs(), Instance.parse(episode.provenance.source))
        source = int(np.argmax(trace.inputs["s"]))
        state = terminal_state(episode)
        found = way_lengths(state, ALGORITHMS["bellman_ford"].finish(state)["pi"], source)
        assert np.allclose(found, csgraph.bellman_ford(matrix(state), indices=source), rtol=1e-12)


def test_finishing_kruskal_gives_scipys_tree() -> None:
    for seed in range(30):
        state = terminal_state(ENVIRONMENT.sample("mst_kruskal", seed))
        tree = csgraph.minimum_spanning_tree(np.triu(matrix(state), 1)).toarray() > 0
        assert np.array_equal(ALGORITHMS["mst_kruskal"].finish(state)["in_mst"], tree | tree.T)


@st.composite
def symmetric_weights(draw: st.DrawFn) -> list[list[float]]:
    size = draw(st.integers(2, 7))
    weights = [[0.0] * size for _ in range(size)]
    for u, v in itertools.combinations(range(size), 2):
        weights[u][v] = weights[v][u] = float(draw(st.integers(0, 9)))
    return weights


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
    state = ALGORITHMS["bellman_ford"].read_state(initial)
    edges = data.draw(st.permutations(list(itertools.permutations(range(size), 2))))
    moved = True
    while moved:
        moved = False
        for u, v in edges:
            transition = state.run({"edge": [u, v]})
            if isinstance(transition, Accepted):
                assert transition.state.canonical() != state.canonical()
                state, moved = transition.state, True
    expected = csgraph.bellman_ford(np.array(weights), indices=0)
    found = [d if r else np.inf for d, r in zip(state.distances, state.reached, strict=True)]
    assert found == expected.tolist()


@settings(deadline=None)
@given(weights=symmetric_weights(), data=st.data())
def test_considering_in_any_order_spans_scipys_components(
    weights: list[list[float]], data: st.DataObject
) -> None:
    size = len(weights)
    initial = {"adjacency": weights, "pi": list(range(size)), "in_mst": [], "considered": []}
    state = ALGORITHMS["mst_kruskal"].read_state(initial)
    pairs = data.draw(st.permutations(list(itertools.combinations(range(size), 2))))
    for u, v in pairs:
        transition = state.run({"edge": [u, v]})
        assert isinstance(transition, Accepted) == (weights[u][v] > 0)
        if isinstance(transition, Accepted):
            assert transition.state.canonical() != state.canonical()
            state = transition.state
    count, labels = csgraph.connected_components(np.array(weights))
    roots = [mst_kruskal.root_of(state.pointers, node) for node in range(size)]
    assert state.tree.bit_count() == size - count
    assert all(
        (roots[u] == roots[v]) == (labels[u] == labels[v])
        for u, v in itertools.combinations(range(size), 2)
    )
    assert all(root == max(v for v in range(size) if roots[v] == root) for root in roots)


# --- Bad input -----------------------------------------------------------------------------------

PAYLOADS: list[Any] = [
    None,
    [0, 1],
    {},
    {"edge": None},
    {"edge": "01"},
    {"edge": [0]},
    {"edge": [0, 1, 2]},
    {"edge": [0, "1"]},
    {"edge": [0, 1.0]},
    {"edge": [True, 2]},
    {"edge": [0, 99]},
    {"edge": [-1, 1]},
]


@both
@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
def test_bad_payloads_name_the_field(schema: str, payload: Any) -> None:
    state = ENVIRONMENT.initial_state(ENVIRONMENT.sample(schema, 0))
    with pytest.raises(MalformedInputError, match=r"operation\.payload\.edge"):
        ENVIRONMENT.step(state, Operation(signature="x", payload=payload))


def test_an_undirected_edge_names_its_smaller_node_first() -> None:
    state = ALGORITHMS["mst_kruskal"].read_state(small_triangle())
    with pytest.raises(MalformedInputError, match="smaller node first"):
        state.run({"edge": [1, 0]})


COMMON: list[tuple[dict[str, Any], str]] = [
    ({"adjacency": None}, r"initial\.adjacency\n"),
    ({"adjacency": [[0]]}, r"initial\.adjacency\n"),
    ({"adjacency": [[0, 1, 0], [1, 0], [0, 0, 0]]}, r"initial\.adjacency\[1\]\n"),
    ({"adjacency": [[0, 1, 0], [1, 0, "2"], [0, 2, 0]]}, r"initial\.adjacency\[1\]\[2\]\n"),
    ({"adjacency": [[0, 1, 0], [1, 0, None], [0, 2, 0]]}, r"initial\.adjacency\[1\]\[2\]\n"),
    ({"adjacency": [[0, True, 0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    ({"adjacency": [[0, -1, 0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    ({"adjacency": [[0, 1e999, 0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    (
        {"adjacency": [[0, float("nan"), 0], [1, 0, 2], [0, 2, 0]]},
        r"initial\.adjacency\[0\]\[1\]\n",
    ),
    ({"adjacency": [[0, 10**400, 0], [1, 0, 2], [0, 2, 0]]}, r"initial\.adjacency\[0\]\[1\]\n"),
    ({"pi": [0, 1]}, r"initial\.pi\n"),
    ({"pi": [0, 1, 3]}, r"initial\.pi\[2\]\n"),
    ({"pi": [0, 1, 2.0]}, r"initial\.pi\[2\]\n"),
]
BELLMAN_FORD: list[tuple[dict[str, Any], str]] = [
    ({"d": [0, 0]}, r"initial\.d\n"),
    ({"d": {}}, r"initial\.d\n"),
    ({"d": [0, -0.5, 0]}, r"initial\.d\[1\]\n"),
    ({"msk": [1, 2, 0]}, r"initial\.msk\[1\]\n"),
    ({"msk": [True, 0, 0]}, r"initial\.msk\[0\]\n"),
    ({"d": [0, 1, 0]}, r"initial\.msk\[1\]\n"),
    ({"pi": [0, 0, 2]}, r"initial\.msk\[1\]\n"),
]
KRUSKAL: list[tuple[dict[str, Any], str]] = [
    ({"adjacency": [[0, 1, 3], [1, 0, 2], [3, 4, 0]]}, r"initial\.adjacency\[1\]\[2\]\n"),
    ({"pi": [0, 0, 2]}, r"initial\.pi\[1\]\n"),
    ({"considered": [[0, 1], [0, 1]]}, r"initial\.considered\[1\]\n"),
    ({"considered": [[1, 0]]}, r"initial\.considered\[0\]\n"),
    ({"considered": [[0, 3]]}, r"initial\.considered\[0\]\[1\]\n"),
    ({"considered": [7]}, r"initial\.considered\[0\]\n"),
    ({"in_mst": [[0, 1]]}, r"initial\.in_mst\n"),
]


@pytest.mark.parametrize(
    ("schema", "change", "where"),
    [("bellman_ford", *case) for case in COMMON + BELLMAN_FORD]
    + [("mst_kruskal", *case) for case in COMMON + KRUSKAL],
)
def test_bad_initial_states_name_the_field(schema: str, change: dict[str, Any], where: str) -> None:
    initial = small_path() if schema == "bellman_ford" else small_triangle()
    ALGORITHMS[schema].read_state(initial)
    with pytest.raises(MalformedInputError, match=f"where: {where}"):
        ALGORITHMS[schema].read_state(initial | change)


@both
def test_missing_members_are_named(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    for name in episode.initial:  # type: ignore[union-attr]
        altered = with_initial(episode, lambda initial, name=name: initial.pop(name))  # type: ignore[misc]
        with pytest.raises(MalformedInputError, match=rf"initial\.{name}"):
            ENVIRONMENT.initial_state(altered)
    with pytest.raises(MalformedInputError, match="where: initial\n"):
        ENVIRONMENT.initial_state(dataclasses.replace(episode, initial=[1]))


def test_an_edge_that_the_graph_lacks_cannot_have_been_considered() -> None:
    initial = small_triangle() | {"considered": [[0, 2]]}
    initial["adjacency"][0][2] = initial["adjacency"][2][0] = 0
    with pytest.raises(MalformedInputError, match="edges of the graph"):
        ALGORITHMS["mst_kruskal"].read_state(initial)


def test_a_negative_zero_is_zero() -> None:
    read = ALGORITHMS["bellman_ford"].read_state
    assert read(small_path() | {"d": [-0.0, 0, 0]}).canonical() == read(small_path()).canonical()
