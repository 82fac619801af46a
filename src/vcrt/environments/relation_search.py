"""What relations given steps have, as a sampler asks it of a candidate.

Promised: :func:`lattice_relations` walks every reachable context, merged by canonical state, and finds relations only
if each pair has one of them in every context and the legal orders are exactly their linear extensions. Where that is
too much, :func:`walked_relations` looks at every pair in the contexts of a few walks alone. Certification asks again,
by replay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias, TypeVar

from vcrt.environments.contract import RelationKind
from vcrt.environments.long_posets import MAX_ANTI_DIAMONDS, Below, Pair, draw_extension
from vcrt.limits import MAX_WALKED
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder, num_linear_extensions

State = TypeVar("State")
#: ``take(state, step)``: the state after a step, None if it is refused or changes nothing.
Take: TypeAlias = Callable[[State, int], State | None]
#: ``canonical(state)``: equal exactly for equivalent states.
Canonical: TypeAlias = Callable[[State], Hashable]
#: A pair in a context, and what its two orders lead to there; None for a refusal.
_Compared: TypeAlias = tuple[Pair, Hashable, Hashable]
#: Of each context (the set of steps that have run, and the state), what each other step leads to; None for a refusal.
_Lattice: TypeAlias = Mapping[tuple[int, Hashable], Mapping[int, Hashable]]

#: Random walks, and linear extensions besides.
_WALKS = 8


@dataclass(frozen=True)
class Relations:
    """The kind of each pair of ``num_steps`` steps that some context shows, None where it commutes.

    Steps stand in the reference order, so that a pair of numbers (before, after) ascends.
    """

    num_steps: int
    kinds: Mapping[Pair, RelationKind | None]

    @cached_property
    def anti_diamonds(self) -> tuple[Pair, ...]:
        """The pairs that must keep their order, those apart that only follow from others."""
        return tuple(sorted(pair for pair, kind in self.kinds.items() if kind is not None))

    @cached_property
    def order(self) -> PartialOrder:
        """The order that they make."""
        return PartialOrder.of(self.num_steps, self.anti_diamonds)

    @property
    def few(self) -> bool:
        """Whether there are as many anti-diamonds as a long episode may have, and one at least."""
        return 1 <= len(self.anti_diamonds) <= MAX_ANTI_DIAMONDS

    @property
    def explain_all(self) -> bool:
        """Whether every pair that no context shows is ordered by the others."""
        shown = {*self.kinds, *self.order.pairs}
        return shown.issuperset(combinations(range(self.num_steps), 2))


def find_relations(
    num_steps: int, start: State, take: Take[State], canonical: Canonical[State], below: Below
) -> Relations | None:
    """By :func:`lattice_relations` where that is quick, else by :func:`walked_relations`."""
    if num_steps <= MAX_WALKED:
        return lattice_relations(num_steps, start, take, canonical)
    return walked_relations(num_steps, start, take, canonical, below)


def lattice_relations(
    num_steps: int, start: State, take: Take[State], canonical: Canonical[State]
) -> Relations | None:
    """The relations of steps 0 to ``num_steps - 1`` from a state, if they explain all that can happen.

    None if 0, 1, 2, ... is refused, if two contexts disagree about a pair, if no context shows a pair that is not
    implied, or if an order is legal (accepted, and ends where 0, 1, 2, ... ends) but no linear extension, or reversely.
    """
    lattice, ways = _walk_all(num_steps, start, take, canonical)
    agreement = _Agreement()
    found = agreement.relations(num_steps) if agreement.holds(_compared(lattice)) else None
    terminal: Hashable = canonical(start)
    for step in range(num_steps):
        terminal = None if terminal is None else lattice[(1 << step) - 1, terminal][step]
    if found is None or terminal is None:
        return None
    # Every extension is legal, and there are as many legal orders as extensions: so they are the same orders.
    extensions = num_linear_extensions(found.order)
    ended = _ends_of_extensions(lattice, found.order, canonical(start))
    return found if ended == {terminal} and ways[terminal] == extensions else None


def _walk_all(
    num_steps: int, start: State, take: Take[State], canonical: Canonical[State]
) -> tuple[_Lattice, Mapping[Hashable, int]]:
    """All contexts, and how many orders of all steps lead to each state."""
    lattice: dict[tuple[int, Hashable], dict[int, Hashable]] = {}
    level: dict[tuple[int, Hashable], tuple[State, int]] = {(0, canonical(start)): (start, 1)}
    for _ in range(num_steps):
        following: dict[tuple[int, Hashable], tuple[State, int]] = {}
        for (done, key), (state, ways) in level.items():
            edges = lattice.setdefault((done, key), {})
            for step in range(num_steps):
                if done >> step & 1:
                    continue
                after = take(state, step)
                edges[step] = None if after is None else canonical(after)
                if after is not None:
                    reached = (done | 1 << step, edges[step])
                    same, before = following.get(reached, (after, 0))
                    following[reached] = same, before + ways
        level = following
    return lattice, {key: ways for (_, key), (_, ways) in level.items()}


def _compared(lattice: _Lattice) -> Iterator[_Compared]:
    for (done, _), edges in lattice.items():
        for one, other in combinations(edges, 2):
            ends = [
                None if edges[a] is None else lattice[done | 1 << a, edges[a]][b]
                for a, b in ((one, other), (other, one))
            ]
            yield (one, other), ends[0], ends[1]


def _ends_of_extensions(lattice: _Lattice, order: PartialOrder, start: Hashable) -> set[Hashable]:
    """The states that the linear extensions lead to; None among them if one is refused."""
    level = {(0, start)}
    for _ in range(order.num_operations):
        level = {
            (done | 1 << step, lattice[done, key][step])
            for done, key in level
            for step in order.moves(done)
        }
        if any(key is None for _, key in level):
            return {None}
    return {key for _, key in level}


def walked_relations(
    num_steps: int, start: State, take: Take[State], canonical: Canonical[State], below: Below
) -> Relations | None:
    """As :func:`lattice_relations`, from the contexts of the reference order and of a few random walks alone.

    A walk takes any step that is accepted. A pair that they do not show is looked at where the reference order comes to
    its second step without the first. Linear extensions are drawn besides, and must be legal.
    """
    agreement = _Agreement()
    walks: list[tuple[Order, Hashable]] = []
    for number in range(1 + _WALKS):
        state = start
        order: Order = ()
        while True:
            after = {step: take(state, step) for step in range(num_steps) if step not in order}
            accepted = {step: reached for step, reached in after.items() if reached is not None}
            if not agreement.holds(_pairs_after(after, take, canonical)):
                return None
            if not accepted:
                break
            step = min(accepted) if not number else sorted(accepted)[below(len(accepted))]
            state, order = accepted[step], (*order, step)
        walks.append((order, canonical(state)))
        if not number and order != tuple(range(num_steps)):
            return None
    for pair in combinations(range(num_steps), 2):
        if pair not in agreement.kinds:
            after = {step: take(_without(pair, start, take), step) for step in pair}
            if not agreement.holds(_pairs_after(after, take, canonical)):
                return None
    found = agreement.relations(num_steps)
    (_, terminal), *others = walks
    if found is None:
        return None
    drawn = [draw_extension(found.order, below) for _ in range(_WALKS)]
    if any(_end(start, order, take, canonical) != terminal for order in drawn):
        return None
    for order, end in others:
        legal = len(order) == num_steps and end == terminal
        if legal != (len(order) == num_steps and found.order.allows(order)):
            return None
    return found


def _without(pair: Pair, state: State, take: Take[State]) -> State:
    """The state after all that the reference order has before the second step of a pair, but for its first one."""
    for step in range(pair[1]):
        after = None if step == pair[0] else take(state, step)
        state = state if after is None else after
    return state


def _pairs_after(
    after: Mapping[int, State | None], take: Take[State], canonical: Canonical[State]
) -> Iterator[_Compared]:
    for one, other in combinations(after, 2):
        ends = []
        for first, second in ((one, other), (other, one)):
            state = after[first]
            reached = None if state is None else take(state, second)
            ends.append(None if reached is None else canonical(reached))
        yield (one, other), ends[0], ends[1]


def _end(
    state: State, order: Order, take: Take[State], canonical: Canonical[State]
) -> Hashable | None:
    for step in order:
        after = take(state, step)
        if after is None:
            return None
        state = after
    return canonical(state)


class _Agreement:
    """The relations that the contexts so far agree on; no pair may be found against the order of its numbers."""

    def __init__(self) -> None:
        self.kinds: dict[Pair, RelationKind | None] = {}

    def holds(self, compared: Iterable[_Compared]) -> bool:
        """Whether these contexts agree with each other and with those before."""
        for pair, forward, reverse in compared:
            if forward is None and reverse is None:
                continue
            if forward is None:
                return False
            kind: RelationKind | None = "precedes" if reverse is None else "conflicts"
            kind = None if forward == reverse else kind
            if self.kinds.setdefault(pair, kind) != kind:
                return False
        return True

    def relations(self, num_steps: int) -> Relations | None:
        """What was found, if it explains all pairs."""
        found = Relations(num_steps, self.kinds)
        return found if found.explain_all else None
