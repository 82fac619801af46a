"""Sample episodes from generated theories in the manner of ProofWriter, with a planted pair of operations in each.

Equal draws give equal theories. A theory holds the rules and facts that its schema's pair needs, and unrelated ones;
the first theory whose other rules leave the pair undisturbed gives the episode. The distribution of the real data is
not reproduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt_proofwriter.operations import GROUND, SWEEP, ActionKey
from vcrt_proofwriter.search import (
    BINDING_SWEEP,
    CONJUNCTIVE_JOIN,
    NAF_SWEEP,
    RELATIONAL_JOIN,
    Pair,
    SearchSpace,
    commuting_with,
    enabled_operations,
    episode_of,
    is_pair,
    only_pair_matters,
    random_legal_order,
    search_space,
)
from vcrt_proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt_proofwriter.vocabulary import (
    Draws,
    Words,
    draw_atom,
    draw_fact,
    draw_num_conditions,
    draw_quality,
    draw_relation,
    draw_rule,
    draw_words,
)

GENERATOR = "vcrt theories 2"
#: Draws of one unrelated rule before it is given up.
_TRIES = 20
#: The probabilities that a rule of the pair is about a named entity, and that a conclusion of the two is negative.
_NAMED = 0.15
_NEGATIVE = 0.15


#: Choices of the other operations that are tried with one theory.
_CHOICES = 4
#: A theory, and the operations that were planted in it.
Planted: TypeAlias = tuple[Theory, list[ActionKey]]
#: The kind of a planted rule's operation, and the entity that it is about, None for a sweep.
Action: TypeAlias = tuple[str, str | None]


def sample_episode(schema: Schema, seed: int, num_operations: int = 4) -> Episode:
    """Return the episode of that seed, on the first generated theory that has one."""
    draws = Draws(generator(seed, "proofwriter", schema.name, num_operations))
    while True:
        theory, (first, second) = plant(schema, draws, num_operations)
        try:
            space = search_space(theory)
        except MalformedInputError:
            continue  # a theory that contradicts itself has no label
        keys = _with_others(schema, space, (first, second), draws, num_operations)
        if keys is not None:
            source = f"proofwriter/{theory.content_hash()}"
            provenance = Provenance(source=source, generator=GENERATOR, seed=seed)
            return episode_of(schema, theory, random_legal_order(keys, draws), provenance)


def _with_others(
    schema: Schema, space: SearchSpace, pair: Pair, draws: Draws, num_operations: int
) -> list[ActionKey] | None:
    """Return the pair and operations that commute with it, if there are enough."""
    if not is_pair(schema, space, pair):
        return None
    others = commuting_with(space, pair, enabled_operations(schema, space))
    if len(others) < num_operations - 2:
        return None
    for _ in range(_CHOICES):
        keys = [*pair, *draws.some(others, num_operations - 2)]
        if only_pair_matters(schema, space, keys):
            return keys
    return None


@dataclass(slots=True, kw_only=True)
class TheoryDraft:
    """A theory under construction: its rules, those of planted steps first, its facts, and its forbidden facts."""

    words: Words
    facts: set[Atom] = field(default_factory=set)
    forbidden: set[Atom] = field(default_factory=set)
    rules: list[Rule] = field(default_factory=list)

    def forbid(self, *atoms: Atom) -> None:
        """Forbid these atoms and their negations as facts."""
        for atom in atoms:
            self.forbidden |= {atom.with_polarity("+"), atom.with_polarity("-")}

    def add_facts(self, facts: Iterable[Atom]) -> bool:
        """Add facts unless one is forbidden or contradicts another; return whether they were added."""
        facts = set(facts)
        for fact in facts:
            opposite = fact.with_polarity("+" if fact.polarity == "-" else "-")
            if fact in self.forbidden or opposite in self.facts or opposite in facts:
                return False
        self.facts |= facts
        return True


def plant(schema: Schema, draws: Draws, num_operations: int = 4) -> Planted:
    """Return a theory with the schema's pair and room for that many operations."""
    closed = schema is NAF_SWEEP or draws.chance(0.5)
    assumption: Assumption = "CWA" if closed else "OWA"
    words = draw_words(
        draws,
        assumption=assumption,
        negation=schema is NAF_SWEEP or draws.chance(0.5),
        relations=schema is RELATIONAL_JOIN or draws.chance(0.4),
        room=max(0, num_operations - 4),
    )
    if schema in (BINDING_SWEEP, NAF_SWEEP):
        draft, action = _sweeps(schema, draws, words)
    else:
        draft, action = _ground_steps(schema, draws, words)
    _add_independent_rules(draws, draft, num_operations - 2)
    return completed(draws, draft, [action] * 2, num_operations)


def _ground_steps(schema: Schema, draws: Draws, words: Words) -> tuple[TheoryDraft, Action]:
    """Plant a rule that gives an entity a condition of another rule."""
    entity = draws.one(words.entities)
    num_extra = {CONJUNCTIVE_JOIN: 1, RELATIONAL_JOIN: draws.below(2)}.get(schema, 0)
    if schema is RELATIONAL_JOIN:
        link, *extra, effect = _related(draws, words, entity, 2 + num_extra)
    else:
        link, *extra, effect = _properties(draws, words, 2 + num_extra, relations=False)
    if words.negation and words.assumption == "OWA":
        link, effect = (
            atom.with_polarity("-") if draws.chance(_NEGATIVE) else atom for atom in (link, effect)
        )
    causes = _causes(draws, words, [link, *extra, effect])
    first = Rule(conditions=tuple(causes), conclusion=link)
    second = Rule(conditions=tuple(draws.shuffled([link, *extra])), conclusion=effect)
    if draws.chance(_NAMED):
        first = _named(first, entity)
    if draws.chance(_NAMED):
        second = _named(second, entity)
    draft = TheoryDraft(words=words, rules=[first, second])
    draft.forbid(link.bind(entity), effect.bind(entity))
    draft.add_facts(atom.bind(entity) for atom in (*causes, *extra))
    return draft, (GROUND, entity)


