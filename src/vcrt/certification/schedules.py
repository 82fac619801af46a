"""Make a schedule of what was replayed: which steps may run at once, which must wait, and why each waits.

The order is such that all of its linear extensions end as the reference order does, each step with the output that it
has there, as far as contexts were replayed: in every context that it allows, two steps that both may come next were
seen to commute. So it exists for any episode whose reference order is accepted, also for one whose pairs have other
relations in other contexts. Steps of one wave are equivalent in any order, one after the other; that they may run at
once rests on the verifier's doing each as a whole. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal, TypeAlias

from vcrt.certification.certificates import Certificate, UncertifiedError, Verdict
from vcrt.certification.data_flow import DataFlow
from vcrt.certification.lattice import Lattice
from vcrt.certification.replay_tree import ReplayTree
from vcrt.orders import transitive_reduction
from vcrt.partial_orders import PartialOrder

EdgeKind: TypeAlias = Literal["precedes", "conflicts", "observes", "data flow", "not compared"]
_Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """Step ``first`` must end before ``second`` begins.

    ``kind`` says why: what their certificate shows; ``data flow``, an argument that was first seen in an earlier
    output; or ``not compared``, as no context shows them in both orders.
    """

    first: int
    second: int
    kind: EdgeKind
    certificate: Certificate | None = None
    flow: DataFlow | None = None


@dataclass(frozen=True)
class Schedule:
    """A partial order of steps and why it is so.

    ``edges`` are what it is the closure of, sorted. ``complete`` says whether every context that it allows was replayed
    for every pair; otherwise some were, and ``checked_orders`` of its orders besides, as wholes
    (:mod:`vcrt.certification.schedule_checks`). ``probes`` has for each pair that was probed how many calls were made
    after both of its orders, and answered alike (:mod:`vcrt.certification.probes`), of at most ``max_probes``.
    """

    num_steps: int
    edges: tuple[Edge, ...]
    complete: bool
    checked_orders: int = 0
    probes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    max_probes: int | None = None

    @cached_property
    def order(self) -> PartialOrder:
        """The order that the edges make."""
        return PartialOrder.of(self.num_steps, [(e.first, e.second) for e in self.edges])

    @cached_property
    def direct(self) -> tuple[Edge, ...]:
        """The edges that do not follow from others."""
        kept = transitive_reduction(self.order.pairs)
        return tuple(edge for edge in self.edges if (edge.first, edge.second) in kept)

    @cached_property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """The steps by the earliest round in which they may run, if those of a round run at once."""
        return waves_of(self.order)

    @cached_property
    def critical_path(self) -> tuple[int, ...]:
        """A longest chain of steps that wait for each other, the first such."""
        best: list[tuple[int, ...]] = []
        for step in range(self.num_steps):
            before = [best[i] for i in range(step) if self.order.predecessors[step] >> i & 1]
            best.append((*max(before, key=len, default=()), step))
        return max(best, key=len, default=())

    @property
    def speed_up(self) -> float:
        """How many times fewer rounds than steps, if every step takes as long."""
        return self.num_steps / max(len(self.waves), 1)


def waves_of(order: PartialOrder) -> tuple[tuple[int, ...], ...]:
    """The operations by the earliest round in which they may run, if those of a round run at once.

    >>> waves_of(PartialOrder.of(4, [(0, 2), (2, 3)]))
    ((0, 1), (2,), (3,))
    """
    waves: list[tuple[int, ...]] = []
    done = 0
    while done != order.everything:
        waves.append(tuple(order.moves(done)))
        done |= sum(1 << operation for operation in waves[-1])
    return tuple(waves)


def schedule_of(tree: ReplayTree, flows: Sequence[DataFlow] = ()) -> Schedule:
    """The schedule of what was replayed.

    Raises :class:`UncertifiedError` if the reference order is refused (``outside_schema``), if two replays disagree
    (``nondeterministic``), and if equal states have other futures (``unequal_futures``).
    """
    if tree.contradiction is not None:
        raise UncertifiedError("nondeterministic", tree.contradiction)
    lattice = Lattice.of(tree)
    if lattice.unequal is not None:
        one, other, step = lattice.unequal
        detail = (
            f"{list(one)} and {list(other)} have one hash, but differ when followed by {[step]}"
        )
        raise UncertifiedError("unequal_futures", detail)
    if lattice.terminal is None:
        raise UncertifiedError("outside_schema", "the reference order itself is refused")
    found = _directed(lattice)
    order = PartialOrder.of(tree.num_operations, found)
    if lattice.complete:
        order = _without_needless(lattice, order)
    covering = transitive_reduction(order.pairs)
    edges = [
        _edge(lattice, order, pair, found.get(pair))
        for pair in order.pairs
        if pair in covering or pair in found
    ]
    known = {(edge.first, edge.second) for edge in edges}
    for flow in flows:
        if (flow.first, flow.second) not in known:
            known.add((flow.first, flow.second))
            edges.append(Edge(first=flow.first, second=flow.second, kind="data flow", flow=flow))
    return Schedule(
        num_steps=tree.num_operations,
        edges=tuple(sorted(edges, key=lambda edge: (edge.first, edge.second))),
        complete=lattice.complete,
    )


def _edge(lattice: Lattice, order: PartialOrder, pair: _Pair, context: int | None) -> Edge:
    """The edge of a pair, with a certificate from where the rest of the order leads, if there is one."""
    others = PartialOrder.of(order.num_operations, set(order.pairs) - {pair})
    legal = lattice.legal_contexts(others)
    shown = (
        number
        for number, (verdict, first) in lattice.by_pair[pair].items()
        if number in legal and first == pair[0] and verdict not in ("diamond", "vacuous")
    )
    context = next(shown, context)
    return Edge(
        first=pair[0],
        second=pair[1],
        kind="not compared" if context is None else _kind(lattice, context, pair),
        certificate=None if context is None else lattice.certificate(context, pair),
    )


def _without_needless(lattice: Lattice, order: PartialOrder) -> PartialOrder:
    """The order without the pairs that it can do without: all that it then allows was still seen to commute.

    A pair may have been found in a context that another pair, found later, rules out.
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
    """Whether in every context that the order allows all steps that may come next are accepted, and commute."""
    for number in lattice.legal_contexts(order):
        moves = order.moves(lattice.contexts[number].done)
        if any(isinstance(lattice.transitions.get((number, step)), str) for step in moves):
            return False
        for pair in combinations(moves, 2):
            shown = lattice.by_pair[pair].get(number)
            if shown is None or shown[0] != "diamond":
                return False
    return True


