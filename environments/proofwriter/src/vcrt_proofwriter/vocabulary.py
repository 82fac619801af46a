"""Hold the words of ProofWriter's theories, and draw single atoms and rules from them.

There are two families, as in the data: people with attributes, and animals with attributes that also act on one
another. Words, and the frequencies of forms, follow the open-world depth-5 theories of ProofWriter (Tafjord, Dalvi,
Clark 2021; Allen Institute for AI, CC BY).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vcrt.randomness import Generator
from vcrt_proofwriter.theory import VARIABLES, Assumption, Atom, Polarity, Rule

Item = TypeVar("Item")
#: Choices are drawn from the end of a block; sealed episodes depend on this size.
_BLOCK = 256

PEOPLE = ("Anne", "Bob", "Charlie", "Dave", "Erin", "Fiona", "Gary", "Harry")
ANIMALS = (
    *("bald eagle", "bear", "cat", "cow", "dog", "lion", "mouse", "rabbit", "squirrel", "tiger"),
)
ANIMAL_ATTRIBUTES = (
    *("big", "blue", "cold", "green", "kind", "nice", "red", "rough", "round", "young"),
)
ATTRIBUTES = (*ANIMAL_ATTRIBUTES, "furry", "quiet", "smart", "white")
VERBS = ("chases", "eats", "likes", "needs", "sees", "visits")

_NEGATIVE_FACTS = 0.15
_NEGATIVE_CONDITIONS = 0.06
_NEGATIVE_CONCLUSIONS = 0.1
_ABSENT_CONDITIONS = 0.35
_RELATIONS = 0.67
_NAMED_RULES = 0.16
_NAMED_ATOMS = 0.25
_TWO_CONDITIONS = 0.45


class Draws:
    """Uniform choices from one named generator, drawn in blocks, in the order of the calls."""

    def __init__(self, rng: Generator) -> None:
        self._rng = rng
        self._block: list[float] = []

    def chance(self, probability: float) -> bool:
        """Return True with that probability."""
        return self._uniform() < probability

    def below(self, number: int) -> int:
        """Return an integer from 0 to ``number - 1``."""
        return int(self._uniform() * number)

    def between(self, least: int, most: int) -> int:
        """Return an integer from ``least`` to ``most``, both included."""
        return least + self.below(most - least + 1)

    def one(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[Item], number: int) -> list[Item]:
        """Return so many different items (all, if there are fewer), in random order."""
        pool = list(items)
        number = min(number, len(pool))
        for place in range(number):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:number]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Return all items in random order."""
        return self.some(items, len(items))

    def _uniform(self) -> float:
        if not self._block:
            self._block = [self._rng.random() for _ in range(_BLOCK)]
        return self._block.pop()


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """The vocabulary of one theory, and how its rules may use it.

    ``ranks`` orders attributes and verbs if a theory negates as failure: conclusions rank no lower than conditions, and
    higher than negated ones, so that the theory is stratified. Otherwise it is empty.
    """

    assumption: Assumption
    negation: bool
    entities: tuple[str, ...]
    attributes: tuple[str, ...]
    verbs: tuple[str, ...]
    variable: str
    ranks: dict[str, int]

    def rank(self, atom: Atom) -> int:
        """Return the rank of an atom's attribute or verb; 0 if ranks do not matter."""
        word = atom.object if atom.predicate == "is" else atom.predicate
        return self.ranks.get(word, 0)


