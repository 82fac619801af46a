"""Schemas of several anti-diamonds: shapes, what steps have them, and episodes of every schema through the gate."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import permutations

import pytest

from graph_environment import Graphs, episode
from vcrt.certificates.certificates import directed
from vcrt.certificates.episodes import SEVERAL_PRESET, CertifiedEpisode, certify_episode
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.posets import SHAPES, below_of, linear_order, shape_of
from vcrt.environments.registry import load_environment
from vcrt.environments.relation_search import lattice_relations, relations_of
from vcrt.hashing import json_digest
from vcrt.orders import linear_extensions, transitive_closure, transitive_reduction
from vcrt.randomness import generator
from vcrt.replay.config import sampled
from vcrt.replay.replay import replay_exhaustively

#: Schema, how many seeds are certified here, and the shapes that it never has.
RARE = {"sink", "crossing", "diamond"}
SCHEMAS = {
    "clrs/bellman_ford_poset": (8, {*RARE, "early join"}),
    "clrs/matrix_chain_poset": (8, RARE),
    "lean/cite_poset": (6, set()),
    "lean/have_poset": (6, set()),
    "proofwriter/ground_poset": (40, set()),
    "proofwriter/sweep_poset": (40, set()),
}
SIZES = {
    "fork": 8,
    "join": 8,
    "two pairs": 6,
    "source": 6,
    "sink": 6,
    "zigzag": 5,
    "chain": 4,
    "crossing": 4,
    "branched chain": 3,
    "joined chain": 3,
    "late fork": 2,
    "early join": 2,
    "diamond": 2,
}


@cache
def environment(name):
    return load_environment(name)


@cache
def certified(schema):
    """The certified episodes of a schema's first seeds, with their second opinions: none may be left out."""
    name, _, schema_name = schema.partition("/")
    env = environment(name)
    episodes = [env.sample(schema_name, seed) for seed in range(SCHEMAS[schema][0])]
    replays = replay_exhaustively(env, episodes)
    opinions = env.cross_check_all(episodes, [item.replays for item in replays])
    outcomes = [
        certify_episode(item, env.versions(), SEVERAL_PRESET, checks)
        for item, checks in zip(replays, opinions, strict=True)
    ]
    assert all(isinstance(outcome, CertifiedEpisode) for outcome in outcomes), outcomes
    return outcomes


def certified_shape(outcome):
    return shape_of(transitive_closure(directed(outcome.relations)))


# --- shapes ---------------------------------------------------------------------------------------


def test_the_shapes_are_all_posets_of_four_with_two_relations_and_two_orders() -> None:
    assert {name: len(linear_extensions(4, pairs)) for name, pairs in SHAPES.items()} == SIZES
    assert all(transitive_reduction(pairs) == pairs for pairs in SHAPES.values())
    # Of the 16 posets, these are all but the antichain, the single pair and the total order.
    assert len({shape_of(transitive_closure(pairs)) for pairs in SHAPES.values()}) == 13
    for pairs in ((), ((0, 1),), ((0, 1), (1, 2), (2, 3))):
        assert shape_of(transitive_closure(pairs)) is None


def found_in(made):
    return relations_of(Graphs(), made, below_of(generator(0, "test")))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_poset_is_found_whatever_the_order_of_its_steps(shape) -> None:
    for names in permutations(range(4)):
        pairs = {(names[a], names[b]) for a, b in SHAPES[shape]}
        needs, reads = found_in(episode(pairs)), found_in(episode((), pairs))
        if all(a < b for a, b in pairs):
            assert needs.shape == reads.shape == shape
            closure = transitive_closure(pairs)
            assert set(needs.order.pairs) == set(reads.order.pairs) == closure
            kinds = [
                {found.kinds[pair] for pair in found.anti_diamonds} for found in (needs, reads)
            ]
            assert kinds == [{"precedes"}, {"conflicts"}]
        else:
            assert needs is None  # the order as it stands is refused
            # Whoever comes late leaves a trace, so here the order as it stands gives the direction.
            ascending = {tuple(sorted(pair)) for pair in pairs}
            assert set(reads.order.pairs) == transitive_closure(ascending)


def test_steps_whose_relation_depends_on_others_have_no_poset() -> None:
    def take(state, index):
        seen = (*state, index)
        return seen if 2 in state else tuple(sorted(seen))

    assert lattice_relations(4, (), take, lambda state: state) is None


