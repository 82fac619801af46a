"""Relations that samplers of long episodes plant, and how they find what relations steps have."""

from __future__ import annotations

from collections import Counter

import pytest

from graph_environment import Graphs
from long_graphs import graph_episode
from vcrt.environments.contexts import ContextWalk
from vcrt.environments.contract import Accepted, Schema
from vcrt.environments.posets import (
    SHAPES,
    SIZES,
    DrawnRelations,
    Relations,
    below_of,
    components,
    draw_extension,
    draw_relations,
    long_schemas,
)
from vcrt.environments.relation_search import (
    find_relations,
    lattice_relations,
    relations_of,
    walked_relations,
)
from vcrt.errors import MalformedInputError
from vcrt.orders import all_orders, linear_extensions, transitive_closure, transitive_reduction
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import generator


def below(seed=0):
    return below_of(generator(seed, "test"))


# --- relations that are planted ---------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", SIZES)
def test_relations_are_one_to_six_of_which_none_follows_from_others(num_steps) -> None:
    draw = below()
    numbers, groups = Counter(), set()
    for _ in range(300):
        pairs = draw_relations(num_steps, draw)
        assert all(0 <= a < b < num_steps for a, b in pairs)
        assert transitive_reduction(pairs) == pairs
        assert len(transitive_closure(pairs)) < num_steps * (num_steps - 1) // 2
        numbers[len(pairs)] += 1
        groups |= {len(group) for group in components(num_steps, pairs)}
    assert set(numbers) == {1, 2, 3, 4, 5, 6}
    assert min(numbers.values()) > 25
    assert {1, 2, 3, 4} <= groups


def test_groups_are_what_relations_connect() -> None:
    assert components(6, [(0, 3), (1, 4), (3, 4)]) == [[0, 1, 3, 4], [2], [5]]


def test_extensions_keep_every_pair_and_all_are_reached() -> None:
    order = PartialOrder.of(4, [(0, 2), (1, 2), (1, 3)])
    draw = below()
    assert sorted({draw_extension(order, draw) for _ in range(200)}) == linear_extensions(
        4, order.pairs
    )


def test_each_size_has_a_schema_for_its_own_preset() -> None:
    schemas = long_schemas("steps")
    assert [schema.num_steps for schema in schemas] == list(SIZES)
    assert [(s.name, s.preset, s.default) for s in schemas] == [
        (f"posets{n}", f"posets{n}", True) for n in SIZES
    ]


def test_a_number_of_steps_names_the_preset_unless_another_is_given() -> None:
    def made(**fields):
        return Schema(name="x", summary="x", relation="either", **fields)

    assert made().preset == "paper"
    assert made(num_steps=7).preset == made(preset="posets7").preset == "posets7"
    assert made(num_steps=4, preset="several").preset == "several"
    assert made(num_steps=9, preset="any").preset == "any"
    with pytest.raises(MalformedInputError, match="two numbers of steps") as error:
        made(num_steps=7, preset="posets8")
    assert "num_steps=7" in str(error.value)
    for few in (made(), made(num_steps=3)):
        with pytest.raises(MalformedInputError, match="no relations are drawn"):
            DrawnRelations.of(few, below())


@pytest.mark.parametrize("num_steps", [4, 5, 7])
def test_what_was_drawn_is_what_an_environment_says_of_the_steps_planted_for_it(num_steps) -> None:
    schema, draw = Schema(name="x", summary="x", relation="either", num_steps=num_steps), below()
    texts = set()
    for _ in range(20):
        drawn = DrawnRelations.of(schema, draw)
        texts.add(drawn.text)
        order = drawn.arranged(range(num_steps), draw)
        places = {step: place for place, step in enumerate(order)}
        needs = transitive_closure((places[a], places[b]) for a, b in drawn.pairs)
        found = relations_of(Graphs(), graph_episode(num_steps, needs), draw)
        assert drawn.are(found)
        assert (drawn.shape in SHAPES) == (num_steps == 4)
        less = relations_of(Graphs(), graph_episode(num_steps), draw)
        assert not drawn.are(less)
        assert not drawn.are(None)
    assert len(texts) > 5


def test_a_step_that_changes_nothing_gives_an_episode_no_relations() -> None:
    class Idle(Graphs):
        def canonical(self, state):
            return b"1"

    assert relations_of(Idle(), graph_episode(4), below()) is None


