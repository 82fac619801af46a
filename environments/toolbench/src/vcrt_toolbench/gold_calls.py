"""Make episodes of the calls that solve the tasks of a benchmark: whole trajectories, and a few combined calls.

A benchmark's environment derives from :class:`GoldCallEnvironment` and gives its gold trajectories. Schemas of a fixed
number of calls draw them (see :meth:`GoldCallEnvironment.sample`) and keep those whose relations, found by running the
tools themselves, fit the preset; states are observed together with the output of each call. No argument is invented:
every call stands in a gold trajectory. Data flow, that is, arguments that an agent could only know from an earlier
output, is ignored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Generic

from vcrt.environments.contract import ANY, Episode, Provenance, Schema, State
from vcrt.environments.posets import Below, Pair, Relations, below_of
from vcrt.environments.relation_search import find_relations, lattice_relations
from vcrt.environments.states.object_copies import copied
from vcrt.environments.tool_calls import (
    Call,
    CallEnvironment,
    CallRefused,
    episode_of_calls,
    operations_of,
    output_text,
)
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.limits import MAX_OPERATIONS
from vcrt.randomness import generator

#: The number of tasks in a group; an episode draws on the tasks of one group, which is its source.
_GROUP = 8
#: Draws for one episode before its schema counts as out of reach; usual ones need some ten.
_MAX_DRAWS = 4000
_NUM_CALLS = 4
#: The step from a trajectory that is skipped to the next; no number of trajectories is a multiple of it.
_STRIDE = 101


def gold_schemas(*sizes: int) -> tuple[Schema, ...]:
    """Return the schemas that all these environments have: of so many calls, and of whole trajectories."""
    return (
        *(
            Schema(
                name=f"posets{size}",
                summary=f"{size} calls with a few dependent pairs",
                relation="either",
                num_steps=size,
            )
            for size in sizes
        ),
        Schema(
            name="trajectory",
            summary="all calls that solve a task",
            relation="either",
            preset=ANY,
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """The calls that solve a task, and the argument of ``reset`` before them."""

    task: str
    initial: Mapping[str, Json]
    calls: tuple[Call, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A call of a trajectory: its place, the kind of its tool, and whether it changes the state there."""

    trajectory: Trajectory
    index: int
    family: str
    changes: bool

    @property
    def call(self) -> Call:
        return self.trajectory.calls[self.index]


@dataclass(frozen=True, slots=True)
class _Observed:
    """A state that nothing changes any more, its canonical form, and the outputs of the calls so far."""

    state: Any
    form: bytes
    outputs: tuple[tuple[int, str], ...] = ()


#: A function from a state and a call to the state after it; None if the call is refused.
_Take = Callable[[_Observed, int], _Observed | None]


