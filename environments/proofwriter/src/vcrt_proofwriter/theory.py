"""Hold theories, which are facts and rules over atoms, and read and write their JSON form.

Every :class:`Theory` is well formed (plain terms, ground facts, at most one variable in a rule, the polarities that its
assumption allows). ``engine`` derives consequences; ``files`` and ``english`` have other formats. Format: ProofWriter
(Tafjord, Dalvi, Clark 2021; Allen Institute for AI).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from vcrt.errors import MalformedInputError
from vcrt.forms import first_error
from vcrt.hashing import Json, json_digest

Polarity: TypeAlias = Literal["+", "-", "~"]
Assumption: TypeAlias = Literal["CWA", "OWA"]
#: The words that stand for a rule's one variable.
VARIABLES = frozenset({"someone", "something"})
#: The longest term, in characters.
MAX_TERM = 200
ASSUMPTIONS: tuple[Assumption, ...] = ("CWA", "OWA")


def atom_text(subject: str, predicate: str, obj: str, polarity: str) -> str:
    """Return an atom as ProofWriter writes it, for example ``("Bob" "is" "red" "+")``."""
    return f'("{subject}" "{predicate}" "{obj}" "{polarity}")'


class Atom(NamedTuple):
    """``(subject, predicate, object, polarity)``: ``+`` asserted, ``-`` negated, ``~`` negated as failure."""

    subject: str
    predicate: str
    object: str
    polarity: Polarity = "+"

    @property
    def text(self) -> str:
        """The atom as ProofWriter writes it; see :func:`atom_text`."""
        return atom_text(*self)

    def with_polarity(self, polarity: Polarity) -> Atom:
        """Return the same atom with another polarity."""
        return self._replace(polarity=polarity)

    def bind(self, entity: str) -> Atom:
        """Return the atom with ``entity`` in place of its variable."""
        return Atom(
            entity if self.subject in VARIABLES else self.subject,
            self.predicate,
            entity if self.object in VARIABLES else self.object,
            self.polarity,
        )

    def variables(self) -> set[str]:
        """Return the variable words in this atom."""
        return {self.subject, self.object} & VARIABLES

    def entities(self) -> set[str]:
        """Return the entities in this atom; the object of ``is`` is an attribute, not an entity."""
        terms = {self.subject} if self.predicate == "is" else {self.subject, self.object}
        return terms - VARIABLES


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A rule: if all ``conditions`` hold then ``conclusion`` holds."""

    conditions: tuple[Atom, ...]
    conclusion: Atom

    @property
    def variable(self) -> str | None:
        """The rule's variable word, or None if it is about named entities only."""
        for subject, _, obj, _ in self.atoms():
            if subject in VARIABLES:
                return subject
            if obj in VARIABLES:
                return obj
        return None

    def atoms(self) -> tuple[Atom, ...]:
        """Return the conditions, then the conclusion."""
        return (*self.conditions, self.conclusion)


