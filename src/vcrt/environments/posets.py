"""Posets of four steps: the shapes that samplers of several anti-diamonds choose from, and which one given steps have.

Promised: :func:`poset_of` asks the transition for every order and finds a poset only if each pair has one relation in
every context and the legal orders are the poset's linear extensions. It is how a sampler looks for episodes; what an
episode's relations are is for certification to say, by replay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TypeAlias, TypeVar

from vcrt.environments.contract import RelationKind
from vcrt.errors import VcrtError
from vcrt.orders import Order, all_orders, linear_extensions, transitive_closure

State = TypeVar("State")
Pairs: TypeAlias = frozenset[tuple[int, int]]

#: How many steps a shape has.
NUM_STEPS = 4
#: Every poset of four steps with two relations and two linear extensions at least, up to renaming: by name, the pairs
#: that imply the others. The numbers of linear extensions are 8 8 6 6 6 5 4 4 3 3 2 2 2.
SHAPES: Mapping[str, Pairs] = {
    "fork": frozenset({(0, 1), (0, 2)}),
    "join": frozenset({(0, 2), (1, 2)}),
    "two pairs": frozenset({(0, 1), (2, 3)}),
    "source": frozenset({(0, 1), (0, 2), (0, 3)}),
    "sink": frozenset({(0, 3), (1, 3), (2, 3)}),
    "zigzag": frozenset({(0, 2), (1, 2), (1, 3)}),
    "chain": frozenset({(0, 1), (1, 2)}),
    "crossing": frozenset({(0, 2), (0, 3), (1, 2), (1, 3)}),
    "branched chain": frozenset({(0, 1), (1, 2), (0, 3)}),
    "joined chain": frozenset({(0, 1), (1, 3), (2, 3)}),
    "late fork": frozenset({(0, 1), (1, 2), (1, 3)}),
    "early join": frozenset({(0, 2), (1, 2), (2, 3)}),
    "diamond": frozenset({(0, 1), (0, 2), (1, 3), (2, 3)}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Poset:
    """The order that four steps must keep, transitively closed, and the kinds of relations that make it."""

    pairs: Pairs
    kinds: frozenset[RelationKind]

    @property
    def shape(self) -> str | None:
        """Its name in :data:`SHAPES`; None for fewer than two relations or linear extensions."""
        return _NAMES.get(_canonical(self.pairs))


def poset_of(
    start: State,
    take: Callable[[State, int], State | None],
    canonical: Callable[[State], Hashable],
) -> Poset | None:
    """The poset of steps 0 to 3 from a state, if 0, 1, 2, 3 is a legal order and the relations explain all of them.

    ``take`` gives the state after a step, None if it is refused or changes nothing; ``canonical`` is equal exactly for
    equivalent states.
    """
    reached: dict[Order, State] = {(): start}
    for length in range(NUM_STEPS):
        for order in [order for order in reached if len(order) == length]:
            for step in range(NUM_STEPS):
                if step not in order:
                    after = take(reached[order], step)
                    if after is not None:
                        reached[*order, step] = after
    ends = {order: canonical(state) for order, state in reached.items() if len(order) >= 2}
    terminal = ends.get((0, 1, 2, 3))
    found = _relations(reached, ends)
    if terminal is None or found is None:
        return None
    directed = [pair for pair, kind in found.items() if kind is not None]
    pairs = transitive_closure(directed)
    if not pairs.union(found).issuperset(combinations(range(NUM_STEPS), 2)):
        return None
    legal = [order for order in all_orders(NUM_STEPS) if ends.get(order) == terminal]
    if legal != linear_extensions(NUM_STEPS, pairs):
        return None
    return Poset(pairs=pairs, kinds=frozenset(kind for kind in found.values() if kind))


def _relations(
    reached: Collection[Order], ends: Mapping[Order, Hashable]
) -> dict[tuple[int, int], RelationKind | None] | None:
    """The kind of each certified pair (None: it commutes); no pair is found against the order of its numbers."""
    found: dict[tuple[int, int], RelationKind | None] = {}
    for context in reached:
        rest = [step for step in range(NUM_STEPS) if step not in context]
        for first, second in combinations(rest, 2):
            forward, reverse = (
                ends.get((*context, first, second)),
                ends.get((*context, second, first)),
            )
            if forward is None and reverse is None:
                continue
            if forward is None:
                return None
            kind: RelationKind | None = "precedes" if reverse is None else "conflicts"
            kind = None if forward == reverse else kind
            if found.setdefault((first, second), kind) != kind:
                return None
    return found


def linear_order(shape: str, choose: Callable[[int], int]) -> Order:
    """One of the linear extensions of a shape; ``choose(n)`` picks a number below n."""
    extensions = linear_extensions(NUM_STEPS, SHAPES[shape])
    return extensions[choose(len(extensions))]


def require_four(num_operations: int, schema: str) -> None:
    """Raise :class:`VcrtError` unless episodes of four steps are asked for: shapes have no other number."""
    if num_operations != NUM_STEPS:
        raise VcrtError(
            "a schema of several anti-diamonds has episodes of four operations only",
            where=schema,
            found=f"{num_operations} operations",
            expected=str(NUM_STEPS),
        )


def _canonical(pairs: Collection[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    return min(
        tuple(sorted((names[a], names[b]) for a, b in pairs))
        for names in permutations(range(NUM_STEPS))
    )


_NAMES = {_canonical(transitive_closure(pairs)): name for name, pairs in SHAPES.items()}
