"""Judge steps of textbook algorithms, lifted from the traces of dm-clrs and compared with them.

The verifier is the transition in each schema's module. dm-clrs gives no verdicts but the inputs, and
:meth:`ClrsEnvironment.cross_check` compares the transition with its hint rows and outputs. So replay runs without
dm-clrs; sampling, versions and cross-checks need it (:mod:`vcrt_clrs.shim`). Not covered: the other algorithms of
dm-clrs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Footprint,
    Operation,
    Schema,
    Transition,
    Versions,
)
from vcrt.environments.prepared import PreparedEnvironment
from vcrt.errors import VcrtError
from vcrt_clrs.bellman_ford import BellmanFord
from vcrt_clrs.bubble_sort import BubbleSort
from vcrt_clrs.episodes import ENVIRONMENT, cross_check, sample_episode
from vcrt_clrs.heapsort import Heapsort
from vcrt_clrs.matrix_chain import MatrixChainOrder
from vcrt_clrs.mst_kruskal import MstKruskal
from vcrt_clrs.posets import POSET_SCHEMAS, algorithm_of, sample_poset
from vcrt_clrs.schema import AlgorithmSchema, AlgorithmState
from vcrt_clrs.shim import DM_CLRS, source_digests

#: The algorithms with a schema of one dependent pair, by the name of both.
ALGORITHMS: Mapping[str, AlgorithmSchema[Any]] = {
    algorithm.schema.name: algorithm
    for algorithm in (BellmanFord(), MatrixChainOrder(), MstKruskal(), Heapsort(), BubbleSort())
}


class ClrsEnvironment(PreparedEnvironment[AlgorithmState]):
    """Episodes of ``num_operations`` steps (at least 2) of the algorithms in :data:`ALGORITHMS`.

    Episodes of schemas with ``num_steps`` have that number.
    """

    name: ClassVar[str] = ENVIRONMENT
    schemas: ClassVar[tuple[Schema, ...]] = (
        *[algorithm.schema for algorithm in ALGORITHMS.values()],
        *POSET_SCHEMAS,
    )

    def __init__(self, num_operations: int = 4) -> None:
        if num_operations < 2:
            raise VcrtError(
                "an episode needs two operations at least",
                where="num_operations",
                found=str(num_operations),
                expected="2 or more",
            )
        self.num_operations = num_operations

    def versions(self) -> Versions:
        """Return the versions of adapter and dm-clrs, with the SHA-256 of dm-clrs's used source files.

        Raise :class:`vcrt.errors.UnavailableError` if dm-clrs is missing or of another version.
        """
        return Versions(
            environment=self.name,
            adapter="2",
            canonicalizer="2",
            verifier=f"{DM_CLRS.name} {DM_CLRS.version}",
            libraries=source_digests(),
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Return an episode lifted from a sampled input's trace; a function of schema, seed and ``num_operations``."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, seed)
        return sample_episode(ALGORITHMS[schema], seed, self.num_operations)

    def prepare(self, episode: Episode) -> tuple[AlgorithmState, list[Any]]:
        """Return the state of ``episode.initial``, and the steps of its payloads."""
        state = self.initial_state(episode)
        return state, [state.read(operation.payload) for operation in episode.operations]

    def initial_state(self, episode: Episode) -> AlgorithmState:
        """Return the state of ``episode.initial``; raise :class:`vcrt.errors.MalformedInputError` for another form."""
        state: AlgorithmState = self._algorithm(episode).read_state(episode.initial)
        return state

    def read(self, state: AlgorithmState, operation: Operation) -> Any:
        """Return the step of a payload."""
        return state.read(operation.payload)

    def take(self, state: AlgorithmState, step: Any) -> Transition[AlgorithmState]:
        """Run one step of the algorithm."""
        return state.take(step)

    def canonical(self, state: AlgorithmState) -> bytes:
        """Return bytes of fixed width and little-endian order that start with the digest of the inputs."""
        return state.canonical()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Compare the episode and its transition with the trace of dm-clrs: see ``vcrt_clrs.episodes``."""
        return cross_check(self._algorithm(episode), episode)

    def task(self, episode: Episode) -> str:
        """Return what the algorithm is about to do."""
        return self.initial_state(episode).task()

    def footprint(self, episode: Episode, operation: Operation) -> Footprint:
        """Return what the step reads and writes, from the state before all steps."""
        state = self.initial_state(episode)
        return state.footprint(state.read(operation.payload))

    def _algorithm(self, episode: Episode) -> AlgorithmSchema[Any]:
        name = self.schema(episode.schema).name
        return ALGORITHMS[name] if name in ALGORITHMS else algorithm_of(name, episode.initial)
