"""Certify episodes of which not all orders were replayed one by one.

Relations come from the contexts of the lattice. If the lattice is complete, all legal orders are counted in it: their
number must be that of the linear extensions of the certified order, and each must keep every pair. Otherwise one
representative of every class of orders was replayed as a whole, and its outcome must be the one that the relations
predict.

Two orders are of one class if adjacent independent operations can be swapped to turn one into the other (Mazurkiewicz
traces). Sleep sets (Godefroid, *Partial-Order Methods for the Verification of Concurrent Systems*, LNCS 1032, 1996)
keep equivalent orders from being enumerated twice: once an operation was explored from a prefix, it sleeps in the
branches beside it until a dependent one runs. By themselves they still enter branches in which an operation sleeps
for ever; source sets (Abdulla, Aronis, Jonsson and Sagonas, *Optimal dynamic partial order reduction*, POPL 2014)
tell which operations must be explored at all. Here every operation runs exactly once, so what remains is known: a
branch is worth entering if and only if each sleeping operation is connected, by dependencies among the remaining
ones, to one that is awake. Every branch that is entered then ends in a representative, the lexicographically least
order of its class. Pure; an operation set is a bit mask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from vcrt.certificates.certificates import (
    Certificate,
    OperationRelation,
    UncertifiedError,
    Verdict,
    directed,
    relation_graph,
)
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.replay_tree import ReplayTree
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.hashing import Json
from vcrt.limits import MAX_COMPLETE, MAX_COUNTED, MAX_REPRESENTATIVES
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder, members, num_contexts_of_pairs, num_linear_extensions
from vcrt.printable import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class PairContexts:
    """The contexts in which a pair was compared.

    ``contexts`` counts the contexts that legal orders reach, by the certified order; None if not counted, above
    ``vcrt.limits.MAX_COUNTED`` operations. ``replayed`` counts those in which both orders of the pair were
    replayed, and ``beside`` further ones that only accepted illegal orders reach. ``verdicts`` counts the verdicts
    in all replayed contexts; ``examples`` has the first certificate of each.
    """

    pair: tuple[int, int]
    replayed: int
    contexts: int | None
    beside: int
    complete: bool
    verdicts: Mapping[Verdict, int]
    examples: tuple[Certificate, ...]

    def to_json(self, context: Mapping[str, Json]) -> dict[str, Json]:
        """Return the JSON form; ``context`` is added to each certificate."""
        return {
            "pair": list(self.pair),
            "replayed": self.replayed,
            "contexts": self.contexts,
            "beside": self.beside,
            "complete": self.complete,
            "verdicts": {str(verdict): number for verdict, number in self.verdicts.items()},
            "examples": [{**example.to_json(), **context} for example in self.examples],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """The certified content of the replays.

    If ``complete``, every reachable context was replayed; otherwise ``classes`` is the number of classes of orders,
    and one representative of each was replayed as a whole.
    """

    relations: tuple[OperationRelation, ...]
    order: PartialOrder
    certificates: tuple[Certificate, ...]
    pairs: tuple[PairContexts, ...]
    complete: bool
    classes: int | None


@dataclass(frozen=True, slots=True)
class Representative:
    """An order that stands for all equivalent orders, and its predicted outcome.

    None in ``refused_at`` predicts that the order is accepted. Otherwise the verifier must refuse it at one of these
    places: at a step that comes before a step it needs, or at one that then comes too late; the order up to there
    stands for all that begin like it. ``legal`` says whether it keeps every relation, up to ``refused_at`` if that is
    not None.
    """

    sequence: Order
    legal: bool
    refused_at: range | None


def explain(tree: ReplayTree, *, sampled: bool = False) -> Explained:
    """Derive what the replays of an episode certify; raises :class:`UncertifiedError` if that is nothing.

    Evidence of ``sampled`` contexts is never complete; above ``MAX_COMPLETE`` operations, contexts are always sampled.
    """
    lattice = sound_lattice(tree)
    certificates = lattice.certificates()
    relations, order = certified_order(tree.num_operations, certificates)
    if lattice.terminal is None:
        raise UncertifiedError("outside_schema", "the reference order itself is refused")
    if tuple(range(tree.num_operations)) not in tree.answers:
        raise UncertifiedError("outside_schema", "the reference order was not replayed as a whole")
    if not order.allows(range(tree.num_operations)):
        raise UncertifiedError("outside_schema", "the reference order breaks a certified relation")
    complete = not sampled and tree.num_operations <= MAX_COMPLETE and lattice.complete
    try:
        classes = [] if complete else expected_representatives(relations, order)
    except TooLargeError as error:
        raise UncertifiedError("too_large", f"{error.what}: {error.found}") from error
    illegal = (
        _miscounted(lattice, order)
        if complete
        else _two_states(lattice, order) or contradicted(tree, classes)
    )
    if illegal is not None:
        raise UncertifiedError("outside_schema", illegal)
    return Explained(
        relations=relations,
        order=order,
        certificates=certificates,
        pairs=_pair_contexts(lattice, order, certificates, complete),
        complete=complete,
        classes=None if complete else len(classes),
    )


def certified_order(
    num_operations: int, certificates: Sequence[Certificate]
) -> tuple[tuple[OperationRelation, ...], PartialOrder]:
    """Derive the relations of certificates and the order they imply; raises :class:`UncertifiedError`."""
    relations = relation_graph(num_operations, certificates, allow_implied=True)
    try:
        return relations, PartialOrder.of(num_operations, directed(relations))
    except MalformedInputError as error:
        raise UncertifiedError("outside_schema", f"{error.what}: {error.found}") from error


def sound_lattice(tree: ReplayTree, *, allow_idle: bool = False, reads: int = 0) -> Lattice:
    """Build the lattice of replays, in which ``reads`` are operations that are said to read only.

    Raises :class:`UncertifiedError` if replays disagree (``nondeterministic``), if a step is idle (``no_effect``) where
    that is not allowed, and if equal states have different futures (``unequal_futures``).
    """
    if tree.contradiction is not None:
        raise UncertifiedError("nondeterministic", tree.contradiction)
    lattice = Lattice.of(tree, reads)
    if lattice.idle is not None and not allow_idle:
        context, step = lattice.idle
        raise UncertifiedError("no_effect", f"step {step} after {list(context)}")
    if lattice.unequal is not None:
        one, other, step = lattice.unequal
        raise UncertifiedError(
            "unequal_futures",
            f"{list(one)} and {list(other)} have one hash, but differ when followed by {[step]}",
        )
    return lattice


def expected_representatives(
    relations: Sequence[OperationRelation], order: PartialOrder
) -> list[Representative]:
    """Return one order of each class, with its outcome if the relations explain everything.

    Steps that no context has shown to commute are dependent. Raises :class:`vcrt.errors.TooLargeError` for too many.
    """
    num_operations = order.num_operations
    commuting = {(r.first, r.second) for r in relations if r.kind == "commutes"}
    pairs = combinations(range(num_operations), 2)
    dependent = [pair for pair in pairs if pair not in commuting]
    needs = PartialOrder.of(
        num_operations, [(r.first, r.second) for r in relations if r.kind == "precedes"]
    ).predecessors

    def refuses(done: int, operation: int) -> bool:
        return bool(needs[operation] & ~done)

    found = []
    for sequence in representatives(dependence(num_operations, dependent), refuses):
        *begun, last = sequence
        done = sum(1 << operation for operation in begun)
        if not refuses(done, last):
            found.append(Representative(sequence, order.allows(sequence), None))
            continue
        # Either the step is refused, or what precedes it is, because it comes too late.
        late = [i for i in range(num_operations) if needs[last] & ~done & 1 << i]
        rest = [i for i in range(num_operations) if i not in sequence and i not in late]
        refused_at = range(len(begun), len(begun) + 1 + len(late))
        whole = (*sequence, *late, *rest)
        found.append(Representative(whole, order.allows(begun), refused_at))
    return found


def contradicted(tree: ReplayTree, classes: Sequence[Representative]) -> str | None:
    """Say how a representative's outcome contradicts the relations; None if none does."""
    reference = tree.replay(tuple(range(tree.num_operations)))
    for expected in classes:
        sequence = expected.sequence
        try:
            replay = tree.replay(sequence)
        except KeyError:
            return (
                f"the order {list(sequence)}, which stands for a class of its own, was not replayed"
            )
        refused, places = not replay.accepted, expected.refused_at
        last = len(replay.sequence) - 1
        if refused and expected.legal and (places is None or last not in places):
            return (
                f"step {replay.sequence[-1]} is refused after {list(replay.sequence[:-1])}, "
                "which the relations allow"
            )
        if not refused and places is not None:
            return f"the steps {list(sequence)} are accepted, which the relations do not allow"
        is_legal = replay.is_legal(reference.outcome)
        if not refused and is_legal != expected.legal:
            like = replay.terminal_hash == reference.terminal_hash
            end = "in the reference order's state" if like else "in another state"
            end += " with other outputs" * (like and not is_legal)
            keeps = "keeps" if expected.legal else "does not keep"
            return f"the order {list(sequence)} ends {end}, although it {keeps} the relations"
    return None


