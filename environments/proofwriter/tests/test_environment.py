from __future__ import annotations

import json
import pickle
from collections import Counter
from functools import cache
from itertools import permutations

import pytest

from proofwriter_support import rule, theory
from vcrt.certificates.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.environments.contract import (
    Accepted,
    Environment,
    Episode,
    Operation,
    Provenance,
    Rejected,
    ReplayRequest,
    StepEnvironment,
)
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.hashing import canonical_json
from vcrt.replay.replay import replay_exhaustively
from vcrt_proofwriter import engine, operations
from vcrt_proofwriter.clingo_engine import clingo_answers
from vcrt_proofwriter.environment import CACHE_SIZE, ProofWriterEnvironment
from vcrt_proofwriter.files import parse_atom
from vcrt_proofwriter.operations import GROUND, SWEEP, operation_of
from vcrt_proofwriter.theory import Atom, theory_from_json, theory_to_json

SCHEMAS = tuple(s.name for s in ProofWriterEnvironment.schemas if s.preset == "paper")
CONFLICTS = ("binding_sweep", "naf_sweep")
ORDERS = tuple(permutations(range(4)))


@cache
def sampled(schema: str, seed: int) -> Episode:
    return ProofWriterEnvironment().sample(schema, seed)


@pytest.fixture(scope="module")
def env() -> ProofWriterEnvironment:
    return ProofWriterEnvironment()


def replays(env: Environment, episode: Episode):
    return env.replay([ReplayRequest(episode, order) for order in ORDERS])


def legal_orders(env: Environment, episode: Episode) -> set[tuple[int, ...]]:
    found = replays(env, episode)
    return {r.sequence for r in found if r.accepted and r.terminal_hash == found[0].terminal_hash}


def required_pair(legal: set[tuple[int, ...]]) -> tuple[int, int]:
    (pair,) = [
        (a, b)
        for a, b in permutations(range(4), 2)
        if all(order.index(a) < order.index(b) for order in legal)
    ]
    return pair


def toy_episode(world, operations, schema="naf_sweep") -> Episode:
    return Episode(
        environment="proofwriter",
        schema=schema,
        initial=theory_to_json(world),
        operations=tuple(operations),
        provenance=Provenance(source="test", generator="test", seed=0),
    )


