"""Find the relations of given steps, for a sampler that examines a candidate.

:func:`lattice_relations` walks every reachable context, merged by canonical state. It finds relations only if each pair
has the same one in all contexts, and the legal orders are exactly their linear extensions. Where that takes too long,
:func:`walked_relations` compares pairs in the contexts of a few walks alone. Certification replays anyway.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, NamedTuple

from vcrt.environments.contexts import Compared, ContextWalk, Key, State, Take
from vcrt.environments.contract import Episode, Rejected, RelationKind, StepEnvironment
from vcrt.environments.posets import Below, Pair, Relations, draw_extension
from vcrt.environments.shared_prefixes import as_values
from vcrt.limits import MAX_WALKED
from vcrt.orders import Order

#: The number of random walks, and of drawn linear extensions.
_WALKS = 8


def relations_of(
    environment: StepEnvironment[Any], episode: Episode, below: Below
) -> Relations | None:
    """Return the relations of an episode's steps in their present order, by :func:`find_relations`.

    The ``sample`` of an environment with states calls it to examine a candidate.
    """
    values = as_values(environment)

    def take(state: _Seen, step: int) -> _Seen | None:
        answer = values.step(state.state, episode.operations[step])
        if isinstance(answer, Rejected):
            return None
        form = values.canonical(answer.state)
        if answer.output is None:
            return None if form == state.form else _Seen(answer.state, form, state.outputs)
        return _Seen(answer.state, form, {**state.outputs, step: answer.output})

    start = values.initial_state(episode)
    seen = _Seen(start, values.canonical(start), {})
    return find_relations(episode.num_operations, seen, take, _Seen.key, below)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A state, its canonical form, and the outputs of the steps so far: what tells two orders apart."""

    state: object
    form: bytes
    outputs: Mapping[int, str]

    def key(self) -> _End:
        return _End(self.form, tuple(sorted(self.outputs.items())))


class _End(NamedTuple):
    """The state that steps lead to, and their outputs on the way."""

    form: bytes
    outputs: tuple[tuple[int, str], ...]


def find_relations(
    num_steps: int, start: State, take: Take[State], canonical: Key[State], below: Below
) -> Relations | None:
    """Call :func:`lattice_relations` where that is fast, else :func:`walked_relations`."""
    if num_steps <= MAX_WALKED:
        return lattice_relations(num_steps, start, take, canonical)
    return walked_relations(num_steps, start, take, canonical, below)


def lattice_relations(
    num_steps: int, start: State, take: Take[State], canonical: Key[State]
) -> Relations | None:
    """Return the relations of steps 0 to ``num_steps - 1`` from a state, if they explain every outcome.

    Return None if 0, 1, 2, ... is refused, if two contexts disagree about a pair, if no context shows a pair that is
    not implied, or if the legal orders (accepted, with the end of 0, 1, 2, ...) are not exactly the linear extensions.
    """
    walk = ContextWalk(num_steps=num_steps, start=start, take=take, key=canonical)
    agreement = _Agreement()
    for size, _ in enumerate(chain(walk.parts(), [None]), start=-2):
        # Compare a level as soon as the two after it are known: most candidates end here.
        if size >= 0 and not agreement.holds(walk.compared(size)):
            return None
    found = agreement.relations(num_steps)
    terminal = walk.follow(tuple(range(num_steps)))
    if found is None or terminal is None:
        return None
    # Every extension is legal and the two numbers are equal, so legal orders and extensions are the same.
    return found if walk.ends_of(found.order) == {terminal: walk.num_orders()[terminal]} else None


def walked_relations(
    num_steps: int, start: State, take: Take[State], canonical: Key[State], below: Below
) -> Relations | None:
    """Find relations from the contexts of the reference order and of a few random walks alone.

    A walk takes any step that is accepted. A pair that no walk shows is compared where the reference order comes to its
    second step without the first. Drawn linear extensions must be legal, and complete walks legal only if they are
    extensions.
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
    """Return the state after the steps of the reference order before a pair's second step, without its first."""
    for step in range(pair[1]):
        after = None if step == pair[0] else take(state, step)
        state = state if after is None else after
    return state


def _pairs_after(
    after: Mapping[int, State | None], take: Take[State], canonical: Key[State]
) -> Iterator[Compared]:
    for one, other in combinations(after, 2):
        ends = []
        for first, second in ((one, other), (other, one)):
            state = after[first]
            reached = None if state is None else take(state, second)
            ends.append(None if reached is None else canonical(reached))
        yield (one, other), ends[0], ends[1]


def _end(state: State, order: Order, take: Take[State], canonical: Key[State]) -> Hashable | None:
    for step in order:
        after = take(state, step)
        if after is None:
            return None
        state = after
    return canonical(state)


def _apart(forward: Hashable, reverse: Hashable) -> RelationKind:
    """Return the kind of a pair whose two orders differ: in the end states, or in the outputs alone."""
    if isinstance(forward, _End) and isinstance(reverse, _End) and forward.form == reverse.form:
        return "observes"
    return "conflicts"


class _Agreement:
    """The relations that the contexts so far agree on; none of them contradicts the reference order."""

    def __init__(self) -> None:
        self.kinds: dict[Pair, RelationKind | None] = {}

    def holds(self, compared: Iterable[Compared]) -> bool:
        """Return whether these contexts agree with each other and with those before."""
        for pair, forward, reverse in compared:
            if forward is None and reverse is None:
                continue
            if forward is None:
                return False
            kind: RelationKind | None = "precedes" if reverse is None else _apart(forward, reverse)
            kind = None if forward == reverse else kind
            if self.kinds.setdefault(pair, kind) != kind:
                return False
        return True

    def relations(self, num_steps: int) -> Relations | None:
        """Return the relations found, if they explain all pairs."""
        found = Relations(num_steps, self.kinds)
        return found if found.explain_all else None
