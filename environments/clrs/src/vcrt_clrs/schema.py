"""Define the parts of one CLRS schema: an algorithm's state, its transition, and its comparison with dm-clrs.

To add a schema, write one module with a state class and a subclass of :class:`AlgorithmSchema` (or of
:class:`SynchronousSchema`, where dm-clrs works in synchronous rounds), and list it in
``vcrt_clrs.environment.ALGORITHMS``. ``vcrt_clrs.episodes`` and ``vcrt_clrs.lift`` have the shared sampling, lifting
and cross-check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from vcrt.environments.contract import Accepted, Footprint, Operation, Schema, Transition
from vcrt.hashing import Json
from vcrt.orders import first_before_second
from vcrt.randomness import Generator
from vcrt_clrs.trace import Rows, Trace

#: The places of a sampled episode's operations among the run's steps after its initial state: any places, the first
#: ones in any order, or the first ones in the same order.
Placing: TypeAlias = Literal["later", "next", "next in order"]
#: Every canonical state begins with a SHA-256 digest of the run's inputs.
DIGEST_BYTES = 32
Item = TypeVar("Item")


class AlgorithmState(Protocol):
    """An immutable state of an algorithm on one input.

    Each replayed step makes one, so the states here are named tuples, which are faster to make than data classes.
    """

    def read(self, payload: Json) -> Any:
        """Return the checked form of an operation's payload, the same for all states of an episode.

        Raise :class:`vcrt.errors.MalformedInputError` for another form.
        """
        ...

    def take(self, step: Any) -> Transition[Any]:
        """Run one operation on this state, in the form that :meth:`read` returned."""
        ...

    def canonical(self) -> bytes:
        """Return bytes, equal exactly if two states have equal input and future; they begin with the input's digest."""
        ...

    def task(self) -> str:
        """Return what the algorithm is about to do, in a few words."""
        ...

    def footprint(self, step: Any) -> Footprint:
        """Return what an operation, in the form of :meth:`read`, reads and writes by the algorithm's description."""
        ...


class SynchronousState(AlgorithmState, Protocol):
    """A state of an algorithm that works in rounds."""

    def take(self, step: Any, before: Any = None) -> Transition[Any]:
        """Run one operation on this state; read its inputs from ``before``, by default from this state."""
        ...


S = TypeVar("S", bound=AlgorithmState)
R = TypeVar("R", bound=SynchronousState)


def state_after(state: S, steps: Iterable[Any]) -> S | None:
    """Return the state after some steps, None if one is refused."""
    for step in steps:
        transition = state.take(step)
        if not isinstance(transition, Accepted):
            return None
        state = transition.state
    return state


def conflict(state: AlgorithmState, first: Any, second: Any) -> bool:
    """Return whether both orders of two steps are accepted and lead to different states."""
    ends = [state_after(state, order) for order in ((first, second), (second, first))]
    return None not in ends and ends[0] != ends[1]


class Taken(NamedTuple, Generic[S]):
    """A step of a run that wrote, with the states before and after it."""

    before: S
    step: Any
    after: S


#: A state of a genuine run and steps on it, in reference order.
Lifted: TypeAlias = tuple[S, Sequence[Any]]


