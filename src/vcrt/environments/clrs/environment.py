"""The CLRS environment: steps of textbook algorithms, lifted from the traces of dm-clrs and compared with them.

The verifier is the transition in each schema's module. dm-clrs is not asked for verdicts; it gives the graphs, and
:meth:`ClrsEnvironment.cross_check` proves the transition against its hint rows and outputs. Replay therefore runs
without dm-clrs; sampling, versions and cross-checks need it (:mod:`vcrt.environments.clrs.shim`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from vcrt.environments.clrs.bellman_ford import BellmanFord
from vcrt.environments.clrs.episodes import ENVIRONMENT, cross_check, sample_episode
from vcrt.environments.clrs.mst_kruskal import MstKruskal
from vcrt.environments.clrs.schema import AlgorithmSchema, AlgorithmState
from vcrt.environments.clrs.shim import DISTRIBUTION, load_dm_clrs
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Schema,
    StepEnvironment,
    Transition,
    Versions,
)
from vcrt.errors import VcrtError

#: The schemas of this environment, by name.
ALGORITHMS: Mapping[str, AlgorithmSchema[Any]] = {
    algorithm.schema.name: algorithm for algorithm in (BellmanFord(), MstKruskal())
}


class ClrsEnvironment(StepEnvironment[AlgorithmState]):
    """Episodes of ``num_operations`` steps (at least 2) of the algorithms in :data:`ALGORITHMS`."""

    name: ClassVar[str] = ENVIRONMENT
    schemas: ClassVar[tuple[Schema, ...]] = tuple(a.schema for a in ALGORITHMS.values())

    def __init__(self, num_operations: int = 4) -> None:
        if num_operations < 2:
            raise VcrtError(
                "an episode needs two operations at least",
                where="num_operations",
                found=str(num_operations),
                expected="2 or more",
            )
        self.num_operations = num_operations
        self._last_read: tuple[Episode, AlgorithmState] | None = None

    def versions(self) -> Versions:
        """Versions of adapter and dm-clrs, with the SHA-256 of dm-clrs's used source files.

        Raises :class:`vcrt.errors.UnavailableError` if dm-clrs is missing or of another version.
        """
        library = load_dm_clrs()
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier=f"{DISTRIBUTION} {library.version}",
            libraries=library.source_digests(),
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """An episode lifted from a sampled graph's trace; deterministic in schema, seed and ``num_operations``."""
        return sample_episode(self._algorithm(schema), load_dm_clrs(), seed, self.num_operations)

    def initial_state(self, episode: Episode) -> AlgorithmState:
        """The state of ``episode.initial``; raises :class:`vcrt.errors.MalformedInputError`."""
        # States are immutable and all orders of an episode are replayed in a row: read each episode once.
        last = self._last_read
        if last is not None and last[0] is episode:
            return last[1]
        state: AlgorithmState = self._algorithm(episode.schema).read_state(episode.initial)
        self._last_read = (episode, state)
        return state

    def step(self, state: AlgorithmState, operation: Operation) -> Transition[AlgorithmState]:
        """One step of the algorithm; raises :class:`vcrt.errors.MalformedInputError` for a bad payload."""
        return state.run(operation.payload)

    def canonical(self, state: AlgorithmState) -> bytes:
        """Bytes of fixed width and little-endian order that start with the graph's digest."""
        return state.canonical()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """The episode and its transition against the trace of dm-clrs: see ``vcrt.environments.clrs.episodes``."""
        return cross_check(self._algorithm(episode.schema), load_dm_clrs(), episode)

    def _algorithm(self, schema: str) -> AlgorithmSchema[Any]:
        return ALGORITHMS[self.schema(schema).name]
