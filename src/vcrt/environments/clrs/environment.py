"""Judge steps of textbook algorithms, lifted from the traces of dm-clrs and compared with them.

The verifier is the transition in each schema's module. dm-clrs is not asked for verdicts; it gives the inputs, and
:meth:`ClrsEnvironment.cross_check` proves the transition against its hint rows and outputs. Replay therefore runs
without dm-clrs; sampling, versions and cross-checks need it (:mod:`vcrt.environments.clrs.shim`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vcrt.environments.clrs.bellman_ford import BellmanFord
from vcrt.environments.clrs.bubble_sort import BubbleSort
from vcrt.environments.clrs.episodes import ENVIRONMENT, cross_check, sample_episode
from vcrt.environments.clrs.heapsort import Heapsort
from vcrt.environments.clrs.matrix_chain import MatrixChainOrder
from vcrt.environments.clrs.mst_kruskal import MstKruskal
from vcrt.environments.clrs.posets import POSET_SCHEMAS, algorithm_of, sample_poset
from vcrt.environments.clrs.schema import AlgorithmSchema, AlgorithmState
from vcrt.environments.clrs.shim import DISTRIBUTION, load_dm_clrs
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    Schema,
    StepEnvironment,
    Transition,
    Versions,
)
from vcrt.errors import VcrtError
from vcrt.hashing import sha256_hex

#: The schemas of one dependent pair, each of an algorithm, by the name that both have.
ALGORITHMS: Mapping[str, AlgorithmSchema[Any]] = {
    algorithm.schema.name: algorithm
    for algorithm in (BellmanFord(), MatrixChainOrder(), MstKruskal(), Heapsort(), BubbleSort())
}


class ClrsEnvironment(StepEnvironment[AlgorithmState]):
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
        library = load_dm_clrs()
        return Versions(
            environment=self.name,
            adapter="2",
            canonicalizer="2",
            verifier=f"{DISTRIBUTION} {library.version}",
            libraries=library.source_digests(),
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """An episode lifted from a sampled input's trace; deterministic in schema, seed and ``num_operations``."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, load_dm_clrs(), seed)
        return sample_episode(ALGORITHMS[schema], load_dm_clrs(), seed, self.num_operations)

    def initial_state(self, episode: Episode) -> AlgorithmState:
        """The state of ``episode.initial``; raises :class:`vcrt.errors.MalformedInputError`."""
        state: AlgorithmState = self._algorithm(episode).read_state(episode.initial)
        return state

    def step(self, state: AlgorithmState, operation: Operation) -> Transition[AlgorithmState]:
        """One step of the algorithm; raises :class:`vcrt.errors.MalformedInputError` for a bad payload."""
        return state.take(state.read(operation.payload))

    def canonical(self, state: AlgorithmState) -> bytes:
        """Bytes of fixed width and little-endian order that start with the digest of the inputs."""
        return state.canonical()

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Each request by itself, step by step, from its own initial state.

        An episode is read once for all of its requests that follow each other, and equal states of it are hashed once;
        every step of every request is taken. Raises :class:`vcrt.errors.MalformedInputError` for an episode of which
        any part is malformed, whether a request comes to it or not.
        """
        replays = []
        program: _Program | None = None
        for request in requests:
            if program is None or program.episode is not request.episode:
                program = self._read(request.episode)
            replays.append(program.run(request.sequence))
        return replays

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """The episode and its transition against the trace of dm-clrs: see ``vcrt.environments.clrs.episodes``."""
        return cross_check(self._algorithm(episode), load_dm_clrs(), episode)

    def _read(self, episode: Episode) -> _Program:
        state = self.initial_state(episode)
        steps = tuple(state.read(operation.payload) for operation in episode.operations)
        return _Program(episode, state, steps)

    def _algorithm(self, episode: Episode) -> AlgorithmSchema[Any]:
        name = self.schema(episode.schema).name
        return ALGORITHMS[name] if name in ALGORITHMS else algorithm_of(name, episode.initial)


@dataclass(frozen=True, slots=True)
class _Program:
    """An episode as it has been read, and the hashes of the canonical states met so far."""

    episode: Episode
    initial: AlgorithmState
    steps: tuple[Any, ...]
    hashes: dict[bytes, str] = field(default_factory=dict)

    def run(self, sequence: tuple[int, ...]) -> Replay:
        state, steps, known = self.initial, self.steps, self.hashes
        canonical = state.canonical()
        hashes = [known.get(canonical) or self._hash(canonical)]
        for index in sequence:
            transition = state.take(steps[index])
            if isinstance(transition, Rejected):
                return Replay(sequence, tuple(hashes), transition)
            state = transition.state
            canonical = state.canonical()
            hashes.append(known.get(canonical) or self._hash(canonical))
        return Replay(sequence, tuple(hashes))

    def _hash(self, canonical: bytes) -> str:
        return self.hashes.setdefault(canonical, sha256_hex(canonical))
