"""Draw random propositions, facts, definitions, inductive types and names for the generators of Lean episodes.

Everything is text in the vocabulary of the prelude. :mod:`vcrt_lean.schemas` composes episodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.randomness import Generator
from vcrt.randomness import fresh_names as fresh_names
from vcrt.randomness import pick as pick

#: The propositional variables.
ATOMS = "pqrst"
#: The most constructors of a generated inductive type.
MAX_CONSTRUCTORS = 5
_ATOM = re.compile(rf"(?<![\w.])[{ATOMS}]\b")


@dataclass(frozen=True, slots=True)
class Fact:
    """A proof term and the proposition (or type) that it proves."""

    type: str
    proof: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lemma:
    """A proposition with a proof under hypotheses, given as pairs of a name and a proposition."""

    fact: Fact
    hypotheses: tuple[tuple[str, str], ...] = ()

    @property
    def atoms(self) -> tuple[str, ...]:
        """The propositional variables in it, sorted."""
        return atoms_of(self.fact.type, *(kind for _, kind in self.hypotheses))

    def statement(self, name: str, atoms: Sequence[str] = ()) -> str:
        """Return ``theorem name (binders) : type``, without the proof, over ``atoms`` or its own variables."""
        variables = " ".join(atoms or self.atoms)
        binders = [f"({variables} : Prop)"] if variables else []
        binders += [f"({label} : {kind})" for label, kind in self.hypotheses]
        return " ".join(["theorem", name, *binders, ":", self.fact.type])

    def theorem(self, name: str) -> str:
        """Return the whole theorem under ``name``."""
        return f"{self.statement(name)} := {self.fact.proof}"

    def application(self, name: str) -> str:
        """Return the theorem ``name`` applied to all its binders by their own names."""
        return " ".join([name, *self.atoms, *(label for label, _ in self.hypotheses)])


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition without its name: its ``binders`` in their brackets, ``type`` and ``value``."""

    type: str
    value: str
    binders: str = ""

    def text(self, name: str) -> str:
        """Return the declaration under ``name``."""
        return f"noncomputable def {f'{name} {self.binders}'.strip()} : {self.type} := {self.value}"


def atoms_of(*texts: str) -> tuple[str, ...]:
    """Return the propositional variables in ``texts``, sorted."""
    return tuple(sorted(set(_ATOM.findall(" ".join(texts)))))


def applied(head: str, *arguments: str) -> str:
    """Return ``head`` applied to ``arguments``, each in brackets where it needs them."""
    return " ".join([head, *map(grouped, arguments)])


def grouped(text: str) -> str:
    """Return ``text`` in brackets, unless it is one word."""
    return f"({text})" if " " in text else text


def proposition(rng: Generator, depth: int = 2) -> str:
    """Draw a random proposition over the propositional variables."""
    if depth == 0 or rng.random() < 0.5:
        return pick(rng, ATOMS)
    left, right = grouped(proposition(rng, depth - 1)), grouped(proposition(rng, depth - 1))
    form = pick(rng, ("And {} {}", "Or {} {}", "{} → {}", "Iff {} {}"))
    return form.format(left, right)


def numeral(rng: Generator, low: int = 0, high: int = 4) -> str:
    """Draw a numeral of the prelude, from ``low`` to ``high - 1``."""
    text = "N.z"
    for _ in range(int(rng.integers(low, high))):
        text = f"N.s {grouped(text)}"
    return text


def two_values(rng: Generator) -> tuple[str, tuple[str, str]]:
    """Draw a type and two different values of it."""
    if rng.random() < 0.25:
        return "Bool", pick(rng, (("Bool.true", "Bool.false"), ("Bool.false", "Bool.true")))
    first = second = numeral(rng)
    while second == first:
        second = numeral(rng)
    return "N", (first, second)


def lemma(rng: Generator) -> Lemma:
    """Draw a random lemma that needs nothing else."""
    a, b, c = (proposition(rng) for _ in range(3))
    ga, gb = grouped(a), grouped(b)
    value = numeral(rng)
    shapes: tuple[tuple[tuple[str, ...], str, str], ...] = (
        ((a, b), f"And {ga} {gb}", "And.intro x y"),
        ((a,), f"Or {ga} {gb}", "Or.inl x"),
        ((b,), f"Or {ga} {gb}", "Or.inr x"),
        ((f"And {ga} {gb}",), f"And {gb} {ga}", "And.intro x.right x.left"),
        ((f"{ga} → {gb}", a), b, "x y"),
        ((f"Iff {ga} {gb}", a), b, "x.mp y"),
        ((f"Iff {ga} {gb}",), f"Iff {gb} {ga}", "Iff.intro x.mpr x.mp"),
        ((f"{ga} → {gb}", f"{gb} → {grouped(c)}"), f"{ga} → {grouped(c)}", "fun h => y (x h)"),
        (
            (a,),
            f"Exists (fun n : N => And {ga} (Eq n {grouped(value)}))",
            f"Exists.intro {grouped(value)} (And.intro x (Eq.refl {grouped(value)}))",
        ),
    )
    hypotheses, kind, proof = pick(rng, shapes)
    return Lemma(hypotheses=tuple(zip("xy", hypotheses, strict=False)), fact=Fact(kind, proof))