class GoldCallEnvironment(CallEnvironment[State], Generic[State]):
    """An environment of tool calls whose episodes come from gold trajectories.

    Episodes of the preset ``any`` are whole trajectories. The schema of a family of tools has the family's name.
    """

    #: The most tasks whose calls one episode combines.
    max_tasks = 2

    @abstractmethod
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return all gold trajectories; raise :class:`vcrt.errors.UnavailableError` if the benchmark is missing."""

    @abstractmethod
    def start(self, initial: Mapping[str, Any]) -> State:
        """Return a task's initial state; raise :class:`vcrt.errors.MalformedInputError` if it cannot be made."""

    @abstractmethod
    def family(self, trajectory: Trajectory, call: Call) -> str:
        """Return the kind of tool of a call."""

    @abstractmethod
    def joined(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Json] | None:
        """Return a start in which the calls of two tasks can be made, None if there is none."""

    def pool(self, trajectory: Trajectory) -> str:
        """Return a key; tasks with the same key may be in one group. By default, all tasks may be."""
        return ""

    def reset(self, initial: Json) -> State:
        """Return the state after the start and the calls listed as ``before``.

        Raise :class:`vcrt.errors.MalformedInputError` if the start cannot be made or one of these calls is refused.
        """
        if not isinstance(initial, Mapping):
            raise MalformedInputError("a start that is no mapping", found=repr(initial)[:80])
        state = self.start(initial)
        calls: Any = initial.get("before", ())
        for call in calls:
            try:
                self.call(state, call["name"], call["arguments"])
            except (CallRefused, KeyError, TypeError) as error:
                raise MalformedInputError(
                    "a start whose earlier calls cannot be made",
                    found=f"{call!r:.80}: {error}",
                    expected="before: calls with name and arguments that the tools accept",
                ) from error
        return state

    def snapshot(self, state: State) -> object:
        """Return a copy."""
        return copied(state, by_attributes=True)

    def restore(self, snapshot: Any) -> State:
        """Return a copy of the snapshot."""
        restored: State = copied(snapshot, by_attributes=True)
        return restored

    def sample(self, schema: str, seed: int) -> Episode:
        """Return a whole trajectory, or draw calls from gold trajectories until they have the wanted relations.

        The seed numbers the trajectories; one with a relation that depends on the context is skipped.

        Otherwise a call that changes the state is drawn, and one to ``max_tasks`` tasks of its group; then a second
        call of the same family of tools and the remaining ones, all from these tasks. Calls of one task keep their
        order; those of several are interleaved. Before the first drawn call of each task, the episode makes that task's
        earlier calls that change the state; it leaves out the calls between drawn ones. The generator describes the
        calls: ``window`` (one task, consecutive), ``subsequence`` (one task, with gaps) or ``joint`` (several tasks in
        one state). Raise :class:`vcrt.errors.VcrtError` if nothing was found.
        """
        known = self.schema(schema)
        below = below_of(generator(seed, self.name, schema))
        if known.preset == ANY:
            return self._whole(known, seed, below)
        for _ in range(_MAX_DRAWS):
            places = self._drawn(known, below)
            episode = None if places is None else self._put_together(known, places, seed)
            if episode is not None:
                return episode
        raise _nothing_drawn(known, seed, _MAX_DRAWS)

    def _whole(self, schema: Schema, seed: int, below: Below) -> Episode:
        """Return the trajectory of a number; skip those in which some pair's relation depends on the context."""
        known = [each for each in self.trajectories() if 2 <= len(each.calls) <= MAX_OPERATIONS]
        for step in range(len(known)):
            trajectory = known[(seed + step * _STRIDE) % len(known)]
            state = self._observed(self.start(trajectory.initial))
            num_calls, take = len(trajectory.calls), self._taking(trajectory.calls)
            if find_relations(num_calls, state, take, _key, below) is not None:
                tasks = {trajectory.task: trajectory.initial}
                return self._episode(schema, "trajectory", tasks, (), trajectory.calls, seed)
        raise _nothing_drawn(schema, seed, len(known))

    @cached_property
    def _places(self) -> dict[str, list[_Place]]:
        """The calls of each task, by its name."""
        found: dict[str, list[_Place]] = {}
        for trajectory in self.trajectories():
            state = self.start(trajectory.initial)
            form = self.canonical(state)
            places = found[trajectory.task] = []
            for index, call in enumerate(trajectory.calls):
                self.call(state, call.name, call.arguments)
                before, form = form, self.canonical(state)
                places.append(
                    _Place(
                        trajectory=trajectory,
                        index=index,
                        family=self.family(trajectory, call),
                        changes=form != before,
                    )
                )
        return found

    @cached_property
    def _groups(self) -> dict[str, tuple[str, ...]]:
        """The names of the tasks in the group of each task."""
        pools: dict[str, list[str]] = {}
        for trajectory in self.trajectories():
            pools.setdefault(self.pool(trajectory), []).append(trajectory.task)
        groups: dict[str, tuple[str, ...]] = {}
        for pool, tasks in sorted(pools.items()):
            dealt = generator(0, self.name, "groups", pool).permutation(len(tasks))
            number = -(-len(tasks) // _GROUP)
            for first in range(number):
                group = tuple(tasks[place] for place in sorted(dealt[first::number]))
                groups.update(dict.fromkeys(group, group))
        return groups

    def _drawn(self, schema: Schema, below: Below) -> list[_Place] | None:
        """Draw calls of one or several tasks, in the order of an episode; None if there are too few to draw from."""
        families = {place.family for places in self._places.values() for place in places}
        wanted = {schema.name} if schema.name in families else families
        writers = [
            place
            for places in self._places.values()
            for place in places
            if place.changes and place.family in wanted
        ]
        writer = writers[below(len(writers))]
        tasks = [writer.trajectory.task]
        others = [task for task in self._groups[tasks[0]] if task not in tasks]
        for _ in range(min(below(self.max_tasks), len(others))):
            tasks.append(others.pop(below(len(others))))
        rest = [place for task in tasks for place in self._places[task] if place is not writer]
        partners = [place for place in rest if place.family == writer.family]
        size = schema.num_steps or _NUM_CALLS
        if not partners or len(rest) < size - 1:
            return None
        changing = [place for place in partners if place.changes]
        if changing and below(2):
            partners = changing
        chosen = [writer, partners[below(len(partners))]]
        rest = [place for place in rest if place not in chosen]
        while len(chosen) < size:
            chosen.append(rest.pop(below(len(rest))))
        return list(_interleaved(chosen, below))

    def _put_together(self, schema: Schema, places: list[_Place], seed: int) -> Episode | None:
        """Return the episode of these calls; None if the schema does not want their relations."""
        first: dict[str, _Place] = {}
        for place in places:
            first.setdefault(place.trajectory.task, place)
        tasks = {task: place.trajectory.initial for task, place in first.items()}
        before = [
            earlier.call
            for task, place in first.items()
            for earlier in self._places[task][: place.index]
            if earlier.changes
        ]
        indices = [place.index for place in places]
        consecutive = indices == list(range(indices[0], indices[0] + len(indices)))
        made = "joint" if len(tasks) > 1 else "window" if consecutive else "subsequence"
        calls = [place.call for place in places]
        initial = self._start_of(tasks, before)
        if initial is None:
            return None
        try:
            state = self.reset(initial)
        except MalformedInputError:
            return None  # one task's earlier calls prevent another's
        found = self._relations(state, calls, one=schema.num_steps is None)
        if found is None or not _wanted(schema, found, places):
            return None
        return self._episode(schema, made, tasks, before, calls, seed)

    def _start_of(
        self, tasks: Mapping[str, Mapping[str, Json]], before: Sequence[Call]
    ) -> dict[str, Json] | None:
        """Return the argument of ``reset`` for calls of these tasks after some; None if they have no common start."""
        joint: Mapping[str, Json] | None = None
        for initial in tasks.values():
            joint = initial if joint is None else self.joined(joint, initial)
            if joint is None:
                return None
        return {**(joint or {}), "tasks": list(tasks), "before": [c.to_json() for c in before]}

    def _episode(
        self,
        schema: Schema,
        made: str,
        tasks: Mapping[str, Mapping[str, Json]],
        before: Sequence[Call],
        calls: Sequence[Call],
        seed: int,
    ) -> Episode:
        return episode_of_calls(
            self.name,
            schema.name,
            self._start_of(tasks, before),
            operations_of(calls),
            Provenance(
                source=f"{self.name}: {' '.join(self._groups[next(iter(tasks))])}",
                generator=f"{self.name}.{made}/1",
                seed=seed,
            ),
        )

    def _observed(self, state: State, outputs: tuple[tuple[int, str], ...] = ()) -> _Observed:
        return _Observed(state, self.canonical(state), outputs)

    def _taking(self, calls: Sequence[Call]) -> _Take:
        """Return a function that runs one of these calls; it gives None for a refusal, and an output is an effect."""

        def take(before: _Observed, step: int) -> _Observed | None:
            state: State = self.restore(before.state)
            try:
                output = output_text(self.call(state, calls[step].name, calls[step].arguments))
            except CallRefused:
                return None
            return self._observed(state, tuple(sorted([*before.outputs, (step, output)])))

        return take

    def _relations(self, state: State, calls: Sequence[Call], *, one: bool) -> Relations | None:
        """Return the relations of some calls from a state, with outputs; None if they do not explain every outcome.

        Return None also if the first state shows no anti-diamond, or, with ``one``, more than one.
        """
        take = _once(self._taking(calls))
        start = self._observed(state)
        last: _Observed | None = start
        for step in range(len(calls)):
            last = None if last is None else take(last, step)
        if last is None:
            return None
        kinds = _kinds_at(start, len(calls), take)
        if not kinds or (one and len(kinds) > 1):
            return None
        found = lattice_relations(len(calls), start, take, _key)
        if found is None or (one and found.anti_diamonds != tuple(kinds)):
            return None
        return replace(found, kinds={**found.kinds, **kinds})


def _once(take: _Take) -> _Take:
    """Run each call in each state once: few calls have few contexts, and several searches revisit them."""
    taken: dict[tuple[int, int], tuple[_Observed, _Observed | None]] = {}

    def again(before: _Observed, step: int) -> _Observed | None:
        # Keep the state with its successor, so that no other state gets its identity.
        if (id(before), step) not in taken:
            taken[id(before), step] = before, take(before, step)
        return taken[id(before), step][1]

    return again


def _key(observed: _Observed) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """Return a key, equal if no later call can tell the states apart and every call so far had the same output."""
    return observed.form, observed.outputs


def _nothing_drawn(schema: Schema, seed: int, number: int) -> VcrtError:
    return VcrtError(
        "no calls with the wanted relations were drawn",
        where=f"schema {schema.name!r}, seed {seed}",
        found=f"none in {number:,} draws",
    )


def _kinds_at(start: _Observed, num_calls: int, take: _Take) -> dict[Pair, Any]:
    """Return the pairs of calls that do not commute in a state, with the kind of each."""
    after = [take(start, step) for step in range(num_calls)]
    found: dict[Pair, Any] = {}
    for one, other in combinations(range(num_calls), 2):
        forward, reverse = (
            None if first is None else take(first, second)
            for first, second in ((after[one], other), (after[other], one))
        )
        if forward is None or reverse is None:
            if forward is not reverse:
                found[one, other] = "precedes"
        elif forward.form != reverse.form:
            found[one, other] = "conflicts"
        elif forward.outputs != reverse.outputs:
            found[one, other] = "observes"
    return found


def _wanted(schema: Schema, found: Relations, places: Sequence[_Place]) -> bool:
    """Return whether a schema wants the relations: one of its family and kind, or a few that leave several orders."""
    size = len(places)
    if schema.num_steps is not None:
        return found.few and len(found.order.pairs) < size * (size - 1) // 2
    ((one, other),) = found.anti_diamonds
    families = {places[one].family, places[other].family}
    every = schema.relation != "either"
    return (every or families == {schema.name}) and schema.designed([str(found.kinds[one, other])])


def _interleaved(chosen: Sequence[_Place], below: Below) -> Iterator[_Place]:
    """Yield the calls; each task's calls keep their order, and chance decides which task is next."""
    waiting: dict[str, list[_Place]] = {}
    for place in sorted(chosen, key=lambda place: place.index):
        waiting.setdefault(place.trajectory.task, []).append(place)
    turns = [place.trajectory.task for place in chosen]
    while turns:
        yield waiting[turns.pop(below(len(turns)))].pop(0)
