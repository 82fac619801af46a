"""Which episodes the presets take: every poset of four operations, as steps that refuse and as steps that overwrite."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_environment import GRAPHS, Graphs, episode
from preset_outcomes import outcome
from vcrt.certificates.certificates import directed
from vcrt.certificates.episodes import (
    PAPER_PRESET,
    PRESETS,
    SEVERAL_PRESET,
    CertifiedEpisode,
    certify_episode,
    preset_named,
)
from vcrt.environments.contract import Accepted
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.orders import linear_extensions, transitive_closure, transitive_reduction
from vcrt.replay.config import select_schemas
from vcrt.replay.replay import replay_exhaustively

POSETS = [graph for graph in GRAPHS if transitive_closure(graph) == graph]


def is_several(pairs):
    closure = transitive_closure(pairs)
    return len(closure) >= 2 and len(brute_force(closure)) >= 2


def brute_force(pairs):
    return [
        order
        for order in permutations(range(4))
        if all(order.index(a) < order.index(b) for a, b in pairs)
    ]


def test_there_are_forty_labelled_posets_of_which_some_are_several() -> None:
    sizes = sorted(len(brute_force(p)) for p in POSETS if is_several(p))
    assert len(POSETS) == 40
    assert {len(p) for p in POSETS if not is_several(p)} == {0, 1, 6}
    assert set(sizes) == {2, 3, 4, 5, 6, 8}


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_several_takes_exactly_the_graphs_with_two_relations_and_two_orders(graph) -> None:
    for found in (outcome(episode(graph)), outcome(episode((), graph))):
        if is_several(graph):
            assert isinstance(found, CertifiedEpisode), found
            assert list(found.orbit) == brute_force(graph)
            assert transitive_closure(directed(found.relations)) == transitive_closure(graph)
        else:
            assert found.kind == "outside_schema"


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_the_paper_takes_exactly_the_graphs_with_one_relation(graph) -> None:
    for made in (episode(graph), episode((), graph)):
        assert isinstance(outcome(made, PAPER_PRESET), CertifiedEpisode) == (len(graph) == 1)


def test_steps_that_need_each_other_leave_the_implied_pair_without_a_relation() -> None:
    chain = {(0, 1), (1, 2)}
    refused = outcome(episode(transitive_closure(chain)))
    assert set(directed(refused.relations)) == chain
    assert len(refused.relations) == 5
    overwritten = outcome(episode((), transitive_closure(chain)))
    assert set(directed(overwritten.relations)) == {*chain, (0, 2)}


def test_both_kinds_in_one_episode() -> None:
    found = outcome(episode({(0, 1)}, {(0, 2), (1, 2)}))
    kinds = {(r.first, r.second): r.kind for r in found.relations if r.kind != "commutes"}
    assert kinds == {(0, 1): "precedes", (0, 2): "conflicts", (1, 2): "conflicts"}


@given(st.sampled_from(GRAPHS), st.sampled_from(GRAPHS))
def test_what_is_taken_is_always_the_linear_extensions_of_its_relations(needs, reads) -> None:
    found = outcome(episode(needs, reads - needs))
    if isinstance(found, CertifiedEpisode):
        pairs = directed(found.relations)
        assert 2 <= len(found.orbit) <= 8
        assert len(pairs) >= 2
        assert list(found.orbit) == linear_extensions(4, pairs) == brute_force(needs | reads)


class Swallowing(Graphs):
    """The step that comes last hides what the others left, so that more orders are legal than relations say."""

    def step(self, state, operation):
        done, late = super().step(state, operation).state
        return Accepted((done, () if len(done) == 4 else late))


def test_legal_orders_that_the_relations_do_not_explain_are_left_out() -> None:
    environment = Swallowing()
    (evidence,) = replay_exhaustively(environment, [episode((), {(0, 1), (2, 3)})])
    found = certify_episode(evidence, environment.versions(), SEVERAL_PRESET)
    assert not isinstance(found, CertifiedEpisode)


def test_presets_by_name() -> None:
    assert PRESETS["paper"] == preset_named("paper") == PAPER_PRESET
    assert preset_named("several").orbit_size is None
    with pytest.raises(UnknownNameError, match="did you mean 'several'"):
        preset_named("sveral")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("posets2", "any"),
        ("poset8", "posets8"),
        ("ani", "any"),
        ("posets65", None),
        ("posets0", None),
    ],
)
def test_another_number_is_not_suggested(name: str, near: str | None) -> None:
    with pytest.raises(UnknownNameError, match="posetsN for 3 to 64 operations, or any") as caught:
        preset_named(name)
    assert caught.value.remedy == (near and f"did you mean {near!r}?")


def test_each_preset_has_schemas_of_its_own() -> None:
    paper, several = select_schemas(()), select_schemas((), "several")
    assert sorted(paper) == ["clrs", "lean", "proofwriter"]
    assert all(len(names) == 5 for names in paper.values())
    for name, schemas in several.items():
        assert not set(schemas) & set(paper[name])
    with pytest.raises(VcrtError, match="add --preset paper"):
        select_schemas(("clrs/heapsort",), "several")
    every = select_schemas((), "any")
    for name, schemas in every.items():
        assert {*paper[name], *several[name], "posets6"} <= set(schemas)
    assert select_schemas(("clrs/heapsort",), "any") == {"clrs": ("heapsort",)}


@given(st.sampled_from(GRAPHS))
def test_the_reduction_is_the_smallest_graph_with_the_same_closure(graph) -> None:
    reduction = transitive_reduction(graph)
    assert reduction <= graph
    assert transitive_closure(reduction) == transitive_closure(graph)
    for pair in reduction:
        assert transitive_closure(reduction - {pair}) != transitive_closure(graph)


def test_a_cycle_has_no_reduction() -> None:
    assert (0, 0) in transitive_closure({(0, 1), (1, 0)})
    with pytest.raises(ValueError, match="cycle"):
        transitive_reduction({(0, 1), (1, 2), (2, 0)})