# --- episodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
def test_exactly_twelve_orders_are_legal_and_one_pair_decides(env, schema) -> None:
    pairs = Counter()
    for seed in range(60):
        episode = sampled(schema, seed)
        legal = legal_orders(env, episode)
        assert len(legal) == 12
        first, second = required_pair(legal)
        pairs[first, second] += 1
        for replay in replays(env, episode):
            assert len(set(replay.state_hashes)) == len(replay.state_hashes)
            if replay.sequence not in legal:
                assert replay.accepted == (schema in CONFLICTS)
    # Where the pair stands in the reference order must not give it away.
    assert set(pairs) == {(a, b) for a in range(4) for b in range(4) if a < b}
    assert max(pairs.values()) < 30


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_sampled_episode_certifies_with_one_anti_diamond(env, schema) -> None:
    relation = env.schema(schema).relation
    episodes = [sampled(schema, seed) for seed in range(80)]
    for evidence in replay_exhaustively(env, episodes):
        certified = certify_episode(evidence, env.versions(), PAPER_PRESET)
        assert isinstance(certified, CertifiedEpisode), certified
        assert [r.kind for r in certified.relations if r.kind != "commutes"] == [relation]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_only_legal_orders_end_in_all_that_the_steps_can_soundly_derive(env, schema) -> None:
    for seed in range(25):
        episode = sampled(schema, seed)
        holds = clingo_answers(theory_from_json(episode.initial)).model
        legal = legal_orders(env, episode)
        ends = {}
        for order in ORDERS:
            state = env.initial_state(episode)
            for index in order:
                result = env.step(state, episode.operations[index])
                if isinstance(result, Rejected):
                    break
                state = result.state
            else:
                ends[order] = state.facts
        reference = ends[0, 1, 2, 3]
        for order, end in ends.items():
            assert (end == reference) == (order in legal)
            assert (end <= holds) == (order in legal or schema == "binding_sweep")
            assert end <= reference or schema == "naf_sweep"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_six_hundred_seeds_are_distinct_and_deterministic(env, schema) -> None:
    episodes = [sampled(schema, seed) for seed in range(600)]
    assert len({e.content_hash() for e in episodes}) == 600
    assert len({e.provenance.source for e in episodes}) == 600
    assert ProofWriterEnvironment().sample(schema, 7) == episodes[7]
    assert json.loads(canonical_json(episodes[7].initial)) == episodes[7].initial
    assert {e.episode_id for e in episodes} == {f"proofwriter/{schema}/{s}" for s in range(600)}
    for episode in episodes[:100]:
        world = theory_from_json(episode.initial)
        assert episode.provenance.source == f"proofwriter/{world.content_hash()}"
        assert len({o.signature for o in episode.operations}) == 4


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_pair_is_worded_as_its_schema_says(env, schema) -> None:
    for seed in range(80):
        episode = sampled(schema, seed)
        rules = theory_from_json(episode.initial).rules
        pair = required_pair(legal_orders(env, episode))
        payloads = [episode.operations[index].payload for index in pair]
        assert {o.payload["operation"] for o in episode.operations} == {
            "sweep" if schema in CONFLICTS else "ground"
        }
        first, second = (rules[payload["rule"] - 1] for payload in payloads)
        predicates = {atom.predicate for atom in second.atoms()}
        conditions = [c.predicate + c.object for c in second.conditions if c.polarity != "~"]
        absent = [c.predicate + c.object for c in second.conditions if c.polarity == "~"]
        link = first.conclusion.predicate + first.conclusion.object
        assert link in (absent if schema == "naf_sweep" else conditions)
        if schema == "attribute_chain":
            assert predicates == {"is"}
            assert len(conditions) == 1
        if schema == "conjunctive_join":
            assert predicates == {"is"}
            assert len(conditions) > 1
        if schema == "relational_join":
            binding = payloads[1]["binding"] or ""
            bound = [atom.bind(binding) for atom in second.atoms()]
            assert len({e for atom in bound for e in atom.entities()}) > 1
            assert predicates != {"is"}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_rule_numbers_do_not_give_the_pair_away(env, schema) -> None:
    earlier = 0
    for seed in range(60):
        episode = sampled(schema, seed)
        first, second = required_pair(legal_orders(env, episode))
        rules = [o.payload["rule"] for o in episode.operations]
        earlier += rules[first] < rules[second]
    assert 15 < earlier < 45


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("num_operations", [2, 3, 5, 6])
def test_other_numbers_of_operations(schema, num_operations) -> None:
    env = ProofWriterEnvironment(num_operations)
    orders = list(permutations(range(num_operations)))
    for seed in range(3):
        episode = env.sample(schema, seed)
        found = env.replay([ReplayRequest(episode, order) for order in orders])
        legal = [r for r in found if r.terminal_hash == found[0].terminal_hash]
        assert len(legal) == len(orders) // 2


@pytest.mark.parametrize("num_operations", [-1, 0, 1, 9])
def test_impossible_numbers_of_operations(num_operations) -> None:
    with pytest.raises(ValueError, match=f"found {num_operations}"):
        ProofWriterEnvironment(num_operations)


def test_unknown_schema(env) -> None:
    with pytest.raises(UnknownNameError, match="naf_sweep"):
        env.sample("naf_swep", 0)


# --- steps ----------------------------------------------------------------------------------------

P, Q, R = (Atom("Ann", "is", what) for what in "pqr")
SOME_P, SOME_Q, SOME_R = (Atom("someone", "is", what) for what in "pqr")
WORLD = theory(
    "CWA",
    [P, P._replace(subject="Bo")],
    [rule(SOME_P, SOME_Q), rule(SOME_P, SOME_Q.with_polarity("~"), SOME_R), rule(Q, R)],
)


def test_ground_operation(env) -> None:
    operation = operation_of(WORLD, (GROUND, 1, "Ann"))
    state = env.initial_state(toy_episode(WORLD, [operation]))
    result = env.step(state, operation)
    assert isinstance(result, Accepted)
    assert result.state.facts == state.facts | {Q.text}
    assert env.step(result.state, operation) == Rejected(f"the conclusion {Q.text} holds already")
    last = operation_of(WORLD, (GROUND, 3, None))
    assert env.step(state, last) == Rejected(f"the condition {Q.text} does not hold")
    absent = operation_of(WORLD, (GROUND, 2, "Ann"))
    assert isinstance(env.step(state, absent), Accepted)
    assert env.step(result.state, absent) == Rejected(
        f"{Q.text} holds, but a condition asks for its absence"
    )