def test_linear_orders_are_all_reached() -> None:
    found = {linear_order("zigzag", lambda n, k=k: min(k, n - 1)) for k in range(9)}
    assert sorted(found) == linear_extensions(4, SHAPES["zigzag"])


# --- episodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_candidate_is_certified_with_the_shapes_of_its_schema(schema) -> None:
    shapes = Counter(certified_shape(outcome) for outcome in certified(schema))
    missing = SCHEMAS[schema][1]
    assert set(shapes) <= set(SHAPES) - missing
    if SCHEMAS[schema][0] >= 40:
        assert len(shapes) >= 10
    assert len(shapes) >= 4
    for outcome in certified(schema):
        assert len(outcome.orbit) == SIZES[certified_shape(outcome)]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_episodes_are_distinct_and_made_again_from_their_seed(schema) -> None:
    episodes = [outcome.episode for outcome in certified(schema)]
    assert len({e.content_hash() for e in episodes}) == len(episodes)
    name, _, schema_name = schema.partition("/")
    again = load_environment(name)
    assert again.sample(schema_name, 3) == episodes[3]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_kinds_of_anti_diamonds_are_those_of_the_schema(schema) -> None:
    name, _, schema_name = schema.partition("/")
    designed = environment(name).schema(schema_name)
    kinds = Counter(
        frozenset(r.kind for r in outcome.relations) - {"commutes"} for outcome in certified(schema)
    )
    assert all(designed.designed(found) for found in kinds)
    if designed.relation == "either" and SCHEMAS[schema][0] >= 40:
        assert set(kinds) == {
            frozenset({"precedes"}),
            frozenset({"conflicts"}),
            frozenset({"precedes", "conflicts"}),
        }


@pytest.mark.parametrize("schema", SCHEMAS)
def test_second_opinions_agree_throughout(schema) -> None:
    for outcome in certified(schema):
        assert outcome.cross_checks
        assert all(
            check.checked and check.agreed == check.checked for check in outcome.cross_checks
        )


@pytest.mark.parametrize("schema", [name for name in SCHEMAS if not name.startswith("clrs")])
def test_hundreds_of_episodes_are_distinct_and_of_every_shape_in_turn(schema) -> None:
    name, _, schema_name = schema.partition("/")
    env = environment(name)
    episodes = [env.sample(schema_name, seed) for seed in range(300)]
    assert len({e.content_hash() for e in episodes}) == 300


def test_lean_facts_hide_and_instances_replace_others() -> None:
    env = environment("lean")
    hiding = replacing = 0
    for seed in range(60):
        steps = [str(o.payload) for o in env.sample("have_poset", seed).operations]
        hiding += len({step.split()[1] for step in steps}) < 4
        found = env.sample("cite_poset", seed)
        replacing += sum("instance" in str(o.payload) for o in found.operations) in (2, 4)
        assert len(found.initial["probes"]) * 2 == sum(
            "instance" in str(o.payload) for o in found.operations
        )
    assert hiding > 10
    assert replacing > 10


@pytest.mark.nightly
@pytest.mark.parametrize("schema", SCHEMAS)
def test_hundreds_of_distinct_episodes_of_every_schema(schema, tmp_path) -> None:
    name, _, schema_name = schema.partition("/")
    # The orders of 500 take minutes to replay: the rest is sampled only, and of CLRS a quarter, at 12 a second.
    episodes = 30
    config = sampled({name: [schema_name]}, episodes, preset=SEVERAL_PRESET)
    dataset = make_dataset(config, tmp_path / "data", jobs=1)
    counts = dataset.manifest.counts[name][schema_name]
    assert counts.episodes == episodes
    assert counts.candidates < 1.04 * episodes
    number = 130 if name == "clrs" else 520
    drawn = [environment(name).sample(schema_name, seed) for seed in range(number)]
    contents = [[e.initial, [(o.signature, o.payload) for o in e.operations]] for e in drawn]
    assert len(set(map(json_digest, contents))) >= number / 1.04


@pytest.mark.parametrize(
    "schema", ["clrs/matrix_chain_poset", "lean/have_poset", "proofwriter/sweep_poset"]
)
def test_their_number_of_steps_is_the_schemas_own(schema) -> None:
    name, _, schema_name = schema.partition("/")
    episode = environment(name).sample(schema_name, 0)
    assert episode.num_operations == environment(name).schema(schema_name).num_steps == 4
    if name != "lean":  # which has no other number
        assert type(environment(name))(num_operations=5).sample(schema_name, 0) == episode
