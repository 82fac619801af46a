"""Draw the relations that a sampler plants between steps: a shape of four steps, or one to six relations of any number.

Samplers of the included environments and of your own may use them. Certification alone decides which relations an
episode has; :mod:`vcrt.environments.relation_search` finds those of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from typing import TypeAlias, TypeVar

from vcrt.environments.contract import AntiDiamonds, RelationKind, Schema
from vcrt.errors import MalformedInputError
from vcrt.orders import Order, linear_extensions, transitive_closure, transitive_reduction
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import Generator

Step = TypeVar("Step")
Pair: TypeAlias = tuple[int, int]
Pairs: TypeAlias = frozenset[Pair]
#: ``below(n)``: a random number from 0 up to, not including, ``n``.
Below: TypeAlias = Callable[[int], int]

#: The number of steps of a shape.
NUM_STEPS = 4
#: Every poset of four steps with at least two relations and two linear extensions, up to renaming: by name, the pairs
#: that imply the others. The numbers of linear extensions are 8 8 6 6 6 5 4 4 3 3 2 2 2.
SHAPES: Mapping[str, Pairs] = {
    "fork": frozenset({(0, 1), (0, 2)}),
    "join": frozenset({(0, 2), (1, 2)}),
    "two pairs": frozenset({(0, 1), (2, 3)}),
    "source": frozenset({(0, 1), (0, 2), (0, 3)}),
    "sink": frozenset({(0, 3), (1, 3), (2, 3)}),
    "zigzag": frozenset({(0, 2), (1, 2), (1, 3)}),
    "chain": frozenset({(0, 1), (1, 2)}),
    "crossing": frozenset({(0, 2), (0, 3), (1, 2), (1, 3)}),
    "branched chain": frozenset({(0, 1), (1, 2), (0, 3)}),
    "joined chain": frozenset({(0, 1), (1, 3), (2, 3)}),
    "late fork": frozenset({(0, 1), (1, 2), (1, 3)}),
    "early join": frozenset({(0, 2), (1, 2), (2, 3)}),
    "diamond": frozenset({(0, 1), (0, 2), (1, 3), (2, 3)}),
}
#: The numbers of steps of the included environments' long episodes, and the most anti-diamonds.
SIZES = (6, 8, 12, 16)
MAX_ANTI_DIAMONDS = 6
#: The probability, in per cent, that one end of a new relation is a step that already has a relation.
_JOINED = 50
#: Pairs that are tried before all relations are drawn anew.
_TRIES = 40


@dataclass(frozen=True)
class Relations:
    """The kind of each pair of ``num_steps`` steps that some context shows; None if the pair commutes.

    The steps are numbered in the reference order, so each pair of numbers (before, after) ascends.
    """

    num_steps: int
    kinds: Mapping[Pair, RelationKind | None]

    @cached_property
    def anti_diamonds(self) -> tuple[Pair, ...]:
        """The pairs that must keep their order, without those that only follow from others."""
        return tuple(sorted(pair for pair, kind in self.kinds.items() if kind is not None))

    @cached_property
    def order(self) -> PartialOrder:
        """The partial order that these pairs generate."""
        return PartialOrder.of(self.num_steps, self.anti_diamonds)

    @property
    def shape(self) -> str | None:
        """The name of the order of four steps in :data:`SHAPES`, if it has one."""
        return shape_of(self.order.pairs)

    @property
    def few(self) -> bool:
        """Whether there is at least one anti-diamond, and at most as many as a long episode may have."""
        return 1 <= len(self.anti_diamonds) <= MAX_ANTI_DIAMONDS

    @property
    def explain_all(self) -> bool:
        """Whether the other pairs order every pair that no context shows."""
        shown = {*self.kinds, *self.order.pairs}
        return shown.issuperset(combinations(range(self.num_steps), 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnRelations:
    """The planted relations: ``pairs`` (before, after) that imply the others; four steps have a ``shape``."""

    num_steps: int
    pairs: Pairs
    shape: str | None = None

    @classmethod
    def of(cls, schema: Schema, below: Below) -> DrawnRelations:
        """Draw one of :data:`SHAPES` uniformly for a schema of four steps; else call :func:`draw_relations`.

        Raise :class:`vcrt.errors.MalformedInputError` if the schema does not fix a number of steps of at least 4.
        """
        if schema.num_steps is None or schema.num_steps < NUM_STEPS:
            raise MalformedInputError(
                "no relations are drawn for a schema of that many steps",
                where=f"schema {schema.name!r}",
                found=f"num_steps={schema.num_steps}",
                expected=f"{NUM_STEPS} or more",
            )
        if schema.num_steps > NUM_STEPS:
            pairs = draw_relations(schema.num_steps, below)
            return cls(num_steps=schema.num_steps, pairs=pairs)
        shape = tuple(SHAPES)[below(len(SHAPES))]
        return cls(num_steps=NUM_STEPS, pairs=SHAPES[shape], shape=shape)

    @property
    def text(self) -> str:
        """The drawn relations, in words."""
        return (
            f"with the relations {sorted(self.pairs)}"
            if self.shape is None
            else f"of shape {self.shape!r}"
        )

    def arranged(self, steps: Sequence[Step], below: Below) -> list[Step]:
        """Return the steps, numbered as in ``pairs``, in the episode's order: of a shape, any legal one."""
        places = range(self.num_steps) if self.shape is None else linear_order(self.shape, below)
        return [steps[place] for place in places]

    def are(self, found: Relations | None) -> bool:
        """Return whether the steps of an episode have these relations; those of a shape in any numbering."""
        if found is None or self.shape is not None:
            return found is not None and found.shape == self.shape
        return found.few and found.order == PartialOrder.of(self.num_steps, self.pairs)


