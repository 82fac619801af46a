"""Make candidates from a model's completions: the tokens of a success in its certified orders, and in other orders.

Or, of a success and of a failure, the tokens of the orders of its steps that were judged by themselves.

A text stands only for the tokens that the tokenizer makes from it. A success with other tokens, or one that was cut
off, stands for itself, because the tokens of its other orders are not known then. Pure, except for the tokenizer. Not
covered: judging (:mod:`vcrt.replay.completion_judge`) and probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np

from vcrt.orders import Order
from vcrt.replay.completions import Judgement, illegal_orders, scored_orders
from vcrt_train.integrations.orbit_credit import Candidates, TokenIds


@dataclass(frozen=True, kw_only=True, slots=True)
class OrbitLimits:
    """How much of an orbit is scored for one completion.

    At most ``max_members`` legal orders and ``max_illegal`` illegal orders that are judged to fail are scored, and at
    most ``max_tokens`` tokens in all orders of a kind, where a common beginning counts once. If there are more, a part
    of the orders is scored, whose number assumes no common beginnings. The written order is always scored.
    ``max_length`` is the most tokens of a completion, including its end token.
    """

    max_members: int = 24
    max_illegal: int = 24
    max_tokens: int = 8192
    max_length: int


@dataclass(frozen=True, slots=True)
class WrittenOrbit:
    """The candidates of one completion; ``missed`` is the reason why a success is no member of an orbit, or None.

    ``is_partial`` says that there are more orders than are scored.
    """

    candidates: Candidates
    missed: str | None
    is_partial: bool = False


def written_orbit(
    prompt: TokenIds,
    completion: TokenIds,
    judgement: Judgement,
    *,
    encode: Callable[[str], list[int]],
    ends: Collection[int],
    limits: OrbitLimits,
    draw: np.random.Generator,
    all_orders: bool = False,
) -> WrittenOrbit:
    """Make the candidates of a completion: none for a failure, or for a success that stands for itself.

    With ``all_orders``, make those of a success or a failure whose orders were judged: those that solve its task, and
    as illegal the rest. The token sequences that have candidates are divided into blocks by them: each sequence of a
    block has the same candidates. Blocks have at most twice the tokens of ``limits``.

    ``encode`` gives the tokens of a text, without special tokens; ``ends`` holds the tokens that end a completion.
    ``draw`` must not depend on the completion.
    """
    segments = judgement.segments
    known = bool(judgement.judged) if all_orders else judgement.order is not None
    if not known or segments is None:
        missed = judgement.unjudged if all_orders else judgement.exclusion
        return WrittenOrbit(Candidates(prompt=prompt), missed)
    # A completion that the trainer has masked, because it was cut off, has no tokens.
    end = completion[-1] if completion else None
    if end is None or end not in ends:
        return WrittenOrbit(Candidates(prompt=prompt), "cut_off")
    if (*encode(segments.text(segments.reference)), end) != completion:
        return WrittenOrbit(Candidates(prompt=prompt), "tokens")
    # The number of orders that fit must not depend on the order; otherwise the choice would depend on the sample.
    fixed, moved = (
        [len(encode(text)) for text in some] for some in (segments.fixed, segments.moved)
    )
    choose = _judged if all_orders else _certified
    legal, wrong, is_whole = choose(judgement, fixed, moved, limits, draw)
    solving, failing = (
        {(*encode(segments.text(order)), end) for order in some} for some in (legal, wrong)
    )
    failing -= solving
    # Candidates are sorted, so that completions of one orbit have equal ones.
    orbit, illegal = (
        tuple(sorted(ids for ids in some if _can_be_sampled(ids, ends, limits)))
        for some in (solving, failing)
    )
    left_out = len(solving) - len(orbit) + all_orders * (len(failing) - len(illegal))
    return WrittenOrbit(
        Candidates(prompt=prompt, orbit=orbit, illegal=illegal),
        None,
        is_partial=not is_whole or left_out > 0,
    )


def _certified(
    judgement: Judgement,
    fixed: Sequence[int],
    moved: Sequence[int],
    limits: OrbitLimits,
    draw: np.random.Generator,
) -> tuple[Sequence[Order], Sequence[Order], bool]:
    """Return certified orders, illegal ones that fail, and whether the former are the whole orbit."""
    assert judgement.order is not None
    fit = max(1, limits.max_tokens // max(1, sum(fixed) + sum(moved)))
    orders = scored_orders(judgement.order, max_legal=limits.max_members, draw=draw)
    if not orders.whole_orbit or _tree_size(orders.legal, fixed, moved) > limits.max_tokens:
        most = min(limits.max_members, fit)
        orders = scored_orders(judgement.order, max_legal=most, draw=draw)
    wrong = _failing(judgement, limits.max_illegal)
    if _tree_size(wrong, fixed, moved) > limits.max_tokens:
        wrong = _failing(judgement, min(limits.max_illegal, fit))
    return orders.legal, wrong, orders.whole_orbit


def _judged(
    judgement: Judgement,
    fixed: Sequence[int],
    moved: Sequence[int],
    limits: OrbitLimits,
    draw: np.random.Generator,
) -> tuple[Sequence[Order], Sequence[Order], bool]:
    """Return judged orders that solve the task, those that do not, and whether they are all orders of the steps."""
    orders = dict(judgement.judged)
    changed = [place for place in range(len(moved)) if any(each[place] != place for each in orders)]
    first, end = min(changed, default=0), max(changed, default=0) + 1
    while end - first > 1 and _tree_size(list(orders), fixed, moved) > 2 * limits.max_tokens:
        # A block in a smaller window; which one depends on the block alone.
        left = int(draw.integers(2))
        first, end = first + left, end - 1 + left
        kept = [*range(first), *range(end, len(moved))]
        orders = {
            order: solves
            for order, solves in orders.items()
            if all(order[place] == place for place in kept)
        }
    by_kind = [
        [order for order, solves in orders.items() if solves is kind] for kind in (True, False)
    ]
    return by_kind[0], by_kind[1], len(orders) == factorial(len(moved))


def _can_be_sampled(ids: TokenIds, ends: Collection[int], limits: OrbitLimits) -> bool:
    """Return whether a completion of these tokens ends where they end, and is not cut off before."""
    return len(ids) <= limits.max_length and not any(token in ends for token in ids[:-1])


def _failing(judgement: Judgement, most: int) -> list[Order]:
    """Return those of at most ``most`` illegal orders that do not solve the task."""
    assert judgement.order is not None
    failing = set(judgement.failing)
    found = illegal_orders(judgement.order, copies=judgement.copies, most=most)
    return [order for order in found if order in failing]


def _tree_size(orders: Sequence[Order], fixed: Sequence[int], moved: Sequence[int]) -> int:
    """Return the number of tokens in a tree of these orders, if none merge; a common beginning counts once."""
    beginnings = {order[:count] for order in orders for count in range(1, len(order) + 1)}
    return fixed[0] + sum(moved[each[-1]] + fixed[len(each)] for each in beginnings)
