"""Long episodes: theories with 6 to 16 deductions, some of which need or change what others derive.

One to six relations are drawn, and rules are planted for them, either deductions about single entities or sweeps over
all (see :mod:`vcrt.environments.proofwriter.casting`). What came out is kept if the steps have relations that order
them as drawn. Not covered: the distribution of the real data.
"""

from __future__ import annotations

from collections.abc import Collection

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.long_posets import (
    Pair,
    components,
    draw_relations,
    long_schemas,
    num_steps_of,
)
from vcrt.environments.proofwriter.casting import Planted, planted_sweeps, told
from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import Plot, theme
from vcrt.environments.proofwriter.operations import GROUND, ActionKey
from vcrt.environments.proofwriter.posets import steps_to_take
from vcrt.environments.proofwriter.schemas import episode_of
from vcrt.environments.proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt.environments.proofwriter.vocabulary import ANIMALS, VERBS, Words, draw_atom, draw_words
from vcrt.environments.relation_search import Relations, find_relations
from vcrt.errors import VcrtError
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import generator

#: The schemas of long episodes.
LONG_SCHEMAS = long_schemas("deductions, some of which derive, or change, what others need")
GENERATOR = "vcrt long theories 1"
#: Theories drawn for one episode before it is given up; a few are enough.
MAX_THEORIES = 4000
#: How often an episode has sweeps, a rule that reads links needs something else too, and a rule serves two entities.
_SWEEPS, _CAUSE, _SHARED = 0.5, 0.3, 0.3
#: The fewest and the most things that planted deductions start from, and draws of a word before a theory is given up.
_CAUSES, _TRIES = (3, 6), 400
#: Up to this number of sweeps, the attributes of people are enough.
_FEW_SWEEPS = 6


def sample_long(schema: Schema, seed: int) -> Episode:
    """The episode of that seed, on the first of its theories whose steps have the relations that were drawn."""
    num_steps = num_steps_of(schema)
    draws = Draws(generator(seed, "proofwriter", schema.name))
    pairs = draw_relations(num_steps, draws.below)
    plant = _sweeps if draws.chance(_SWEEPS) else _ground_steps
    for _ in range(MAX_THEORIES):
        planted = plant(draws, num_steps, pairs)
        if planted is not None and _has_relations(*planted, pairs, draws):
            theory, keys = planted
            source = f"proofwriter/{theory.content_hash()}"
            provenance = Provenance(source=source, generator=GENERATOR, seed=seed)
            return episode_of(schema, theory, keys, provenance)
    raise VcrtError(
        f"no {num_steps} deductions with the relations {sorted(pairs)} were found",
        where=f"proofwriter/{schema.name}/{seed}",
        found=f"none in {MAX_THEORIES} theories",
    )


def _has_relations(
    theory: Theory, keys: list[ActionKey], pairs: Collection[Pair], draws: Draws
) -> bool:
    """Whether the steps are ordered by these pairs, and derive in the given order only what holds."""
    found = _relations(theory, keys, draws)
    if found is None:
        return False
    return found.few and found.order == PartialOrder.of(len(keys), pairs)


def _relations(theory: Theory, keys: list[ActionKey], draws: Draws) -> Relations | None:
    ready = steps_to_take(theory, keys)
    if ready is None:
        return None
    start, take = ready
    return find_relations(len(keys), start, take, lambda facts: facts, draws.below)


def _sweeps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Many sweeps need many different things to say, and an entity for each relation."""
    closed = draws.chance(0.6)
    words = draw_words(
        draws,
        assumption="CWA" if closed else "OWA",
        negation=draws.chance(0.7 if closed else 0.3),
        relations=num_steps > _FEW_SWEEPS or draws.chance(0.5),
        room=4,
        num_entities=(7, len(ANIMALS)),
        num_verbs=(4, len(VERBS)),
    )
    return planted_sweeps(draws, words, num_steps, pairs)


def _ground_steps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Steps that relations connect are about one entity; others may run the same rule on several."""
    assumption: Assumption = "CWA" if draws.chance(0.5) else "OWA"
    words = draw_words(
        draws,
        assumption=assumption,
        negation=assumption == "OWA" and draws.chance(0.5),
        relations=draws.chance(0.5),
        room=3,
        num_entities=(5, 8),
    )
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
