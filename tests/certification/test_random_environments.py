"""What is certified of environments drawn at random, against the verdict of every order by itself."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from vcrt.certificates.episodes import Exclusion, Preset, certify_episode
from vcrt.environments.contract import (
    Accepted,
    Episode,
    Operation,
    Provenance,
    Rejected,
    Schema,
    StepEnvironment,
    Versions,
)
from vcrt.orders import linear_extensions
from vcrt.randomness import generator
from vcrt.replay.lattice_replay import replay_lattices

STEPS = 6
VERSIONS = Versions(environment="drawn", adapter="1", canonicalizer="1", verifier="drawn 1")


class Drawn(StepEnvironment):
    """Rules that depend on what has run: refusals for want of a step, refusals after one, and traces that may go."""

    name = "drawn"
    schemas = (Schema(name="drawn", summary="random", relation="either", preset="posets6"),)

    def __init__(self, seed):
        self.draw = generator(seed, "a random environment")
        self.wants = [(*self.pair(), self.perhaps(), self.coin()) for _ in range(self.below(4))]
        self.bars = [(*self.pair()[::-1], self.perhaps()) for _ in range(self.below(2))]
        self.traces = [
            (*self.pair(), self.perhaps(), self.coin(), self.perhaps())
            for _ in range(self.below(4))
        ]

    def below(self, most):
        return int(self.draw.integers(most))

    def coin(self):
        return self.below(2) == 1

    def pair(self):
        """A step and another, which mostly stands before it in the reference order."""
        one, other = (int(step) for step in self.draw.permutation(STEPS)[:2])
        return (one, other) if self.below(5) == 0 else (max(one, other), min(one, other))

    def perhaps(self):
        return self.below(STEPS) if self.coin() else None

    def versions(self):
        return VERSIONS

    def sample(self, schema, seed):
        return Episode(
            environment=self.name,
            schema=schema,
            initial=seed,
            operations=tuple(Operation(signature=f"o{i}", payload=i) for i in range(STEPS)),
            provenance=Provenance(source=f"drawn/{seed}", generator="drawn 1", seed=seed),
        )

    def initial_state(self, episode):
        return frozenset(), frozenset()

    def step(self, state, operation):
        done, marks = state
        step = operation.payload

        def holds(under, unless):
            return under is None or (under in done) != unless

        for one, wanted, under, unless in self.wants:
            if one == step and wanted not in done and holds(under, unless):
                return Rejected(f"needs {wanted}")
        for one, early, under in self.bars:
            if one == step and early in done and holds(under, False):
                return Rejected(f"too late after {early}")
        kept = set(marks)
        for number, (one, early, under, unless, eraser) in enumerate(self.traces):
            if eraser == step:
                kept.discard(number)
            if one == step and early in done and holds(under, unless):
                kept.add(number)
        return Accepted((done | {step}, frozenset(kept)))

    def canonical(self, state):
        return repr([sorted(part) for part in state]).encode()

    def end(self, order):
        """The state after an order; None if a step of it is refused."""
        state = self.initial_state(None)
        for step in order:
            answer = self.step(state, Operation(signature=f"o{step}", payload=step))
            if isinstance(answer, Rejected):
                return None
            state = answer.state
        return state


def outcomes(seeds, *, sampled):
    """How many random environments are certified rightly, wrongly, and left out."""
    found = Counter()
    preset = Preset(num_operations=STEPS, orbit_size=None, sampled=sampled)
    for seed in seeds:
        environment = Drawn(seed)
        episode = environment.sample("drawn", seed)
        (evidence,) = replay_lattices(environment, [episode], sampled=sampled)
        outcome = certify_episode(evidence, VERSIONS, preset)
        if isinstance(outcome, Exclusion):
            found["left out"] += 1
            continue
        reference = environment.end(range(STEPS))
        legal = {p for p in permutations(range(STEPS)) if environment.end(p) == reference}
        assert outcome.complete != sampled
        right = legal == set(linear_extensions(STEPS, outcome.order.pairs))
        found["right" if right else "wrong"] += 1
    return found


@pytest.mark.parametrize("number", [60, pytest.param(240, marks=pytest.mark.slow)])
def test_complete_evidence_certifies_the_legal_orders_or_nothing(number):
    found = outcomes(range(number), sampled=False)
    assert found["wrong"] == 0
    assert found["right"] >= number / 8
    assert found["left out"] >= number / 4


@pytest.mark.slow
@pytest.mark.nightly
def test_sampled_evidence_is_seldom_wrong():
    """It can miss what only contexts that were not drawn show: such certificates are never called complete."""
    found = outcomes(range(2_000), sampled=True)
    assert found["right"] >= 150
    assert found["wrong"] <= 0.01 * found["right"]
