"""Chain forward: derive the consequences of a theory, by fixpoint (OWA) or perfect model (CWA).

The result is the closure of an OWA theory, or the perfect model of a CWA theory whose *ground* atoms are stratified
(local stratification, Przymusinski 1988). A theory that is not stratified, or contradicts itself, is refused, never
labelled. Inside a :class:`Grounding` a set of facts is an integer, bit ``k`` standing for ground atom ``k``; outside it
is a set of ProofWriter texts. Proofs and their depth are not computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal, NamedTuple, TypeAlias

from vcrt.errors import MalformedInputError
from vcrt_proofwriter.theory import (
    VARIABLES,
    Assumption,
    Atom,
    Rule,
    Theory,
    atom_text,
)

Answer: TypeAlias = Literal["True", "False", "Unknown"]
Facts: TypeAlias = frozenset[str]
#: The digits of ``bin`` as the bytes 0 and 1, which ``compress`` reads as false and true.
_DIGITS = bytes.maketrans(b"01", b"\x00\x01")


class GroundRule(NamedTuple):
    """A rule under one binding; it fires if all of ``needs`` and none of ``absent`` hold and ``head`` is new.

    ``needs`` and ``absent`` are sets of atoms and ``head`` is one atom, all as bits.
    """

    rule: int
    binding: str | None
    needs: int
    absent: int
    head: int


@dataclass(frozen=True, slots=True, eq=False)
class Grounding:
    """A theory with its rules bound to its entities.

    ``atoms`` names the bits, ``facts`` are the theory's own, ``by_rule`` has the rule's number (from 1) as key, and
    ``opposites`` holds each atom together with its explicit negation, if the theory mentions both.
    """

    theory: Theory
    atoms: tuple[str, ...]
    facts: int
    by_rule: Mapping[int, tuple[GroundRule, ...]]
    opposites: tuple[int, ...]

    @property
    def rules(self) -> tuple[GroundRule, ...]:
        """All ground rules, by rule and then by binding."""
        return tuple([rule for group in self.by_rule.values() for rule in group])

    def bit(self, atom: str) -> int:
        """Return the bit of an atom that the theory mentions."""
        return 1 << self.atoms.index(atom)

    def sorted_texts(self, facts: int) -> list[str]:
        """Return the ProofWriter texts of a set of facts, sorted."""
        return sorted(compress(self.atoms, bin(facts)[:1:-1].encode().translate(_DIGITS)))

    def texts(self, facts: int) -> Facts:
        """Return a set of facts as ProofWriter texts."""
        return frozenset(self.sorted_texts(facts))


def ground(theory: Theory) -> Grounding:
    """Bind each rule's variable to each entity of the theory."""
    entities = theory.entities()
    bits: dict[tuple[str, str, str, str], int] = {}
    facts = 0
    for fact in theory.facts:
        facts |= bits.setdefault(fact, 1 << len(bits))
    by_rule = {
        number: tuple(_ground_rule(number, rule, entities, bits))
        for number, rule in enumerate(theory.rules, 1)
    }
    opposites = tuple(
        own | bits[subject, predicate, obj, "+"]
        for (subject, predicate, obj, polarity), own in bits.items()
        if polarity == "-" and (subject, predicate, obj, "+") in bits
    )
    atoms = tuple([atom_text(*key) for key in bits])
    return Grounding(theory, atoms, facts, by_rule, opposites)


def _ground_rule(
    number: int, rule: Rule, entities: Iterable[str], bits: dict[tuple[str, str, str, str], int]
) -> list[GroundRule]:
    conditions = [_shape(atom) for atom in rule.conditions]
    head_subject, head_predicate, head_object, head_polarity, _ = _shape(rule.conclusion)
    bindings: Iterable[str | None] = (None,) if rule.variable is None else entities
    bound = []
    for binding in bindings:
        value = binding or ""
        needs = absent = 0
        for subject, predicate, obj, polarity, negated in conditions:
            key = (subject or value, predicate, obj or value, polarity)
            bit = bits.setdefault(key, 1 << len(bits))
            if negated:
                absent |= bit
            else:
                needs |= bit
        key = (head_subject or value, head_predicate, head_object or value, head_polarity)
        head = bits.setdefault(key, 1 << len(bits))
        bound.append(GroundRule(number, binding, needs, absent, head))
    return bound