class AlgorithmSchema(ABC, Generic[S]):
    """One family of episodes, lifted from the traces of one dm-clrs algorithm."""

    schema: ClassVar[Schema]
    #: The lengths of dm-clrs's sampled inputs and, for graphs, their edge probabilities.
    lengths: ClassVar[Sequence[int]]
    edge_probabilities: ClassVar[Sequence[float]] = ()
    placing: ClassVar[Placing]

    @abstractmethod
    def lift(self, trace: Trace, num_operations: int, rng: Generator) -> Lifted[S] | None:
        """Return an episode of ``trace`` whose structure promises one dependent pair, or None if it has none."""

    @abstractmethod
    def read_state(self, initial: Json) -> S:
        """Return the state that an episode's ``initial`` describes; raise ``MalformedInputError`` for another form."""

    @abstractmethod
    def write_state(self, state: S) -> Json:
        """Return the ``initial`` that :meth:`read_state` reads as ``state``."""

    @abstractmethod
    def operation(self, step: Any) -> Operation:
        """Return the operation whose payload a state reads as ``step``."""

    @abstractmethod
    def start(self, trace: Trace) -> S:
        """Return the first state of the run of ``trace``, from its inputs alone."""

    @abstractmethod
    def schedule(self, state: S) -> Iterable[Any]:
        """Return the steps that the algorithm tries from a state on, in its order (for one round, if it has rounds)."""

    @abstractmethod
    def hint_rows(self, trace: Trace) -> Rows:
        """Return the hint rows that this module's transition produces from the inputs of ``trace``.

        There may be more than in ``trace``, if the run does not end where it should.
        """

    @abstractmethod
    def finish(self, state: S, done: int) -> Rows:
        """Return the last rows of hints and the outputs of the run continued from ``state`` to its end.

        ``done`` is the number of steps of the run before ``state``. The names include every output; a hint has its last
        rows, as many as are compared.
        """

    def run(self, state: S) -> Iterator[Taken[S]]:
        """Yield the steps that the algorithm takes from a state on.

        Skip steps that the transition rejects because they would change nothing.
        """
        for step in self.schedule(state):
            transition = state.take(step)
            if isinstance(transition, Accepted):
                yield Taken(state, step, transition.state)
                state = transition.state

    def steps(self, trace: Trace) -> list[Taken[S]]:
        """Return the steps of the run that this module's transition makes from the inputs of ``trace``."""
        return list(self.run(self.start(trace)))


class SynchronousSchema(AlgorithmSchema[R]):
    """A schema whose algorithm works in rounds in dm-clrs: every step reads the state before its round."""

    #: The hints whose last row :meth:`finish` returns; the first one as the output of its name without ``_h``.
    final_hints: ClassVar[Sequence[str]]

    @abstractmethod
    def rows(self, states: Sequence[R]) -> Rows:
        """Return the hint rows of the states between rounds, by dm-clrs's names."""

    def rounds(self, state: R) -> Iterator[list[Taken[R]]]:
        """Yield the steps of each round that writes, until none writes."""
        schedule = list(self.schedule(state))
        # As many rounds as steps are enough; a broken transition might never end.
        for _ in schedule:
            before, taken = state, []
            for step in schedule:
                transition = state.take(step, before)
                if isinstance(transition, Accepted):
                    taken.append(Taken(state, step, transition.state))
                    state = transition.state
            if not taken:
                return
            yield taken

    def run(self, state: R) -> Iterator[Taken[R]]:
        """Yield the steps that write in each round."""
        for taken in self.rounds(state):
            yield from taken

    def hint_rows(self, trace: Trace) -> Rows:
        """Return the rows of synchronous rounds from the start until none changes anything."""
        start = self.start(trace)
        return self.rows([start, *(taken[-1].after for taken in self.rounds(start))])

    def finish(self, state: R, done: int) -> Rows:
        """Return the final hints after synchronous rounds until none changes anything.

        The rounds correct values that were written from too little, but none that is too good or came the wrong way.
        """
        for taken in self.rounds(state):
            state = taken[-1].after
        rows = self.rows([state])
        output, *others = self.final_hints
        return {output.removesuffix("_h"): rows[output][0], **{name: rows[name] for name in others}}


def shuffled(items: Sequence[Item], rng: Generator) -> list[Item]:
    """Return the items in a random order."""
    return [items[index] for index in rng.permutation(len(items))]


def linear_extension(items: Sequence[Item], rng: Generator) -> list[Item]:
    """Return a random order of ``items`` in which the first one stands before the second."""
    return first_before_second(items, rng.permutation(len(items)))


def with_independent(
    pair: Sequence[Item],
    others: Sequence[Item],
    num_operations: int,
    independent: Callable[[Item, Sequence[Item]], bool],
    rng: Generator,
) -> list[Item] | None:
    """Return a pair and others, each independent of those chosen before; None if there are too few."""
    chosen = list(pair)
    for other in shuffled(others, rng):
        if len(chosen) < num_operations and independent(other, chosen):
            chosen.append(other)
    return chosen if len(chosen) == num_operations else None