# --- the walk over contexts --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_walk_counts_the_orders_that_trying_all_of_them_accepts(seed) -> None:
    pairs = transitive_closure(draw_relations(5, below(seed)))
    made = graph_episode(5, pairs, ()) if seed % 2 else graph_episode(5, (), pairs)
    num_steps, start, take, key = asked_of(made)

    def end(order):
        state = start
        for step in order:
            state = None if state is None else take(state, step)
        return None if state is None else (31, key(state))

    parts = []
    walk = ContextWalk(num_steps=num_steps, start=start, take=take, key=key)
    for part in walk.parts(3):
        parts.append(len(part))
    tried = Counter(end(order) for order in all_orders(5))
    ways = walk.num_orders()
    assert {each: n for each, n in ways.items() if each[0] == 31} == {
        each: n for each, n in tried.items() if each is not None
    }
    assert all(walk.follow(order) == end(order) for order in all_orders(5))
    assert max(parts) == 3
    # Each step of each context is asked for once.
    assert sum(parts) == sum(map(len, walk.transitions.values()))
    order = PartialOrder.of(5, pairs)
    assert walk.ends_of(order) == {end(range(5)): len(linear_extensions(5, pairs))}
    assert (walk.ends_of(PartialOrder.of(5, [])) is None) == bool(seed % 2)


# --- relations that are found -----------------------------------------------------------------------


def asked_of(made):
    environment = Graphs()

    def take(state, step):
        answer = environment.step(state, made.operations[step])
        return answer.state if isinstance(answer, Accepted) else None

    return made.num_operations, environment.initial_state(made), take, environment.canonical


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("num_steps", [6, 7])
def test_needs_and_conflicts_are_found_in_all_contexts_and_on_walks(num_steps, seed) -> None:
    pairs = draw_relations(num_steps, below(seed))
    closure = transitive_closure(pairs)
    needs = asked_of(graph_episode(num_steps, closure))
    reads = asked_of(graph_episode(num_steps, (), closure))
    for found in (lattice_relations(*needs), walked_relations(*needs, below())):
        assert found.order.pairs == tuple(sorted(closure))
        assert found.anti_diamonds == tuple(sorted(pairs))
        assert {found.kinds[pair] for pair in pairs} == {"precedes"}
        assert found.few
    for found in (lattice_relations(*reads), walked_relations(*reads, below())):
        assert found.anti_diamonds == tuple(sorted(closure))
        assert {found.kinds[pair] for pair in closure} == {"conflicts"}


def test_many_steps_are_walked() -> None:
    pairs = draw_relations(16, below(5))
    found = find_relations(*asked_of(graph_episode(16, transitive_closure(pairs))), below())
    assert found.anti_diamonds == tuple(sorted(pairs))


def test_a_reference_order_that_is_refused_has_no_relations() -> None:
    for search in (lattice_relations, lambda *asked: walked_relations(*asked, below())):
        assert search(*asked_of(graph_episode(6, [(3, 1)]))) is None
        assert search(*asked_of(graph_episode(6, [(6, 0)]))) is None


def searches(num_steps, take):
    """What both searches find from the empty tuple on."""
    arguments = (num_steps, (), take, lambda state: state)
    return lattice_relations(*arguments), walked_relations(*arguments, below())


def test_a_relation_that_depends_on_the_context_is_none() -> None:
    def take(state, step):
        seen = (*state, step)
        return seen if 2 in state else tuple(sorted(seen))

    assert searches(5, take) == (None, None)


def test_a_conflict_that_the_end_forgets_is_none() -> None:
    def take(state, step):
        if step == 4:
            return tuple(sorted((*state, 4))) if len(state) == 4 else None
        early = sorted(each for each in state if each > 1)
        kept = [each for each in state if each <= 1]
        return (*kept, step, *early) if step <= 1 else (*kept, *sorted((*early, step)))

    assert searches(5, take) == (None, None)


def test_pairs_that_nothing_shows_and_nothing_implies_are_not_explained() -> None:
    shown = {(0, 1): "precedes", (1, 2): "precedes"}
    assert Relations(3, shown).explain_all
    assert not Relations(3, {(0, 1): "precedes", (0, 2): None}).explain_all
    assert not Relations(3, dict.fromkeys([(0, 1), (0, 2), (1, 2)])).few