def _kind(lattice: Lattice, context: int, pair: _Pair) -> EdgeKind:
    shown = lattice.shown(context, pair)
    verdict: Verdict = "vacuous" if shown is None else shown[0]
    return verdict if verdict in ("precedes", "conflicts", "observes") else "not compared"


def _directed(lattice: Lattice) -> Mapping[_Pair, int | None]:
    """The pairs that must keep the reference order, each with a context that shows it; None where none does.

    Contexts are gone through by length: what a pair shows in one bears on longer ones alone.
    """
    found: dict[_Pair, int | None] = {}
    apart = _apart(lattice)
    for size in sorted({len(lattice.contexts[number].sequence) for number in apart}):
        order = PartialOrder.of(lattice.num_operations, found)
        legal = lattice.legal_contexts(order)
        for number, pairs in apart.items():
            context = lattice.contexts[number]
            if len(context.sequence) == size and number in legal:
                moves = order.moves(context.done)
                for pair in pairs:
                    if pair[0] in moves and pair[1] in moves:
                        found.setdefault(pair, number)
    compared = _compared(lattice)
    # What the order allows next, and the verifier refuses or was never asked, waits for all that stands before it.
    while missing := _unsupported(
        lattice, PartialOrder.of(lattice.num_operations, found), compared
    ):
        for pair in missing:
            found.setdefault(pair, _example(lattice, pair))
    return found


def _apart(lattice: Lattice) -> dict[int, list[_Pair]]:
    """By context, the pairs whose order matters there."""
    found: dict[int, list[_Pair]] = {}
    for pair, contexts in lattice.by_pair.items():
        for number, (verdict, _) in contexts.items():
            if verdict not in ("diamond", "vacuous"):
                found.setdefault(number, []).append(pair)
    return dict(sorted(found.items()))


def _compared(lattice: Lattice) -> frozenset[_Pair]:
    """The pairs that some context shows."""
    return frozenset(
        pair
        for pair, contexts in lattice.by_pair.items()
        if any(verdict != "vacuous" for verdict, _ in contexts.values())
    )


def _unsupported(lattice: Lattice, order: PartialOrder, compared: frozenset[_Pair]) -> list[_Pair]:
    """Pairs that must be ordered still, some at a time; none if the order is supported by what was replayed."""
    related = {*order.pairs}
    unseen = [
        pair
        for pair in combinations(range(lattice.num_operations), 2)
        if pair not in related and pair not in compared
    ]
    if unseen:
        return unseen[:1]
    for number in sorted(lattice.legal_contexts(order)):
        done = lattice.contexts[number].done
        for step in order.moves(done):
            answer = lattice.transitions.get((number, step))
            if isinstance(answer, str):
                return [(i, step) for i in range(step) if not done >> i & 1]
    return []


def _example(lattice: Lattice, pair: _Pair) -> int | None:
    """A context in which a pair shows that its order matters; None if there is none."""
    for number, (verdict, _) in lattice.by_pair[pair].items():
        if verdict not in ("diamond", "vacuous"):
            return number
    return None
