"""Longer changes have one to six pairs that must keep their order, the same in every context."""

from __future__ import annotations

from collections import Counter

import pytest
from vcrt_sqlite.environment import SqliteChanges
from vcrt_sqlite.long_statements import KINDS, LONG, Draws

from vcrt.environments.contract import Accepted, Episode, Operation, Provenance
from vcrt.environments.relation_search import lattice_relations
from vcrt.randomness import generator

SQLITE = SqliteChanges()
GOLDEN: dict[str, str] = {
    "statements6": "7dcbba49c397e64914f8d94e7ce68c6b29dea514896abd3f4e48c3e8cda3aa6a",
    "statements12": "8da04604b0c8b936d9335fd60d3a37bb287c8ef4b8cc1008339c749ae168945e",
}


def asked_of(episode):
    """How the relations of an episode are asked for, with its equal states hashed once."""

    def take(state, step):
        answer = SQLITE.step(state, episode.operations[step])
        if not isinstance(answer, Accepted):
            return None
        assert SQLITE.canonical(answer.state) != SQLITE.canonical(state)
        return answer.state

    return episode.num_operations, SQLITE.initial_state(episode), take, SQLITE.canonical


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
@pytest.mark.parametrize("left", [1, 3, 6])
def test_each_group_has_the_pairs_that_it_notes(kind, left) -> None:
    for seed in range(2):
        group = kind(Draws(generator(seed)), left)
        episode = Episode(
            environment="sqlite_changes",
            schema="statements6",
            initial=["CREATE TABLE other (x INTEGER)", *group.setup],
            operations=tuple(Operation(signature=s, payload=s) for s in group.statements),
            provenance=Provenance(source="here", generator="test", seed=seed),
        )
        found = lattice_relations(*asked_of(episode))
        assert found.anti_diamonds == tuple(sorted(group.pairs)), group


@pytest.mark.parametrize("schema", LONG, ids=lambda schema: schema.name)
def test_episodes_are_distinct_of_their_size_and_made_again_from_their_seed(schema) -> None:
    episodes = [SQLITE.sample(schema.name, seed) for seed in range(40)]
    assert len({episode.content_hash() for episode in episodes}) == 40
    assert {episode.num_operations for episode in episodes} == {schema.num_steps}
    assert SqliteChanges().sample(schema.name, 3) == episodes[3]
    assert episodes[3].content_hash() == GOLDEN[schema.name]


def test_every_context_of_six_statements_shows_one_to_six_anti_diamonds() -> None:
    numbers, kinds = Counter(), Counter()
    for seed in range(10):
        found = lattice_relations(*asked_of(SQLITE.sample("statements6", seed)))
        assert found is not None
        assert found.few
        numbers[len(found.anti_diamonds)] += 1
        kinds.update(found.kinds[pair] for pair in found.anti_diamonds)
    assert len(numbers) == 6, numbers
    assert min(kinds["precedes"], kinds["conflicts"]) > 3


@pytest.mark.parametrize("schema", LONG, ids=lambda schema: schema.name)
def test_one_transaction_in_a_file_agrees_on_some_orders(schema) -> None:
    for seed in range(3):
        (check,) = SQLITE.cross_check(SQLITE.sample(schema.name, seed))
        assert check.agreed == check.checked
        assert 5 < check.checked <= 18
