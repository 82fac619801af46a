"""Long episodes: 6 to 16 steps out of one genuine run, in the run's own order, of which one to six pairs depend.

The algorithm is drawn, then inputs, a state of their run and steps that follow it, until these have as many dependent
pairs as were drawn and the run, gone on from their end, still ends where it does. The member ``algorithm`` of the
initial state says which algorithm it is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from vcrt.environments.clrs.bellman_ford import BellmanFord
from vcrt.environments.clrs.choosing import shuffled
from vcrt.environments.clrs.episodes import ENVIRONMENT, completion
from vcrt.environments.clrs.heapsort import Heapsort
from vcrt.environments.clrs.matrix_chain import MatrixChainOrder
from vcrt.environments.clrs.reading import malformed, read_member
from vcrt.environments.clrs.schema import AlgorithmSchema, AlgorithmState, GenuineStep
from vcrt.environments.clrs.shim import DmClrs
from vcrt.environments.clrs.trace import Instance, Trace, genuine_trace
from vcrt.environments.contract import Accepted, Episode, Operation, Provenance, Schema
from vcrt.environments.long_posets import MAX_ANTI_DIAMONDS, long_schemas, num_steps_of
from vcrt.environments.relation_search import Relations, find_relations
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.randomness import derive_seed, generator

#: The schemas of long episodes.
LONG_SCHEMAS = long_schemas("steps of one run, some of which need or change what others do")
#: Inputs drawn for one episode before its number of dependent pairs is declared out of reach; a few are enough.
MAX_DRAWS = 2000
#: States of one run that are looked at, choices of steps at each, and steps ahead of it for each step of the episode.
_POOLS, _CHOICES, _REACH = 3, 8, 3
#: Choices in vain before a state is left, and how often the next step should be one that depends on those before.
_VAIN, _RELATE = 2, 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class LongRuns:
    """An algorithm, how much longer than the episode its inputs are, and the edge probabilities of graphs.

    Steps are taken from the run up to the first whose signature begins with ``until``; ``most`` is how many dependent
    pairs are found without long search.
    """

    algorithm: AlgorithmSchema[Any]
    longer: range
    edge_probabilities: Sequence[float] = ()
    until: str = "\0"
    most: int = MAX_ANTI_DIAMONDS

    def steps(self, trace: Trace) -> list[GenuineStep[Any]]:
        """The steps of a run that episodes are taken from."""
        every = self.algorithm.steps(trace)
        return list(
            takewhile(lambda step: not step.operation.signature.startswith(self.until), every)
        )

    def draw(self, rng: np.random.Generator, num_steps: int, seed: int) -> Instance:
        """An input under a seed of dm-clrs's sampler."""
        probabilities = self.edge_probabilities
        return Instance(
            algorithm=self.algorithm.schema.name,
            length=num_steps + int(rng.choice(self.longer)),
            edge_probability=float(rng.choice(probabilities)) if probabilities else None,
            seed=seed,
        )


#: The algorithms whose runs have enough steps that do not depend on each other, by name.
LONG_RUNS: Mapping[str, LongRuns] = {
    each.algorithm.schema.name: each
    for each in (
        LongRuns(algorithm=BellmanFord(), longer=range(6, 15), edge_probabilities=(0.4, 0.5, 0.6)),
        LongRuns(algorithm=MatrixChainOrder(), longer=range(2, 9)),
        LongRuns(algorithm=Heapsort(), longer=range(8, 33), until="extract", most=2),
    )
}


def sample_long(schema: Schema, library: DmClrs, seed: int) -> Episode:
    """The episode of ``seed``; raises :class:`VcrtError` if none is found."""
    num_steps = num_steps_of(schema)
    rng = generator(seed, ENVIRONMENT, schema.name, "lift")
    number = 1 + int(rng.integers(MAX_ANTI_DIAMONDS))
    able = [runs for runs in LONG_RUNS.values() if runs.most >= number]
    runs = able[int(rng.integers(len(able)))]
    for draw in range(MAX_DRAWS):
        sampler_seed = derive_seed(seed, ENVIRONMENT, schema.name, "sampler", draw) % 2**32
        instance = runs.draw(rng, num_steps, sampler_seed)
        trace = genuine_trace(library, instance)
        steps = runs.steps(trace)
        for _ in range(_POOLS if len(steps) >= num_steps else 0):
            found = _window(runs.algorithm, trace, steps, num_steps, number, rng)
            if found is not None:
                state, operations = found
                name = runs.algorithm.schema.name
                return Episode(
                    environment=ENVIRONMENT,
                    schema=schema.name,
                    initial=write_long(runs.algorithm, state),
                    operations=operations,
                    provenance=Provenance(
                        source=instance.source,
                        generator=f"{ENVIRONMENT}.{schema.name}.{name}/1",
                        seed=seed,
                    ),
                )
    raise VcrtError(
        f"no {num_steps} steps with {number} dependent pairs were found",
        where=f"{ENVIRONMENT}/{schema.name}/{seed}",
        found=f"none in {MAX_DRAWS} inputs",
    )


def write_long(algorithm: AlgorithmSchema[Any], state: AlgorithmState) -> Json:
    """The initial state, with the name of its algorithm."""
    written = algorithm.write_state(state)
    assert isinstance(written, dict)
    return {"algorithm": algorithm.schema.name, **written}


def algorithm_of(initial: Json) -> AlgorithmSchema[Any]:
    """The algorithm that an initial state names; raises :class:`vcrt.errors.MalformedInputError`."""
    name = read_member(initial, "algorithm")
    if not isinstance(name, str) or name not in LONG_RUNS:
        raise malformed("initial.algorithm", name, f"one of {', '.join(LONG_RUNS)}")
    return LONG_RUNS[name].algorithm


