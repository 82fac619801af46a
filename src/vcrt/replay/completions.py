"""Certify the steps of a completion that solves its task, and choose the orders of them to score.

The steps that a model wrote are an episode like any other: they are replayed in every order (with more than
``vcrt.limits.MAX_EXHAUSTIVE`` steps, in every context, or a sample of contexts), again in another process and
succession, compared by second opinions, and certified with the preset ``any``. The orbit of the completion is the same
text with its steps in each certified order. A failed completion is not certified and stands for itself.

Apart from certification, the orders of any completion can be judged one by one, each as a text of its own, to learn
what all orders of its steps would earn (:attr:`Judgement.judged`).

:mod:`vcrt.replay.completion_judge` has the worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import factorial
from typing import TypeAlias

from vcrt.certificates.episodes import ANY_PRESET, Exclusion, certify_episode
from vcrt.environments.contract import Episode, Versions
from vcrt.environments.written import (
    UnreadableCompletion,
    WrittenSteps,
    WrittenTrace,
    episode_of,
    failure_of,
    require_written,
)
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json
from vcrt.limits import MAX_EXHAUSTIVE, MAX_OPERATIONS
from vcrt.orders import Order, all_orders, transitive_reduction
from vcrt.partial_orders import PartialOrder, linear_extensions_up_to
from vcrt.randomness import Draws, generator
from vcrt.replay.evidence import Evidence
from vcrt.replay.shards import (
    EnvironmentFactory,
    difference_of,
    environment_of,
    evidence_of,
    replayed,
    unchanged,
)


@dataclass(frozen=True, slots=True)
class Segments:
    """A text in pieces: ``moved[i]`` is step i, ``fixed`` has the texts before, between and after the steps.

    ``fixed`` has one text more than ``moved``.
    """

    fixed: tuple[str, ...]
    moved: tuple[str, ...]

    def text(self, order: Order) -> str:
        """Return the whole text with its steps in this order."""
        pieces = [self.fixed[0]]
        for step, after in zip(order, self.fixed[1:], strict=True):
            pieces += [self.moved[step], after]
        return "".join(pieces)

    @property
    def reference(self) -> Order:
        """The order in which the steps were written."""
        return tuple(range(len(self.moved)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The judgement of a completion.

    ``failure`` says why it does not solve its task, None if it does. Then ``order`` is the certified order of its steps
    in ``segments``. Where there is none, ``exclusion`` gives the reason: a kind of
    :class:`vcrt.certificates.episodes.Exclusion`, or ``single_step``, ``too_many_steps``, ``reading`` or
    ``contradicted``. ``complete`` says whether every context was replayed, as for up to ``vcrt.limits.MAX_COMPLETE``
    steps; beyond, the certificate rests on a sample. Times are in seconds of a worker.

    ``failing`` has those of the :func:`illegal_orders` whose text, judged by itself, does not solve the task, and
    ``other_solutions`` counts those whose text does: they end otherwise, or a step gives another output. Both cover as
    many orders as were requested.

    ``judged`` has, where it was asked for, orders of the steps with whether the text in that order solves the task: a
    :func:`block_of_orders` around the written one, which comes first. Each was judged by itself, twice, in two
    processes, and reads as the same steps; else ``judged`` is empty and ``unjudged`` gives the reason: ``single_step``,
    ``too_many_steps``, ``version_disagreement``, ``reading`` or ``nondeterministic``. Of the texts of a block, either
    each has the same verdicts or each has none.
    """

    failure: str | None
    num_steps: int = 0
    segments: Segments | None = None
    #: For each step, the first step with the same payload.
    copies: tuple[int, ...] = ()
    order: PartialOrder | None = None
    exclusion: str | None = None
    detail: str = ""
    complete: bool = True
    failing: tuple[Order, ...] = ()
    other_solutions: int = 0
    judged: tuple[tuple[Order, bool], ...] = ()
    unjudged: str | None = None
    judging_s: float = 0.0
    certifying_s: float = 0.0

    @property
    def success(self) -> bool:
        """Whether the completion solves its task."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The first worker's result: a judgement and, for several steps that succeed, the evidence for certification.

    ``outcomes`` says of each order that is to be judged whether it solves the task.
    """

    judgement: Judgement
    versions: Versions | None = None
    evidence: Evidence | None = None
    outcomes: tuple[bool, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing is left for a second look."""
        return self.evidence is None and not self.outcomes


@dataclass(frozen=True, slots=True)
class Looks:
    """What is looked at beside whether a completion solves its task.

    A success of 2 to ``max_steps`` steps is certified, if ``certified``, with up to ``max_illegal`` illegal orders. Up
    to ``max_judged`` orders of such a completion, success or failure, are judged by themselves; of more, a block whose
    place follows from the seed ``draw``. Raises :class:`MalformedInputError` for numbers that are none.
    """

    max_steps: int
    certified: bool = True
    max_illegal: int = 0
    max_judged: int = 0
    draw: int = 0

    def __post_init__(self) -> None:
        for name in ("max_illegal", "max_judged"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise MalformedInputError(
                    "not a valid number of orders",
                    found=f"{name}={value!r}",
                    expected="an integer of 0 or more",
                )

    def orders(self, number: int) -> tuple[Order, ...]:
        """The orders of so many steps that are judged, the written one first."""
        if not self.max_judged:
            return ()
        return block_of_orders(
            number, most=self.max_judged, draw=generator(self.draw, "judged block")
        )


#: Certified orders of a completion whose texts are judged by themselves: the number in a block, and of blocks.
JUDGED, JUDGED_BLOCKS = 24, 4
#: An environment, a task and a completion.
Work: TypeAlias = tuple[EnvironmentFactory, Json, str]


def look_first(work: Work, looks: Looks) -> FirstLook:
    """Read and judge a completion, replay the orders of a success, and judge orders by themselves."""
    factory, task, completion = work
    began = time.perf_counter()
    environment = require_written(environment_of(factory))
    try:
        trace = environment.parse(task, completion)
        if not trace.steps:
            raise UnreadableCompletion("no steps")
    except UnreadableCompletion as reason:
        return FirstLook(Judgement(failure=f"unreadable: {reason}", judging_s=_since(began)))
    episode = episode_of(environment, task, trace, completion)
    number = episode.num_operations
    payloads = [canonical_json(step.payload) for step in trace.steps]
    with unchanged(episode):
        failure = failure_of(environment, task, episode)
    judgement = Judgement(
        failure=failure,
        num_steps=number,
        segments=segments_of(trace, completion),
        copies=tuple(map(payloads.index, payloads)),
        judging_s=_since(began),
    )
    is_certified = looks.certified and judgement.success
    max_steps = min(looks.max_steps, MAX_OPERATIONS)
    if not 2 <= number <= max_steps:
        kind = "single_step" if number < 2 else "too_many_steps"
        if looks.max_judged:
            judgement = replace(judgement, unjudged=kind)
        if is_certified:
            judgement = _uncertified(judgement, kind, f"{number}, at most {max_steps}")
        return FirstLook(judgement)
    began = time.perf_counter()
    evidence = None
    if is_certified:
        (evidence,) = evidence_of(environment, [episode], sampled=False, backwards=False)
    outcomes = _outcomes(environment, task, judgement, looks.orders(number))
    versions = environment.versions()
    return FirstLook(replace(judgement, certifying_s=_since(began)), versions, evidence, outcomes)


def look_again(work: tuple[Work, FirstLook], looks: Looks) -> Judgement:
    """Repeat the first look's replays and judgements in another process and succession.

    Certify a success or say why not, and keep the orders that were judged, or say why not.
    """
    (factory, task, completion), first = work
    began = time.perf_counter()
    environment = require_written(environment_of(factory))
    found = first.judgement
    if first.evidence is not None:
        found = _certified(environment, task, first, looks.max_illegal)
    if first.outcomes:
        orders = looks.orders(found.num_steps)
        reason = _unjudged(environment, task, completion, first, orders)
        judged = tuple(zip(orders, first.outcomes, strict=True)) if reason is None else ()
        found = replace(found, judged=judged, unjudged=reason)
    return replace(found, certifying_s=found.certifying_s + _since(began))


def _unjudged(
    environment: WrittenSteps,
    task: Json,
    completion: str,
    first: FirstLook,
    orders: Sequence[Order],
) -> str | None:
    """Return why the outcomes of a first look do not count; None if they do."""
    judgement = first.judgement
    if environment.versions() != first.versions:
        return "version_disagreement"
    # Other members of a block come to the same answer: each of its texts is read, and has to give the same steps.
    try:
        episode = episode_of(environment, task, environment.parse(task, completion), completion)
    except UnreadableCompletion:
        return "reading"
    if _read_otherwise(environment, task, judgement, episode, orders) is not None:
        return "reading"
    again = _outcomes(environment, task, judgement, orders[::-1])
    is_same = again[::-1] == first.outcomes and first.outcomes[0] == judgement.success
    return None if is_same else "nondeterministic"


def _certified(
    environment: WrittenSteps, task: Json, first: FirstLook, max_illegal: int
) -> Judgement:
    assert first.evidence is not None
    assert first.versions is not None
    judgement, evidence = first.judgement, first.evidence
    (again,) = replayed(environment, [evidence.episode], sampled=False, backwards=True)
    if environment.versions() != first.versions:
        return _uncertified(judgement, "version_disagreement", f"{environment.versions()}")
    if (difference := difference_of(evidence.replays, again)) is not None:
        return _uncertified(judgement, "nondeterministic", difference)
    outcome = certify_episode(evidence.replays, first.versions, ANY_PRESET, evidence.cross_checks)
    if isinstance(outcome, Exclusion):
        return _uncertified(judgement, outcome.kind, outcome.detail)
    episode, orders = evidence.episode, orders_to_read(evidence.episode.num_operations)
    if (reason := _read_otherwise(environment, task, judgement, episode, orders)) is not None:
        return _uncertified(judgement, "reading", reason)
    if (reason := _contradiction(environment, task, judgement, outcome.order)) is not None:
        return _uncertified(judgement, "contradicted", reason)
    illegal = illegal_orders(outcome.order, copies=judgement.copies, most=max_illegal)
    failing = tuple(each for each in illegal if _failure(environment, task, judgement, each))
    return replace(
        judgement,
        order=outcome.order,
        complete=outcome.complete,
        failing=failing,
        other_solutions=len(illegal) - len(failing),
    )


def _outcomes(
    environment: WrittenSteps, task: Json, judgement: Judgement, orders: Sequence[Order]
) -> tuple[bool, ...]:
    """Return whether each order's text solves the task; orders of one text are judged once."""
    assert judgement.segments is not None
    texts = [judgement.segments.text(order) for order in orders]
    solves = {
        text: _failure(environment, task, judgement, order) is None
        for text, order in dict(zip(texts, orders, strict=True)).items()
    }
    return tuple(solves[text] for text in texts)


def _uncertified(judgement: Judgement, kind: str, detail: str) -> Judgement:
    return replace(judgement, exclusion=kind, detail=detail)


def _read_otherwise(
    environment: WrittenSteps,
    task: Json,
    judgement: Judgement,
    episode: Episode,
    orders: Sequence[Order],
) -> str | None:
    """Return how the text in one of these orders of its steps is read differently; None if none is."""
    segments = judgement.segments
    assert segments is not None
    for order in orders:
        text, places = segments.text(order), ", ".join(map(str, order))
        moved = replace(segments, moved=tuple(segments.moved[step] for step in order))
        try:
            trace = environment.parse(task, text)
        except UnreadableCompletion as reason:
            return f"unreadable with its steps in the order {places}: {reason}"
        found = [step.payload for step in trace.steps]
        if (
            found != [episode.operations[step].payload for step in order]
            or trace.initial != episode.initial
            or segments_of(trace, text) != moved
        ):
            return f"other steps are read in the order {places}"
    return None


def orders_to_read(number: int) -> list[Order]:
    """Return orders in which each step stands at each place and each pair is adjacent in both directions.

    Return all orders of up to ``MAX_EXHAUSTIVE`` steps; beyond, a Williams design of ``number`` orders, or twice as
    many if ``number`` is odd.
    """
    if number <= MAX_EXHAUSTIVE:
        return list(all_orders(number))
    first = [(k + 1) // 2 if k % 2 else (number - k // 2) % number for k in range(number)]
    rows = [tuple((step + row) % number for step in first) for row in range(number)]
    return rows + [row[::-1] for row in rows] * (number % 2)


def _contradiction(
    environment: WrittenSteps, task: Json, judgement: Judgement, order: PartialOrder
) -> str | None:
    """Return a certified order whose text, judged by itself, does not solve the task, and why; None if there is none.

    Judge all orders of a small orbit; of a larger one, blocks in several places.
    """
    blocks = [
        scored_orders(order, max_legal=JUDGED, draw=generator(0, "judged", number))
        for number in range(JUDGED_BLOCKS)
    ]
    for each in dict.fromkeys(each for block in blocks for each in block.legal):
        failure = _failure(environment, task, judgement, each)
        if failure is not None:
            return f"the order {list(each)} is certified, but judged by itself: {failure}"
    return None


def _failure(
    environment: WrittenSteps, task: Json, judgement: Judgement, order: Order
) -> str | None:
    """Return why a completion with its steps in another order does not solve its task; None if it does."""
    assert judgement.segments is not None
    text = judgement.segments.text(order)
    try:
        episode = episode_of(environment, task, environment.parse(task, text), text)
    except UnreadableCompletion as reason:
        return f"unreadable: {reason}"
    return failure_of(environment, task, episode)


def _since(began: float) -> float:
    return time.perf_counter() - began


def segments_of(trace: WrittenTrace, completion: str) -> Segments:
    """Split a completion into the texts of its steps and the texts around them."""
    ends = [0, *(step.end for step in trace.steps)]
    starts = [*(step.start for step in trace.steps), len(completion)]
    return Segments(
        fixed=tuple(completion[end:start] for end, start in zip(ends, starts, strict=True)),
        moved=tuple(completion[step.start : step.end] for step in trace.steps),
    )


@dataclass(frozen=True, slots=True)
class ScoredOrders:
    """Certified orders of a completion's steps to score; the first is the written one."""

    legal: tuple[Order, ...]
    #: Whether these are the whole orbit.
    whole_orbit: bool


def scored_orders(order: PartialOrder, *, max_legal: int, draw: Draws) -> ScoredOrders:
    r"""Return the orbit of the order 0, 1, 2, ... if it has at most ``max_legal`` orders, else a block of it.

    A block has all legal orders that differ from the written one within a window of neighbouring places alone. Its
    width is the largest whose permutations fit, its place is drawn, and neither depends on the written order. So the
    blocks of a window partition the orbit :math:`O`. For a text that the policy :math:`\pi_k` has drawn from it,
    :math:`E[Z_\theta(B) / Z_k(B)] = \sum_B Z_k(B) / Z_k(O) \cdot Z_\theta(B) / Z_k(B) = Z_\theta(O) / Z_k(O)`: the
    ratio of the block's mass is an unbiased estimate of the orbit's, and so is its gradient. For blocks of one order it
    is the ratio of the trajectory.
    """
    number = order.num_operations
    written = tuple(range(number))
    legal = linear_extensions_up_to(order, max_legal)
    whole = legal is not None
    if legal is None:
        width = max(w for w in range(1, number + 1) if factorial(w) <= max_legal)
        first = int(draw.integers(number - width + 1))
        legal = _reordered_within(order, first, first + width)
    return ScoredOrders((written, *(each for each in legal if each != written)), whole)


def block_of_orders(number: int, *, most: int, draw: Draws) -> tuple[Order, ...]:
    """Return all orders of so many steps if they are at most ``most``, else a block of them; the written one is first.

    Blocks are those of :func:`scored_orders` where no step needs another: they partition the orders of the steps.
    """
    return scored_orders(PartialOrder.of(number, []), max_legal=most, draw=draw).legal


def illegal_orders(
    order: PartialOrder, *, copies: Sequence[int] | None = None, most: int
) -> list[Order]:
    """Return orders that are not certified: all if there are at most ``most``, else those that reverse one pair.

    Each of the latter differs from a legal order in one certified pair of neighbours alone (the paper's minimally
    changed reversals), and is nearest to the written order. Steps with the same payload (``copies[i]`` is the first
    with that of step i) may follow different thoughts: an order that is legal up to exchanges of such steps counts as
    neither legal nor illegal. Return at most ``most`` orders.
    """
    number = order.num_operations
    if not order.pairs or most == 0:
        return []
    # A certified pair forbids at least half of all orders.
    few = factorial(number) <= 2 * most
    found = [each for each in all_orders(number) if not order.allows(each)] if few else []
    if not 0 < len(found) <= most:
        found = [_reversal(order, pair) for pair in sorted(transitive_reduction(order.pairs))]
    if copies is not None:
        found = [each for each in found if not order.allows(_numbered(each, copies))]
    return found[:most]


def _numbered(order: Order, copies: Sequence[int]) -> Order:
    """Return the order with steps of the same payload in the succession in which they were written."""
    left = {first: iter([k for k, own in enumerate(copies) if own == first]) for first in copies}
    return tuple(next(left[copies[step]]) for step in order)


def _reordered_within(order: PartialOrder, first: int, end: int) -> list[Order]:
    """Return the legal orders that differ from 0, 1, 2, ... only in the places from ``first`` up to ``end``."""
    number = order.num_operations
    inside = [(a - first, b - first) for a, b in order.pairs if first <= a and b < end]
    found = linear_extensions_up_to(PartialOrder.of(end - first, inside), factorial(end - first))
    assert found is not None
    return [
        (*range(first), *(step + first for step in middle), *range(end, number)) for middle in found
    ]


def _reversal(order: PartialOrder, pair: tuple[int, int]) -> Order:
    """Return the order nearest to 0, 1, 2, ... that is legal except for this pair, adjacent and reversed."""
    first, second = pair
    between = range(first + 1, second)
    needed = [step for step in between if order.predecessors[second] >> step & 1]
    others = [step for step in between if step not in needed]
    after = range(second + 1, order.num_operations)
    return (*range(first), *needed, second, first, *others, *after)
