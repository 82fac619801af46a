"""What one CLRS schema provides: an algorithm's state, its transition, and how to compare both with dm-clrs.

To add a schema, write one module with a state class and a subclass of :class:`AlgorithmSchema`, and list it in
``vcrt.environments.clrs.environment.ALGORITHMS``. Sampling and the cross-check are shared, in
``vcrt.environments.clrs.episodes``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from vcrt.environments.clrs.trace import Trace
from vcrt.environments.contract import Operation, Schema, Transition
from vcrt.hashing import Json

#: Named rows of a trace: hint or output name to an array or to nested sequences of numbers.
Row: TypeAlias = Mapping[str, npt.ArrayLike]


class AlgorithmState(Protocol):
    """An immutable state of an algorithm on one graph."""

    def run(self, payload: Json) -> Transition[Any]:
        """One operation on this state; raises :class:`vcrt.errors.MalformedInputError` for a bad payload."""
        ...

    def canonical(self) -> bytes:
        """Equal bytes exactly when two states have the same graph and the same future."""
        ...


S = TypeVar("S", bound=AlgorithmState)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """An initial state and the operations that were lifted from a trace, in reference order."""

    initial: Json
    operations: tuple[Operation, ...]


class AlgorithmSchema(ABC, Generic[S]):
    """One family of episodes that are lifted from the traces of one dm-clrs algorithm."""

    schema: ClassVar[Schema]
    #: The size and the edge probability of the graphs that dm-clrs's sampler is asked for.
    length: ClassVar[int]
    edge_probability: ClassVar[float]

    @abstractmethod
    def lift(self, trace: Trace, num_operations: int, rng: np.random.Generator) -> Lifted | None:
        """An episode out of ``trace`` whose structure promises one dependent pair, or None if it has none."""

    @abstractmethod
    def read_state(self, initial: Json) -> S:
        """The state that an episode's ``initial`` describes; raises ``MalformedInputError``."""

    @abstractmethod
    def hint_rows(self, trace: Trace) -> Iterator[Row]:
        """The hint rows that this module's transition produces from the inputs of ``trace`` alone."""

    @abstractmethod
    def finish(self, state: S) -> Row:
        """The algorithm's outputs when it runs on from ``state`` to its end."""

    @abstractmethod
    def located(self, trace: Trace, state: S, operations: Sequence[Operation]) -> list[bool]:
        """Whether inputs, initial state and each operation stand in ``trace``: one answer for each of them."""
