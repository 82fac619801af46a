"""Schemas of several dependent steps: theories in which four rules need, or change, what the others derive.

A shape is drawn and rules are planted for it: each rule concludes its own *link*, and reads the links of the rules
that come before it. For ground steps a missing link is a missing condition. A sweep is steered by entities: on some a
rule finds its links as facts, on others it has to wait for them, or finds them absent too early. Rules and facts that
have nothing to do with it are added, and what came out is kept if its poset has the shape. Not covered: the
distribution of the real data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.posets import NUM_STEPS, SHAPES, linear_order, poset_of
from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import Plot, all_rules, theme
from vcrt.environments.proofwriter.operations import GROUND, SWEEP, ActionKey, run_step
from vcrt.environments.proofwriter.schemas import episode_of
from vcrt.environments.proofwriter.search import field_of
from vcrt.environments.proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt.environments.proofwriter.vocabulary import Words, draw_atom, draw_fact, draw_words
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
#: Draws of one word before the theory is given up, and how often a rule that reads links needs something else too.
_TRIES, _CAUSE = 100, 0.3
#: What a rule does with the link of an earlier one: it cannot run without, runs on more entities, or on fewer.
_Reading: TypeAlias = Literal["needs", "finds", "lacks"]


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
    try:
        field_ = field_of(theory)
    except MalformedInputError:
        return False  # a theory that contradicts itself, or runs in a circle, has no label
    reference = field_.after(*keys)
    if not reference or reference & ~field_.holds:
        return False
    steps = [field_.actions.steps[key] for key in keys]

    def take(facts: int, step: int) -> int | None:
        after = run_step(steps[step], facts)
        return after if after != facts else None

    found = poset_of(field_.start, take, lambda facts: facts)
    return found is not None and found.shape == shape


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
    cast = _cast(draws, words, dict.fromkeys(SHAPES[shape], "needs"))
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
    return _told(draws, plot, rules, [(GROUND, entities[step]) for step in range(NUM_STEPS)])


def _sweeps(draws: Draws, shape: str) -> tuple[Theory, list[ActionKey]] | None:
    """Every rule on all entities; one entity is there for each thing that must show."""
    closed = draws.chance(0.6)
    words = draw_words(
        draws,
        assumption="CWA" if closed else "OWA",
        negation=draws.chance(0.7 if closed else 0.3),
        relations=draws.chance(0.5),
        room=2,
    )
    absence = closed and words.negation
    readings: tuple[_Reading, ...] = ("needs", "finds", "lacks") if absence else ("needs", "finds")
    drawn = {pair: draws.one(readings) for pair in sorted(SHAPES[shape])}
    cast = _cast(draws, words, drawn)
    if cast is None:
        return None
    casting = _casting(cast)
    if len(casting) > len(words.entities):
        return None
    plot = Plot(words=words)
    rules = []
    for step, link in enumerate(cast.links):
        conditions = [
            cast.links[other].with_polarity("~" if cast.readings[other, step] == "lacks" else "+")
            for other in cast.before(step)
        ]
        rules.append(
            Rule(
                conditions=tuple(draws.shuffled([*conditions, cast.causes[step]])), conclusion=link
            )
        )
    for entity, acting in zip(draws.some(words.entities, len(casting)), casting, strict=True):
        given = _given(cast, acting)
        plot.forbid(
            *(cast.links[step].bind(entity) for step in range(NUM_STEPS) if step not in given)
        )
        plot.forbid(*(cast.causes[s].bind(entity) for s in range(NUM_STEPS) if s not in acting))
        facts = [*(cast.causes[s] for s in acting), *(cast.links[s] for s in given)]
        if not plot.add_facts(fact.bind(entity) for fact in facts):
            return None
    return _told(draws, plot, rules, [(SWEEP, None)] * NUM_STEPS)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cast:
    """The atoms of the planted rules: what each concludes, what else it needs, and how it reads the links before it."""

    links: tuple[Atom, ...]
    causes: tuple[Atom, ...]
    readings: Mapping[tuple[int, int], _Reading]

    def before(self, step: int) -> list[int]:
        """The steps whose links a step reads."""
        return sorted(a for a, b in self.readings if b == step)

    def read_as(self, step: int, reading: _Reading) -> list[int]:
        """The steps whose links a step reads in that way."""
        return [a for a in self.before(step) if self.readings[a, step] == reading]


def _cast(draws: Draws, words: Words, readings: Mapping[tuple[int, int], _Reading]) -> _Cast | None:
    """Atoms about different things; links rank in the order of the steps, so that negation finds a stratum."""
    found: list[Atom] = []
    themes = set()
    for _ in range(_TRIES):
        atom = draw_atom(draws, words, words.variable)
        if theme(atom) not in themes:
            themes.add(theme(atom))
            found.append(atom)
        if len(found) == 2 * NUM_STEPS:
            ranked = sorted(found, key=words.rank)
            # Causes lowest: nothing that a rule concludes is below what it needs.
            return _Cast(
                readings=readings,
                causes=tuple(draws.shuffled(ranked[:NUM_STEPS])),
                links=tuple(ranked[NUM_STEPS:]),
            )
    return None


def _casting(cast: _Cast) -> list[frozenset[int]]:
    """For each entity that is needed, the steps that can act on it.

    All act on the first. A step that finds, or lacks, links acts on one entity where it need not wait for them, and,
    if there are several, on one for each, where it waits for this link alone.
    """
    casting = [frozenset(range(NUM_STEPS))]
    for step in range(NUM_STEPS):
        loose = [*cast.read_as(step, "finds"), *cast.read_as(step, "lacks")]
        if loose:
            casting.append(_with_needed(cast, [step]))
        if len(loose) > 1:
            casting += [_with_needed(cast, [step, other]) for other in loose]
    return list(dict.fromkeys(casting))


def _with_needed(cast: _Cast, steps: Collection[int]) -> frozenset[int]:
    """The steps and all that they cannot run without."""
    acting: set[int] = set()
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step not in acting:
            acting.add(step)
            waiting += cast.read_as(step, "needs")
    return frozenset(acting)


def _given(cast: _Cast, acting: Collection[int]) -> set[int]:
    """The steps whose links are facts for an entity: those that an acting step finds and that do not act themselves."""
    return {found for step in acting for found in cast.read_as(step, "finds")} - set(acting)


def _told(
    draws: Draws, plot: Plot, rules: list[Rule], actions: list[tuple[str, str | None]]
) -> tuple[Theory, list[ActionKey]]:
    """The planted rules and facts among others."""
    words = plot.words
    every = all_rules(draws, words, rules, NUM_STEPS + draws.between(1, 5))
    for _ in range(draws.between(4, 14)):
        plot.add_facts([draw_fact(draws, words)])
    theory = Theory(
        assumption=words.assumption, facts=tuple(sorted(plot.facts)), rules=tuple(every)
    )
    keys = [
        (kind, every.index(rule) + 1, entity)
        for rule, (kind, entity) in zip(rules, actions, strict=True)
    ]
    return theory, keys
