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
from vcrt.replay.completions import Judgement, Segments, illegal_orders, scored_orders
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
) -> WrittenOrbit:
    """Make the candidates of a completion: none for a failure, or for a success that stands for itself.

    ``encode`` gives the tokens of a text, without special tokens; ``ends`` holds the tokens that end a completion.
    ``draw`` must not depend on the completion.
    """
    segments = judgement.segments
    if judgement.order is None or segments is None:
        return WrittenOrbit(Candidates(prompt=prompt), judgement.exclusion)
    if (reason := _other_tokens(completion, segments, encode, ends)) is not None:
        return WrittenOrbit(Candidates(prompt=prompt), reason)
    end = completion[-1]
    # The number of orders that fit must not depend on the order; otherwise the choice would depend on the sample.
    fixed, moved = (
        [len(encode(text)) for text in some] for some in (segments.fixed, segments.moved)
    )
    fit = max(1, limits.max_tokens // max(1, sum(fixed) + sum(moved)))
    orders = scored_orders(judgement.order, max_legal=limits.max_members, draw=draw)
    if not orders.whole_orbit or _tree_size(orders.legal, fixed, moved) > limits.max_tokens:
        most = min(limits.max_members, fit)
        orders = scored_orders(judgement.order, max_legal=most, draw=draw)
    wrong = _failing(judgement, limits.max_illegal)
    if _tree_size(wrong, fixed, moved) > limits.max_tokens:
        wrong = _failing(judgement, min(limits.max_illegal, fit))
    legal, illegal = (
        dict.fromkeys((*encode(segments.text(order)), end) for order in some)
        for some in (orders.legal, wrong)
    )
    # Candidates are sorted, so that completions of one orbit have equal ones.
    sampleable = [ids for ids in legal if _can_be_sampled(ids, ends, limits)]
    orbit = tuple(sorted(sampleable))
    return WrittenOrbit(
        Candidates(
            prompt=prompt,
            orbit=orbit,
            illegal=tuple(
                sorted(
                    ids
                    for ids in illegal
                    if ids not in legal and _can_be_sampled(ids, ends, limits)
                )
            ),
        ),
        None,
        is_partial=not orders.whole_orbit or len(orbit) < len(legal),
    )


def judged_orders(
    prompt: TokenIds,
    completion: TokenIds,
    judgement: Judgement,
    *,
    encode: Callable[[str], list[int]],
    ends: Collection[int],
    limits: OrbitLimits,
    draw: np.random.Generator,
) -> WrittenOrbit:
    """Make the candidates of a completion whose orders were judged: those that solve its task, and as illegal the rest.

    Arguments are those of :func:`written_orbit`. The token sequences that have candidates are divided into blocks by
    the candidates: each sequence of a block has the same. Blocks have at most twice the tokens of ``limits``.
    """
    segments = judgement.segments
    if not judgement.judged or segments is None:
        return WrittenOrbit(Candidates(prompt=prompt), judgement.unjudged)
    if (reason := _other_tokens(completion, segments, encode, ends)) is not None:
        return WrittenOrbit(Candidates(prompt=prompt), reason)
    fixed, moved = (
        [len(encode(text)) for text in some] for some in (segments.fixed, segments.moved)
    )
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
    texts = {
        (*encode(segments.text(order)), completion[-1]): solves for order, solves in orders.items()
    }
    found = {ids: solves for ids, solves in texts.items() if _can_be_sampled(ids, ends, limits)}
    return WrittenOrbit(
        Candidates(
            prompt=prompt,
            orbit=tuple(sorted(ids for ids, solves in found.items() if solves)),
            illegal=tuple(sorted(ids for ids, solves in found.items() if not solves)),
        ),
        None,
        is_partial=len(orders) < factorial(len(moved)) or len(found) < len(texts),
    )


def _can_be_sampled(ids: TokenIds, ends: Collection[int], limits: OrbitLimits) -> bool:
    """Return whether a completion of these tokens ends where they end, and is not cut off before."""
    return len(ids) <= limits.max_length and not any(token in ends for token in ids[:-1])


def _other_tokens(
    completion: TokenIds,
    segments: Segments,
    encode: Callable[[str], list[int]],
    ends: Collection[int],
) -> str | None:
    """Return why the tokens of a completion's other orders are not known; None if they are."""
    # A completion that the trainer has masked, because it was cut off, has no tokens.
    if not completion or completion[-1] not in ends:
        return "cut_off"
    written = encode(segments.text(segments.reference))
    return None if (*written, completion[-1]) == completion else "tokens"


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
