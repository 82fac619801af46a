"""An environment whose episodes are given by graphs: steps that need others, and steps that come too early without."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
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
from vcrt.hashing import canonical_json
from vcrt.orders import linear_extensions

ALL_PAIRS = list(combinations(range(4), 2))
#: Every directed acyclic graph in which 0, 1, 2, 3 is a legal order.
GRAPHS = [
    frozenset(pair for k, pair in enumerate(ALL_PAIRS) if bits >> k & 1)
    for bits in range(2 ** len(ALL_PAIRS))
]
#: Those with two pairs or more and two linear extensions or more.
SEVERAL = [g for g in GRAPHS if len(g) >= 2 and len(linear_extensions(4, g)) >= 2]


class Graphs(StepEnvironment):
    """Steps that need other steps, or that leave a trace when others have not run yet."""

    name = "graphs"
    schemas = (Schema(name="graph", summary="any", relation="either", preset="several"),)

    def versions(self):
        return Versions(environment="graphs", adapter="1", canonicalizer="1", verifier="graphs")

    def sample(self, schema, seed):
        return episode(GRAPHS[seed % len(GRAPHS)])

    def initial_state(self, episode):
        return ((), ())

    def step(self, state, operation):
        done, late = state
        payload = operation.payload
        if any(other not in done for other in payload["needs"]):
            return Rejected("something is missing")
        missed = [(other, payload["step"]) for other in payload["reads"] if other not in done]
        return Accepted((tuple(sorted((*done, payload["step"]))), tuple(sorted((*late, *missed)))))

    def canonical(self, state):
        return canonical_json([list(part) for part in state])


def episode(needs: Collection[tuple[int, int]], reads: Collection[tuple[int, int]] = ()) -> Episode:
    operations = tuple(
        Operation(
            signature=f"step {i}",
            payload={
                "step": i,
                "needs": [a for a, b in sorted(needs) if b == i],
                "reads": [a for a, b in sorted(reads) if b == i],
            },
        )
        for i in range(4)
    )
    return Episode(
        environment="graphs",
        schema="graph",
        initial=None,
        operations=operations,
        provenance=Provenance(source="here", generator="test", seed=0),
    )


class SeveralGraphs(Graphs):
    """Episodes that the preset of several anti-diamonds takes, each seed with a state of its own."""

    def sample(self, schema, seed):
        made = episode((), SEVERAL[seed % len(SEVERAL)])
        provenance = Provenance(source=f"seed {seed}", generator="test", seed=seed)
        return replace(made, schema=schema, initial=seed, provenance=provenance)

    def initial_state(self, episode):
        return ((), ((episode.initial, 0),))