def extended(rng: Generator, fact: Fact, others: Sequence[Fact] = ()) -> Fact:
    """Draw a larger fact whose proof uses that of ``fact``, beside one of ``others`` if there are any."""
    kind, proof = grouped(fact.type), grouped(fact.proof)
    extra, value = grouped(proposition(rng, 1)), grouped(numeral(rng))
    shapes = [
        Fact(f"Or {kind} {extra}", f"Or.inl {proof}"),
        Fact(f"Or {extra} {kind}", f"Or.inr {proof}"),
        Fact(f"{extra} → {kind}", f"fun h => {fact.proof}"),
        Fact(
            f"Exists (fun n : N => And (Eq n {value}) {kind})",
            f"Exists.intro {value} (And.intro (Eq.refl {value}) {proof})",
        ),
    ]
    if others:
        other = pick(rng, others)
        other_kind, other_proof = grouped(other.type), grouped(other.proof)
        shapes += [
            Fact(f"And {kind} {other_kind}", f"And.intro {proof} {other_proof}"),
            Fact(f"And {other_kind} {kind}", f"And.intro {other_proof} {proof}"),
        ]
    return pick(rng, shapes)


def definition(rng: Generator, name: str) -> tuple[Definition, Lemma]:
    """Draw a random definition with the name ``name``, and a lemma about it."""
    return pick(rng, (_constant, _function, _formula, _predicate))(rng, name)


def constructors_from(rng: Generator, names: list[str]) -> list[str]:
    """Take some of ``names`` off its end: between one and :data:`MAX_CONSTRUCTORS`."""
    return [names.pop() for _ in range(int(rng.integers(1, MAX_CONSTRUCTORS + 1)))]


def inductive_type(name: str, constructors: Sequence[str]) -> str:
    """Return the inductive type ``name`` with these constructors, none of which takes an argument."""
    return " ".join([f"inductive {name} : Type where", *(f"| {c}" for c in constructors)])


def definition_on(rng: Generator, kind: str, constructors: Sequence[str]) -> Definition:
    """Draw a value of an inductive type, or a function or a property on it."""
    value = f"{kind}.{pick(rng, constructors)}"
    source = pick(rng, ("N", "Bool", "Prop", kind))
    cases = [numeral(rng) for _ in constructors]
    images = [f"{kind}.{pick(rng, constructors)}" for _ in constructors]
    body = proposition(rng)
    on_kind, with_atoms = f"(n : {kind})", f"({' '.join(atoms_of(body))} : Prop) (n : {kind})"
    shapes = (
        Definition(kind, value),
        Definition(f"{source} → {kind}", f"fun n => {value}"),
        Definition(binders=on_kind, type="N", value=applied(f"{kind}.rec", *cases, "n")),
        Definition(binders=on_kind, type=kind, value=applied(f"{kind}.rec", *images, "n")),
        Definition(binders=with_atoms, type="Prop", value=f"And {grouped(body)} (Eq n {value})"),
        Definition(binders=with_atoms, type="Prop", value=f"Or (Eq n {value}) {grouped(body)}"),
        Definition(binders=with_atoms, type="Prop", value=f"{grouped(body)} → Eq {value} n"),
    )
    return pick(rng, shapes)


def lemma_on(rng: Generator, kind: str, constructors: Sequence[str]) -> Lemma:
    """Draw a lemma about an inductive type."""
    value = f"{kind}.{pick(rng, constructors)}"
    body = proposition(rng)
    shapes = (
        Lemma(fact=_existence(kind, value)),
        Lemma(fact=Fact(f"∀ n : {kind}, Eq n n", "fun n => Eq.refl n")),
        Lemma(fact=_exhaustion(rng, kind, constructors)),
        _given(f"{kind} → {grouped(body)}", body, f"x {value}"),
        _given(body, f"Exists (fun n : {kind} => {body})", f"Exists.intro {value} x"),
        _given(body, f"And {grouped(body)} (Eq {value} {value})", f"And.intro x (Eq.refl {value})"),
    )
    return pick(rng, shapes)


def _constant(rng: Generator, name: str) -> tuple[Definition, Lemma]:
    """Draw a value of a data type, and the lemma that the name equals it."""
    carrier, (value, _) = two_values(rng)
    facts = [*_equations(name, value), _existence(carrier, name)]
    if carrier == "N":
        facts += _equations(applied("N.s", name), applied("N.s", value))
    return Definition(carrier, value), Lemma(fact=pick(rng, facts))