def draw_words(
    draws: Draws,
    *,
    assumption: Assumption,
    negation: bool,
    relations: bool,
    room: int,
    num_entities: tuple[int, int] = (4, 6),
    num_verbs: tuple[int, int] = (3, 4),
) -> Words:
    """Draw a vocabulary, with ``room`` more attributes than usual; the other numbers are least and most of each."""
    if relations:
        attributes = draws.some(ANIMAL_ATTRIBUTES, draws.between(3, 6) + room)
        verbs = draws.some(VERBS, draws.between(*num_verbs))
    else:
        attributes = draws.some(ATTRIBUTES, draws.between(7, 9) + room)
        verbs = []
    ranked = draws.shuffled([*attributes, *verbs]) if negation and assumption == "CWA" else []
    return Words(
        assumption=assumption,
        negation=negation,
        entities=tuple(draws.some(ANIMALS if relations else PEOPLE, draws.between(*num_entities))),
        attributes=tuple(attributes),
        verbs=tuple(verbs),
        variable=draws.one(sorted(VARIABLES)),
        ranks={word: rank for rank, word in enumerate(ranked)},
    )


def draw_quality(draws: Draws, words: Words, subject: str) -> Atom:
    """Draw the atom that the subject has some attribute."""
    return Atom(subject, "is", draws.one(words.attributes))


def draw_relation(draws: Draws, words: Words, subject: str, besides: str = "") -> Atom:
    """Draw the atom that the subject acts on some entity other than ``besides``."""
    targets = [entity for entity in words.entities if entity != besides]
    return Atom(subject, draws.one(words.verbs), draws.one(targets))


def draw_atom(draws: Draws, words: Words, subject: str) -> Atom:
    """Draw a quality or, if the vocabulary has verbs, more often a relation."""
    if words.verbs and draws.chance(_RELATIONS):
        return draw_relation(draws, words, subject)
    return draw_quality(draws, words, subject)


def draw_fact(draws: Draws, words: Words) -> Atom:
    """Draw a fact, in an open world with negation sometimes a negative one."""
    fact = draw_atom(draws, words, draws.one(words.entities))
    negative = words.negation and words.assumption == "OWA" and draws.chance(_NEGATIVE_FACTS)
    return fact.with_polarity("-") if negative else fact


def draw_num_conditions(draws: Draws) -> int:
    """Draw one or two."""
    return 2 if draws.chance(_TWO_CONDITIONS) else 1


def draw_rule(draws: Draws, words: Words) -> Rule:
    """Draw a rule with one or two conditions, on its variable or on named entities."""
    number = draw_num_conditions(draws) + 1
    if words.verbs:
        subjects = [
            draws.one(words.entities) if draws.chance(_NAMED_ATOMS) else words.variable
            for _ in range(number)
        ]
    else:
        named = draws.chance(_NAMED_RULES)
        subjects = [draws.one(words.entities) if named else words.variable] * number
    atoms = [draw_atom(draws, words, subject) for subject in subjects]
    *conditions, conclusion = sorted(atoms, key=words.rank) if words.ranks else atoms
    if conclusion.variables() and not any(c.variables() for c in conditions):
        conclusion = conclusion.bind(draws.one(words.entities))
    if conclusion in conditions or len(set(conditions)) < len(conditions):
        return draw_rule(draws, words)
    return with_negation(draws, words, conditions, conclusion)


def with_negation(draws: Draws, words: Words, conditions: Sequence[Atom], conclusion: Atom) -> Rule:
    """Return the rule with random negations if the theory has negation; the first condition stays as it is."""
    if not words.negation:
        return Rule(conditions=tuple(conditions), conclusion=conclusion)
    first, *others = conditions
    if words.assumption == "CWA":
        top = words.rank(conclusion)
        others = [
            _negated(draws, c, "~", _ABSENT_CONDITIONS if words.rank(c) < top else 0)
            for c in others
        ]
        return Rule(conditions=(first, *others), conclusion=conclusion)
    return Rule(
        conditions=(first, *(_negated(draws, c, "-", _NEGATIVE_CONDITIONS) for c in others)),
        conclusion=_negated(draws, conclusion, "-", _NEGATIVE_CONCLUSIONS),
    )


def _negated(draws: Draws, atom: Atom, polarity: Polarity, probability: float) -> Atom:
    return atom.with_polarity(polarity) if draws.chance(probability) else atom
