"""Sample episodes of several dependent steps: steps of one genuine run, in the run's own order.

Four steps are picked from those that follow a state of the run, until their poset has the drawn shape. All shapes are
drawn equally often, although a run has many more forks than crossings. For 6 to 16 steps, the algorithm is drawn too,
and the number of dependent pairs; the run, continued after the steps, still ends where it does. The member
``algorithm`` of their initial state names the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, takewhile
from types import NoneType
from typing import Any, TypeAlias

from vcrt.environments.contract import Episode, Schema
from vcrt.environments.posets import (
    MAX_ANTI_DIAMONDS,
    NUM_STEPS,
    SHAPES,
    Relations,
    below_of,
    long_schemas,
    several_schema,
)
from vcrt.environments.relation_search import find_relations
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.orders import transitive_closure
from vcrt.randomness import Generator, generator
from vcrt_clrs.bellman_ford import BellmanFord
from vcrt_clrs.episodes import ENVIRONMENT, Sizes, completion, lifted_episode, traces
from vcrt_clrs.heapsort import Extract, Heapsort
from vcrt_clrs.matrix_chain import MatrixChainOrder
from vcrt_clrs.reading import malformed, read_member
from vcrt_clrs.schema import AlgorithmSchema, AlgorithmState, Taken, shuffled, state_after
from vcrt_clrs.trace import Trace

#: Inputs drawn for one episode before its relations count as out of reach; the rarest shape needs about a tenth.
MAX_DRAWS = 4000
#: The states of one run that are tried, the number of steps ahead of a state for each step of the episode, and the
#: number of steps ahead from which four steps are picked.
_POOLS, _REACH, _POOL_SIZE = 3, 3, 8
#: Choices of many steps at each state; failed choices before a state is left; and the probability that the next step
#: should depend on those before.
_CHOICES, _VAIN, _RELATE = 8, 2, 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class LongRuns:
    """An algorithm, how much longer than the episode its inputs are, and the edge probabilities of graphs.

    Steps are taken from the run up to the first of the kind ``until``; ``most`` is the number of dependent pairs that
    are found without long search.
    """

    algorithm: AlgorithmSchema[Any]
    longer: range
    edge_probabilities: Sequence[float] = ()
    until: type = NoneType
    most: int = MAX_ANTI_DIAMONDS


#: Shapes of at least one in a thousand choices of steps; in a run, sinks, crossings and diamonds are rarer.
_IN_ROUNDS = tuple(
    shape for shape in SHAPES if shape not in ("sink", "crossing", "diamond", "early join")
)
#: By the name of a schema of four steps: the algorithm whose runs have its steps, and the possible shapes.
SHAPED: Mapping[str, tuple[AlgorithmSchema[Any], Sequence[str]]] = {
    "bellman_ford_poset": (BellmanFord(), _IN_ROUNDS),
    "matrix_chain_poset": (MatrixChainOrder(), (*_IN_ROUNDS, "early join")),
}
#: The algorithms whose runs have enough independent steps, by name.
LONG_RUNS: Mapping[str, LongRuns] = {
    each.algorithm.schema.name: each
    for each in (
        LongRuns(algorithm=BellmanFord(), longer=range(6, 15), edge_probabilities=(0.4, 0.5, 0.6)),
        LongRuns(algorithm=MatrixChainOrder(), longer=range(2, 9)),
        LongRuns(algorithm=Heapsort(), longer=range(8, 33), until=Extract, most=2),
    )
}
#: The schemas of several dependent steps.
POSET_SCHEMAS = (
    several_schema(
        "bellman_ford_poset",
        "relaxations of one run, several of which need or change what others do",
    ),
    several_schema(
        "matrix_chain_poset", "cells filled in one run, several of which are read by others"
    ),
    *long_schemas("steps of one run, some of which need or change what others do"),
)


#: ``find(trace, first, near)`` finds steps with the drawn relations among those of a run from the first on.
_Find: TypeAlias = Callable[[Trace, int, Sequence[Taken[Any]]], list[Any] | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """The drawn relations of an episode, in words; the runs that it is taken from; and the search for its steps."""

    text: str
    algorithm: AlgorithmSchema[Any]
    sizes: Sizes
    find: _Find
    until: type = NoneType


def sample_poset(schema: Schema, seed: int) -> Episode:
    """Return the episode of ``seed``: draw its relations, then inputs and steps until some have them.

    Raise :class:`VcrtError` if none have.
    """
    assert schema.num_steps is not None
    num_steps, shaped = schema.num_steps, schema.name in SHAPED
    rng = generator(seed, ENVIRONMENT, schema.name, "lift")
    wanted = _shape(*SHAPED[schema.name], rng) if shaped else _number(num_steps, rng)
    algorithm, name = wanted.algorithm, wanted.algorithm.schema.name
    runs = traces(algorithm, wanted.sizes, schema.name, seed, rng)
    for instance, trace in islice(runs, MAX_DRAWS):
        run = algorithm.run(algorithm.start(trace))
        steps = list(takewhile(lambda taken: not isinstance(taken.step, wanted.until), run))
        for _ in range(_POOLS if len(steps) >= num_steps else 0):
            first = int(rng.integers(len(steps) - num_steps + 1))
            found = wanted.find(trace, first, steps[first : first + _REACH * num_steps])
            if found is not None:
                written = algorithm.write_state(steps[first].before)
                assert isinstance(written, dict)
                initial = written if shaped else {"algorithm": name, **written}
                made_by = f"{ENVIRONMENT}.{schema.name}" + ("" if shaped else f".{name}") + "/1"
                operations = tuple(map(algorithm.operation, found))
                return lifted_episode(schema.name, initial, operations, instance, made_by, seed)
    raise VcrtError(
        f"no {num_steps} steps {wanted.text} were found",
        where=f"{ENVIRONMENT}/{schema.name}/{seed}",
        found=f"none in {MAX_DRAWS} inputs",
    )


def algorithm_of(schema: str, initial: Json) -> AlgorithmSchema[Any]:
    """Return the algorithm of an episode's run, which the initial state of a long episode names.

    Raise :class:`vcrt.errors.MalformedInputError` if it names none.
    """
    if schema in SHAPED:
        return SHAPED[schema][0]

    def read_algorithm(name: Json, field: str) -> AlgorithmSchema[Any]:
        if not isinstance(name, str) or name not in LONG_RUNS:
            raise malformed(field, name, f"one of {', '.join(LONG_RUNS)}")
        return LONG_RUNS[name].algorithm

    return read_member(initial, "algorithm", read_algorithm)


def _shape(algorithm: AlgorithmSchema[Any], shapes: Sequence[str], rng: Generator) -> _Wanted:
    shape = shapes[int(rng.integers(len(shapes)))]

    def find(trace: Trace, first: int, near: Sequence[Taken[Any]]) -> list[Any] | None:
        places = sorted(rng.permutation(len(near))[:_POOL_SIZE])
        ahead = _Ahead(near[0].before, [near[place].step for place in places])
        for chosen in ahead.choices(shape, rng):
            relations = ahead.relations(chosen, rng)
            if relations is not None and relations.shape == shape:
                return ahead.chosen(chosen)
        return None

    return _Wanted(
        text=f"of shape {shape!r}",
        algorithm=algorithm,
        sizes=(algorithm.lengths, algorithm.edge_probabilities),
        find=find,
    )


def _number(num_steps: int, rng: Generator) -> _Wanted:
    number = 1 + int(rng.integers(MAX_ANTI_DIAMONDS))
    able = [runs for runs in LONG_RUNS.values() if runs.most >= number]
    runs = able[int(rng.integers(len(able)))]

    def find(trace: Trace, first: int, near: Sequence[Taken[Any]]) -> list[Any] | None:
        ahead = _Ahead(near[0].before, list(dict.fromkeys(taken.step for taken in near)))
        vain = 0
        for _ in range(_CHOICES):
            chosen = ahead.choose(num_steps, number, rng)
            if chosen is None:
                vain += 1
                if vain > _VAIN:
                    return None
                continue
            end = ahead.after(chosen)
            finished = completion(runs.algorithm, trace, end, first + num_steps)
            if finished.agreed < finished.checked:
                continue
            relations = ahead.relations(chosen, rng)
            if relations is not None and len(relations.anti_diamonds) == number:
                return ahead.chosen(chosen)
        return None

    return _Wanted(
        text=f"with {number} dependent pairs",
        algorithm=runs.algorithm,
        sizes=([num_steps + longer for longer in runs.longer], runs.edge_probabilities),
        until=runs.until,
        find=find,
    )


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A state of a run and different steps that follow it, in the run's order."""

    state: AlgorithmState
    steps: Sequence[Any]
    known: dict[int, dict[int, bool | None]] = field(default_factory=dict)
    refused: dict[int, bool] = field(default_factory=dict)

    def chosen(self, places: Sequence[int]) -> list[Any]:
        """Return some of the steps."""
        return [self.steps[place] for place in places]

    def after(
        self, places: Sequence[int], start: AlgorithmState | None = None
    ) -> AlgorithmState | None:
        """Return the state after some steps, None if one is refused."""
        return state_after(self.state if start is None else start, self.chosen(places))

    def relations(self, chosen: Sequence[int], rng: Generator) -> Relations | None:
        """Return the relations of some steps, if they explain every outcome."""

        def take(state: AlgorithmState, step: int) -> AlgorithmState | None:
            return self.after([chosen[step]], state)

        return find_relations(
            len(chosen), self.state, take, lambda state: state.canonical(), below_of(rng)
        )

    def depend(self, one: int, other: int) -> bool | None:
        """Return whether the order of two steps, in the run's order, matters; None if that depends on the context.

        It compares two contexts: the state itself, and the state after all steps before the second one but the first.
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
            after = None if other == one else self.after([other], state)
            state = state if after is None else after
        return found

    def _differ(self, one: int, other: int, state: AlgorithmState) -> bool | None:
        """Return whether two orders of two steps lead to different states; None if neither order can run."""
        ends = [self.after(order, state) for order in ((one, other), (other, one))]
        if ends == [None, None]:
            return None
        forms = [None if end is None else end.canonical() for end in ends]
        return forms[0] != forms[1]

    def choices(self, shape: str, rng: Generator) -> list[tuple[int, ...]]:
        """Return choices of four steps, each once, with as many dependent pairs as a shape needs, shuffled.

        It compares the pairs from the first state alone, which is fast. A pair of which neither order runs there may be
        either.
        """
        every = range(len(self.steps))
        shown = {pair: self._differ(*pair, self.state) for pair in combinations(every, 2)}
        fewest, most = len(SHAPES[shape]), len(transitive_closure(SHAPES[shape]))
        choices = []
        for chosen in combinations(every, NUM_STEPS):
            found = [shown[pair] for pair in combinations(chosen, 2)]
            if found.count(True) <= most and len(found) - found.count(False) >= fewest:
                choices.append(chosen)
        return shuffled(choices, rng)

    def choose(self, num_steps: int, number: int, rng: Generator) -> tuple[int, ...] | None:
        """Choose so many steps that the run's order accepts, with so many dependent pairs as far as pairs alone show.

        While dependent pairs are missing, chance decides whether the next step should add some or none.
        """
        chosen: list[int] = []
        #: The number of dependent pairs that each remaining step would add.
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
        """Return whether a step can run in its place and adds no more dependent pairs than are missing."""
        if place not in self.refused:
            self.refused[place] = self.after([place]) is None
        # A step that is refused at the start can only run after a step that it depends on.
        if adds > missing or (self.refused[place] and not adds):
            return False
        return self.after(sorted([*chosen, place])) is not None
