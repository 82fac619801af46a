"""Episodes of any number of steps that are given by graphs, and the lattice of an episode, by replay."""

from __future__ import annotations

from dataclasses import replace

from graph_environment import Graphs, episode
from vcrt.environments.contract import Operation, ReplayRequest, Schema
from vcrt.environments.posets import below_of, draw_relations
from vcrt.environments.relation_search import lattice_relations
from vcrt.orders import transitive_closure
from vcrt.randomness import generator


def graph_episode(num_steps, needs=(), reads=(), seed=0):
    """Steps of which some need others, and some leave a trace where others have not run yet."""
    operations = tuple(
        Operation(
            signature=f"step {i}",
            payload={
                "step": i,
                "needs": [a for a, b in sorted(needs) if b == i],
                "reads": [a for a, b in sorted(reads) if b == i],
            },
        )
        for i in range(num_steps)
    )
    made = episode(())
    return replace(
        made, operations=operations, provenance=replace(made.provenance, seed=seed), initial=seed
    )


class LongGraphs(Graphs):
    """Episodes of seven steps with one to six relations, half of them of either kind."""

    schemas = (Schema(name="graph", summary="any", relation="either", preset="posets6"),)
    num_steps = 7

    def sample(self, schema, seed):
        rng = generator(seed, "long graphs")
        pairs = draw_relations(self.num_steps, below_of(rng))
        closure = transitive_closure(pairs)
        made = graph_episode(self.num_steps, *((closure, ()) if seed % 2 else ((), closure)), seed)
        return replace(made, schema=schema)


def lattice_of(environment, made):
    """Every context of an episode, merged by hash, with what each other step leads to: by replay, level by level.

    Asserts that no step leaves the state as it is.
    """
    (start,) = environment.replay([ReplayRequest(made, ())])
    root = (0, start.state_hashes[0])
    edges = {}
    level = {root: ()}
    while level:
        asked = [
            (context, (*prefix, step))
            for context, prefix in level.items()
            for step in range(made.num_operations)
            if not context[0] >> step & 1
        ]
        requests = [ReplayRequest(made, sequence) for _, sequence in asked]
        level = {}
        for start_at in range(0, len(requests), environment.preferred_batch):
            batch = slice(start_at, start_at + environment.preferred_batch)
            answers = environment.replay(requests[batch])
            for (context, sequence), answer in zip(asked[batch], answers, strict=True):
                reached = None
                if answer.accepted:
                    assert answer.state_hashes[-1] != answer.state_hashes[-2]
                    reached = (context[0] | 1 << sequence[-1], answer.state_hashes[-1])
                    level.setdefault(reached, sequence)
                edges[context, sequence[-1]] = reached
    return root, edges


def certified_relations(environment, made):
    """The relations of an episode by its lattice, or None if it could not be certified; and its transitions."""
    root, edges = lattice_of(environment, made)
    found = lattice_relations(
        made.num_operations, root, lambda at, step: edges[at, step], lambda at: at
    )
    return found, len(edges)