def _sweeps(schema: Schema, draws: Draws, words: Words) -> tuple[TheoryDraft, Action]:
    """Plant a rule that gives the first of two entities what another rule requires to hold, or to be absent."""
    one, two = draws.some(words.entities, 2)
    absent = schema is NAF_SWEEP
    num_extra = 1 if absent else draws.below(2)
    link, *extra, effect = _properties(draws, words, 2 + num_extra)
    causes = _causes(draws, words, [link, *extra, effect])
    conditions = draws.shuffled([link.with_polarity("~") if absent else link, *extra])
    first = Rule(conditions=tuple(causes), conclusion=link)
    second = Rule(conditions=tuple(conditions), conclusion=effect)
    draft = TheoryDraft(words=words, rules=[first, second])
    draft.forbid(link.bind(one), effect.bind(one), effect.bind(two))
    if absent:
        draft.forbid(link.bind(two), causes[0].bind(two))
    else:
        draft.add_facts([link.bind(two)])
    draft.add_facts(cause.bind(one) for cause in causes)
    draft.add_facts(atom.bind(entity) for atom in extra for entity in (one, two))
    return draft, (SWEEP, None)


def _properties(draws: Draws, words: Words, number: int, *, relations: bool = True) -> list[Atom]:
    """Draw different atoms about the variable, sorted by rank."""
    draw = draw_atom if relations else draw_quality
    found: set[Atom] = set()
    while len(found) < number:
        found.add(draw(draws, words, words.variable))
    return sorted(draws.shuffled(sorted(found)), key=words.rank)


def _related(draws: Draws, words: Words, entity: str, number: int) -> list[Atom]:
    """Draw different atoms about the variable, at least one of them a relation to another entity than the given one.

    The last of them, the conclusion, is sometimes about that other entity.
    """
    found = [draw_relation(draws, words, words.variable, besides=entity)]
    while len(found) < number:
        quality = draws.chance(0.4)
        atom = (
            draw_quality(draws, words, words.variable)
            if quality
            else draw_relation(draws, words, words.variable, besides=entity)
        )
        if atom not in found:
            found.append(atom)
    *conditions, conclusion = sorted(draws.shuffled(found), key=words.rank)
    if draws.chance(0.3):
        others = [e for e in words.entities if e != entity]
        conclusion = conclusion.bind(entity)._replace(subject=draws.one(others))
    return [*conditions, conclusion]


def _causes(draws: Draws, words: Words, others: Sequence[Atom]) -> list[Atom]:
    """Draw one or two conditions for the first rule, none of them among the other atoms."""
    themes = {theme(atom) for atom in others}
    found: list[Atom] = []
    number = draw_num_conditions(draws)
    while len(found) < number:
        atom = draw_atom(draws, words, words.variable)
        if theme(atom) not in themes:
            themes.add(theme(atom))
            found.append(atom)
    return found


def theme(atom: Atom) -> tuple[str, str]:
    """Return the content of an atom without its subject."""
    return atom.predicate, atom.object


def _named(rule: Rule, entity: str) -> Rule:
    return Rule(
        conditions=tuple(condition.bind(entity) for condition in rule.conditions),
        conclusion=rule.conclusion.bind(entity),
    )


def _add_independent_rules(draws: Draws, draft: TheoryDraft, number: int) -> None:
    """Add rules that can run on one or two entities and touch neither the pair nor each other."""
    read = {theme(atom) for rule in draft.rules for atom in rule.atoms()}
    written = {theme(rule.conclusion) for rule in draft.rules}
    for _ in range(number):
        for _ in range(_TRIES):
            rule = draw_rule(draws, draft.words)
            conditions = {theme(c) for c in rule.conditions}
            conclusion = theme(rule.conclusion)
            entities = draws.some(draft.words.entities, draws.between(1, 2))
            needed = [
                c.bind(entity) for c in rule.conditions if c.polarity != "~" for entity in entities
            ]
            apart = conclusion not in read | conditions and not conditions & written
            if apart and draft.add_facts(needed):
                draft.forbid(*(rule.conclusion.bind(entity) for entity in entities))
                draft.rules.append(rule)
                read |= {*conditions, conclusion}
                written.add(conclusion)
                break


def completed(
    draws: Draws, draft: TheoryDraft, actions: Sequence[Action], num_operations: int
) -> Planted:
    """Complete ``draft`` to a theory with its facts and rules and further ones, all different and shuffled.

    The planted operations are those of the first rules, one for each of ``actions``.
    """
    own = draft.rules
    rules = list(dict.fromkeys(own))
    number = num_operations + draws.between(1, 5)
    while len(rules) < number:
        rule = draw_rule(draws, draft.words)
        if rule not in rules:
            rules.append(rule)
    rules = draws.shuffled(rules)
    for _ in range(draws.between(4, 14)):
        draft.add_facts([draw_fact(draws, draft.words)])
    facts = tuple(sorted(draft.facts))
    theory = Theory(assumption=draft.words.assumption, facts=facts, rules=tuple(rules))
    keys = [
        (kind, rules.index(rule) + 1, entity if rule.variable else None)
        for rule, (kind, entity) in zip(own, actions, strict=False)
    ]
    return theory, keys
