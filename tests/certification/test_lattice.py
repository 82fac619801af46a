"""Long episodes against exhaustive replay: relations, legal orders and classes, complete and sampled."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from math import factorial

import pytest

import poset_environment as posets
from reductions import classes
from vcrt.certificates.certificates import UncertifiedError, certificates, relation_graph
from vcrt.certificates.episodes import (
    PRESETS,
    CertifiedEpisode,
    Exclusion,
    certify_episode,
    legal_orders,
)
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import explain
from vcrt.certificates.replay_tree import Reached, ReplayTree, tree_from_json
from vcrt.environments.contract import Accepted, Rejected
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.orders import all_orders
from vcrt.partial_orders import num_linear_extensions
from vcrt.randomness import generator
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively

ENVIRONMENT = posets.Posets()


def tree_of(made, environment=ENVIRONMENT, **options):
    (found,) = replay_lattices(environment, [made], **options)
    return found.tree


def explained(made, **options):
    return explain(tree_of(made, **options), sampled=options.get("sampled", False))


def flaw_of(tree, **options):
    with pytest.raises(UncertifiedError) as caught:
        explain(tree, **options)
    return caught.value


def by_brute_force(made):
    """The relations, legal orders and classes of accepted orders that exhaustive replay gives."""
    (evidence,) = replay_exhaustively(ENVIRONMENT, [made])
    relations = relation_graph(made.num_operations, certificates(evidence), allow_implied=True)
    commuting = {(r.first, r.second) for r in relations if r.kind == "commutes"}
    accepted = [replay.sequence for replay in evidence.replays if replay.accepted]
    return (
        relations,
        legal_orders(evidence.replays),
        classes(accepted, lambda a, b: (min(a, b), max(a, b)) in commuting),
    )


def check(made):
    relations, legal, accepted = by_brute_force(made)
    complete, sampled = explained(made), explained(made, sampled=True)
    for found in (complete, sampled):
        assert found.relations == relations
        assert [o for o in all_orders(made.num_operations) if found.order.allows(o)] == legal
        assert num_linear_extensions(found.order) == len(legal)
    assert complete.complete
    whole = [c for c in expected(sampled) if c.refused_at is None]
    assert [c.sequence for c in whole] == [members[0] for members in accepted]
    assert sum(c.legal for c in whole) == 1
    assert sampled.classes == len(expected(sampled))


def expected(found):
    from vcrt.certificates.long_episodes import expected_representatives

    return expected_representatives(found.relations, found.order)


def kinds(poset, way):
    """The poset's pairs as (needs, reads, bars): all of one kind, or a mixture drawn by the poset itself."""
    if way == "needs":
        return poset, ()
    if way == "late":
        return (), (), poset
    draw = generator(0, "kinds", repr(sorted(poset)))
    needs = {pair for pair in sorted(poset) if way == "mixed" and draw.integers(2)}
    return needs, posets.closing(poset - needs, needs)


@pytest.mark.parametrize(("num_operations", "count"), [(2, 2), (3, 7), (4, 40)])
@pytest.mark.parametrize("way", ["needs", "reads", "mixed", "late"])
def test_every_poset_of_up_to_four_steps(num_operations, count, way):
    found = posets.natural_posets(num_operations)
    assert len(found) == count
    for poset in found:
        check(posets.episode(num_operations, *kinds(poset, way)))


def test_some_posets_of_five_steps():
    found = posets.natural_posets(5)
    assert len(found) == 357
    for poset in found[::12]:
        check(posets.episode(5, *kinds(poset, "mixed")))
        check(posets.episode(5, *kinds(poset, "late")))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["needs", "reads", "mixed", "late"])
def test_every_poset_of_five_steps(way):
    for poset in posets.natural_posets(5):
        check(posets.episode(5, *kinds(poset, way)))


