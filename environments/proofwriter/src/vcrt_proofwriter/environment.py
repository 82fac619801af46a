"""Judge deduction steps of ProofWriter theories by forward chaining, with clingo as second opinion.

A state is an immutable set of facts; its canonical form is their sorted ProofWriter text. Not covered: episodes from
files of theories (``lift`` finds them).
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from vcrt.environments.contract import (
    Accepted,
    CrossCheck,
    Episode,
    Footprint,
    Operation,
    Schema,
    Transition,
    Versions,
)
from vcrt.environments.prepared import PreparedEnvironment
from vcrt.limits import MAX_LIFTED
from vcrt_proofwriter import engine
from vcrt_proofwriter.clingo_engine import clingo_answers, clingo_version
from vcrt_proofwriter.english import atom_sentence
from vcrt_proofwriter.generator import sample_episode
from vcrt_proofwriter.operations import BoundStep, TheoryState, actions_of, rule_and_binding
from vcrt_proofwriter.posets import POSET_SCHEMAS, sample_poset
from vcrt_proofwriter.search import SCHEMAS
from vcrt_proofwriter.theory import theory_from_json

#: Episodes whose grounded theory is kept; replay requests the same few again and again.
CACHE_SIZE = 256


class ProofWriterEnvironment(PreparedEnvironment[TheoryState]):
    """Deduction over ProofWriter theories; sampled episodes have ``num_operations`` operations.

    Episodes of schemas with ``num_steps`` have that number.
    """

    name: ClassVar[str] = "proofwriter"
    schemas: ClassVar[tuple[Schema, ...]] = (*SCHEMAS, *POSET_SCHEMAS)

    def __init__(self, num_operations: int = 4) -> None:
        if not 2 <= num_operations <= MAX_LIFTED:
            raise ValueError(
                f"num_operations must be from 2 to {MAX_LIFTED}, found {num_operations}"
            )
        self._num_operations = num_operations
        self._cache: dict[int, tuple[Episode, tuple[TheoryState, tuple[BoundStep, ...]]]] = {}

    def versions(self) -> Versions:
        """Return the engine's versions and clingo's; raise :class:`UnavailableError` without a supported clingo."""
        return Versions(
            environment=self.name,
            adapter="2",
            canonicalizer="1",
            verifier="vcrt forward chaining 2",
            libraries={"clingo": clingo_version()},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Return an episode on a generated theory; raise :class:`UnknownNameError` for an unknown schema."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, seed)
        return sample_episode(known, seed, self._num_operations)

    def prepare(self, episode: Episode) -> tuple[TheoryState, tuple[BoundStep, ...]]:
        """Return the theory's facts, and the ground rules of each operation; raise too if it has no single model."""
        # By identity: an Episode is immutable but not hashable, as it holds JSON. The entry keeps it alive, so that no
        # other episode gets its id; a pickled cache has ids of another process, hence the second test.
        cached = self._cache.get(id(episode))
        if cached is not None and cached[0] is episode:
            return cached[1]
        theory = theory_from_json(episode.initial, f"episode {episode.episode_id}, initial")
        grounding = engine.ground(theory)
        engine.model(grounding)  # raises for a theory without a label
        state = TheoryState(grounding.facts, actions_of(grounding))
        prepared = state, tuple([self.read(state, operation) for operation in episode.operations])
        while len(self._cache) >= CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        self._cache[id(episode)] = (episode, prepared)
        return prepared

    def read(self, state: TheoryState, operation: Operation) -> BoundStep:
        """Return an operation with the ground rules that it may fire."""
        return state.actions.step(operation)

    def take(self, state: TheoryState, step: BoundStep) -> Transition[TheoryState]:
        """Apply one ground rule, or sweep one rule over all bindings."""
        return state.take(step)

    def key(self, state: TheoryState) -> int:
        """Return the facts as bits."""
        return state.bits

    def canonical(self, state: TheoryState) -> bytes:
        """Return the sorted facts, one a line, as UTF-8."""
        return "\n".join(state.actions.grounding.sorted_texts(state.bits)).encode()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Compare with clingo the theory and its reference order, run forwards and backwards.

        ``clingo model`` counts ground atoms, by whether they hold. ``clingo steps`` counts steps of both runs, by the
        facts after each (a refused step leaves them unchanged). ``clingo soundness`` counts reference steps, which must
        be accepted and add only facts of clingo's model. Raise as ``initial_state`` does, and :class:`VerifierFailure`
        if clingo breaks.
        """
        state = self.initial_state(episode)
        grounding = state.actions.grounding
        runs = (episode.operations, episode.operations[::-1])
        asked = [[rule_and_binding(operation) for operation in run] for run in runs]
        theirs = clingo_answers(grounding.theory, asked)
        ours = grounding.texts(engine.model(grounding))
        atoms = theirs.model.union(grounding.atoms)
        forwards, backwards = (self._run(state, run) for run in runs)
        steps = list(zip((*forwards, *backwards), (*theirs.runs[0], *theirs.runs[1]), strict=True))
        sound = [
            before < after and after - before <= theirs.model
            for before, after in pairwise([state.facts, *forwards])
        ]
        return (
            CrossCheck("clingo model", len(atoms), len(atoms) - len(ours ^ theirs.model)),
            CrossCheck("clingo steps", len(steps), sum(ours == theirs for ours, theirs in steps)),
            CrossCheck("clingo soundness", len(sound), sum(sound)),
        )

    def _run(self, state: TheoryState, run: tuple[Operation, ...]) -> list[engine.Facts]:
        """Return the facts after each step; a refused step leaves them unchanged."""
        facts = []
        for operation in run:
            result = self.step(state, operation)
            state = result.state if isinstance(result, Accepted) else state
            facts.append(state.facts)
        return facts

    def describe(self, operation: Operation) -> str:
        """Return the operation and the rule's English sentence."""
        payload = operation.payload
        text = payload.get("text") if isinstance(payload, dict) else None
        return f"{operation.signature}: {text}" if isinstance(text, str) else operation.signature

    def task(self, episode: Episode) -> str:
        """Return the theory's facts, and the truth of all other facts."""
        theory = self.initial_state(episode).actions.grounding.theory
        others = {"CWA": "All else is false.", "OWA": "All else is unknown."}
        return " ".join([*map(atom_sentence, theory.facts), others[theory.assumption]])

    def footprint(self, episode: Episode, operation: Operation) -> Footprint:
        """Return the facts in the rule's conditions as read, and its possible conclusions as written."""
        state = self.initial_state(episode)
        fires, texts = state.actions.step(operation).fires, state.actions.grounding.texts
        reads = {fact for rule in fires for fact in texts(rule.needs | rule.absent)}
        writes = {fact for rule in fires for fact in texts(rule.head)}
        return Footprint(reads=tuple(sorted(reads)), writes=tuple(sorted(writes)))
