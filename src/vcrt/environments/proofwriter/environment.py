"""Judge deduction steps of ProofWriter theories by forward chaining, with clingo as second opinion.

Promised: a state is an immutable set of facts; its canonical form is their sorted ProofWriter text. Not covered:
episodes from files of theories (``lifting`` finds them).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

from vcrt.environments.contract import (
    Accepted,
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
from vcrt.environments.proofwriter import engine
from vcrt.environments.proofwriter.clingo_engine import clingo_answers, clingo_version
from vcrt.environments.proofwriter.operations import (
    Step,
    TheoryState,
    actions_of,
    canonical,
    check_operation,
    refusal,
    rule_and_binding,
    run_step,
    transition,
)
from vcrt.environments.proofwriter.posets import POSET_SCHEMAS, sample_poset
from vcrt.environments.proofwriter.schemas import sample_episode
from vcrt.environments.proofwriter.search import SCHEMAS
from vcrt.environments.proofwriter.theory import Theory, theory_from_json
from vcrt.limits import MAX_LIFTED

#: Episodes whose grounded theory is kept; replay asks for the same few again and again.
CACHE_SIZE = 256


class _Prepared(NamedTuple):
    """The start of an episode, and what each of its operations may fire."""

    state: TheoryState
    steps: tuple[Step, ...]


class ProofWriterEnvironment(StepEnvironment[TheoryState]):
    """Deduction over ProofWriter theories; ``num_operations`` is that of the episodes that ``sample`` gives.

    Schemas with ``num_steps`` have that number.
    """

    name: ClassVar[str] = "proofwriter"
    schemas: ClassVar[tuple[Schema, ...]] = (*SCHEMAS, *POSET_SCHEMAS)

    def __init__(self, num_operations: int = 4) -> None:
        if not 2 <= num_operations <= MAX_LIFTED:
            raise ValueError(
                f"num_operations must be from 2 to {MAX_LIFTED}, found {num_operations}"
            )
        self._num_operations = num_operations
        self._cache: dict[int, tuple[Episode, _Prepared]] = {}

    def versions(self) -> Versions:
        """The engine's versions and clingo's; raises :class:`UnavailableError` without a supported clingo."""
        return Versions(
            environment=self.name,
            adapter="2",
            canonicalizer="1",
            verifier="vcrt forward chaining 2",
            libraries={"clingo": clingo_version()},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """An episode on a generated theory; raises :class:`UnknownNameError` for an unknown schema."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, seed)
        return sample_episode(known, seed, self._num_operations)

    def initial_state(self, episode: Episode) -> TheoryState:
        """The theory's facts.

        Raises :class:`MalformedInputError` for a malformed theory or payload and for a theory that has no single model.
        """
        return self._prepared(episode).state

    def _prepared(self, episode: Episode) -> _Prepared:
        # By identity: an Episode is immutable but, holding JSON, not hashable. The entry keeps it alive, so that no
        # other episode gets its id; a cache that was pickled has ids of another process, hence the second test.
        cached = self._cache.get(id(episode))
        if cached is not None and cached[0] is episode:
            return cached[1]
        theory = theory_from_json(episode.initial, f"episode {episode.episode_id}, initial")
        prepared = _prepare(theory, episode.operations)
        while len(self._cache) >= CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        self._cache[id(episode)] = (episode, prepared)
        return prepared

    def step(self, state: TheoryState, operation: Operation) -> Transition[TheoryState]:
        """Apply one ground rule, or sweep one rule over all bindings."""
        return transition(state, operation)

    def canonical(self, state: TheoryState) -> bytes:
        """The sorted facts, one a line, as UTF-8."""
        return canonical(state.actions.grounding, state.bits)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Each request by itself: every step of every order is run, from the episode's initial state.

        What is shared is the digest of a set of facts that an earlier order reached, and the message of a step that was
        refused in them before, since the facts alone decide both.
        """
        replays = []
        episode: Episode | None = None
        for request in requests:
            if request.episode is not episode:
                episode = request.episode
                prepared = self._prepared(episode)
                refusals: dict[tuple[int, int], Rejected] = {}
            replays.append(_replay_one(prepared, refusals, request))
        return replays

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """What clingo makes of the theory and of its reference order, run forwards and backwards.

        ``clingo model``: ground atoms, by whether they hold. ``clingo steps``: steps of both runs, by the facts after
        each (a refused step leaves them as they are). ``clingo soundness``: reference steps, which must be accepted and
        add only what clingo's model holds. Raises as ``initial_state`` does, and :class:`VerifierFailure` if clingo
        breaks.
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
        """The facts after each step; a refused step leaves them as they are."""
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


def _replay_one(
    prepared: _Prepared, refusals: dict[tuple[int, int], Rejected], request: ReplayRequest
) -> Replay:
    sequence = request.sequence
    (facts, actions), steps = prepared
    digests = actions.digests
    hashes = [digests[facts]]
    for index in sequence:
        after = run_step(steps[index], facts)
        if after == facts:
            rejection = refusals.get((index, facts))
            if rejection is None:
                operation = request.episode.operations[index]
                rejection = refusal(operation, steps[index], TheoryState(facts, actions))
                refusals[index, facts] = rejection
            return Replay(sequence, tuple(hashes), rejection)
        facts = after
        hashes.append(digests[facts])
    return Replay(sequence, tuple(hashes))


def _prepare(theory: Theory, operations: tuple[Operation, ...]) -> _Prepared:
    grounding = engine.ground(theory)
    engine.model(grounding)  # refuses a theory that has no label
    actions = actions_of(grounding)
    for operation in operations:
        check_operation(operation, theory, actions)
    steps = tuple([actions.step(operation) for operation in operations])
    return _Prepared(TheoryState(grounding.facts, actions), steps)
