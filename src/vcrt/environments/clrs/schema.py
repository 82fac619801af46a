"""Define what one CLRS schema provides: an algorithm's state, its transition, and its comparison with dm-clrs.

To add a schema, write one module with a state class and a subclass of :class:`AlgorithmSchema`, and list it in
``vcrt.environments.clrs.environment.ALGORITHMS``. Sampling, lifting and the cross-check are shared, in
``vcrt.environments.clrs.episodes`` and ``vcrt.environments.clrs.lifting``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from vcrt.environments.clrs.trace import Trace
from vcrt.environments.contract import Accepted, Operation, Schema, Transition
from vcrt.hashing import Json

#: Stacked rows of a trace: hint or output name to an array ``[num_rows, ...]``.
Rows: TypeAlias = Mapping[str, npt.NDArray[Any]]
#: Where a sampled episode's operations stand among the steps of the run that follow its initial state: somewhere,
#: first in any order, or first and in the same order.
Placing: TypeAlias = Literal["later", "next", "next in order"]

#: Every canonical state begins with a SHA-256 digest of the run's inputs.
DIGEST_BYTES = 32


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


S = TypeVar("S", bound=AlgorithmState)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted(Generic[S]):
    """A state of a genuine run and operations on it, in reference order."""

    state: S
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class GenuineStep(Generic[S]):
    """One step of a genuine run and the state before it."""

    state: S
    operation: Operation


@dataclass(frozen=True, slots=True)
class Round(Generic[S]):
    """One synchronous round of a run: the state before and after it, and each step that wrote with the state it met."""

    before: S
    taken: tuple[tuple[S, Any], ...]
    after: S


def rounds(
    state: S, steps: Sequence[Any], take: Callable[..., Transition[S]], limit: int
) -> Iterator[Round[S]]:
    """At most ``limit`` rounds, in which every step reads the state ``before`` its round, until none writes."""
    for _ in range(limit):
        before, taken = state, []
        for step in steps:
            transition = take(state, step, before=before)
            if isinstance(transition, Accepted):
                taken.append((state, step))
                state = transition.state
        if not taken:
            return
        yield Round(before, tuple(taken), state)


class AlgorithmSchema(ABC, Generic[S]):
    """One family of episodes that are lifted from the traces of one dm-clrs algorithm."""

    schema: ClassVar[Schema]
    #: The lengths of the inputs that dm-clrs's sampler is asked for and, for graphs, their edge probabilities.
    lengths: ClassVar[Sequence[int]]
    edge_probabilities: ClassVar[Sequence[float]] = ()
    placing: ClassVar[Placing]

    @abstractmethod
    def lift(self, trace: Trace, num_operations: int, rng: np.random.Generator) -> Lifted[S] | None:
        """An episode out of ``trace`` whose structure promises one dependent pair, or None if it has none."""

    @abstractmethod
    def read_state(self, initial: Json) -> S:
        """The state that an episode's ``initial`` describes; raises ``MalformedInputError``."""

    @abstractmethod
    def write_state(self, state: S) -> Json:
        """The ``initial`` that :meth:`read_state` reads as ``state``."""

    @abstractmethod
    def start(self, trace: Trace) -> S:
        """The state in which the run of ``trace`` begins, from its inputs alone."""

    @abstractmethod
    def steps(self, trace: Trace) -> Iterator[GenuineStep[S]]:
        """The steps that the run takes when this module's transition makes it, from the inputs of ``trace``.

        Steps that the transition rejects, because they would change nothing, are passed over. Where dm-clrs works in
        synchronous rounds, each step reads the state before its round, as in dm-clrs.
        """

    @abstractmethod
    def hint_rows(self, trace: Trace) -> Rows:
        """The hint rows that this module's transition produces from the inputs of ``trace``.

        They may be one more than ``trace`` has, if the run does not end where it should.
        """

    @abstractmethod
    def finish(self, state: S, done: int) -> Rows:
        """The last rows of hints and the outputs when the run goes on from ``state`` to its end.

        ``done`` is how many steps of the run are behind it. Every output is among the names; a name of a hint stands
        for as many of its last rows.
        """