def _function(rng: Generator, name: str) -> tuple[Definition, Lemma]:
    """Draw a function that adds some number, and a lemma about a value of it."""
    count, argument = int(rng.integers(0, 4)), numeral(rng)

    def raised(text: str) -> str:
        for _ in range(count):
            text = applied("N.s", text)
        return text

    as_lambda = rng.random() < 0.5
    definition = (
        Definition("N → N", f"fun n => {raised('n')}")
        if as_lambda
        else Definition(binders="(n : N)", type="N", value=raised("n"))
    )
    image = applied(name, argument)
    facts = [
        *_equations(image, raised(argument)),
        _existence("N", image),
        Fact(f"∀ n : N, Eq ({name} n) {grouped(raised('n'))}", f"fun n => Eq.refl ({name} n)"),
        Fact(
            f"Exists (fun n : N => Eq ({name} n) {grouped(raised(argument))})",
            f"Exists.intro {grouped(argument)} (Eq.refl {grouped(image)})",
        ),
    ]
    return definition, Lemma(fact=pick(rng, facts))


def _formula(rng: Generator, name: str) -> tuple[Definition, Lemma]:
    """Draw a name for a proposition, and a lemma that both are equivalent."""
    body = proposition(rng)
    atoms = atoms_of(body)
    definition = Definition(binders=f"({' '.join(atoms)} : Prop)", type="Prop", value=body)
    short = applied(name, *atoms)
    lemmas = (
        _given(body, short, "x"),
        _given(short, body, "x"),
        Lemma(
            fact=Fact(applied("Iff", short, body), "Iff.intro (fun h => h) (fun h => h)"),
        ),
        Lemma(fact=Fact(f"{grouped(body)} → {short}", "fun h => h")),
    )
    return definition, pick(rng, lemmas)


def _predicate(rng: Generator, name: str) -> tuple[Definition, Lemma]:
    """Draw a property that one value certainly has, and the lemma that it has it."""
    carrier, (value, _) = two_values(rng)
    extra = proposition(rng, 1)
    atoms = atoms_of(extra)
    equation = pick(rng, (f"Eq n {grouped(value)}", f"Eq {grouped(value)} n"))
    body, proof = pick(
        rng,
        (
            (f"And ({equation}) {grouped(extra)}", f"And.intro (Eq.refl {grouped(value)}) x"),
            (f"And {grouped(extra)} ({equation})", f"And.intro x (Eq.refl {grouped(value)})"),
            (f"Or ({equation}) {grouped(extra)}", f"Or.inl (Eq.refl {grouped(value)})"),
            (f"Or {grouped(extra)} ({equation})", "Or.inl x"),
            (f"{grouped(extra)} → {equation}", f"fun h => Eq.refl {grouped(value)}"),
        ),
    )
    binders = f"({' '.join(atoms)} : Prop) (n : {carrier})"
    definition = Definition(binders=binders, type="Prop", value=body)
    short = applied(name, *atoms)
    facts = (
        Fact(f"{short} {grouped(value)}", proof),
        Fact(f"Exists ({short})", f"Exists.intro {grouped(value)} {grouped(proof)}"),
        Fact(
            f"Exists (fun n : {carrier} => {short} n)",
            f"Exists.intro {grouped(value)} {grouped(proof)}",
        ),
    )
    return definition, Lemma(hypotheses=(("x", extra),), fact=pick(rng, facts))


def _exhaustion(rng: Generator, kind: str, constructors: Sequence[str]) -> Fact:
    """Return the fact that every value is one of the constructors, by cases."""
    listed = [f"{kind}.{constructors[i]}" for i in rng.permutation(len(constructors))]
    claim = f"Eq n {listed[-1]}"
    for value in reversed(listed[:-1]):
        claim = f"Or (Eq n {value}) {grouped(claim)}"

    def proof(value: str) -> str:
        place = listed.index(value)
        text = f"Eq.refl {value}" if place == len(listed) - 1 else f"Or.inl (Eq.refl {value})"
        for _ in range(place):
            text = f"Or.inr ({text})"
        return text

    proofs = [proof(f"{kind}.{constructor}") for constructor in constructors]
    return Fact(f"∀ n : {kind}, {claim}", f"fun n => {applied(f'{kind}.rec', *proofs, 'n')}")


def _given(hypothesis: str, kind: str, proof: str) -> Lemma:
    """Return a lemma under one hypothesis, ``x``."""
    return Lemma(hypotheses=(("x", hypothesis),), fact=Fact(kind, proof))


def _equations(left: str, right: str) -> list[Fact]:
    """Return the facts that two texts for one value are equal, in both directions."""
    return [
        Fact(applied("Eq", left, right), applied("Eq.refl", left)),
        Fact(applied("Eq", right, left), applied("Eq.refl", right)),
    ]


def _existence(carrier: str, value: str) -> Fact:
    """Return the fact that something equals ``value``."""
    value = grouped(value)
    return Fact(
        f"Exists (fun n : {carrier} => Eq n {value})", f"Exists.intro {value} (Eq.refl {value})"
    )