def _two_states(lattice: Lattice, order: PartialOrder) -> str | None:
    """Find sequences that keep every relation but differ in final state or outputs; None if there are none."""
    first: dict[int, int] = {}
    legal = sorted(lattice.legal_contexts(order))
    for number in legal:
        twin = first.setdefault(lattice.contexts[number].done, number)
        if twin != number:
            one, other = (list(lattice.contexts[each].sequence) for each in (twin, number))
            return f"{one} and {other} end in two states, although both keep the relations"
    for number in legal:
        context = lattice.contexts[number]
        for step in order.moves(context.done):
            known = isinstance(lattice.transitions.get((number, step)), int)
            if known and not lattice.as_in_reference(number, step):
                return (
                    f"step {step} after {list(context.sequence)} gives another output than in the "
                    "reference order, although it keeps the relations"
                )
    return None


def _miscounted(lattice: Lattice, order: PartialOrder) -> str | None:
    """Say why the legal orders of a complete lattice are not the linear extensions of ``order``; None if they are."""
    broken = lattice.broken_pair(order)
    if broken is not None:
        context, step = broken
        return (
            f"step {step} after {list(context)} leads to the reference order's state, although "
            "a certified relation puts another step first"
        )
    legal, extensions = lattice.num_legal(), num_linear_extensions(order)
    if legal != extensions:
        return f"{legal} legal orders, but {extensions} linear extensions of the directed relations"
    return None


