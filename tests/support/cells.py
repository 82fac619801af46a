"""An environment of cells, some of whose steps have outputs, and what its orders do, run by hand."""

from __future__ import annotations

import json
from functools import cache

from vcrt.certificates.episodes import ANY_PRESET, certify_episode
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
from vcrt.randomness import generator
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively

VERSIONS = Versions(environment="cells", adapter="1", canonicalizer="1", verifier="cells 1")


class Cells(StepEnvironment):
    """Cells of numbers: some steps write, some read, some do both, some are refused."""

    name = "cells"
    schemas = (Schema(name="cells", summary="reads and writes", relation="either", preset="any"),)

    def versions(self):
        return VERSIONS

    def sample(self, schema, seed, steps=5):
        draw = generator(seed, "cells", steps)
        kinds = ["get", "set", "add", "take", "swap"]
        return episode(
            [
                [kinds[int(draw.integers(5))], int(draw.integers(3)), 1 + int(draw.integers(2))]
                for _ in range(steps)
            ],
            seed,
        )

    def initial_state(self, episode):
        return (1, 1, 1)

    def step(self, state, operation):
        kind, cell, amount = operation.payload
        held = state[cell]
        if kind == "take" and held < amount:
            return Rejected(f"cell {cell} holds {held}")
        after = {"get": held, "set": amount, "add": held + amount, "take": held - amount}
        output = {"get": str(held), "swap": str(held)}.get(kind)
        now = tuple(
            after.get(kind, 9) if number == cell else other for number, other in enumerate(state)
        )
        return Accepted(now, output)

    def canonical(self, state):
        return json.dumps(state).encode()


def episode(steps, seed=0):
    return Episode(
        environment="cells",
        schema="cells",
        initial=None,
        operations=tuple(
            Operation(signature=f"{number}: {step}", payload=step)
            for number, step in enumerate(steps)
        ),
        provenance=Provenance(source=f"cells/{seed}", generator="cells 1", seed=seed),
    )


ENVIRONMENT = Cells()


def outcome_by_hand(made, order):
    """Where an order ends and what each step gives, run here step by step; None if one is refused."""
    state, seen = ENVIRONMENT.initial_state(made), {}
    for index in order:
        answer = ENVIRONMENT.step(state, made.operations[index])
        if isinstance(answer, Rejected):
            return None
        state, seen[index] = answer.state, answer.output
    return state, seen


def legal_by_hand(made):
    """The orders that end as the reference does, each step with its output: all of them are tried."""
    numbers = tuple(range(made.num_operations))
    reference = outcome_by_hand(made, numbers)
    if reference is None:
        return []
    end, outputs = reference
    legal = []

    def go_on(order, state):
        if len(order) == len(numbers) and state == end:
            legal.append(order)
        for index in numbers:
            if index not in order:
                answer = ENVIRONMENT.step(state, made.operations[index])
                if isinstance(answer, Accepted) and answer.output == outputs[index]:
                    go_on((*order, index), answer.state)

    go_on((), ENVIRONMENT.initial_state(made))
    return legal


@cache
def drawn(seed, steps):
    """A random episode, the same object to all who ask for it."""
    return ENVIRONMENT.sample("cells", seed, steps)


@cache
def contexts_of(seed, steps, sampled=False):
    """The replays of its contexts, made once for all tests of a process."""
    (replays,) = replay_lattices(ENVIRONMENT, [drawn(seed, steps)], sampled=sampled)
    return replays


@cache
def legal_of(seed, steps):
    """What :func:`legal_by_hand` finds of it."""
    return legal_by_hand(drawn(seed, steps))


def certified(made, *, replay=replay_exhaustively, preset=ANY_PRESET):
    (evidence,) = replay(ENVIRONMENT, [made])
    return certify_episode(evidence, VERSIONS, preset)
