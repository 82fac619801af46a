"""Define what one CLRS schema provides: an algorithm's state, its transition, and its comparison with dm-clrs.

To add a schema, write one module with a state class and a subclass of :class:`AlgorithmSchema` (or, where dm-clrs works
in synchronous rounds, of :class:`SynchronousSchema`), and list it in
``vcrt_clrs.environment.ALGORITHMS``. Sampling, lifting and the cross-check are shared, in
``vcrt_clrs.episodes`` and ``vcrt_clrs.lift``.
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

#: Where a sampled episode's operations stand among the steps of the run that follow its initial state: somewhere,
#: first in any order, or first and in the same order.
Placing: TypeAlias = Literal["later", "next", "next in order"]
#: Every canonical state begins with a SHA-256 digest of the run's inputs.
DIGEST_BYTES = 32
Item = TypeVar("Item")


class AlgorithmState(Protocol):
    """An immutable state of an algorithm on one input.

    One is made for each replayed step, so the states here are named tuples, which are made faster than data classes.
    """

    def read(self, payload: Json) -> Any:
        """The checked form of an operation's payload: the same for all states of an episode.

        Raises :class:`vcrt.errors.MalformedInputError`.
        """
        ...

    def take(self, step: Any) -> Transition[Any]:
        """One operation on this state, in the form that :meth:`read` gave."""
        ...

    def canonical(self) -> bytes:
        """Equal bytes exactly when two states have the same input and the same future; begins with its digest."""
        ...

    def task(self) -> str:
        """What the algorithm is about to do, in a few words."""
        ...

    def footprint(self, step: Any) -> Footprint:
        """What one operation reads and writes, in the form that :meth:`read` gave, as the algorithm's text has it."""
        ...


class SynchronousState(AlgorithmState, Protocol):
    """A state of an algorithm that works in rounds."""

    def take(self, step: Any, before: Any = None) -> Transition[Any]:
        """One operation on this state, which reads what it needs as it is in ``before``, by default in this state."""
        ...


S = TypeVar("S", bound=AlgorithmState)
R = TypeVar("R", bound=SynchronousState)


def state_after(state: S, steps: Iterable[Any]) -> S | None:
    """The state after some steps, None if one is refused."""
    for step in steps:
        transition = state.take(step)
        if not isinstance(transition, Accepted):
            return None
        state = transition.state
    return state


def conflict(state: AlgorithmState, first: Any, second: Any) -> bool:
    """Whether both orders of two steps are accepted and lead to different states."""
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
    """One family of episodes that are lifted from the traces of one dm-clrs algorithm."""

    schema: ClassVar[Schema]
    #: The lengths of the inputs that dm-clrs's sampler is asked for and, for graphs, their edge probabilities.
    lengths: ClassVar[Sequence[int]]
    edge_probabilities: ClassVar[Sequence[float]] = ()
    placing: ClassVar[Placing]

    @abstractmethod
    def lift(self, trace: Trace, num_operations: int, rng: Generator) -> Lifted[S] | None:
        """An episode out of ``trace`` whose structure promises one dependent pair, or None if it has none."""

    @abstractmethod
    def read_state(self, initial: Json) -> S:
        """The state that an episode's ``initial`` describes; raises ``MalformedInputError``."""

    @abstractmethod
    def write_state(self, state: S) -> Json:
        """The ``initial`` that :meth:`read_state` reads as ``state``."""

    @abstractmethod
    def operation(self, step: Any) -> Operation:
        """The operation of which the state's ``read`` gives ``step``."""

    @abstractmethod
    def start(self, trace: Trace) -> S:
        """The state in which the run of ``trace`` begins, from its inputs alone."""

    @abstractmethod
    def schedule(self, state: S) -> Iterable[Any]:
        """The steps that the algorithm tries from a state on, in its order (in each round, if it works in rounds)."""

    @abstractmethod
    def hint_rows(self, trace: Trace) -> Rows:
        """The hint rows that this module's transition produces from the inputs of ``trace``.

        They may be more than ``trace`` has, if the run does not end where it should.
        """

    @abstractmethod
    def finish(self, state: S, done: int) -> Rows:
        """The last rows of hints and the outputs when the run goes on from ``state`` to its end.

        ``done`` is how many steps of the run are behind it. Every output is among the names; a name of a hint stands
        for as many of its last rows.
        """

    def run(self, state: S) -> Iterator[Taken[S]]:
        """The steps that the algorithm takes from a state on.

        Steps that the transition rejects, because they would change nothing, are passed over.
        """
        for step in self.schedule(state):
            transition = state.take(step)
            if isinstance(transition, Accepted):
                yield Taken(state, step, transition.state)
                state = transition.state

    def steps(self, trace: Trace) -> list[Taken[S]]:
        """The steps of the run that this module's transition makes from the inputs of ``trace``."""
        return list(self.run(self.start(trace)))


class SynchronousSchema(AlgorithmSchema[R]):
    """A schema whose algorithm works in rounds in dm-clrs: every step reads the state before its round."""

    #: The hints of which :meth:`finish` gives the last row: the first as the output of its name without ``_h``.
    final_hints: ClassVar[Sequence[str]]

    @abstractmethod
    def rows(self, states: Sequence[R]) -> Rows:
        """The hint rows of the states between rounds, by dm-clrs's names."""

    def rounds(self, state: R) -> Iterator[list[Taken[R]]]:
        """Rounds until none writes, and the steps of each that did."""
        schedule = list(self.schedule(state))
        # As many rounds as steps are enough; a transition that is broken may have no end.
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
        """The steps that write in each round."""
        for taken in self.rounds(state):
            yield from taken

    def hint_rows(self, trace: Trace) -> Rows:
        """Synchronous rounds from the start until none changes anything."""
        start = self.start(trace)
        return self.rows([start, *(taken[-1].after for taken in self.rounds(start))])

    def finish(self, state: R, done: int) -> Rows:
        """The final hints after synchronous rounds until none changes anything.

        The rounds mend what was written from too little, but nothing that is too good or came the wrong way.
        """
        for taken in self.rounds(state):
            state = taken[-1].after
        rows = self.rows([state])
        output, *others = self.final_hints
        return {output.removesuffix("_h"): rows[output][0], **{name: rows[name] for name in others}}


def shuffled(items: Sequence[Item], rng: Generator) -> list[Item]:
    """The items in a random order."""
    return [items[index] for index in rng.permutation(len(items))]


def linear_extension(items: Sequence[Item], rng: Generator) -> list[Item]:
    """A random order of ``items`` in which the first one stands before the second."""
    return first_before_second(items, rng.permutation(len(items)))


def with_independent(
    pair: Sequence[Item],
    others: Sequence[Item],
    num_operations: int,
    independent: Callable[[Item, Sequence[Item]], bool],
    rng: Generator,
) -> list[Item] | None:
    """A pair and others, each independent of those chosen before; None if there are too few of them."""
    chosen = list(pair)
    for other in shuffled(others, rng):
        if len(chosen) < num_operations and independent(other, chosen):
            chosen.append(other)
    return chosen if len(chosen) == num_operations else None
