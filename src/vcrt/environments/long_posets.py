"""Episodes of many steps: their schemas, and the relations that samplers plant between the steps.

What an episode's relations are is for certification to say. Not covered: how a sampler checks a candidate (see
:mod:`vcrt.environments.relation_search`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from vcrt.environments.contract import AntiDiamonds, Schema
from vcrt.orders import Order, transitive_closure, transitive_reduction
from vcrt.partial_orders import PartialOrder

Pair: TypeAlias = tuple[int, int]
#: ``below(n)``: a random number from 0 up to, not including, ``n``.
Below: TypeAlias = Callable[[int], int]

#: How many steps the long episodes have, and the most anti-diamonds.
SIZES = (6, 8, 12, 16)
MAX_ANTI_DIAMONDS = 6
#: How often, in a hundred, one end of a new relation is a step that has one already.
_JOINED = 50
#: Draws of one relation before all are drawn anew.
_TRIES = 40


def long_schemas(summary: str, relation: AntiDiamonds = "either") -> tuple[Schema, ...]:
    """One schema for each size, each for the preset of its own name."""
    return tuple(
        Schema(
            name=f"posets{size}",
            summary=f"{size} {summary}",
            relation=relation,
            preset=f"posets{size}",
        )
        for size in SIZES
    )


def num_steps_of(schema: Schema) -> int:
    """How many steps the episodes of one of :func:`long_schemas` have."""
    return int(schema.name.removeprefix("posets"))


def draw_relations(num_steps: int, below: Below) -> frozenset[Pair]:
    """One to six pairs (before, after), none of which follows from the others, that leave two orders at least.

    Each number is equally likely; ``num_steps`` is 5 at least. Pairs ascend.
    """
    number = 1 + below(MAX_ANTI_DIAMONDS)
    while True:
        drawn = _draw_pairs(num_steps, number, below)
        if drawn is not None and len(transitive_closure(drawn)) < num_steps * (num_steps - 1) // 2:
            return drawn


def _draw_pairs(num_steps: int, number: int, below: Below) -> frozenset[Pair] | None:
    pairs: frozenset[Pair] = frozenset()
    for _ in range(_TRIES):
        related = sorted({step for pair in pairs for step in pair})
        joined = related and below(100) < _JOINED
        one, other = related[below(len(related))] if joined else below(num_steps), below(num_steps)
        if one == other:
            continue
        grown = pairs | {(min(one, other), max(one, other))}
        if transitive_reduction(grown) == grown:
            pairs = grown
        if len(pairs) == number:
            return pairs
    return None


def draw_extension(order: PartialOrder, below: Below) -> Order:
    """A linear extension: at every place one of the legal moves, all equally likely."""
    done, placed = 0, []
    for _ in range(order.num_operations):
        moves = order.moves(done)
        step = moves[below(len(moves))]
        placed.append(step)
        done |= 1 << step
    return tuple(placed)


def components(num_steps: int, pairs: Collection[Pair]) -> list[list[int]]:
    """The steps that relations connect, each group sorted, by first member."""
    group = list(range(num_steps))
    for one, other in pairs:
        old, new = group[other], group[one]
        group = [new if each == old else each for each in group]
    members: dict[int, list[int]] = {}
    for step, number in enumerate(group):
        members.setdefault(number, []).append(step)
    return sorted(members.values())