@dataclass(frozen=True, kw_only=True, slots=True)
class Theory:
    """Facts and rules under an assumption.

    ``CWA`` (closed world): what is not proved is false; conditions are ``+`` or ``~``, all else is ``+``.
    ``OWA`` (open world): what is not proved is unknown; every atom is ``+`` or ``-``.
    Raises :class:`vcrt.errors.MalformedInputError` if a fact or rule does not have that form.
    """

    assumption: Assumption
    facts: tuple[Atom, ...]
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        if self.assumption not in ASSUMPTIONS:
            raise MalformedInputError(
                "unknown assumption of a theory",
                found=repr(self.assumption),
                expected="'CWA' or 'OWA'",
            )
        asserted = ("+",) if self.assumption == "CWA" else ("+", "-")
        conditional = ("+", "~") if self.assumption == "CWA" else ("+", "-")
        for number, fact in enumerate(self.facts, 1):
            self._check(fact, f"fact {number}", asserted)
            if fact.subject in VARIABLES or fact.object in VARIABLES:
                raise MalformedInputError(
                    "a fact must not have a variable", where=f"fact {number}", found=fact.text
                )
        for number, rule in enumerate(self.rules, 1):
            self._check_rule(rule, number, asserted, conditional)

    def _check_rule(
        self, rule: Rule, number: int, asserted: tuple[str, ...], conditional: tuple[str, ...]
    ) -> None:
        if not rule.conditions:
            raise MalformedInputError(
                "a rule needs a condition",
                where=f"rule {number}",
                found=f"a bare conclusion {rule.conclusion.text}",
                expected="at least one condition",
                remedy="write what always holds as a fact",
            )
        for atom in rule.conditions:
            self._check(atom, f"rule {number}, condition", conditional)
        self._check(rule.conclusion, f"rule {number}, conclusion", asserted)
        conditions = {term for atom in rule.conditions for term in (atom.subject, atom.object)}
        conclusion = {rule.conclusion.subject, rule.conclusion.object}
        words = VARIABLES & (conditions | conclusion)
        if len(words) > 1:
            raise MalformedInputError(
                "a rule has one variable",
                where=f"rule {number}",
                found=" and ".join(sorted(words)),
                expected="the same word ('someone' or 'something') throughout the rule",
            )
        if words and not words & conditions:
            raise MalformedInputError(
                "the conclusion has a variable that no condition has",
                where=f"rule {number}",
                found=rule.conclusion.text,
                expected="a condition on the same variable",
            )

    def _check(self, atom: Atom, place: str, allowed: tuple[str, ...]) -> None:
        *terms, polarity = atom
        _, predicate, obj = terms
        for part, term in zip(("subject", "predicate", "object"), terms, strict=True):
            if not is_term(term):
                raise MalformedInputError(
                    f"the {part} of an atom is not a plain term",
                    where=place,
                    found=repr(term)[:80],
                    expected='printable text without ", \\ or outer spaces',
                )
        if predicate in VARIABLES or (predicate == "is" and obj in VARIABLES):
            raise MalformedInputError(
                "a variable stands for entities only",
                where=place,
                found=atom.text,
                expected="the variable as subject, or as object of a verb other than 'is'",
            )
        if polarity not in allowed:
            raise MalformedInputError(
                f"polarity not allowed here under {self.assumption}",
                where=place,
                found=repr(polarity),
                expected=" or ".join(repr(p) for p in allowed),
                remedy="'~' is negation as failure (CWA conditions), '-' explicit negation (OWA)",
            )

    def entities(self) -> tuple[str, ...]:
        """Return the entities that the facts and rules name, sorted; rules range over these."""
        named = set()
        for subject, predicate, obj, _ in self._atoms():
            named.add(subject)
            if predicate != "is":
                named.add(obj)
        return tuple(sorted(named - VARIABLES))

    def _atoms(self) -> Iterator[Atom]:
        yield from self.facts
        for rule in self.rules:
            yield from rule.conditions
            yield rule.conclusion

    def content_hash(self) -> str:
        """Return the SHA-256 of the theory as a set of facts and a set of rules, whatever their order."""
        facts = sorted({fact.text for fact in self.facts})
        rules = sorted(
            {"".join(c.text for c in r.conditions) + r.conclusion.text for r in self.rules}
        )
        return json_digest({"assumption": self.assumption, "facts": facts, "rules": rules})


def is_term(value: object) -> bool:
    """Return whether ``value`` may stand in an atom: printable text without quotes, backslashes or outer spaces."""
    return isinstance(value, str) and len(value) <= MAX_TERM and _is_plain(value)


@lru_cache(maxsize=4096)
def _is_plain(value: str) -> bool:
    return (
        bool(value)
        and value.isprintable()
        and value == value.strip()
        and not {'"', "\\"} & set(value)
    )


def theory_to_json(theory: Theory) -> dict[str, Json]:
    """Return ``{"assumption", "facts": [atom], "rules": [{"if": [atom], "then": atom}]}``; an atom is a list of 4."""
    return {
        "assumption": theory.assumption,
        "facts": [list(fact) for fact in theory.facts],
        "rules": [
            {"if": [list(c) for c in rule.conditions], "then": list(rule.conclusion)}
            for rule in theory.rules
        ],
    }


_AtomForm: TypeAlias = tuple[str, str, str, Polarity]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class _RuleForm:
    __pydantic_config__ = _STRICT
    conditions: Annotated[list[_AtomForm], Field(alias="if")]
    conclusion: Annotated[_AtomForm, Field(alias="then")]


@dataclass(frozen=True, slots=True)
class _TheoryForm:
    __pydantic_config__ = _STRICT
    assumption: Assumption
    facts: list[_AtomForm]
    rules: list[_RuleForm]


_FORM = TypeAdapter(_TheoryForm)


def theory_from_json(value: Json, where: str = "theory") -> Theory:
    """Read the output of :func:`theory_to_json`; raise :class:`MalformedInputError` that names the field."""
    try:
        form = _FORM.validate_python(value)
    except ValidationError as error:
        field, message = first_error(error)
        path = "" if field == "(root)" else re.sub(r"\.([0-9]+)", r"[\1]", f".{field}")
        raise MalformedInputError(
            "not the JSON form of a theory",
            where=where + path,
            found=message,
            expected='{"assumption", "facts": [atom], "rules": [{"if": [atom], "then": atom}]}',
        ) from None
    rules = [
        Rule(
            conditions=tuple([Atom(*c) for c in rule.conditions]), conclusion=Atom(*rule.conclusion)
        )
        for rule in form.rules
    ]
    facts = tuple([Atom(*fact) for fact in form.facts])
    return Theory(assumption=form.assumption, facts=facts, rules=tuple(rules))