def _shape(atom: Atom) -> tuple[str, str, str, str, bool]:
    """Return an atom with its variable as "", which no term is, and whether it is negated as failure."""
    subject, predicate, obj, polarity = atom
    return (
        "" if subject in VARIABLES else subject,
        predicate,
        "" if obj in VARIABLES else obj,
        "+" if polarity == "~" else polarity,
        polarity == "~",
    )


def closure(facts: int, rules: Iterable[GroundRule]) -> int:
    """Apply ``rules`` until none adds a fact; this is their fixpoint only if no rule can disable another."""
    pending = list(rules)
    before = -1
    while before != facts:
        before = facts
        waiting = []
        for rule in pending:
            if rule.needs & ~facts or facts & rule.absent:
                waiting.append(rule)
            else:
                facts |= rule.head
        pending = waiting
    return facts


def strata(grounding: Grounding) -> list[list[GroundRule]]:
    """Return the ground rules in strata: each negates only atoms that lower strata, or none, can derive.

    Raise :class:`MalformedInputError` if an atom depends on its own absence.
    """
    pending = list(grounding.rules)
    layers = []
    while pending:
        undecided = 0
        for rule in pending:
            undecided |= rule.head
        blocked = before = 0
        for rule in pending:
            if rule.absent & undecided:
                blocked |= rule.head
        while blocked != before:
            before = blocked
            for rule in pending:
                if rule.needs & blocked:
                    blocked |= rule.head
        if blocked == undecided:
            raise _unstratified(grounding, pending)
        layers.append([rule for rule in pending if not rule.head & blocked])
        pending = [rule for rule in pending if rule.head & blocked]
    return layers


def _unstratified(grounding: Grounding, rules: Sequence[GroundRule]) -> MalformedInputError:
    """Return the error that names a circle: some atom of the remaining rules depends on its own absence."""
    circles = sorted(
        (head, negated)
        for rule in rules
        for head in grounding.sorted_texts(rule.head)
        for negated in grounding.sorted_texts(rule.absent)
        if rule.head & _dependencies(grounding.bit(negated), rules)
    )
    head, negated = circles[0]
    return MalformedInputError(
        "the theory is not stratified: negation as failure runs in a circle",
        found=f"{head} needs the absence of {negated}, which itself depends on {head}",
        expected="no ground atom that depends on its own absence",
        remedy="leave this theory out: it has no perfect model, so it gets no label",
    )


def _dependencies(atoms: int, rules: Iterable[GroundRule]) -> int:
    """Return the atoms and everything that they depend on."""
    rules = list(rules)
    before = 0
    while before != atoms:
        before = atoms
        for rule in rules:
            if rule.head & atoms:
                atoms |= rule.needs | rule.absent
    return atoms


def model(grounding: Grounding) -> int:
    """Return all facts that hold, as bits: the closure under OWA, the perfect model under CWA.

    Raise :class:`MalformedInputError` for an unstratified CWA theory and for an OWA theory that proves an atom and its
    negation.
    """
    facts = grounding.facts
    for layer in strata(grounding):
        facts = closure(facts, layer)
    for pair in grounding.opposites:
        if not pair & ~facts:
            both = " and ".join(grounding.sorted_texts(pair)[::-1])
            raise MalformedInputError(
                "the theory contradicts itself",
                found=f"both {both}",
                expected="no atom that is proved together with its negation",
                remedy="leave this theory out: every answer would follow from it",
            )
    return facts


def holding(theory: Theory) -> Facts:
    """Return the texts of all facts that hold; raise as :func:`model` does."""
    grounding = ground(theory)
    return grounding.texts(model(grounding))


def truth(question: Atom, facts: Facts, assumption: Assumption) -> Answer:
    """Return the answer to ``question`` (``-`` and ``~`` both ask for the negation), given all ``facts`` that hold."""
    positive = question.with_polarity("+").text in facts
    asks_positive = question.polarity == "+"
    if assumption == "CWA":
        return "True" if positive == asks_positive else "False"
    negative = question.with_polarity("-").text in facts
    if not positive and not negative:
        return "Unknown"
    return "True" if positive == asks_positive else "False"