def test_sweep_operation_runs_once_over_the_state_before_it(env) -> None:
    chain = theory(
        "CWA",
        [Atom("Ann", "is", "p"), Atom("Ann", "likes", "Bo"), Atom("Bo", "likes", "Cy")],
        [rule(Atom("someone", "likes", "Bo"), Atom("Bo", "likes", "someone"))],
    )
    sweep = operation_of(chain, (SWEEP, 1, None))
    state = env.initial_state(toy_episode(chain, [sweep]))
    once = env.step(state, sweep)
    assert isinstance(once, Accepted)
    assert once.state.facts - state.facts == {Atom("Bo", "likes", "Ann").text}
    assert env.step(once.state, sweep) == Rejected("sweep rule 1 adds no fact")


def test_sweep_takes_all_bindings(env) -> None:
    sweep = operation_of(WORLD, (SWEEP, 1, None))
    state = env.initial_state(toy_episode(WORLD, [sweep]))
    result = env.step(state, sweep)
    assert isinstance(result, Accepted)
    assert result.state.facts - state.facts == {Q.text, Q._replace(subject="Bo").text}
    assert len(state.facts) == 2


def test_canonical_form_is_the_sorted_facts(env) -> None:
    episode = env.sample("attribute_chain", 3)
    state = env.initial_state(episode)
    lines = env.canonical(state).decode().split("\n")
    assert lines == sorted(lines)
    assert {parse_atom(line) for line in lines} == set(theory_from_json(episode.initial).facts)


def test_describe(env) -> None:
    operation = operation_of(WORLD, (GROUND, 2, "Bo"))
    assert env.describe(operation) == (
        "rule 2 on Bo: If someone is p and they are not q then they are r."
    )
    assert env.describe(Operation(signature="bare", payload=None)) == "bare"


# --- what a file may bring ------------------------------------------------------------------------

GOOD = {**operation_of(WORLD, (GROUND, 1, "Ann")).payload}


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (None, "payload"),
        ([1], "payload"),
        ("sweep", "payload"),
        ({k: v for k, v in GOOD.items() if k != "binding"}, "payload.binding"),
        ({**GOOD, "more": 1}, "payload.more"),
        ({**GOOD, "operation": "jump"}, "payload.operation"),
        ({**GOOD, "operation": ["ground"]}, "payload.operation"),
        ({**GOOD, "rule": 0}, "payload.rule"),
        ({**GOOD, "rule": 4}, "payload.rule"),
        ({**GOOD, "rule": True}, "payload.rule"),
        ({**GOOD, "rule": 1.0}, "payload.rule"),
        ({**GOOD, "rule": {}}, "payload.rule"),
        ({**GOOD, "binding": "Cy"}, "payload.binding"),
        ({**GOOD, "binding": None}, "payload.binding"),
        ({**GOOD, "binding": ["Ann"]}, "payload.binding"),
        ({**GOOD, "binding": 1}, "payload.binding"),
        ({**GOOD, "operation": "sweep"}, "payload.binding"),
        ({**GOOD, "text": "If someone is q then they are p."}, "payload.text"),
        ({**GOOD, "text": None}, "payload.text"),
    ],
)
def test_malformed_payload_names_the_field(env, payload, field) -> None:
    operation = Operation(signature="rule 1 on Ann", payload=payload)
    with pytest.raises(MalformedInputError) as caught:
        env.initial_state(toy_episode(WORLD, [operation]))
    assert (caught.value.where or "").endswith(f"'rule 1 on Ann', field {field}")


@pytest.mark.parametrize("payload", [None, 3, "ab", [1], {}, {**GOOD, "binding": "Cy"}])
def test_step_refuses_an_operation_of_another_theory(env, payload) -> None:
    state = env.initial_state(toy_episode(WORLD, []))
    with pytest.raises(MalformedInputError, match="field payload"):
        env.step(state, Operation(signature="foreign", payload=payload))


@pytest.mark.parametrize("initial", [None, [], {}, "CWA", {"assumption": "CWA", "facts": []}])
def test_malformed_initial_names_the_episode(env, initial) -> None:
    episode = Episode(
        environment="proofwriter",
        schema="naf_sweep",
        initial=initial,
        operations=(),
        provenance=Provenance(source="test", generator="test", seed=5),
    )
    with pytest.raises(MalformedInputError, match="proofwriter/naf_sweep/5"):
        env.replay([ReplayRequest(episode, ())])


def test_unstratified_theory_is_refused_not_replayed(env) -> None:
    world = theory("CWA", [Q], [rule(P.with_polarity("~"), P)])
    with pytest.raises(MalformedInputError, match="not stratified"):
        env.replay([ReplayRequest(toy_episode(world, []), ())])


