"""Forward chaining: what follows from a theory, by fixpoint (OWA) or perfect model (CWA).

Promised: the closure of an OWA theory; the perfect model of a CWA theory whose *ground* atoms are stratified (local
stratification, Przymusinski 1988). A theory that is not, or that contradicts itself, is refused, never labelled.
Within this module a fact is a string: its ProofWriter text (:attr:`Atom.text`). Not covered: proofs and their depth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from vcrt.environments.proofwriter.theory import Assumption, Atom, Rule, Theory
from vcrt.errors import MalformedInputError

Answer: TypeAlias = Literal["True", "False", "Unknown"]
Facts: TypeAlias = frozenset[str]


class GroundRule(NamedTuple):
    """A rule under one binding: it fires where all of ``needs`` and none of ``absent`` hold and ``head`` is new."""

    rule: int
    binding: str | None
    needs: Facts
    absent: Facts
    head: str

    def fires(self, facts: Facts) -> bool:
        """Whether the rule adds its head to ``facts``."""
        return self.head not in facts and self.needs <= facts and self.absent.isdisjoint(facts)


@dataclass(frozen=True, slots=True, eq=False)
class Grounding:
    """A theory with its rules bound to its entities; ``by_rule`` is keyed by the rule's number, from 1."""

    theory: Theory
    facts: Facts
    by_rule: Mapping[int, tuple[GroundRule, ...]]

    @property
    def rules(self) -> tuple[GroundRule, ...]:
        """All ground rules, by rule and then by binding."""
        return tuple(rule for group in self.by_rule.values() for rule in group)

    def atoms(self) -> Facts:
        """Every ground atom that a fact or a ground rule mentions."""
        return self.facts.union(*({r.head} | r.needs | r.absent for r in self.rules))


def ground(theory: Theory) -> Grounding:
    """Bind each rule's variable to each entity of the theory."""
    entities = theory.entities()
    by_rule = {
        number: tuple(
            _ground_rule(number, rule, binding)
            for binding in (entities if rule.variable is not None else (None,))
        )
        for number, rule in enumerate(theory.rules, 1)
    }
    return Grounding(theory, frozenset(fact.text for fact in theory.facts), by_rule)


def _ground_rule(number: int, rule: Rule, binding: str | None) -> GroundRule:
    atoms = [atom if binding is None else atom.bind(binding) for atom in rule.atoms()]
    *conditions, conclusion = atoms
    return GroundRule(
        number,
        binding,
        frozenset(c.text for c in conditions if c.polarity != "~"),
        frozenset(c.with_polarity("+").text for c in conditions if c.polarity == "~"),
        conclusion.text,
    )


def closure(facts: Facts, rules: Iterable[GroundRule]) -> Facts:
    """Apply ``rules`` in rounds until none adds a fact; monotone only if no rule can un-enable another."""
    pending = tuple(rules)
    while new := {rule.head for rule in pending if rule.fires(facts)}:
        facts |= new
    return facts


def strata(rules: Iterable[GroundRule]) -> dict[str, int]:
    """The stratum of each derivable ground atom: above all that it negates, not below what it needs.

    Raises :class:`MalformedInputError` if an atom depends on its own absence.
    """
    pending = tuple(rules)
    depends: dict[str, set[str]] = defaultdict(set)
    for rule in pending:
        depends[rule.head] |= rule.needs | rule.absent
    for head, negated in sorted({(r.head, atom) for r in pending for atom in r.absent}):
        if head in _reachable(negated, depends):
            raise MalformedInputError(
                "the theory is not stratified: negation as failure runs in a circle",
                found=f"{head} needs the absence of {negated}, which itself depends on {head}",
                expected="no ground atom that depends on its own absence",
                remedy="leave this theory out: it has no perfect model, so it gets no label",
            )
    level: dict[str, int] = defaultdict(int)
    changed = True
    while changed:
        changed = False
        for rule in pending:
            floor = max([level[a] for a in rule.needs] + [level[a] + 1 for a in rule.absent])
            if level[rule.head] < floor:
                level[rule.head] = floor
                changed = True
    return dict(level)


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen = {start}
    stack = [start]
    while stack:
        fresh = edges.get(stack.pop(), set()) - seen
        seen |= fresh
        stack.extend(fresh)
    return seen


def model(grounding: Grounding) -> Facts:
    """All facts that hold: the closure under OWA, the perfect model under CWA.

    Raises :class:`MalformedInputError` for an unstratified CWA theory and for an OWA theory that proves an atom and its
    negation.
    """
    rules = grounding.rules
    if grounding.theory.assumption == "OWA":
        return _consistent(closure(grounding.facts, rules))
    level = strata(rules)
    facts = grounding.facts
    for stratum in sorted({level[rule.head] for rule in rules}):
        facts = closure(facts, (rule for rule in rules if level[rule.head] == stratum))
    return facts


def _consistent(facts: Facts) -> Facts:
    for fact in sorted(facts):
        if fact.endswith('"-")') and fact[:-3] + '+")' in facts:
            raise MalformedInputError(
                "the theory contradicts itself",
                found=f'both {fact} and {fact[:-3]}+")',
                expected="no atom that is proved together with its negation",
                remedy="leave this theory out: every answer would follow from it",
            )
    return facts


def truth(question: Atom, facts: Facts, assumption: Assumption) -> Answer:
    """The answer to ``question`` (``-`` and ``~`` both ask for the negation), given all ``facts`` that hold."""
    positive = question.with_polarity("+").text in facts
    asks_positive = question.polarity == "+"
    if assumption == "CWA":
        return "True" if positive == asks_positive else "False"
    negative = question.with_polarity("-").text in facts
    if not positive and not negative:
        return "Unknown"
    return "True" if positive == asks_positive else "False"


def answer(theory: Theory, question: Atom) -> Answer:
    """``True``, ``False`` or ``Unknown`` (OWA only); raises as :func:`model` does."""
    return truth(question, model(ground(theory)), theory.assumption)
