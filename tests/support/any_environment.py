"""Two environments of a user's own whose schemas have episodes of three, five, seven, nine and any number of steps."""

from __future__ import annotations

from poset_environment import Posets, closing, episode
from vcrt.environments.contract import Schema
from vcrt.randomness import generator

#: How many steps the episodes of a schema have.
LENGTHS = {"three": (3,), "five": (5,), "seven": (7,), "nine": (9,), "mixed": (2, 3, 4, 6)}


class Plans(Posets):
    """Random relations among a few steps: none in some episodes, and in others so many that one order is left."""

    name = "plans"
    schemas = tuple(
        Schema(name=name, summary=f"steps: {steps}", relation="either", preset="any")
        for name, steps in LENGTHS.items()
    )

    def sample(self, schema, seed):
        self.schema(schema)
        draw = generator(seed, self.name, schema)
        steps = LENGTHS[schema][int(draw.integers(len(LENGTHS[schema])))]
        pairs = [(a, b) for a in range(steps) for b in range(a + 1, steps)]
        share = draw.random() ** 2
        chosen = {pair for pair in pairs if draw.random() < share}
        needs = {pair for pair in chosen if draw.integers(2)}
        reads = closing(chosen - needs, needs)
        made = episode(steps, needs, reads, seed=seed, schema=schema)
        return type(made)(
            environment=self.name,
            schema=schema,
            initial=made.initial,
            operations=made.operations,
            provenance=made.provenance,
        )


class Recipes(Plans):
    """The same under another name, with other draws."""

    name = "recipes"


BOTH = {"plans": Plans, "recipes": Recipes}
