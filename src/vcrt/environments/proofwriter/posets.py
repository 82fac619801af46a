"""Schemas of several dependent steps: theories in which four rules need, or change, what the others derive.

A shape is drawn and rules are planted for it (see :mod:`vcrt.environments.proofwriter.casting`); what came out is kept
if its poset has the shape. Not covered: the distribution of the real data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.posets import NUM_STEPS, SHAPES, linear_order, poset_of
from vcrt.environments.proofwriter.casting import cast_of, planted_sweeps, told
from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import Plot
from vcrt.environments.proofwriter.operations import GROUND, ActionKey, run_step
from vcrt.environments.proofwriter.schemas import episode_of
from vcrt.environments.proofwriter.search import field_of
from vcrt.environments.proofwriter.theory import Assumption, Rule, Theory
from vcrt.environments.proofwriter.vocabulary import draw_words
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.randomness import generator

GROUND_POSET = Schema(
    name="ground_poset",
    summary="deductions, several of which derive what others need",
    relation="precedes",
    preset="several",
)
SWEEP_POSET = Schema(
    name="sweep_poset",
    summary="rules applied once to all entities, several of which derive what others need, find or take to be absent",
    relation="either",
    preset="several",
)
#: The schemas of several dependent steps.
POSET_SCHEMAS = (GROUND_POSET, SWEEP_POSET)
GENERATOR = "vcrt poset theories 1"
#: Theories drawn for one episode before it is given up; a few are enough.
MAX_THEORIES = 4000
#: How often a rule that reads links needs something else too.
_CAUSE = 0.3


def sample_poset(schema: Schema, seed: int) -> Episode:
    """The episode of that seed, on the first of its theories in which four steps have the shape that was drawn."""
    draws = Draws(generator(seed, "proofwriter", schema.name, "poset"))
    shape = draws.one(tuple(SHAPES))
    for _ in range(MAX_THEORIES):
        planted = _sweeps(draws, shape) if schema is SWEEP_POSET else _ground_steps(draws, shape)
        if planted is None:
            continue
        theory, keys = planted
        ordered = [keys[step] for step in linear_order(shape, draws.below)]
        if _has_shape(theory, ordered, shape):
            source = f"proofwriter/{theory.content_hash()}"
            provenance = Provenance(source=source, generator=GENERATOR, seed=seed)
            return episode_of(schema, theory, ordered, provenance)
    raise VcrtError(
        f"no four deductions of shape {shape!r} were found",
        where=f"proofwriter/{schema.name}/{seed}",
        found=f"none in {MAX_THEORIES} theories",
    )


def _has_shape(theory: Theory, keys: list[ActionKey], shape: str) -> bool:
    """Whether the steps have the shape, and derive in the given order only what holds."""
    ready = steps_to_take(theory, keys)
    if ready is None:
        return False
    start, take = ready
    found = poset_of(start, take, lambda facts: facts)
    return found is not None and found.shape == shape


def steps_to_take(
    theory: Theory, keys: Sequence[ActionKey]
) -> tuple[int, Callable[[int, int], int | None]] | None:
    """The facts to start from, and what a step makes of facts: None if it is refused or changes nothing.

    None for a theory without a label, and for steps that fail or derive in the given order what does not hold.
    """
    try:
        field_ = field_of(theory)
    except MalformedInputError:
        return None  # a theory that contradicts itself, or runs in a circle, has no label
    reference = field_.after(*keys)
    if not reference or reference & ~field_.holds:
        return None
    steps = [field_.actions.steps[key] for key in keys]

    def take(facts: int, step: int) -> int | None:
        after = run_step(steps[step], facts)
        return after if after != facts else None

    return field_.start, take


def _ground_steps(draws: Draws, shape: str) -> tuple[Theory, list[ActionKey]] | None:
    """Each component of the shape is about an entity of its own, or by chance about the same."""
    assumption: Assumption = "CWA" if draws.chance(0.5) else "OWA"
    words = draw_words(
        draws,
        assumption=assumption,
        negation=assumption == "OWA" and draws.chance(0.5),
        relations=draws.chance(0.5),
        room=2,
    )
    cast = cast_of(draws, words, NUM_STEPS, dict.fromkeys(SHAPES[shape], "needs"))
    if cast is None:
        return None
    entities = {step: draws.one(words.entities) for step in range(NUM_STEPS)}
    plot = Plot(words=words)
    rules = []
    for step, link in enumerate(cast.links):
        before = cast.before(step)
        if before:
            entities[step] = entities[min(before)]
        for other in before:
            if entities[other] != entities[step]:
                return None
        causes = [cast.causes[step]] if not before or draws.chance(_CAUSE) else []
        conditions = draws.shuffled([*(cast.links[other] for other in before), *causes])
        rules.append(Rule(conditions=tuple(conditions), conclusion=link))
        plot.forbid(link.bind(entities[step]))
        if not plot.add_facts(cause.bind(entities[step]) for cause in causes):
            return None
    return told(draws, plot, rules, [(GROUND, entities[step]) for step in range(NUM_STEPS)])


def _sweeps(draws: Draws, shape: str) -> tuple[Theory, list[ActionKey]] | None:
    closed = draws.chance(0.6)
    words = draw_words(
        draws,
        assumption="CWA" if closed else "OWA",
        negation=draws.chance(0.7 if closed else 0.3),
        relations=draws.chance(0.5),
        room=2,
    )
    return planted_sweeps(draws, words, NUM_STEPS, SHAPES[shape])