def _pair_contexts(
    lattice: Lattice, order: PartialOrder, certificates: Sequence[Certificate], complete: bool
) -> tuple[PairContexts, ...]:
    among = num_contexts_of_pairs(order) if order.num_operations <= MAX_COUNTED else None
    legal = lattice.legal_contexts(order)
    examples: dict[tuple[int, int], list[Certificate]] = {pair: [] for pair in lattice.by_pair}
    for certificate in certificates:
        examples[certificate.pair].append(certificate)
    found = []
    for pair, contexts in lattice.by_pair.items():
        verdicts = Counter(verdict for verdict, _ in contexts.values())
        replayed = len(legal.intersection(contexts))
        found.append(
            PairContexts(
                pair=pair,
                replayed=replayed,
                contexts=None if among is None else among[pair],
                beside=len(contexts) - replayed,
                complete=complete,
                verdicts=dict(sorted(verdicts.items())),
                examples=tuple(examples[pair]),
            )
        )
    return tuple(found)


def dependence(num_operations: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return for each operation the set of operations that it depends on, from unordered pairs.

    >>> dependence(3, [(0, 2)])
    (4, 0, 1)
    """
    masks = [0] * num_operations
    for one, other in pairs:
        masks[one] |= 1 << other
        masks[other] |= 1 << one
    return tuple(masks)


def representatives(
    dependent: Sequence[int], refuses: Callable[[int, int], bool] = lambda done, operation: False
) -> list[Order]:
    """Return the lexicographically least order of each class; a refused order ends with the refused operation.

    ``dependent[i]`` is the set of operations that ``i`` depends on (see :func:`dependence`). ``refuses(done, i)`` says
    whether ``i`` is refused after the set ``done``; swapping independent operations must not change that. Raises
    :class:`TooLargeError` for more than ``vcrt.limits.MAX_REPRESENTATIVES``.

    >>> representatives(dependence(3, [(0, 2)]))
    [(0, 1, 2), (1, 2, 0)]
    >>> representatives(dependence(3, [(0, 2)]), lambda done, step: step == 2 and not done & 1)
    [(0, 1, 2), (1, 2)]
    """
    found: list[Order] = []
    for order in _explore(dependent, refuses):
        if len(found) == MAX_REPRESENTATIVES:
            raise TooLargeError(
                "too many classes of orders to replay one of each",
                found=f"more than {MAX_REPRESENTATIVES:,} among {counted(len(dependent), 'operation')}",
                expected=f"at most {MAX_REPRESENTATIVES:,}, as steps that commute give",
                remedy="lift shorter windows, or episodes in which more steps commute",
            )
        found.append(order)
    return found


def _explore(dependent: Sequence[int], refuses: Callable[[int, int], bool]) -> Iterator[Order]:
    everything = (1 << len(dependent)) - 1
    # Without recursion: a prefix, what has run, and what sleeps; the next to be explored is on top.
    stack: list[tuple[Order, int, int]] = [((), 0, 0)]
    while stack:
        prefix, done, asleep = stack.pop()
        if done == everything:
            yield prefix
            continue
        branches: list[tuple[Order, int, int]] = []
        for operation in members(everything & ~done & ~asleep):
            after = done | 1 << operation
            still_asleep = asleep & ~dependent[operation]
            if _all_wake(dependent, everything & ~after, still_asleep):
                branches.append(((*prefix, operation), after, still_asleep))
                asleep |= 1 << operation
        for branch in reversed(branches):
            order, after, still_asleep = branch
            if refuses(after & ~(1 << order[-1]), order[-1]):
                stack.append((order, everything, 0))
            else:
                stack.append(branch)


def _all_wake(dependent: Sequence[int], remaining: int, asleep: int) -> bool:
    """Tell whether each sleeping operation is connected to an awake one by dependencies among the remaining ones."""
    reached = remaining & ~asleep
    frontier = reached
    while frontier and asleep & ~reached:
        lowest = frontier & -frontier
        frontier ^= lowest
        more = dependent[lowest.bit_length() - 1] & remaining & ~reached
        reached |= more
        frontier |= more
    return not asleep & ~reached
