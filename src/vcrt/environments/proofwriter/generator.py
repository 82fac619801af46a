"""Seeded theories in the manner of RuleTaker: the embedded default where no ProofWriter file is at hand.

Promised: the same seed gives the same theory; every theory has exactly one model (CWA theories are stratified by
construction, contradictory OWA theories are drawn anew). Not covered: the distribution of the real data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from vcrt.environments.proofwriter.engine import ground, model
from vcrt.environments.proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator

PEOPLE = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Finn", "Greta", "Hugo", "Ines", "Jonas")
ATTRIBUTES = (
    *("brave", "calm", "clever", "eager", "fair", "gentle", "happy", "honest", "loud", "merry"),
    *("proud", "shy", "strong", "tall", "tidy", "warm", "wise", "witty"),
)
VERBS = ("follows", "greets", "helps", "knows", "meets", "trusts")
_NUM_LEVELS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TheoryShape:
    """How large a generated theory is; ``num_seeded`` times, a rule gets its conditions as facts for a person."""

    num_people: int
    num_attributes: int
    num_verbs: int
    num_rules: int
    num_facts: int
    num_seeded: int


def draw_shape(rng: np.random.Generator, num_operations: int = 4) -> TheoryShape:
    """A shape with room for that many operations, and distractors beside them."""
    num_rules = num_operations + int(rng.integers(1, 6))
    return TheoryShape(
        num_people=int(rng.integers(4, 8)),
        num_attributes=min(len(ATTRIBUTES), num_operations + int(rng.integers(3, 8))),
        num_verbs=int(rng.integers(0, 3)),
        num_rules=num_rules,
        num_facts=int(rng.integers(3, 9)),
        num_seeded=int(rng.integers(num_operations, 2 * num_rules + 1)),
    )


def sample_theory(
    seed: int, *names: str | int, assumption: Assumption, num_operations: int = 4
) -> Theory:
    """The theory of that seed and path of names, with room for ``num_operations`` operations."""
    for attempt in count():
        rng = generator(seed, *names, "theory", attempt)
        theory = _draw_theory(rng, draw_shape(rng, num_operations), assumption)
        try:
            model(ground(theory))
        except MalformedInputError:
            continue
        return theory
    raise AssertionError("count() does not end")


def _draw_theory(rng: np.random.Generator, shape: TheoryShape, assumption: Assumption) -> Theory:
    draw = _Draw(rng, shape, assumption)
    rules = tuple(draw.rules())
    facts = {draw.fact() for _ in range(shape.num_facts)}
    for index in rng.integers(len(rules), size=shape.num_seeded):
        person = draw.person()
        facts |= {
            condition.bind(person)
            for condition in rules[int(index)].conditions
            if condition.polarity != "~"
        }
    return Theory(assumption=assumption, facts=tuple(sorted(facts)), rules=rules)


class _Draw:
    """One theory's vocabulary and its random choices."""

    def __init__(
        self, rng: np.random.Generator, shape: TheoryShape, assumption: Assumption
    ) -> None:
        self.rng = rng
        self.shape = shape
        self.assumption = assumption
        self.people = self._some(PEOPLE, shape.num_people)
        self.attributes = self._some(ATTRIBUTES, shape.num_attributes)
        self.verbs = self._some(VERBS, shape.num_verbs)
        # Negation as failure only looks down these levels, so that every theory is stratified.
        self.level = {n: int(rng.integers(_NUM_LEVELS)) for n in (*self.attributes, *self.verbs)}

    def _some(self, words: tuple[str, ...], number: int) -> tuple[str, ...]:
        return tuple(words[int(i)] for i in self.rng.permutation(len(words))[:number])

    def _one(self, words: tuple[str, ...]) -> str:
        return words[int(self.rng.integers(len(words)))]

    def person(self) -> str:
        """A person of this theory."""
        return self._one(self.people)

    def fact(self) -> Atom:
        """A fact about an attribute or, at times, a relation; under OWA at times a negative one."""
        negative = self.assumption == "OWA" and self.rng.random() < 0.15
        if self.verbs and self.rng.random() < 0.3:
            return Atom(
                self.person(), self._one(self.verbs), self.person(), "-" if negative else "+"
            )
        return Atom(self.person(), "is", self._one(self.attributes), "-" if negative else "+")

    def rules(self) -> Iterator[Rule]:
        """Rules that are all different."""
        seen: set[Rule] = set()
        while len(seen) < self.shape.num_rules:
            rule = self._rule()
            if rule not in seen:
                seen.add(rule)
                yield rule

    def _rule(self) -> Rule:
        subject = self.person() if self.rng.random() < 0.15 else "someone"
        if self.verbs and self.rng.random() < 0.2:
            return self._relational(subject)
        head = self._one(self.attributes)
        others = tuple(
            a for a in self.attributes if a != head and self.level[a] <= self.level[head]
        )
        if not others:
            return self._rule()
        chosen = self._some(others, 1 + int(self.rng.choice(3, p=(0.4, 0.45, 0.15))))
        conditions = [self._condition(subject, attribute, head) for attribute in chosen]
        if all(condition.polarity != "+" for condition in conditions):
            conditions[0] = conditions[0].with_polarity("+")
        negative = self.assumption == "OWA" and self.rng.random() < 0.15
        return Rule(
            conditions=tuple(conditions),
            conclusion=Atom(subject, "is", head, "-" if negative else "+"),
        )

    def _condition(self, subject: str, attribute: str, head: str) -> Atom:
        if self.assumption == "OWA":
            return Atom(subject, "is", attribute, "-" if self.rng.random() < 0.2 else "+")
        below = self.level[attribute] < self.level[head]
        return Atom(subject, "is", attribute, "~" if below and self.rng.random() < 0.7 else "+")

    def _relational(self, subject: str) -> Rule:
        verb, attribute = self._one(self.verbs), self._one(self.attributes)
        relation = Atom(subject, verb, self.person())
        quality = Atom(subject, "is", attribute)
        climb = self.level[attribute] - self.level[verb]
        if climb > 0 or (climb == 0 and self.rng.random() < 0.5):
            return Rule(conditions=(relation,), conclusion=quality)
        return Rule(conditions=(quality,), conclusion=relation)
