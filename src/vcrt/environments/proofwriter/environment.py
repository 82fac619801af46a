"""ProofWriter as an environment: deduction steps, judged by forward chaining, with clingo as second opinion.

Promised: a state is an immutable set of facts; its canonical form is their sorted ProofWriter text. Not covered:
lifting episodes from data files (``schemas.lift`` does it for any theory that ``structured`` or ``english`` reads).
"""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, NamedTuple

from vcrt.environments.contract import (
    Accepted,
    CrossCheck,
    Episode,
    Operation,
    Schema,
    StepEnvironment,
    Transition,
    Versions,
)
from vcrt.environments.proofwriter import engine
from vcrt.environments.proofwriter.clingo_engine import clingo_model, clingo_run, clingo_version
from vcrt.environments.proofwriter.operations import (
    TheoryState,
    action_table,
    check_operation,
    rule_and_binding,
    transition,
)
from vcrt.environments.proofwriter.schemas import SCHEMAS, sample_episode
from vcrt.environments.proofwriter.theory import Atom, Theory, theory_from_json

#: Episodes whose grounded theory is kept; replay asks for the same few again and again.
CACHE_SIZE = 256
#: Beyond this, generated theories seldom hold an episode.
MAX_OPERATIONS = 8


class _Cached(NamedTuple):
    episode: Episode
    state: TheoryState


class ProofWriterEnvironment(StepEnvironment[TheoryState]):
    """Deduction over ProofWriter theories; ``num_operations`` is that of the episodes that ``sample`` gives."""

    name: ClassVar[str] = "proofwriter"
    schemas: ClassVar[tuple[Schema, ...]] = SCHEMAS

    def __init__(self, num_operations: int = 4) -> None:
        if not 2 <= num_operations <= MAX_OPERATIONS:
            raise ValueError(
                f"num_operations must be from 2 to {MAX_OPERATIONS}, found {num_operations}"
            )
        self._num_operations = num_operations
        self._cache: dict[int, _Cached] = {}

    def versions(self) -> Versions:
        """The engine's versions and clingo's; raises :class:`UnavailableError` without a supported clingo."""
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier="vcrt forward chaining 1",
            libraries={"clingo": clingo_version()},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """An episode on a generated theory; raises :class:`UnknownNameError` for an unknown schema."""
        return sample_episode(self.schema(schema), seed, self._num_operations)

    def initial_state(self, episode: Episode) -> TheoryState:
        """The theory's facts.

        Raises :class:`MalformedInputError` for a malformed theory or payload and for a theory that has no single model.
        """
        # By identity: an Episode is immutable but, holding JSON, not hashable. The entry keeps it alive, so that no
        # other episode gets its id; a cache that was pickled has ids of another process, hence the second test.
        cached = self._cache.get(id(episode))
        if cached is not None and cached.episode is episode:
            return cached.state
        theory = theory_from_json(episode.initial, f"episode {episode.episode_id}, initial")
        state = _start(theory, episode.operations)
        while len(self._cache) >= CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        self._cache[id(episode)] = _Cached(episode, state)
        return state

    def step(self, state: TheoryState, operation: Operation) -> Transition[TheoryState]:
        """Apply one ground rule, or sweep one rule over all bindings."""
        return transition(state, operation)

    def canonical(self, state: TheoryState) -> bytes:
        """The sorted facts, one a line, as UTF-8."""
        return "\n".join(sorted(state.facts)).encode()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """What clingo makes of the theory and of its reference order, run forwards and backwards.

        ``clingo model``: ground atoms, by whether they hold. ``clingo steps``: steps of both runs, by the facts after
        each (a refused step leaves them as they are). ``clingo soundness``: reference steps, which must be accepted and
        add only what clingo's model holds. Raises as ``initial_state`` does, and :class:`VerifierFailure` if clingo
        breaks.
        """
        theory = theory_from_json(episode.initial, f"episode {episode.episode_id}, initial")
        grounding = engine.ground(theory)
        ours = engine.model(grounding)
        theirs = _texts(clingo_model(theory))
        atoms = grounding.atoms() | theirs
        runs = (episode.operations, episode.operations[::-1])
        steps = [
            pair
            for run in runs
            for pair in zip(self._run(episode, run), _clingo_run(theory, run), strict=True)
        ]
        reference = [self.initial_state(episode).facts, *self._run(episode, episode.operations)]
        sound = [
            before < after and after - before <= theirs for before, after in pairwise(reference)
        ]
        return (
            CrossCheck("clingo model", len(atoms), len(atoms) - len(ours ^ theirs)),
            CrossCheck("clingo steps", len(steps), sum(ours == theirs for ours, theirs in steps)),
            CrossCheck("clingo soundness", len(sound), sum(sound)),
        )

    def _run(self, episode: Episode, run: tuple[Operation, ...]) -> list[engine.Facts]:
        """The facts after each step; a refused step leaves them as they are."""
        state = self.initial_state(episode)
        facts = []
        for operation in run:
            result = self.step(state, operation)
            state = result.state if isinstance(result, Accepted) else state
            facts.append(state.facts)
        return facts

    def describe(self, operation: Operation) -> str:
        """The operation and the rule's English sentence."""
        payload = operation.payload
        text = payload.get("text") if isinstance(payload, dict) else None
        return f"{operation.signature}: {text}" if isinstance(text, str) else operation.signature


def _start(theory: Theory, operations: tuple[Operation, ...]) -> TheoryState:
    grounding = engine.ground(theory)
    engine.model(grounding)  # refuses a theory that has no label
    actions = action_table(grounding)
    for operation in operations:
        check_operation(operation, theory, actions)
    return TheoryState(grounding.facts, actions)


def _clingo_run(theory: Theory, run: tuple[Operation, ...]) -> list[engine.Facts]:
    return [_texts(facts) for facts in clingo_run(theory, [rule_and_binding(o) for o in run])]


def _texts(atoms: frozenset[Atom]) -> engine.Facts:
    return frozenset(atom.text for atom in atoms)
