"""Choose the orders of an episode for a cross-check's second engine: all for few steps, some for many.

The sample has the reference order, its reversal, and orders that are one move of one step away from a legal order;
random walks from the reference order give these legal orders. So most are legal, and the refused ones are close to
legal.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.environments.contract import Environment, Episode, Replay, ReplayRequest
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.orders import Order, all_orders
from vcrt.randomness import Generator, generator

#: How many legal orders wander, and how many moves each of them tries.
_WANDERERS, _MOVES = 4, 4


def replays_to_check(environment: Environment, episode: Episode) -> list[Replay]:
    """Replay, by ``environment``, all orders in lexicographic order, or a sample that begins with the reference order.

    The sample is a function of the episode and of what the environment answers. Raises what ``replay`` raises.
    """
    if episode.num_operations <= MAX_EXHAUSTIVE:
        orders = all_orders(episode.num_operations)
        return environment.replay([ReplayRequest(episode, order) for order in orders])
    rng = _generator(episode)
    reference = tuple(range(episode.num_operations))
    first, last = environment.replay(
        [ReplayRequest(episode, order) for order in (reference, reference[::-1])]
    )
    found = {first.sequence: first, last.sequence: last}
    legal = [first] * _WANDERERS
    for _ in range(_MOVES):
        moved = [_with_one_moved(replay.sequence, rng) for replay in legal]
        answers = environment.replay([ReplayRequest(episode, order) for order in moved])
        found |= {answer.sequence: answer for answer in answers}
        legal = [
            answer if answer.is_legal(first.outcome) else before
            for answer, before in zip(answers, legal, strict=True)
        ]
    return list(found.values())


def sampled_replays(episode: Episode, replays: Sequence[Replay]) -> list[Replay]:
    """Choose from given replays: all of them, or the first (the reference order) and a sample of the others."""
    if episode.num_operations <= MAX_EXHAUSTIVE:
        return list(replays)
    first, *others = replays
    number = min(len(others), 1 + _WANDERERS * _MOVES)
    places = sorted(_generator(episode).permutation(len(others))[:number])
    return [first, *(others[place] for place in places)]


def _with_one_moved(order: Order, rng: Generator) -> Order:
    rest = list(order)
    step = rest.pop(int(rng.integers(len(rest))))
    rest.insert(int(rng.integers(len(order))), step)
    return tuple(rest)


def _generator(episode: Episode) -> Generator:
    return generator(
        episode.provenance.seed, episode.environment, episode.schema, "second opinions"
    )
