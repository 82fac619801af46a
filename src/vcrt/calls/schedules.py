"""Make a schedule from replays: which steps may run at once, which must wait, and why each waits.

As far as contexts were replayed, all linear extensions of the schedule's order end like the reference order, and each
step has the output that it has there: in every context that the order allows, any two steps that may both come next
were seen to commute. Every episode whose reference order is accepted has such an order, even if the relation of a
pair depends on the context. The steps of one wave are equivalent in any sequential order; they may run at once if the
verifier executes each step atomically.

If not every context was replayed, some of the schedule's orders are replayed as a check. If one of them ends
differently from the trace, or gives other outputs, it is turned back into the trace by adjacent swaps. Bisection finds
the swap where the outcome changes: two steps that do not commute in a context that was not replayed before. Its replays
become evidence, and the schedule is made anew. This ends when all orders of a round have the outcome of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from math import inf
from time import monotonic
from typing import Literal, TypeAlias

from vcrt.calls.data_flow import DataFlow
from vcrt.certificates.certificates import Certificate, UncertifiedError
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import sound_lattice
from vcrt.certificates.replay_tree import Answers, EpisodeReplays, ReplayTree
from vcrt.environments.contract import Environment, Replay, ReplayRequest
from vcrt.environments.posets import below_of, draw_extension
from vcrt.orders import Order, transitive_reduction
from vcrt.partial_orders import PartialOrder, members
from vcrt.randomness import generator
from vcrt.replay.replay import replay_all

EdgeKind: TypeAlias = Literal[
    "precedes", "conflicts", "observes", "data flow", "not compared", "not settled"
]
_Pair: TypeAlias = tuple[int, int]
#: Orders that are replayed in a round. If all of them are drawn at random and fare as the trace does, at most 4.6% of
#: the orders that are drawn so fare otherwise, with 95% confidence: 1 - 0.05^(1/64).
CHECKED_ORDERS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """Step ``first`` must end before ``second`` begins.

    ``kind`` says why: the verdict of their certificate; ``data flow`` if an argument was first seen in an
    earlier output; ``not compared`` if no context shows them in both orders; or ``not settled`` if a time limit came
    first.
    """

    first: int
    second: int
    kind: EdgeKind
    certificate: Certificate | None = None
    flow: DataFlow | None = None


@dataclass(frozen=True)
class Schedule:
    """A partial order of steps, and the reasons for it.

    The order is the closure of ``edges``, which are sorted. ``complete`` says whether every context that the order
    allows was replayed for every pair; if not, some contexts were, and ``checked_orders`` of its orders as wholes
    (:func:`checked_schedule`). ``probes`` has for each pair that was probed how many calls, of at most ``max_probes``,
    were made after both of its orders and answered alike (:mod:`vcrt.certificates.probes`). If a time limit stopped the
    replay, ``stopped_after`` are its seconds, and every pair that was not settled keeps the reference order.
    """

    num_steps: int
    edges: tuple[Edge, ...]
    complete: bool
    checked_orders: int = 0
    probes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    max_probes: int | None = None
    stopped_after: float | None = None

    @cached_property
    def order(self) -> PartialOrder:
        """The closure of the edges."""
        return PartialOrder.of(self.num_steps, [(e.first, e.second) for e in self.edges])

    @cached_property
    def direct(self) -> tuple[Edge, ...]:
        """The edges that do not follow from others."""
        kept = transitive_reduction(self.order.pairs)
        return tuple(edge for edge in self.edges if (edge.first, edge.second) in kept)

    @cached_property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """The steps by the earliest round in which they may run, if all steps of a round run at once."""
        return waves_of(self.order)

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """The first of the longest chains of steps that wait for each other."""
        best: list[tuple[int, ...]] = []
        for step in range(self.num_steps):
            before = [best[i] for i in range(step) if self.order.predecessors[step] >> i & 1]
            best.append((*max(before, key=len, default=()), step))
        return max(best, key=len, default=())

    @property
    def unsettled(self) -> tuple[Edge, ...]:
        """The direct edges that keep the reference order because a time limit came before they were settled."""
        return tuple(edge for edge in self.direct if edge.kind == "not settled")

    @property
    def speed_up(self) -> float:
        """The number of steps divided by the number of rounds: the speed-up if all steps take equally long."""
        return self.num_steps / max(len(self.waves), 1)


def waves_of(order: PartialOrder) -> tuple[tuple[int, ...], ...]:
    """Group the operations by the earliest round in which they may run, if all of a round run at once.

    >>> waves_of(PartialOrder.of(4, [(0, 2), (2, 3)]))
    ((0, 1), (2,), (3,))
    """
    waves: list[tuple[int, ...]] = []
    done = 0
    while done != order.everything:
        waves.append(tuple(order.moves(done)))
        done |= sum(1 << operation for operation in waves[-1])
    return tuple(waves)


def schedule_of(
    tree: ReplayTree,
    flows: Sequence[DataFlow] = (),
    *,
    reads: int = 0,
    settled: PartialOrder | None = None,
    stopped_after: float | None = None,
) -> Schedule:
    """Make the schedule of what was replayed, which a time limit may have ``stopped_after`` so many seconds.

    Where the replays sought an order to be ``settled``, the schedule's order allows nothing that was not replayed, but
    for contexts that differ in nothing but ``reads`` (:class:`vcrt.certificates.replay_tree.EpisodeReplays`).
    Raises :class:`UncertifiedError` as :func:`sound_lattice` does, and if the reference order is refused
    (``outside_schema``).
    """
    lattice = sound_lattice(tree, allow_idle=True, reads=reads)
    if lattice.terminal is None:
        raise UncertifiedError("outside_schema", "the reference order itself is refused")
    found = _directed(lattice)
    if settled is not None and not _is_supported(
        lattice, PartialOrder.of(settled.num_operations, found)
    ):
        # Another order than the one that was settled may need contexts that were not replayed.
        kept = {pair: found.get(pair) for pair in transitive_reduction(settled.pairs)}
        found = _with_unsettled(lattice, kept)
    order = PartialOrder.of(tree.num_operations, found)
    complete = lattice.complete or _is_supported(lattice, order)
    if complete:
        order = _without_needless(lattice, order)
    covering = transitive_reduction(order.pairs)
    edges = [
        _edge(lattice, order, pair, found.get(pair), is_direct=pair in covering)
        for pair in order.pairs
        if pair in covering or pair in found
    ]
    if stopped_after is not None:
        edges = [
            replace(edge, kind="not settled") if edge.certificate is None else edge
            for edge in edges
        ]
    known = {(edge.first, edge.second) for edge in edges}
    for flow in flows:
        if (flow.first, flow.second) not in known:
            known.add((flow.first, flow.second))
            edges.append(Edge(first=flow.first, second=flow.second, kind="data flow", flow=flow))
    return Schedule(
        num_steps=tree.num_operations,
        edges=tuple(sorted(edges, key=lambda edge: (edge.first, edge.second))),
        complete=complete,
        stopped_after=stopped_after,
    )


def _with_unsettled(lattice: Lattice, found: Mapping[_Pair, int | None]) -> dict[_Pair, int | None]:
    """Add the pairs that keep the reference order in what was not replayed, until all that is allowed was.

    The reference order itself was replayed, so this ends with it at the latest.
    """
    known = dict(found)
    while True:
        order = PartialOrder.of(lattice.num_operations, known)
        missing: dict[int, set[_Pair]] = {}
        for number in lattice.legal_contexts(order):
            context = lattice.contexts[number]
            moves = lattice.moves(number, order)
            pairs = missing.setdefault(context.done.bit_count(), set())
            pairs.update(
                pair
                for pair in order.unordered(moves)
                if (shown := lattice.by_pair[pair].get(number)) is None or shown[0] != "diamond"
            )
            if not all(isinstance(lattice.transitions.get((number, step)), int) for step in moves):
                # No such context: what it has done waits for all that stands before it.
                done = [step for step in context.sequence if context.done >> step & 1]
                late = {(b, a) for a, b in combinations((*done, *moves), 2) if b < a}
                every = {(a, b) for b in (*done, *moves) for a in range(b)}
                pairs |= late.difference(order.pairs) or every.difference(order.pairs)
        if not any(missing.values()):
            return known
        shortest = min(length for length, pairs in missing.items() if pairs)
        known |= dict.fromkeys(sorted(missing[shortest]))


def _edge(
    lattice: Lattice, order: PartialOrder, pair: _Pair, context: int | None, *, is_direct: bool
) -> Edge:
    """Return the edge of a pair, if possible with a certificate from a context that the rest of the order allows."""
    if is_direct:
        others = PartialOrder.of(order.num_operations, set(order.pairs) - {pair})
        legal = lattice.legal_contexts(others)
        shown = (
            number
            for number, (verdict, first) in lattice.by_pair[pair].items()
            if number in legal
            and first == pair[0]
            and verdict not in ("diamond", "vacuous")
            and {*pair} <= {*lattice.moves(number, others)}
        )
        context = next(shown, context)
    return Edge(
        first=pair[0],
        second=pair[1],
        kind="not compared" if context is None else _kind(lattice, context, pair),
        certificate=None if context is None else lattice.certificate(context, pair),
    )


def _without_needless(lattice: Lattice, order: PartialOrder) -> PartialOrder:
    """Remove each pair from the order without which everything that the order allows was still seen to commute.

    Such pairs exist because a pair may come from a context that a pair found later rules out.
    """
    tried: set[_Pair] = set()
    while candidates := sorted(transitive_reduction(order.pairs) - tried):
        tried.add(candidates[0])
        fewer = PartialOrder.of(order.num_operations, set(order.pairs) - {candidates[0]})
        if _is_supported(lattice, fewer):
            # What could not be done without may be now.
            order, tried = fewer, set()
    return order


def _is_supported(lattice: Lattice, order: PartialOrder) -> bool:
    """Tell whether, in every context that the order allows, all steps that may come next are accepted and commute."""
    for number in lattice.legal_contexts(order):
        moves = lattice.moves(number, order)
        if not all(isinstance(lattice.transitions.get((number, step)), int) for step in moves):
            return False
        for pair in order.unordered(moves):
            shown = lattice.by_pair[pair].get(number)
            if shown is None or shown[0] != "diamond":
                return False
    return True


def _kind(lattice: Lattice, context: int, pair: _Pair) -> EdgeKind:
    shown = lattice.shown(context, pair)
    verdict = "vacuous" if shown is None else shown[0]
    return verdict if verdict in ("precedes", "conflicts", "observes") else "not compared"


def _directed(lattice: Lattice) -> Mapping[_Pair, int | None]:
    """Return the pairs that must keep the reference order, each with a context that shows it, or None.

    Contexts are processed by length, because the result of a pair in a context affects only longer contexts.
    """
    found: dict[_Pair, int | None] = {}
    apart = _apart(lattice)
    for size in sorted({lattice.contexts[number].done.bit_count() for number in apart}):
        order = PartialOrder.of(lattice.num_operations, found)
        legal = lattice.legal_contexts(order)
        for number, pairs in apart.items():
            context = lattice.contexts[number]
            if context.done.bit_count() == size and number in legal:
                moves = lattice.moves(number, order)
                for pair in pairs:
                    if pair[0] in moves and pair[1] in moves:
                        found.setdefault(pair, number)
    compared = frozenset(
        pair
        for pair, contexts in lattice.by_pair.items()
        if any(verdict != "vacuous" for verdict, _ in contexts.values())
    )
    # What the order allows next, and the verifier refuses or was never asked, waits for all that stands before it.
    while missing := _unsupported(
        lattice, PartialOrder.of(lattice.num_operations, found), compared
    ):
        for pair in missing:
            shown = (number for number, pairs in apart.items() if pair in pairs)
            found.setdefault(pair, next(shown, None))
    return found


def _apart(lattice: Lattice) -> dict[int, list[_Pair]]:
    """Return, by context, the pairs whose order matters there."""
    found: dict[int, list[_Pair]] = {}
    for pair, contexts in lattice.by_pair.items():
        for number, (verdict, _) in contexts.items():
            if verdict not in ("diamond", "vacuous"):
                found.setdefault(number, []).append(pair)
    return dict(sorted(found.items()))


def _unsupported(lattice: Lattice, order: PartialOrder, compared: frozenset[_Pair]) -> list[_Pair]:
    """Return some pairs that must still be ordered; none if the replays support the order.

    ``compared`` are the pairs that some context shows.
    """
    known = compared.union(order.pairs)
    for pair in combinations(range(lattice.num_operations), 2):
        if pair not in known:
            return [pair]
    for number in sorted(lattice.legal_contexts(order)):
        done = lattice.contexts[number].done
        for step in lattice.moves(number, order):
            if isinstance(lattice.transitions.get((number, step)), str):
                before = [i for i in range(step) if not (done | lattice.reads) >> i & 1]
                behind = [k for k in members(done) if k > step]
                # If all that stands before it has run, something that stands behind it has run too early.
                return [(i, step) for i in before] or [(step, k) for k in behind]
    return []


def checked_schedule(
    environment: Environment,
    replays: EpisodeReplays,
    flows: Sequence[DataFlow] = (),
    *,
    once: bool = False,
    within: float | None = None,
) -> Schedule:
    """Make the schedule of what was replayed; if it is not complete, also replay ``checked_orders`` of its orders.

    If everything was replayed only ``once``, orders that it allows and both orders of each edge's certificate are
    always replayed from fresh initial states: first the order that has the last steps as early as it may, while this
    process holds nothing that another order left behind; then, ``within`` so many seconds but at least one,
    :func:`earliest_orders` and others. Raises every error of :func:`schedule_of` and of the environment.
    """
    until = inf if within is None else monotonic() + within
    make = partial(
        schedule_of,
        flows=flows,
        reads=replays.reads,
        settled=replays.settled,
        stopped_after=replays.stopped_after,
    )
    schedule = make(replays.tree)
    if schedule.complete and not once:
        return schedule
    trial = _Trial(environment, replays, Answers(dict(replays.tree.answers)))
    draw = generator(0, "orders of a schedule", replays.episode.content_hash())
    while True:
        drawn = (draw_extension(schedule.order, below_of(draw)) for _ in range(CHECKED_ORDERS))
        orders, failing = list(dict.fromkeys(drawn)), list[Order]()
        if once:
            latest = draw_extension(schedule.order, lambda number: number - 1)
            failing += [latest] * (not trial.is_legal(latest))
            trial.replay_edges(schedule, until)
            every = dict.fromkeys((*earliest_orders(schedule.order), *orders))
            number = CHECKED_ORDERS // 2 if schedule.complete else CHECKED_ORDERS
            orders = list(every)[: max(number, schedule.num_steps + 1)]
        num_checked = 0
        while num_checked < len(orders) and (not num_checked or monotonic() < until):
            failing += [orders[num_checked]] * (not trial.is_legal(orders[num_checked]))
            num_checked += 1
        if once:
            sound_lattice(
                trial.answers.tree(schedule.num_steps), allow_idle=True, reads=replays.reads
            )
        if not failing:
            whole = schedule.complete and num_checked == len(orders)
            return schedule if whole else replace(schedule, checked_orders=num_checked)
        for order in failing:
            trial.find_swap(order)
        schedule = make(trial.answers.tree(schedule.num_steps))


def earliest_orders(order: PartialOrder) -> list[Order]:
    """Return the reference order and, for each step, the order that has only what must stand before it there.

    >>> earliest_orders(PartialOrder.of(3, [(0, 1)]))
    [(0, 1, 2), (2, 0, 1)]
    """
    steps = range(order.num_operations)
    first = [
        sorted(steps, key=lambda each: (not before >> each & 1, each != step, each))
        for step, before in enumerate(order.predecessors)
    ]
    return list(dict.fromkeys(map(tuple, ([*steps], *first))))


@dataclass(slots=True)
class _Trial:
    """A growing collection of an episode's replays."""

    environment: Environment
    replays: EpisodeReplays
    answers: Answers
    #: What was replayed, each order once.
    known: dict[Order, Replay] = field(default_factory=dict)

    def replay(self, order: Order) -> Replay:
        if order not in self.known:
            requests = [ReplayRequest(self.replays.episode, order)]
            (self.known[order],) = replay_all(self.environment, requests)
            self.answers.note_replay(self.known[order])
        return self.known[order]

    def replay_edges(self, schedule: Schedule, until: float) -> None:
        """Replay both orders of each edge's certificate; begin none later than ``until``.

        An order that another one begins with is replayed as its beginning.
        """
        orders = {
            (*edge.certificate.context, *path.operations): None
            for edge in schedule.edges
            if edge.certificate is not None
            for path in (edge.certificate.forward, edge.certificate.reverse)
        }
        for order in orders:
            if monotonic() < until:
                going_on = (other for other in orders if other[: len(order)] == order)
                self.replay(max(going_on, key=len))

    def is_legal(self, order: Order) -> bool:
        """Replay an order, and tell whether it is legal."""
        reference = self.replays.tree.replay(tuple(range(self.replays.tree.num_operations)))
        return self.replay(order).is_legal(reference.outcome)

    def find_swap(self, order: Order) -> None:
        """Find the swap that makes an order illegal, on the way from the reference order, and replay both sides."""
        path = path_of_swaps(order)
        illegal, legal = 0, len(path) - 1
        while legal - illegal > 1:
            middle = (illegal + legal) // 2
            if self.is_legal(path[middle]):
                legal = middle
            else:
                illegal = middle
        for place in (illegal, legal):
            self.replay(path[place])


def path_of_swaps(order: Order) -> list[Order]:
    """Return the orders from this one to the ascending one, each an adjacent swap away; no pair swaps twice.

    >>> path_of_swaps((2, 0, 1))
    [(2, 0, 1), (0, 2, 1), (0, 1, 2)]
    """
    path, now = [order], list(order)
    place = 0
    while place < len(now) - 1:
        if now[place] > now[place + 1]:
            now[place : place + 2] = now[place + 1], now[place]
            path.append(tuple(now))
            place = max(place - 1, 0)
        else:
            place += 1
    return path
