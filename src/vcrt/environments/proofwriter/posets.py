"""Sample theories of several dependent steps: four of a shape, or 6 to 16 of which one to six pairs are related.

The relations are drawn, and rules are planted for them, either deductions about single entities or sweeps over all (see
:mod:`vcrt.environments.proofwriter.casting`). What came out is kept if the steps have the relations that were drawn.
Not covered: the distribution of the real data.
"""

from __future__ import annotations

from collections.abc import Collection

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.posets import (
    NUM_STEPS,
    DrawnRelations,
    Pair,
    Relations,
    components,
    long_schemas,
    several_schema,
)
from vcrt.environments.proofwriter.casting import Planted, cast_of, planted_sweeps, told
from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import Plot, theme
from vcrt.environments.proofwriter.operations import GROUND, ActionKey
from vcrt.environments.proofwriter.schemas import episode_of
from vcrt.environments.proofwriter.search import asked_of, field_of
from vcrt.environments.proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt.environments.proofwriter.vocabulary import ANIMALS, VERBS, Words, draw_atom, draw_words
from vcrt.environments.relation_search import find_relations
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.randomness import generator

GROUND_POSET = several_schema(
    "ground_poset", "deductions, several of which derive what others need", "precedes"
)
SWEEP_POSET = several_schema(
    "sweep_poset",
    "rules applied once to all entities, several of which derive what others need, find or take to be absent",
)
#: The schemas of several dependent steps.
POSET_SCHEMAS = (
    GROUND_POSET,
    SWEEP_POSET,
    *long_schemas("deductions, some of which derive, or change, what others need"),
)
#: Theories drawn for one episode before it is given up; a few are enough.
MAX_THEORIES = 4000
#: How often a long episode has sweeps, a rule that reads links needs something else too, and a rule serves two.
_SWEEPING, _CAUSE, _SHARED = 0.5, 0.3, 0.3
#: The fewest and the most things that planted deductions start from, and draws of a word before a theory is given up.
_CAUSES, _TRIES = (3, 6), 400
#: Up to this number of sweeps, the attributes of people are enough.
_FEW_SWEEPS = 6


def sample_poset(schema: Schema, seed: int) -> Episode:
    """The episode of that seed, on the first of its theories whose steps have the relations that were drawn."""
    short = schema.num_steps == NUM_STEPS
    draws = Draws(generator(seed, "proofwriter", schema.name, *["poset"] * short))
    drawn = DrawnRelations.of(schema, draws.below)
    sweeping = schema is SWEEP_POSET if short else draws.chance(_SWEEPING)
    plant = _sweeps if sweeping else _few_ground_steps if short else _ground_steps
    for _ in range(MAX_THEORIES):
        planted = plant(draws, drawn.num_steps, drawn.pairs)
        if planted is None:
            continue
        theory, keys = planted[0], drawn.arranged(planted[1], draws.below)
        if drawn.are(_relations(theory, keys, draws)):
            source = f"proofwriter/{theory.content_hash()}"
            name = f"vcrt {'poset' if short else 'long'} theories 1"
            provenance = Provenance(source=source, generator=name, seed=seed)
            return episode_of(schema, theory, keys, provenance)
    raise VcrtError(
        f"no {schema.num_steps} deductions {drawn.text} were found",
        where=f"proofwriter/{schema.name}/{seed}",
        found=f"none in {MAX_THEORIES} theories",
    )


def _relations(theory: Theory, keys: list[ActionKey], draws: Draws) -> Relations | None:
    """The relations of the steps in this order; None for a theory that contradicts itself, and so has no label."""
    try:
        asked = asked_of(field_of(theory), keys)
    except MalformedInputError:
        return None
    return None if asked is None else find_relations(*asked, draws.below)


def _sweeps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Many sweeps need many different things to say, and an entity for each relation."""
    closed = draws.chance(0.6)
    many = num_steps > NUM_STEPS
    words = draw_words(
        draws,
        assumption="CWA" if closed else "OWA",
        negation=draws.chance(0.7 if closed else 0.3),
        relations=num_steps > _FEW_SWEEPS or draws.chance(0.5),
        room=4 if many else 2,
        num_entities=(7, len(ANIMALS)) if many else (4, 6),
        num_verbs=(4, len(VERBS)) if many else (3, 4),
    )
    return planted_sweeps(draws, words, num_steps, pairs)


def _ground_words(draws: Draws, room: int, num_entities: tuple[int, int]) -> Words:
    assumption: Assumption = "CWA" if draws.chance(0.5) else "OWA"
    return draw_words(
        draws,
        assumption=assumption,
        negation=assumption == "OWA" and draws.chance(0.5),
        relations=draws.chance(0.5),
        room=room,
        num_entities=num_entities,
    )


def _few_ground_steps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Each group of steps that relations connect is about an entity of its own, or by chance about the same."""
    words = _ground_words(draws, room=2, num_entities=(4, 6))
    cast = cast_of(draws, words, num_steps, dict.fromkeys(pairs, "needs"))
    if cast is None:
        return None
    entities = {step: draws.one(words.entities) for step in range(num_steps)}
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
    return told(draws, plot, rules, [(GROUND, entities[step]) for step in range(num_steps)])


def _ground_steps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Steps that relations connect are about one entity; others may run the same rule on several."""
    words = _ground_words(draws, room=3, num_entities=(5, 8))
    drawn = _causes_and_links(draws, words, num_steps)
    if drawn is None:
        return None
    causes, links = drawn
    causes_only = frozenset(causes)
    plot = Plot(words=words)
    rules: dict[int, Rule] = {}
    entities: dict[int, str] = {}
    concluded: set[Atom] = set()
    for group in components(num_steps, pairs):
        entity = draws.one(words.entities)
        for step in group:
            before = [rules[a].conclusion for a, b in sorted(pairs) if b == step]
            needed = [draws.one(causes)] if not before or draws.chance(_CAUSE) else []
            rule = Rule(
                conditions=tuple(draws.shuffled([*before, *needed])), conclusion=draws.one(links)
            )
            shared = [each for each in rules.values() if causes_only.issuperset(each.conditions)]
            if len(group) == 1 and shared and draws.chance(_SHARED):
                rule = draws.one(shared)
                needed = [*rule.conditions]
            effect = rule.conclusion.bind(entity)
            if effect in concluded or not plot.add_facts(c.bind(entity) for c in needed):
                return None
            concluded.add(effect)
            plot.forbid(effect)
            rules[step], entities[step] = rule, entity
    actions: list[tuple[str, str | None]] = [(GROUND, entities[s]) for s in range(num_steps)]
    return told(draws, plot, [rules[step] for step in range(num_steps)], actions)


def _causes_and_links(
    draws: Draws, words: Words, num_steps: int
) -> tuple[list[Atom], list[Atom]] | None:
    """What planted deductions start from, and what they conclude: atoms about different things."""
    num_causes = draws.between(*_CAUSES)
    found: dict[tuple[str, str], Atom] = {}
    for _ in range(_TRIES):
        atom = draw_atom(draws, words, words.variable)
        found.setdefault(theme(atom), atom)
        if len(found) == num_causes + num_steps:
            break
    atoms = list(found.values())
    return (atoms[:num_causes], atoms[num_causes:]) if len(atoms) > 2 * num_causes else None
