"""Judge steps of textbook algorithms, lifted from the traces of dm-clrs and compared with them.

The verifier is the transition in each schema's module. dm-clrs is not asked for verdicts; it gives the inputs, and
:meth:`ClrsEnvironment.cross_check` proves the transition against its hint rows and outputs. Replay therefore runs
without dm-clrs; sampling, versions and cross-checks need it (:mod:`vcrt_clrs.shim`). Not covered: the
other algorithms of dm-clrs.
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

#: The schemas of one dependent pair, each of an algorithm, by the name that both have.
ALGORITHMS: Mapping[str, AlgorithmSchema[Any]] = {
    algorithm.schema.name: algorithm
    for algorithm in (BellmanFord(), MatrixChainOrder(), MstKruskal(), Heapsort(), BubbleSort())
}


class ClrsEnvironment(PreparedEnvironment[AlgorithmState]):
    """Episodes of ``num_operations`` steps (at least 2) of the algorithms in :data:`ALGORITHMS`.

    Those of schemas with ``num_steps`` have that number.
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
        """Versions of adapter and dm-clrs, with the SHA-256 of dm-clrs's used source files.

        Raises :class:`vcrt.errors.UnavailableError` if dm-clrs is missing or of another version.
        """
        return Versions(
            environment=self.name,
            adapter="2",
            canonicalizer="2",
            verifier=f"{DM_CLRS.name} {DM_CLRS.version}",
            libraries=source_digests(),
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """An episode lifted from a sampled input's trace; deterministic in schema, seed and ``num_operations``."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, seed)
        return sample_episode(ALGORITHMS[schema], seed, self.num_operations)

    def prepare(self, episode: Episode) -> tuple[AlgorithmState, list[Any]]:
        """The state of ``episode.initial``, and the steps of its payloads."""
        state = self.initial_state(episode)
        return state, [state.read(operation.payload) for operation in episode.operations]

    def initial_state(self, episode: Episode) -> AlgorithmState:
        """The state of ``episode.initial``; raises :class:`vcrt.errors.MalformedInputError`."""
        state: AlgorithmState = self._algorithm(episode).read_state(episode.initial)
        return state

    def read(self, state: AlgorithmState, operation: Operation) -> Any:
        """The step of a payload."""
        return state.read(operation.payload)

    def take(self, state: AlgorithmState, step: Any) -> Transition[AlgorithmState]:
        """One step of the algorithm."""
        return state.take(step)

    def canonical(self, state: AlgorithmState) -> bytes:
        """Bytes of fixed width and little-endian order that start with the digest of the inputs."""
        return state.canonical()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """The episode and its transition against the trace of dm-clrs: see ``vcrt_clrs.episodes``."""
        return cross_check(self._algorithm(episode), episode)

    def task(self, episode: Episode) -> str:
        """What the algorithm is about to do."""
        return self.initial_state(episode).task()

    def footprint(self, episode: Episode, operation: Operation) -> Footprint:
        """What the step reads and writes, on the state before all steps."""
        state = self.initial_state(episode)
        return state.footprint(state.read(operation.payload))

    def _algorithm(self, episode: Episode) -> AlgorithmSchema[Any]:
        name = self.schema(episode.schema).name
        return ALGORITHMS[name] if name in ALGORITHMS else algorithm_of(name, episode.initial)
