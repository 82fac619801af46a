"""Steps under a partial order of any size: some refuse to come too early, some leave a trace when they do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

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
from vcrt.orders import transitive_closure
from vcrt.randomness import generator

Pairs = frozenset[tuple[int, int]]


class Posets(StepEnvironment):
    """``needs``: refused before those have run. ``reads``: accepted, but notes which of them had not run.

    ``bars``: refused once those have run; of a pair in which one bars the other, none is ever refused by itself.
    """

    name = "posets"
    schemas = tuple(
        Schema(name=f"posets{n}", summary="random", relation="either", preset=f"posets{n}")
        for n in (6, 8, 12, 16)
    )

    def versions(self):
        return Versions(environment=self.name, adapter="1", canonicalizer="1", verifier="posets 1")

    def sample(self, schema, seed):
        self.schema(schema)
        return random_episode(int(schema.removeprefix("posets")), seed, schema=schema)

    def initial_state(self, episode):
        return episode.initial, 0, 0

    def step(self, state, operation):
        """A state is what the episode starts from, and two sets of bits: steps, and pairs of them that came late."""
        start, done, late = state
        payload = operation.payload
        missing = payload["needs"] & ~done
        if missing:
            return Rejected(f"steps {missing:b} have not run")
        if payload["bars"] & done:
            return Rejected(f"too late after steps {payload['bars'] & done:b}")
        missed = payload["reads"] & ~done
        return Accepted((start, done | 1 << payload["step"], late | missed << 64 * payload["step"]))

    def canonical(self, state):
        return repr(state).encode()


def episode(
    num_operations,
    needs: Iterable = (),
    reads: Iterable = (),
    bars: Iterable = (),
    *,
    seed=0,
    schema="posets6",
):
    """An episode of steps that need, or read, others before them in the reference order."""
    return Episode(
        environment="posets",
        schema=schema,
        initial=seed,
        operations=tuple(
            Operation(
                signature=f"step {i}",
                payload={
                    "step": i,
                    "needs": sum(1 << a for a, b in needs if b == i),
                    "reads": sum(1 << a for a, b in reads if b == i),
                    "bars": sum(1 << b for a, b in bars if a == i),
                },
            )
            for i in range(num_operations)
        ),
        provenance=Provenance(source=f"posets/{seed}", generator="posets 1", seed=seed),
    )


def random_episode(num_operations, seed, *, schema="posets6", relations=6):
    """One to ``relations`` direct relations of both kinds, closed under what they imply where conflicts need it."""
    draw = generator(seed, "posets", num_operations)
    wanted = int(draw.integers(1, relations + 1))
    pairs = list(combinations(range(num_operations), 2))
    chosen = [pairs[int(k)] for k in draw.permutation(len(pairs))[:wanted]]
    needs = {pair for pair in chosen if draw.integers(2)}
    reads = closing(set(chosen) - needs, needs)
    return episode(num_operations, needs, reads, seed=seed, schema=schema)


def closing(reads, needs):
    """Reads for whatever the relations imply and needs alone do not: else a legal order could show in no relation."""
    closed = transitive_closure({*reads, *needs})
    return frozenset(closed - transitive_closure(needs))


def natural_posets(num_operations):
    """Every transitively closed set of pairs in which 0, 1, 2, ... is a legal order: naturally labelled posets."""
    found: list[Pairs] = [frozenset()]
    for last in range(1, num_operations):
        grown = []
        for poset in found:
            for bits in range(2**last):
                below = {i for i in range(last) if bits >> i & 1}
                if all(a in below for a, b in poset if b in below):
                    grown.append(poset | {(i, last) for i in below})
        found = grown
    return found


class AnyLength(Posets):
    """Episodes of as many steps as their schema's preset says."""

    schemas = tuple(
        Schema(name=f"posets{n}", summary="random", relation="either", preset=f"posets{n}")
        for n in (5, 7, 11, 33)
    )

    def sample(self, schema, seed):
        return random_episode(int(schema.removeprefix("posets")), seed, schema=schema)
