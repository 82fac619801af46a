"""Sample theories of several dependent steps: four of a shape, or 6 to 16 of which one to six pairs are related.

The relations are drawn, and rules are planted for them, either deductions about single entities or sweeps over all.
Each rule concludes its own *link*, and reads the links of the rules that precede it. A ground step lacks a condition
without its link. Entities steer a sweep: for some, the links of a rule are facts; for others, the rule has to wait for
its links, or finds them absent too early. Unrelated rules and facts are added. The result is kept if its steps have the
drawn relations. The distribution of the real data is not reproduced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

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
from vcrt.environments.relation_search import find_relations
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.randomness import generator
from vcrt_proofwriter.generator import Action, Planted, TheoryDraft, completed, theme
from vcrt_proofwriter.operations import GROUND, SWEEP, ActionKey
from vcrt_proofwriter.search import episode_of, search_space, walked
from vcrt_proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt_proofwriter.vocabulary import ANIMALS, VERBS, Draws, Words, draw_atom, draw_words

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
#: Probabilities: a long episode has sweeps, a rule that reads links needs something else too, a rule serves two.
_SWEEPING, _CAUSE, _SHARED = 0.5, 0.3, 0.3
#: The fewest and the most atoms that planted deductions start from.
_CAUSES = (3, 6)
#: Draws of an atom before a theory is given up: of one unlike all others, and of all that deductions need.
_ATOM_TRIES, _ALL_TRIES = 100, 400
#: Up to this number of sweeps, the attributes of people are enough.
_FEW_SWEEPS = 6
#: How a rule reads the link of an earlier one: it cannot run without it, runs on more entities, or on fewer.
Reading: TypeAlias = Literal["needs", "finds", "lacks"]


def sample_poset(schema: Schema, seed: int) -> Episode:
    """Return the episode of that seed, on the first of its theories whose steps have the drawn relations."""
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
    """Return the relations of the steps in this order; None for a theory that contradicts itself or steps that fail."""
    try:
        arguments = walked(search_space(theory), keys)
    except MalformedInputError:
        return None
    return None if arguments is None else find_relations(*arguments, draws.below)


def _sweeps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Plant sweeps that each read the links of those that ``pairs`` (before, after) put before them.

    Every rule runs on all entities; each observable effect has an entity of its own. Many sweeps need many different
    atoms and many entities.
    """
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
    absence = words.assumption == "CWA" and words.negation
    readings: tuple[Reading, ...] = ("needs", "finds", "lacks") if absence else ("needs", "finds")
    drawn = {pair: draws.one(readings) for pair in sorted(pairs)}
    atoms = _planted_atoms(draws, words, num_steps, drawn)
    if atoms is None:
        return None
    needed = _steps_by_entity(atoms)
    if len(needed) > len(words.entities):
        return None
    draft = TheoryDraft(words=words)
    for step, link in enumerate(atoms.links):
        conditions = [
            atoms.links[other].with_polarity("~" if atoms.readings[other, step] == "lacks" else "+")
            for other in atoms.before(step)
        ]
        conditions = draws.shuffled([*conditions, atoms.causes[step]])
        draft.rules.append(Rule(conditions=tuple(conditions), conclusion=link))
    for entity, acting in zip(draws.some(words.entities, len(needed)), needed, strict=True):
        # Links that an acting step finds, of steps that do not act themselves, are facts.
        given = {found for step in acting for found in atoms.read_as(step, "finds")} - acting
        draft.forbid(
            *(atoms.links[step].bind(entity) for step in range(num_steps) if step not in given)
        )
        draft.forbid(*(atoms.causes[s].bind(entity) for s in range(num_steps) if s not in acting))
        facts = [*(atoms.causes[s] for s in acting), *(atoms.links[s] for s in given)]
        if not draft.add_facts(fact.bind(entity) for fact in facts):
            return None
    return completed(draws, draft, [(SWEEP, None)] * num_steps, num_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class _PlantedAtoms:
    """The atoms of the planted rules: conclusions, other conditions, and how each rule reads the links before it."""

    links: tuple[Atom, ...]
    causes: tuple[Atom, ...]
    readings: Mapping[tuple[int, int], Reading]

    def before(self, step: int) -> list[int]:
        """Return the steps whose links a step reads."""
        return sorted(a for a, b in self.readings if b == step)

    def read_as(self, step: int, reading: Reading) -> list[int]:
        """Return the steps whose links a step reads in that way."""
        return [a for a in self.before(step) if self.readings[a, step] == reading]


def _planted_atoms(
    draws: Draws, words: Words, num_steps: int, readings: Mapping[tuple[int, int], Reading]
) -> _PlantedAtoms | None:
    """Draw atoms of different themes; links rank in the order of the steps, so that negation is stratified."""
    found: list[Atom] = []
    themes = set()
    for _ in range(_ATOM_TRIES):
        atom = draw_atom(draws, words, words.variable)
        if theme(atom) not in themes:
            themes.add(theme(atom))
            found.append(atom)
        if len(found) == 2 * num_steps:
            ranked = sorted(found, key=words.rank)
            # Causes rank lowest: no conclusion of a rule is below its conditions.
            return _PlantedAtoms(
                readings=readings,
                causes=tuple(draws.shuffled(ranked[:num_steps])),
                links=tuple(ranked[num_steps:]),
            )
    return None


def _steps_by_entity(atoms: _PlantedAtoms) -> list[frozenset[int]]:
    """Return, for each entity that is needed, the steps that can act on it.

    All act on the first. A step that finds, or lacks, links acts on one entity where it need not wait for them, and, if
    there are several links, on one for each, where it waits for this link alone.
    """
    found = [frozenset(range(len(atoms.links)))]
    for step in range(len(atoms.links)):
        loose = [*atoms.read_as(step, "finds"), *atoms.read_as(step, "lacks")]
        if loose:
            found.append(_with_needed(atoms, [step]))
        if len(loose) > 1:
            found += [_with_needed(atoms, [step, other]) for other in loose]
    return list(dict.fromkeys(found))


def _with_needed(atoms: _PlantedAtoms, steps: Collection[int]) -> frozenset[int]:
    """Return the steps and all steps that they cannot run without."""
    acting: set[int] = set()
    waiting = list(steps)
    while waiting:
        step = waiting.pop()
        if step not in acting:
            acting.add(step)
            waiting += atoms.read_as(step, "needs")
    return frozenset(acting)


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
    """Plant steps; each connected group of them is about an entity of its own, or by chance about the same."""
    words = _ground_words(draws, room=2, num_entities=(4, 6))
    atoms = _planted_atoms(draws, words, num_steps, dict.fromkeys(pairs, "needs"))
    if atoms is None:
        return None
    entities = {step: draws.one(words.entities) for step in range(num_steps)}
    draft = TheoryDraft(words=words)
    for step, link in enumerate(atoms.links):
        before = atoms.before(step)
        if before:
            entities[step] = entities[min(before)]
        for other in before:
            if entities[other] != entities[step]:
                return None
        causes = [atoms.causes[step]] if not before or draws.chance(_CAUSE) else []
        conditions = draws.shuffled([*(atoms.links[other] for other in before), *causes])
        draft.rules.append(Rule(conditions=tuple(conditions), conclusion=link))
        draft.forbid(link.bind(entities[step]))
        if not draft.add_facts(cause.bind(entities[step]) for cause in causes):
            return None
    actions: list[Action] = [(GROUND, entities[step]) for step in range(num_steps)]
    return completed(draws, draft, actions, num_steps)


def _ground_steps(draws: Draws, num_steps: int, pairs: Collection[Pair]) -> Planted | None:
    """Plant ground steps; connected ones are about one entity, others may run the same rule on several."""
    words = _ground_words(draws, room=3, num_entities=(5, 8))
    drawn = _causes_and_links(draws, words, num_steps)
    if drawn is None:
        return None
    causes, links = drawn
    causes_only = frozenset(causes)
    draft = TheoryDraft(words=words)
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
            if effect in concluded or not draft.add_facts(c.bind(entity) for c in needed):
                return None
            concluded.add(effect)
            draft.forbid(effect)
            rules[step], entities[step] = rule, entity
    actions: list[Action] = [(GROUND, entities[step]) for step in range(num_steps)]
    draft.rules = [rules[step] for step in range(num_steps)]
    return completed(draws, draft, actions, num_steps)


def _causes_and_links(
    draws: Draws, words: Words, num_steps: int
) -> tuple[list[Atom], list[Atom]] | None:
    """Draw the atoms that planted deductions start from, and those that they conclude, all of different themes."""
    num_causes = draws.between(*_CAUSES)
    found: dict[tuple[str, str], Atom] = {}
    for _ in range(_ALL_TRIES):
        atom = draw_atom(draws, words, words.variable)
        found.setdefault(theme(atom), atom)
        if len(found) == num_causes + num_steps:
            break
    atoms = list(found.values())
    return (atoms[:num_causes], atoms[num_causes:]) if len(atoms) > 2 * num_causes else None
