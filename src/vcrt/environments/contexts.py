"""Walk the contexts of some steps: take every remaining step in each context, and merge contexts that agree.

A context is the set of steps that have run and the key of the state that they led to; :class:`ContextWalk` goes
through them level by level. Orders, lattices and relations are read off its transitions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Generic, TypeAlias, TypeVar

from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder

State = TypeVar("State")
#: ``take(state, step)``: the state after a step, None if it is refused or changes nothing.
Take: TypeAlias = Callable[[State, int], State | None]
#: ``key(state)``: equal exactly for equivalent states.
Key: TypeAlias = Callable[[State], Hashable]
#: ``merge(states, state)``: from which states a context goes on that was entered by one more.
Merge: TypeAlias = Callable[[tuple[State, ...], State], tuple[State, ...]]
#: The set of steps that have run, as a bit mask, and the key of the state.
Context: TypeAlias = tuple[int, Hashable]
#: A pair of steps in a context, and the keys that its two orders lead to there; None for a refusal.
Compared: TypeAlias = tuple[tuple[int, int], Hashable, Hashable]


def first_only(states: tuple[State, ...], state: State) -> tuple[State, ...]:
    """Continue only from the first state: equal keys stand for equal futures."""
    return states or (state,)


@dataclass(kw_only=True, slots=True)
class ContextWalk(Generic[State]):
    """The contexts of ``num_steps`` steps from ``start`` on, and where each remaining step leads from there.

    ``transitions`` has each context in the order in which it was entered, with the key that each step leads to, None
    for a refusal. If several states have one context, the first gives its transitions.
    """

    num_steps: int
    start: State
    take: Take[State]
    key: Key[State]
    merge: Merge[State] = first_only
    transitions: dict[Context, dict[int, Hashable]] = field(default_factory=dict)

    def parts(self, size: int = sys.maxsize) -> Iterator[list[tuple[State, int]]]:
        """Give the steps of each level in parts; a part's transitions are taken when the next part is requested."""
        root: Context = (0, self.key(self.start))
        self.transitions[root] = {}
        level: dict[Context, tuple[State, ...]] = {root: (self.start,)}
        for _ in range(self.num_steps):
            wanted = [
                (context, state, step)
                for context, states in level.items()
                for state in states
                for step in range(self.num_steps)
                if not context[0] >> step & 1
            ]
            level = {}
            for begin in range(0, len(wanted), size):
                part = wanted[begin : begin + size]
                yield [(state, step) for _, state, step in part]
                for context, state, step in part:
                    after = self.take(state, step)
                    if after is None:
                        self.transitions[context].setdefault(step, None)
                        continue
                    reached = context[0] | 1 << step, self.key(after)
                    self.transitions[context].setdefault(step, reached[1])
                    self.transitions.setdefault(reached, {})
                    level[reached] = self.merge(level.get(reached, ()), after)

    @property
    def root(self) -> Context:
        """The context in which nothing has run."""
        return next(iter(self.transitions))

    def after(self, context: Context, step: int) -> Context | None:
        """Return the context that a step leads to, None if it is refused there."""
        key = self.transitions[context][step]
        return None if key is None else (context[0] | 1 << step, key)

    def follow(self, order: Order) -> Context | None:
        """Return the context that some steps lead to from the first, None if one is refused."""
        context: Context | None = self.root
        for step in order:
            context = None if context is None else self.after(context, step)
        return context

    def compared(self, size: int) -> Iterator[Compared]:
        """Give every pair of steps in every context of ``size`` steps; their transitions and the next must be known."""
        contexts = [each for each in self.transitions if each[0].bit_count() == size]
        for context in contexts:
            for one, other in combinations(self.transitions[context], 2):
                ends = [
                    None if between is None else self.transitions[between][last]
                    for first, last in ((one, other), (other, one))
                    for between in [self.after(context, first)]
                ]
                yield (one, other), ends[0], ends[1]

    def num_orders(self) -> dict[Context, int]:
        """Count, for each context, the orders of its steps that lead to it."""
        ways = dict.fromkeys(self.transitions, 0)
        ways[self.root] = 1
        for context, steps in self.transitions.items():
            for step in steps:
                reached = self.after(context, step)
                if reached is not None:
                    ways[reached] += ways[context]
        return ways

    def ends_of(self, order: PartialOrder) -> dict[Context, int] | None:
        """Count the linear extensions of an order that end in each context; None if one of them is refused."""
        level = {self.root: 1}
        for _ in range(self.num_steps):
            following: dict[Context, int] = {}
            for context, ways in level.items():
                for step in order.moves(context[0]):
                    reached = self.after(context, step)
                    if reached is None:
                        return None
                    following[reached] = following.get(reached, 0) + ways
            level = following
        return level