def _window(
    algorithm: AlgorithmSchema[Any],
    trace: Trace,
    steps: Sequence[GenuineStep[Any]],
    num_steps: int,
    number: int,
    rng: np.random.Generator,
) -> tuple[AlgorithmState, tuple[Operation, ...]] | None:
    """A state of the run and steps ahead of it that have this number of dependent pairs, if they are found."""
    first = int(rng.integers(len(steps) - num_steps + 1))
    ahead = _Ahead.of(steps[first : first + _REACH * num_steps])
    vain = 0
    for _ in range(_CHOICES):
        chosen = ahead.choose(num_steps, number, rng)
        if chosen is None:
            vain += 1
            if vain > _VAIN:
                return None
            continue
        end = ahead.after(chosen)
        if end is None:
            continue
        finished = completion(algorithm, trace, end, first + num_steps)
        if finished.agreed < finished.checked:
            continue
        relations = ahead.relations(chosen, rng)
        if relations is not None and len(relations.anti_diamonds) == number:
            return ahead.state, tuple(ahead.operations[place] for place in chosen)
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ahead:
    """A state of a run and different steps that follow it, in the run's order and in their checked form."""

    state: AlgorithmState
    operations: tuple[Operation, ...]
    steps: tuple[Any, ...]
    known: dict[int, dict[int, bool | None]] = field(default_factory=dict)
    refused: dict[int, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, genuine: Sequence[GenuineStep[Any]]) -> _Ahead:
        """The steps of a run from its first state on; of several equal ones the first."""
        state = genuine[0].state
        operations = {each.operation.signature: each.operation for each in reversed(genuine)}
        ordered = tuple(
            operations[signature]
            for signature in dict.fromkeys(each.operation.signature for each in genuine)
        )
        steps = tuple(state.read(operation.payload) for operation in ordered)
        return cls(state=state, operations=ordered, steps=steps)

    def take(self, state: AlgorithmState, place: int) -> AlgorithmState | None:
        """The state after a step, None if it is refused."""
        transition = state.take(self.steps[place])
        return transition.state if isinstance(transition, Accepted) else None

    def after(
        self, places: Sequence[int], start: AlgorithmState | None = None
    ) -> AlgorithmState | None:
        """The state after some steps, None if one is refused."""
        state = self.state if start is None else start
        for place in places:
            after = self.take(state, place)
            if after is None:
                return None
            state = after
        return state

    def relations(self, chosen: Sequence[int], rng: np.random.Generator) -> Relations | None:
        """The relations of some steps, if they explain what these do."""

        def take(state: AlgorithmState, step: int) -> AlgorithmState | None:
            return self.take(state, chosen[step])

        return find_relations(
            len(chosen),
            self.state,
            take,
            lambda state: state.canonical(),
            lambda limit: int(rng.integers(limit)),
        )

    def depend(self, one: int, other: int) -> bool | None:
        """Whether the order of two steps, in the run's order, matters; None if that depends on what ran before.

        Looked at are two contexts: the state itself, and after all steps before the second one but for the first.
        """
        if one not in self.known:
            self.known[one] = self._depending_on(one)
        return self.known[one][other]

    def _depending_on(self, one: int) -> dict[int, bool | None]:
        found: dict[int, bool | None] = {}
        state = self.state
        for other in range(len(self.steps)):
            if other > one:
                shown = {self._differ(one, other, each) for each in (self.state, state)} - {None}
                found[other] = None if len(shown) > 1 else shown == {True}
            after = None if other == one else self.take(state, other)
            state = state if after is None else after
        return found

    def _differ(self, one: int, other: int, state: AlgorithmState) -> bool | None:
        """Whether two steps lead to one state in either order; None if neither order can run."""
        ends = [self.after(order, state) for order in ((one, other), (other, one))]
        if ends == [None, None]:
            return None
        forms = [None if end is None else end.canonical() for end in ends]
        return forms[0] != forms[1]

    def choose(
        self, num_steps: int, number: int, rng: np.random.Generator
    ) -> tuple[int, ...] | None:
        """That many steps that the run's order accepts, with that many dependent pairs as far as these show.

        Step by step; as long as pairs are missing, the next one is at times to add some, and else to add none.
        """
        chosen: list[int] = []
        #: How many dependent pairs each step would add, of those that might be chosen.
        added = dict.fromkeys(range(len(self.steps)), 0)
        missing = number
        while len(chosen) < num_steps:
            relate = missing > 0 and bool(chosen) and rng.random() < _RELATE
            order = sorted(
                shuffled(list(added), rng), key=lambda place: (added[place] > 0) != relate
            )
            place = next(
                (each for each in order if self._fits(chosen, each, added[each], missing)), None
            )
            if place is None:
                return None
            chosen = sorted([*chosen, place])
            missing -= added.pop(place)
            for other in list(added):
                depend = self.depend(min(place, other), max(place, other))
                if depend is None:
                    del added[other]
                else:
                    added[other] += depend
        return None if missing else tuple(chosen)

    def _fits(self, chosen: Sequence[int], place: int, adds: int, missing: int) -> bool:
        """Whether a step may be added: it can run in its place, and adds no more dependent pairs than are missing."""
        if place not in self.refused:
            self.refused[place] = self.after([place]) is None
        # What is refused at the start can only run after a step that it depends on.
        if adds > missing or (self.refused[place] and not adds):
            return False
        return self.after(sorted([*chosen, place])) is not None