@pytest.mark.parametrize(("num_operations", "seed"), [(6, 0), (6, 1), (6, 2), (7, 0)])
def test_random_posets_of_six_and_seven_steps(num_operations, seed):
    check(posets.random_episode(num_operations, seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_operations", "seed"), [(6, s) for s in range(3, 20)] + [(7, 1), (7, 2)]
)
def test_more_random_posets_of_six_and_seven_steps(num_operations, seed):
    check(posets.random_episode(num_operations, seed))


@pytest.mark.parametrize(("num_operations", "seed"), [(8, 0), (12, 1), (16, 2), (24, 3)])
def test_long_episodes_give_back_the_poset_they_were_made_from(num_operations, seed):
    made = posets.random_episode(num_operations, seed)
    found = explained(made)
    pairs = {
        (a, b)
        for b, operation in enumerate(made.operations)
        for a in range(num_operations)
        if (operation.payload["needs"] | operation.payload["reads"]) >> a & 1
    }
    from vcrt.orders import transitive_closure

    assert set(found.order.pairs) == transitive_closure(pairs)
    assert found.complete == (num_operations <= 10)
    for pair in found.pairs:
        if num_operations <= 20:
            assert 0 <= pair.replayed <= pair.contexts
            assert (pair.replayed == pair.contexts) or not found.complete
        else:
            assert pair.contexts is None
        assert pair.complete == found.complete


@pytest.mark.parametrize("num_operations", [8, 12])
def test_the_contexts_of_a_pair_are_counted_as_brute_force_counts_them(num_operations):
    found = explained(posets.random_episode(num_operations, 4))
    order = found.order
    sets = [
        done
        for done in range(1 << num_operations)
        if all(
            not done >> i & 1 or not before & ~done for i, before in enumerate(order.predecessors)
        )
    ]
    # The sets that legal moves come to, level by level.
    reached = level = {0}
    while level:
        level = {
            done | 1 << i
            for done in level
            for i, before in enumerate(order.predecessors)
            if not done >> i & 1 and not before & ~done
        }
        reached = reached | level
    assert set(sets) == reached
    for pair in found.pairs:
        without = [d for d in sets if not (d >> pair.pair[0] | d >> pair.pair[1]) & 1]
        assert pair.contexts == len(without)


def test_sampled_evidence_of_few_contexts_is_not_called_complete():
    """A chain of twelve steps has thirteen contexts, all of which are replayed; they were sampled all the same."""
    found = explained(posets.episode(12, [(i, i + 1) for i in range(10)], ()))
    assert not found.complete
    assert not any(pair.complete for pair in found.pairs)


def test_another_succession_gives_the_same_tree():
    for number in (7, 12):
        made = posets.random_episode(number, 5)
        assert tree_of(made, backwards=True) == tree_of(made)


def test_every_transition_of_a_complete_lattice_is_what_the_verifier_answers():
    made = posets.random_episode(6, 1)
    lattice = Lattice.of(tree_of(made))
    assert lattice.complete
    for (number, operation), answer in lattice.transitions.items():
        context = lattice.contexts[number]
        state = ENVIRONMENT.initial_state(made)
        for step in context.sequence:
            state = ENVIRONMENT.step(state, made.operations[step]).state
        again = ENVIRONMENT.step(state, made.operations[operation])
        if isinstance(answer, str):
            assert again == Rejected(answer)
        else:
            reached = lattice.contexts[answer]
            assert reached.done == context.done | 1 << operation
            assert reached.state_hash == ENVIRONMENT._hash(again.state)


class Erasing(posets.Posets):
    """The last step erases the trace of a conflict, so that orders are legal which no relation allows."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Accepted) and operation.payload["step"] == 11:
            start, done, _ = answer.state
            return Accepted((start, done, 0))
        return answer


def test_a_class_that_fares_otherwise_than_the_relations_say_excludes_the_episode(monkeypatch):
    made = posets.episode(12, (), [(2, 5)])
    # Without contexts drawn at random, only the representative of a class has it.
    monkeypatch.setattr("vcrt.certificates.sampling.CONTEXTS_PER_PAIR", 0)
    found = flaw_of(tree_of(made, Erasing()))
    assert found.kind == "outside_schema"
    assert "does not keep the relations" in found.detail


class Remembering(posets.Posets):
    """Refuses the last step after 1, 0, 2, which its canonical form does not tell from 0, 1, 2."""

    def initial_state(self, episode):
        return super().initial_state(episode), ()

    def step(self, state, operation):
        inner, run = state
        step = operation.payload["step"]
        if step == 5 and run[:3] == (1, 0, 2):
            return Rejected("remembered")
        answer = super().step(inner, operation)
        return Accepted((answer.state, (*run, step))) if isinstance(answer, Accepted) else answer

    def canonical(self, state):
        return super().canonical(state[0])


def test_what_a_hash_does_not_tell_is_found_by_other_sequences_to_the_same_context():
    found = flaw_of(tree_of(posets.episode(6, [(4, 5)], ()), Remembering()))
    assert found.kind == "unequal_futures"


def test_contexts_behind_a_reversed_conflict_are_sampled_too():
    """Legal orders never come there, but that orders through there are not legal is a claim as well."""
    found = flaw_of(tree_of(posets.episode(12, (), [(2, 5)]), Erasing()))
    assert found.kind == "context_dependent"


class Together(posets.Posets):
    """Steps 1 and 4 do not commute once step 2 has run."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Rejected):
            return answer
        start, done, late = answer.state
        apart = operation.payload["step"] == 1 and state[1] >> 4 & 1 and state[1] >> 2 & 1
        return Accepted((start, done, late | bool(apart)))


class Forgetful(posets.Posets):
    """What ran first decides what the last step may do, and the state does not tell."""

    def initial_state(self, episode):
        return (*super().initial_state(episode), None)

    def step(self, state, operation):
        *known, first = state
        answer = super().step(tuple(known), operation)
        if isinstance(answer, Rejected):
            return answer
        step = operation.payload["step"]
        if step == 5 and first == 3:
            return Rejected("not after 3")
        return Accepted((*answer.state, step if first is None else first))

    def canonical(self, state):
        return repr(state[:-1]).encode()


class Counting(posets.Posets):
    """Answers differently each time."""

    count = 0

    def canonical(self, state):
        type(self).count += 1
        return repr((state, self.count)).encode()


class Idle(posets.Posets):
    """A step that does nothing."""

    def step(self, state, operation):
        return Accepted(state) if operation.payload["step"] == 4 else super().step(state, operation)


class Refusing(posets.Posets):
    """Refuses its own reference order."""

    def step(self, state, operation):
        return (
            Rejected("never") if operation.payload["step"] == 3 else super().step(state, operation)
        )


@pytest.mark.parametrize(
    ("mutant", "kind"),
    [
        (Together, "context_dependent"),
        (Forgetful, "unequal_futures"),
        (Idle, "no_effect"),
        (Refusing, "outside_schema"),
    ],
)
@pytest.mark.parametrize("num_operations", [6, 12])
def test_mutants_are_excluded_by_name(mutant, kind, num_operations):
    made = posets.episode(num_operations, [(0, 1)], [(3, 5)])
    if mutant is Forgetful and num_operations == 12:
        return  # which futures are compared is left to chance there
    outcome = certified(made, mutant())
    assert isinstance(outcome, Exclusion)
    assert outcome.kind == kind, outcome.detail


def certified(made, environment=ENVIRONMENT, preset="posets6", **options):
    (evidence,) = replay_lattices(environment, [made], **options)
    asked = replace(PRESETS[preset], num_operations=made.num_operations)
    return certify_episode(evidence, environment.versions(), asked)


def test_answers_that_change_are_a_contradiction_or_another_tree():
    made = posets.random_episode(6, 0)
    batches = tree_of(made, Counting(), backwards=True)
    assert batches.contradiction is not None
    assert flaw_of(batches).kind == "nondeterministic"
    assert tree_of(made, Counting()) != tree_of(made, Counting())


def test_a_certified_episode_says_what_was_replayed():
    outcome = certified(posets.random_episode(12, 1))
    assert isinstance(outcome, CertifiedEpisode)
    assert (outcome.replays, outcome.orbit) == ((), ())
    assert outcome.num_legal == num_linear_extensions(outcome.order)
    assert not outcome.complete
    assert outcome.classes > 1
    assert (
        8 <= max(pair.replayed for pair in outcome.pairs) < max(p.contexts for p in outcome.pairs)
    )


def test_no_relation_and_one_order_are_outside_the_presets():
    for made in (posets.episode(6), posets.episode(6, [(i, i + 1) for i in range(5)])):
        outcome = certified(made)
        assert isinstance(outcome, Exclusion)
        assert outcome.kind == "outside_schema"


def test_what_does_not_fit_is_named_with_a_way_out(monkeypatch):
    monkeypatch.setattr("vcrt.replay.lattice_replay.MAX_CONTEXTS", 50)
    with pytest.raises(TooLargeError, match="too many contexts") as caught:
        tree_of(posets.random_episode(8, 0))
    assert "sample" in caught.value.remedy
    with pytest.raises(TooLargeError, match="65 operations"):
        tree_of(posets.episode(65))


def test_evidence_without_the_whole_reference_order_certifies_nothing():
    """Its contexts may all be there by other sequences."""
    for number in (6, 12):
        tree = tree_of(posets.random_episode(number, 0), sampled=True)
        kept = {
            sequence: answer
            for sequence, answer in tree.answers.items()
            if sequence[:3] != (0, 1, 2) or len(sequence) == 3
        }
        found = flaw_of(ReplayTree.of(number, kept), sampled=True)
        assert "reference order" in found.detail


def test_who_samples_already_is_not_told_to(monkeypatch):
    monkeypatch.setattr("vcrt.replay.lattice_replay.MAX_SEQUENCES", 100)
    for number, advised in ((8, True), (12, False)):
        with pytest.raises(TooLargeError, match="too many sequences") as caught:
            tree_of(posets.random_episode(number, 0))
        assert ("--sampled" in caught.value.remedy) == advised
        assert "shorter windows" in caught.value.remedy


def test_a_tree_is_its_json():
    for number in (6, 12):
        tree = tree_of(posets.random_episode(number, 3))
        value = json.loads(json.dumps(tree.to_json()))
        again = tree_from_json(value)
        assert again == tree
        assert list(again.answers) == list(tree.answers)


def test_a_refusal_of_the_whole_keeps_the_state_that_it_led_to():
    answers = {(): Reached("a" * 64, None), (0,): Reached(None, "no", "b" * 64)}
    tree = ReplayTree.of(1, answers)
    again = tree_from_json(json.loads(json.dumps(tree.to_json())))
    assert again == tree
    assert again.replay((0,)).state_hashes == ("a" * 64, "b" * 64)


def _broken(value):
    """A tree's JSON, altered in every way that must not be read."""
    first, *others = value["nodes"]
    yield []
    yield {k: v for k, v in value.items() if k != "hashes"}
    yield {**value, "more": 1}
    yield {**value, "num_operations": True}
    yield {**value, "num_operations": 65}
    yield {**value, "num_operations": 2}
    yield {**value, "hashes": [*value["hashes"], "0" * 64]}
    yield {**value, "hashes": [value["hashes"][0].upper(), *value["hashes"][1:]]}
    yield {**value, "hashes": value["hashes"] * 2}
    yield {**value, "refusals": [""]}
    yield {**value, "refusals": value["refusals"][:-1]}
    yield {**value, "nodes": {}}
    yield {**value, "nodes": [*others, first]}
    yield {**value, "nodes": [first, *value["nodes"]]}
    yield {**value, "nodes": [[*first, 0], *others]}
    yield {**value, "nodes": [[first[0], first[1], 10**9], *others]}
    yield {**value, "nodes": [[first[0], -1, first[2]], *others]}
    yield {**value, "nodes": [[7, first[1], first[2]], *others]}
    yield {**value, "nodes": [[first[0], 1.0, first[2]], *others]}
    yield {**value, "nodes": [*value["nodes"], [1, 0, 0]]}
    yield {**value, "contradiction": 3}


@pytest.mark.parametrize("place", range(21))
def test_a_hostile_tree_is_refused_by_name(place):
    value = json.loads(json.dumps(tree_of(posets.episode(4, [(0, 1)], [(1, 2)])).to_json()))
    altered = list(_broken(value))
    assert len(altered) == 21
    with pytest.raises(MalformedInputError, match="not a tree of replays"):
        tree_from_json(altered[place])


def test_classes_and_orders_are_counted_alike():
    """The classes of all orders of three pairs of conflicts: every pair either way."""
    made = posets.episode(6, (), [(0, 1), (2, 3), (4, 5)])
    found = explained(made, sampled=True)
    assert found.classes == 8
    assert num_linear_extensions(found.order) == factorial(6) // 8
    accepted = list(permutations(range(6)))
    dependent = {(0, 1), (2, 3), (4, 5)}
    assert len(classes(accepted, lambda a, b: (min(a, b), max(a, b)) not in dependent)) == 8


class Recorder(posets.Posets):
    """Every order of the steps leads to a state of its own: none commute."""

    def initial_state(self, episode):
        return ()

    def step(self, state, operation):
        return Accepted((*state, operation.signature))

    def canonical(self, state):
        return json.dumps(state).encode()


def test_an_episode_with_too_many_classes_is_left_out_and_no_other_is():
    """A certification goes on with the next candidate."""
    made = posets.random_episode(12, 0)
    assert isinstance(certified(made), CertifiedEpisode)
    outcome = certified(made, Recorder())
    assert isinstance(outcome, Exclusion)
    assert (outcome.kind, outcome.episode_id) == ("too_large", made.episode_id)
    assert "more than 20,000" in outcome.detail


def test_sampled_contexts_run_no_step_twice_and_say_the_same_as_whole_replays():
    """What goes on from a prefix, and what starts afresh each time."""
    made = posets.random_episode(12, 1)
    environment, steps = posets.Posets(), []
    step = environment.step
    environment.step = lambda state, operation: steps.append(operation) or step(state, operation)
    forward = tree_of(made, environment)
    assert len(steps) == len(forward) - 1
    assert tree_of(made, environment, backwards=True) == forward
    assert len(steps) > 3 * len(forward)
