"""What the conformance kit and second opinions look at where all orders are too many."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest

from long_graphs import LongGraphs, graph_episode
from vcrt.environments.conformance import sequences, validate
from vcrt.environments.contract import Replay, Schema
from vcrt.environments.cross_checks import replays_to_check, sampled_replays
from vcrt.hashing import canonical_json
from vcrt.orders import all_orders, swap_adjacent
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.validation import certifies


def test_few_operations_have_every_sequence() -> None:
    expected = tuple(s for n in range(5) for s in permutations(range(4), n))
    assert sequences(4) == expected
    assert len(sequences(5)) == 326


@pytest.mark.parametrize("num_operations", [6, 8, 12, 16])
def test_many_have_a_sample_that_holds_what_the_checks_look_for(num_operations) -> None:
    sample = set(sequences(num_operations))
    assert len(sample) < 6 * num_operations**2
    assert all(sequence[:-1] in sample for sequence in sample if sequence)
    reference = tuple(range(num_operations))
    assert {reference, reference[::-1]} <= sample
    for place in range(num_operations - 1):
        twins = reference[: place + 2], swap_adjacent(reference, place)[: place + 2]
        tails = [{s[place + 2 :] for s in sample if s[: place + 2] == twin} for twin in twins]
        assert max(map(len, tails[0] & tails[1])) == num_operations - place - 2


def failed(environment):
    return {found.check for found in validate(environment, range(3)) if not found.passed}


class CoarseAtLast(LongGraphs):
    """Forgets the traces as long as fewer than five steps have run."""

    def canonical(self, state):
        return super().canonical(state if len(state[0]) > 4 else (state[0], ()))


class RefusesLate(LongGraphs):
    """Looks at how long the whole sequence is."""

    def _replay_one(self, request):
        answer = super()._replay_one(request)
        if len(request.sequence) == 7 and answer.accepted:
            return Replay(answer.sequence, answer.state_hashes[:3], answer.rejection)
        return answer


class IdleSixth(LongGraphs):
    def canonical(self, state):
        done, late = state
        return canonical_json([[step for step in done if step != 6], list(late)])


def test_the_kit_passes_long_episodes_and_finds_what_is_wrong_with_mutants() -> None:
    assert failed(LongGraphs()) == set()
    assert "equal states have equal futures" in failed(CoarseAtLast())
    assert "replays agree on their prefixes" in failed(RefusesLate())
    assert "every step has an effect" in failed(IdleSixth())


# --- second opinions --------------------------------------------------------------------------------


def test_few_steps_are_looked_at_in_every_order() -> None:
    made = graph_episode(5, [(0, 3)])
    replays = replays_to_check(LongGraphs(), made)
    assert [replay.sequence for replay in replays] == list(all_orders(5))
    assert sampled_replays(made, replays) == replays


@pytest.mark.parametrize("seed", range(6))
def test_many_are_looked_at_in_a_sample_of_legal_orders_and_some_others(seed) -> None:
    environment = LongGraphs()
    made = environment.sample("graph", seed)
    replays = replays_to_check(environment, made)
    assert replays == replays_to_check(LongGraphs(), made)
    reference, reversal, *others = replays
    assert (reference.sequence, reversal.sequence) == (tuple(range(7)), tuple(range(7))[::-1])
    assert reference.accepted
    assert len({replay.sequence for replay in replays}) == len(replays) <= 18
    legal = [r for r in others if r.terminal_hash == reference.terminal_hash]
    assert legal


def test_replays_at_hand_are_a_sample_too() -> None:
    made = graph_episode(6, [(0, 3)])
    replays = [Replay(order, ("a",)) for order in all_orders(6)]
    some = sampled_replays(made, replays)
    assert some[0] == replays[0]
    assert len(some) == 18
    assert some == sampled_replays(made, replays)
    assert some != sampled_replays(replace(made, schema="other"), replays)
    assert sampled_replays(made, replays[:3]) == replays[:3]


# --- what the command says of long episodes -----------------------------------------------------------


class SampledGraphs(LongGraphs):
    """Episodes of twelve steps, of which not all contexts are replayed."""

    schemas = (Schema(name="graph", summary="any", relation="either", preset="posets12"),)
    num_steps = 12


class SixGraphs(LongGraphs):
    num_steps = 6


class Undeclared(SixGraphs):
    schemas = (replace(LongGraphs.schemas[0], relation="conflicts"),)


class ContextDependent(SixGraphs):
    """After step 5, no step needs another."""

    def step(self, state, operation):
        if 5 in state[0] and operation.payload["step"] != 5:
            operation = replace(operation, payload={**operation.payload, "needs": []})
        return super().step(state, operation)


def test_the_command_certifies_a_long_episode_and_says_how_much_was_replayed() -> None:
    finding, cost = certifies(SixGraphs(), SixGraphs.schemas[0], range(2))
    assert (finding.check, finding.problem) == ("certifies episodes of 6 steps", None)
    assert (cost.num_operations, cost.contexts) == (6, "every reachable context")
    (tree,) = replay_lattices(SixGraphs(), [SixGraphs().sample("graph", 0)])
    assert cost.num_sequences == len(tree.tree)
    finding, cost = certifies(SampledGraphs(), SampledGraphs.schemas[0], range(2))
    assert finding.passed
    replayed, among = re.fullmatch(
        r"a sample: ([\d,]+) of ([\d,]+) contexts", cost.contexts
    ).groups()
    assert 0 < int(replayed.replace(",", "")) < int(among.replace(",", ""))


@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        (LongGraphs, "outside_schema: 7 operations, not 6"),
        (Undeclared, "['precedes'], not 'conflicts'"),
        (ContextDependent, "context_dependent: "),
    ],
)
def test_the_command_says_why_a_long_episode_is_not_certified(mutant, found) -> None:
    finding, cost = certifies(mutant(), mutant.schemas[0], [1])
    assert finding.problem.startswith(found)
    assert "four operations" not in finding.remedy
    assert (cost is None) == (mutant is not Undeclared)