def below_of(rng: Generator) -> Below:
    """Return a function that draws numbers from a generator."""
    return lambda number: int(rng.integers(number))


def several_schema(name: str, summary: str, relation: AntiDiamonds = "either") -> Schema:
    """Return a schema whose episodes have one of :data:`SHAPES`."""
    return Schema(
        name=name, summary=summary, relation=relation, preset="several", num_steps=NUM_STEPS
    )


def long_schemas(summary: str, relation: AntiDiamonds = "either") -> tuple[Schema, ...]:
    """Return one schema for each size, named as its preset."""
    return tuple(
        Schema(name=f"posets{size}", summary=f"{size} {summary}", relation=relation, num_steps=size)
        for size in SIZES
    )


def shape_of(pairs: Collection[Pair]) -> str | None:
    """Return the name in :data:`SHAPES` of the transitively closed pairs of four steps, in any numbering.

    Return None for fewer than two relations or linear extensions.
    """
    return _NAMES.get(_canonical(pairs))


def linear_order(shape: str, below: Below) -> Order:
    """Draw one of the linear extensions of a shape, all equally likely."""
    extensions = linear_extensions(NUM_STEPS, SHAPES[shape])
    return extensions[below(len(extensions))]


def draw_relations(num_steps: int, below: Below) -> Pairs:
    """Draw one to six pairs (before, after), none implied by the others, that leave at least two orders.

    Each number of pairs is equally likely; ``num_steps`` is at least 5. The numbers of each pair ascend.
    """
    number = 1 + below(MAX_ANTI_DIAMONDS)
    while True:
        drawn = _draw_pairs(num_steps, number, below)
        if drawn is not None and len(transitive_closure(drawn)) < num_steps * (num_steps - 1) // 2:
            return drawn


def _draw_pairs(num_steps: int, number: int, below: Below) -> Pairs | None:
    pairs: Pairs = frozenset()
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
    """Draw a linear extension: at every place one of the legal moves, all equally likely."""
    done, placed = 0, []
    for _ in range(order.num_operations):
        moves = order.moves(done)
        step = moves[below(len(moves))]
        placed.append(step)
        done |= 1 << step
    return tuple(placed)


def components(num_steps: int, pairs: Collection[Pair]) -> list[list[int]]:
    """Return the groups of steps that relations connect, each sorted, ordered by first member."""
    group = list(range(num_steps))
    for one, other in pairs:
        old, new = group[other], group[one]
        group = [new if each == old else each for each in group]
    members: dict[int, list[int]] = {}
    for step, number in enumerate(group):
        members.setdefault(number, []).append(step)
    return sorted(members.values())


def _canonical(pairs: Collection[Pair]) -> tuple[Pair, ...]:
    return min(
        tuple(sorted((names[a], names[b]) for a, b in pairs))
        for names in permutations(range(NUM_STEPS))
    )


_NAMES = {_canonical(transitive_closure(pairs)): name for name, pairs in SHAPES.items()}
