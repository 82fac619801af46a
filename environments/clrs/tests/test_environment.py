"""The CLRS environment: certified episodes, their variety, and replays that depend on nothing but the request."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from clrs_support import (
    ENVIRONMENT,
    ORDERS,
    SCHEMAS,
    anti_diamonds,
    certified,
    each_schema,
    replays,
    sampled,
    state_after,
    trace_of,
)
from vcrt.certificates.episodes import Preset
from vcrt.environments.contract import (
    Accepted,
    Operation,
    Rejected,
    ReplayRequest,
    StepEnvironment,
    operation_to_json,
)
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.hashing import canonical_json
from vcrt_clrs import episodes
from vcrt_clrs.bubble_sort import BubbleSortState
from vcrt_clrs.environment import ALGORITHMS, ClrsEnvironment
from vcrt_clrs.matrix_chain import MatrixChainState

INPUTS = {
    "bellman_ford": ("adjacency", "A"),
    "matrix_chain_order": ("p", "p"),
    "mst_kruskal": ("adjacency", "A"),
    "heapsort": ("keys", "key"),
    "bubble_sort": ("keys", "key"),
}


# --- Episodes ------------------------------------------------------------------------------------


def test_the_five_schemas_have_both_kinds_of_anti_diamond() -> None:
    kinds = {s.name: s.relation for s in ENVIRONMENT.schemas if s.preset == "paper"}
    assert tuple(kinds) == SCHEMAS
    assert Counter(kinds.values()) == {"precedes": 2, "conflicts": 3}
    assert all(schema.default for schema in ENVIRONMENT.schemas)


def check_certificates(schema: str, seeds: range) -> Counter[tuple[int, int]]:
    """Certify each episode with its second opinions; the positions of the dependent pairs."""
    places: Counter[tuple[int, int]] = Counter()
    for episode in sampled(schema, seeds):
        found = certified(episode, checks=ENVIRONMENT.cross_check(episode))
        ((first, second, kind),) = anti_diamonds(found)
        assert kind == ENVIRONMENT.schema(schema).relation
        legal = {o for o in ORDERS if o.index(first) < o.index(second)}
        assert set(found.orbit) == legal  # type: ignore[union-attr]
        places[first, second] += 1
    return places


@each_schema
def test_episodes_certify_as_12_of_24_with_one_anti_diamond(schema: str) -> None:
    assert sum(check_certificates(schema, range(40)).values()) == 40


@pytest.mark.nightly
@each_schema
def test_two_hundred_more_seeds_keep_the_promise(schema: str) -> None:
    seeds = range(1000, 1200)
    places = check_certificates(schema, seeds)
    assert set(places) == set(itertools.combinations(range(4), 2))
    assert min(places.values()) >= 14
    assert len({e.content_hash() for e in sampled(schema, seeds)}) == 200


def test_the_reversal_is_rejected_for_the_reason_of_the_schema() -> None:
    for schema, reason in (
        ("bellman_ford", "is not reached yet"),
        ("bubble_sort", "are not out of order"),
    ):
        for episode in sampled(schema, range(12)):
            refused = [a for a in replays(episode) if a.rejection is not None]
            assert len(refused) == 12
            assert all(reason in a.rejection.reason for a in refused if a.rejection)


@pytest.mark.parametrize(
    ("schema", "apart"),
    [
        ("matrix_chain_order", ("costs",)),
        ("mst_kruskal", ("tree",)),
        ("heapsort", ("order",)),
    ],
)
def test_the_reversal_ends_elsewhere_by_what_the_algorithm_computes(
    schema: str, apart: tuple[str, ...]
) -> None:
    """Not by a record of what was run: the sets of processed edges and nodes are equal."""
    for episode in sampled(schema, range(12)):
        ((first, second, _),) = anti_diamonds(certified(episode))
        forward = state_after(episode, range(4))
        reversals = [o for o in ORDERS if o.index(first) > o.index(second)]
        for order in reversals:
            backward = state_after(episode, order)
            different = {n for n in forward._fields if getattr(forward, n) != getattr(backward, n)}
            assert set(apart) <= different <= {*apart, "splits", "pointers", "roots"}
        assert len({state_after(episode, o).canonical() for o in reversals}) == 1


@each_schema
def test_every_accepted_step_changes_the_canonical_state(schema: str) -> None:
    for episode in sampled(schema, range(12)):
        for answer in replays(episode):
            assert len(set(answer.state_hashes)) == len(answer.state_hashes)


@pytest.mark.slow
def test_a_hundred_seeds_of_each_schema_are_distinct_and_varied() -> None:
    contents = set()
    for schema in SCHEMAS:
        episodes_ = sampled(schema, range(100))
        contents |= {e.content_hash() for e in episodes_}
        assert len({e.provenance.source for e in episodes_}) == 100
        assert len({e.episode_id for e in episodes_}) == 100
        assert all(len({o.signature for o in e.operations}) == 4 for e in episodes_)
        lengths = {len(e.initial[INPUTS[schema][0]]) for e in episodes_}  # type: ignore
        assert lengths <= set(ALGORITHMS[schema].lengths)
        assert len(lengths) >= 5
        places = Counter(anti_diamonds(certified(e))[0][:2] for e in episodes_[:60])
        assert set(places) == set(itertools.combinations(range(4), 2))
    assert len(contents) == 500


@each_schema
@pytest.mark.parametrize("num_operations", [2, 3, 5])
def test_the_number_of_operations_is_a_parameter(schema: str, num_operations: int) -> None:
    environment = ClrsEnvironment(num_operations=num_operations)
    half = len(list(itertools.permutations(range(num_operations)))) // 2
    for seed in range(3):
        preset = Preset(num_operations=num_operations, orbit_size=half)
        assert len(anti_diamonds(certified(environment.sample(schema, seed), preset))) == 1


def test_sizes_out_of_reach_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VcrtError, match="2 or more"):
        ClrsEnvironment(num_operations=1)
    monkeypatch.setattr(episodes, "MAX_DRAWS", 2)
    for schema in SCHEMAS:
        with pytest.raises(VcrtError, match="ask for fewer operations"):
            ClrsEnvironment(num_operations=40).sample(schema, 0)


GOLDEN = {
    "bellman_ford": "c01e6304e54f73a46541b32f1eb815a509b8e05aff88350fc94ffd520d7aa854",
    "matrix_chain_order": "8dc22f60e11ddb09ee981a30df8a8680006d2b1bbf2fae65170ef2d2818b6fcf",
    "mst_kruskal": "c77285199d6b574d546fa575801046647562c2bbff640b45a9f6e9a106f8e1c5",
    "heapsort": "54d9cf456f0600c04fe55a0ff11d9d74fe5f4c2d396d4523095d2ed39c3b1b1d",
    "bubble_sort": "fd135eac817c3f620f349b4680719f6a2c49e0e30ffdf3dccb7ed1cc3108228d",
}


@each_schema
def test_an_episode_is_fixed_by_schema_and_seed(schema: str) -> None:
    assert ENVIRONMENT.sample(schema, 5).content_hash() == GOLDEN[schema]
    assert ClrsEnvironment().sample(schema, 5) == ENVIRONMENT.sample(schema, 5)


@each_schema
def test_an_episode_survives_json(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 3)
    operations = [operation_to_json(o) for o in episode.operations]
    text = canonical_json({"initial": episode.initial, "operations": operations})
    parsed = json.loads(text)
    again = dataclasses.replace(
        episode,
        initial=parsed["initial"],
        operations=tuple(Operation(**o) for o in parsed["operations"]),
    )
    assert again == episode
    assert again.content_hash() == episode.content_hash()
    assert replays(again) == replays(episode)
    member, name = INPUTS[schema]
    genuine = trace_of(episode.provenance.source).inputs[name]
    assert np.array_equal(parsed["initial"][member], genuine)


@each_schema
def test_every_state_of_a_run_is_read_as_it_was_written(schema: str) -> None:
    algorithm = ALGORITHMS[schema]
    trace = trace_of(ENVIRONMENT.sample(schema, 1).provenance.source)
    states = [step.before for step in algorithm.steps(trace)]
    assert len({state.canonical() for state in states}) == len(states) > 4
    for state in states:
        assert (
            algorithm.read_state(json.loads(canonical_json(algorithm.write_state(state)))) == state
        )


@pytest.mark.parametrize(
    ("schema", "form", "member"),
    [
        ("bellman_ford", "relax {}->{}", "edge"),
        ("mst_kruskal", "consider {{{},{}}}", "edge"),
        ("matrix_chain_order", "fill ({},{})", "cell"),
        ("heapsort", "max-heapify {} of {}", "heapify"),
    ],
)
def test_signatures_are_the_textbook_names(schema: str, form: str, member: str) -> None:
    for operation in ENVIRONMENT.sample(schema, 0).operations:
        pair = operation.payload[member]  # type: ignore[index,call-overload]
        assert operation.signature == form.format(*pair)
        assert ENVIRONMENT.describe(operation) == operation.signature


def test_an_exchange_names_both_positions() -> None:
    for operation in ENVIRONMENT.sample("bubble_sort", 0).operations:
        upper = operation.payload["exchange"]  # type: ignore[index,call-overload]
        assert operation.signature == f"exchange {upper - 1},{upper}"


def test_unknown_schemas_are_named() -> None:
    with pytest.raises(UnknownNameError, match="mst_kruskal"):
        ENVIRONMENT.sample("mst_kruskl", 0)


# --- Replay --------------------------------------------------------------------------------------


@each_schema
def test_replay_depends_on_nothing_but_the_request(schema: str) -> None:
    requests = [ReplayRequest(e, order) for e in sampled(schema, range(3)) for order in ORDERS]
    expected = {(r.episode.episode_id, r.sequence): ENVIRONMENT.replay([r])[0] for r in requests}
    shuffled = [requests[i] for i in np.random.default_rng(0).permutation(len(requests))]
    assert ENVIRONMENT.replay(shuffled) == [
        expected[r.episode.episode_id, r.sequence] for r in shuffled
    ]
    sent = pickle.loads(pickle.dumps(ENVIRONMENT))
    assert sent.replay(shuffled) == ENVIRONMENT.replay(shuffled)


@each_schema
def test_replay_is_the_plain_one_of_any_step_environment(schema: str) -> None:
    """Which reads every payload at each step and hashes every state."""
    sequences = [s for n in range(5) for s in itertools.permutations(range(4), n)]
    requests = [ReplayRequest(e, s) for e in sampled(schema, range(6)) for s in sequences]
    assert ENVIRONMENT.replay(requests) == StepEnvironment.replay(ENVIRONMENT, requests)


@pytest.mark.parametrize(
    ("schema", "states"),
    [("bubble_sort", BubbleSortState), ("matrix_chain_order", MatrixChainState)],
)
def test_every_step_of_every_order_is_taken(
    schema: str, states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = ENVIRONMENT.sample(schema, 0)
    original, calls = states.take, []
    monkeypatch.setattr(
        states,
        "take",
        lambda *a, **k: calls.append(a) or original(*a, **k),  # type: ignore[func-returns-value]
    )
    taken = sum(len(a.state_hashes) - 1 + (not a.accepted) for a in replays(episode))
    assert len(calls) == taken


@each_schema
def test_a_step_leaves_its_state_alone(schema: str) -> None:
    episode = ENVIRONMENT.sample(schema, 1)
    state = ENVIRONMENT.initial_state(episode)
    before, canonical = copy.deepcopy(state), ENVIRONMENT.canonical(state)
    for operation in episode.operations * 2:
        ENVIRONMENT.step(state, operation)
    assert state == before
    assert ENVIRONMENT.canonical(state) == canonical
    for name in state._fields:  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            setattr(state, name, None)
    assert hash(state) == hash(before)


@each_schema
def test_equal_canonical_states_have_equal_futures(schema: str) -> None:
    for episode in sampled(schema, range(4)):
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
    reasons = {
        "bellman_ford": "does not shorten",
        "matrix_chain_order": "no split makes cell",
        "mst_kruskal": "has been considered",
        "heapsort": "has been heapified",
        "bubble_sort": "are not out of order",
    }
    for schema, reason in reasons.items():
        (answer,) = replays(ENVIRONMENT.sample(schema, 0), [(0, 0)])
        assert answer.rejection is not None
        assert reason in answer.rejection.reason
        assert len(answer.state_hashes) == 2