# --- replay ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
def test_replay_answers_as_single_steps_do(env, schema) -> None:
    for seed in range(20):
        episode = sampled(schema, seed)
        requests = [
            ReplayRequest(episode, order[:length]) for order in ORDERS for length in range(5)
        ]
        assert env.replay(requests) == StepEnvironment.replay(env, requests)


def test_operations_that_are_not_of_the_theory_are_refused_before_any_step(env) -> None:
    episode = toy_episode(
        WORLD, [operation_of(WORLD, (GROUND, 1, "Ann")), Operation(signature="foreign", payload={})]
    )
    with pytest.raises(MalformedInputError, match="field payload"):
        env.replay([ReplayRequest(episode, (0,))])


# --- cache ----------------------------------------------------------------------------------------


def test_cache_is_bounded_and_never_serves_another_episode() -> None:
    env = ProofWriterEnvironment()
    worlds = [theory("CWA", [Atom("Ann", "is", f"p{i}")], []) for i in range(CACHE_SIZE + 30)]
    for world in worlds:  # each episode dies here, and its id may come back
        state = env.initial_state(toy_episode(world, []))
        assert state.facts == {world.facts[0].text}
    assert len(env._cache) == CACHE_SIZE
    kept = toy_episode(worlds[0], [])
    assert env.initial_state(kept) is env.initial_state(kept)


def test_cache_of_a_pickled_environment_is_not_believed() -> None:
    env = ProofWriterEnvironment()
    first, second = (toy_episode(theory("CWA", [fact], []), []) for fact in (P, Q))
    env.initial_state(first)
    copy = pickle.loads(pickle.dumps(env))
    copy._cache = {id(second): copy._cache[id(first)]}
    assert copy.initial_state(second).facts == {Q.text}


# --- second opinion -------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
def test_clingo_agrees_on_episodes(env, schema) -> None:
    for seed in range(20):
        checks = env.cross_check(sampled(schema, seed))
        assert [c.checker for c in checks] == ["clingo model", "clingo steps", "clingo soundness"]
        assert [c.checked for c in checks[1:]] == [8, 4]
        assert checks[0].checked > len(sampled(schema, seed).initial["facts"])
        assert all(c.agreed == c.checked for c in checks)


def disagreement(env: ProofWriterEnvironment, schema: str) -> Counter[str]:
    missed: Counter[str] = Counter()
    for seed in range(12):
        for check in env.cross_check(sampled(schema, seed)):
            missed[check.checker] += check.checked - check.agreed
    return missed


def test_engine_that_ignores_absence_is_found_out(monkeypatch) -> None:
    monkeypatch.setattr(
        engine, "strata", lambda grounding: [[r._replace(absent=0) for r in grounding.rules]]
    )
    assert disagreement(ProofWriterEnvironment(), "naf_sweep")["clingo model"] > 0


def test_step_that_ignores_a_condition_is_found_out(monkeypatch) -> None:
    episodes = [sampled("naf_sweep", seed) for seed in range(5)]
    masks = operations.actions_of

    def forgetful(grounding):
        actions = masks(grounding)
        for key, step in actions.steps.items():
            actions.steps[key] = tuple(rule._replace(absent=0) for rule in step)
        return actions

    monkeypatch.setattr("vcrt_proofwriter.environment.actions_of", forgetful)
    checks = [
        check for episode in episodes for check in ProofWriterEnvironment().cross_check(episode)
    ]
    assert sum(c.checked - c.agreed for c in checks if c.checker == "clingo steps") > 0
    assert sum(c.checked - c.agreed for c in checks if c.checker == "clingo model") == 0


def test_unsound_reference_order_is_found_out(env) -> None:
    """The reversal of a conflict is accepted, step by step as clingo says, and still unsound."""
    episode = env.sample("naf_sweep", 1)
    reversed_episode = toy_episode(theory_from_json(episode.initial), episode.operations[::-1])
    model, steps, sound = env.cross_check(reversed_episode)
    assert model.agreed == model.checked
    assert steps.agreed == steps.checked
    assert sound.agreed < sound.checked == 4


def test_refused_reference_order_is_found_out(env) -> None:
    episode = env.sample("attribute_chain", 1)
    reversed_episode = toy_episode(
        theory_from_json(episode.initial), episode.operations[::-1], "attribute_chain"
    )
    _, steps, sound = env.cross_check(reversed_episode)
    assert steps.agreed == steps.checked == 8
    assert sound.agreed == 3
