"""Draw random definitions, inductive types and facts about them, for the generators of Lean episodes.

Everything is text in the vocabulary of the prelude. Not covered: what an episode is made of (see
:mod:`vcrt.environments.lean.schemas`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcrt.environments.lean.terms import (
    Fact,
    Lemma,
    applied,
    atoms_of,
    grouped,
    numeral,
    pick,
    proposition,
    two_values,
)

#: The most constructors of a generated inductive type.
MAX_CONSTRUCTORS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A definition without its name: its ``binders`` in their brackets, ``type`` and ``value``."""

    type: str
    value: str
    binders: str = ""

    def text(self, name: str) -> str:
        """The declaration under ``name``."""
        return f"noncomputable def {f'{name} {self.binders}'.strip()} : {self.type} := {self.value}"


def definition(rng: np.random.Generator, name: str) -> tuple[Definition, Lemma]:
    """A random definition to stand under ``name``, and a lemma about what it defines."""
    return pick(rng, (_constant, _function, _formula, _predicate))(rng, name)


def constructors_from(rng: np.random.Generator, names: list[str]) -> list[str]:
    """Some of ``names``, taken off its end: between one and :data:`MAX_CONSTRUCTORS`."""
    return [names.pop() for _ in range(int(rng.integers(1, MAX_CONSTRUCTORS + 1)))]


def inductive_type(name: str, constructors: Sequence[str]) -> str:
    """The inductive type ``name`` with these constructors, none of which takes an argument."""
    return " ".join([f"inductive {name} : Type where", *(f"| {c}" for c in constructors)])


def definition_on(rng: np.random.Generator, kind: str, constructors: Sequence[str]) -> Definition:
    """A value of an inductive type, or a function or a property on it."""
    value = f"{kind}.{pick(rng, constructors)}"
    source = pick(rng, ("N", "Bool", "Prop", kind))
    cases = [numeral(rng) for _ in constructors]
    images = [f"{kind}.{pick(rng, constructors)}" for _ in constructors]
    body = proposition(rng)
    on_kind, with_atoms = f"(n : {kind})", f"({' '.join(atoms_of(body))} : Prop) (n : {kind})"
    shapes = (
        Definition(type=kind, value=value),
        Definition(type=f"{source} → {kind}", value=f"fun n => {value}"),
        Definition(binders=on_kind, type="N", value=applied(f"{kind}.rec", *cases, "n")),
        Definition(binders=on_kind, type=kind, value=applied(f"{kind}.rec", *images, "n")),
        Definition(binders=with_atoms, type="Prop", value=f"And {grouped(body)} (Eq n {value})"),
        Definition(binders=with_atoms, type="Prop", value=f"Or (Eq n {value}) {grouped(body)}"),
        Definition(binders=with_atoms, type="Prop", value=f"{grouped(body)} → Eq {value} n"),
    )
    return pick(rng, shapes)


def lemma_on(rng: np.random.Generator, kind: str, constructors: Sequence[str]) -> Lemma:
    """Something that holds of an inductive type."""
    value = f"{kind}.{pick(rng, constructors)}"
    body = proposition(rng)
    shapes = (
        Lemma(fact=_existence(kind, value)),
        Lemma(fact=Fact(type=f"∀ n : {kind}, Eq n n", proof="fun n => Eq.refl n")),
        Lemma(fact=_exhaustion(rng, kind, constructors)),
        _given(f"{kind} → {grouped(body)}", body, f"x {value}"),
        _given(body, f"Exists (fun n : {kind} => {body})", f"Exists.intro {value} x"),
        _given(body, f"And {grouped(body)} (Eq {value} {value})", f"And.intro x (Eq.refl {value})"),
    )
    return pick(rng, shapes)


def _constant(rng: np.random.Generator, name: str) -> tuple[Definition, Lemma]:
    """A value of a data type, and that it is this value."""
    carrier, (value, _) = two_values(rng)
    facts = [*_equations(name, value), _existence(carrier, name)]
    if carrier == "N":
        facts += _equations(applied("N.s", name), applied("N.s", value))
    return Definition(type=carrier, value=value), Lemma(fact=pick(rng, facts))


def _function(rng: np.random.Generator, name: str) -> tuple[Definition, Lemma]:
    """A function on numbers that adds some, and what it gives."""
    count, argument = int(rng.integers(0, 4)), numeral(rng)

    def raised(text: str) -> str:
        for _ in range(count):
            text = applied("N.s", text)
        return text

    as_lambda = rng.random() < 0.5
    definition = (
        Definition(type="N → N", value=f"fun n => {raised('n')}")
        if as_lambda
        else Definition(binders="(n : N)", type="N", value=raised("n"))
    )
    image = applied(name, argument)
    facts = [
        *_equations(image, raised(argument)),
        _existence("N", image),
        Fact(
            type=f"∀ n : N, Eq ({name} n) {grouped(raised('n'))}",
            proof=f"fun n => Eq.refl ({name} n)",
        ),
        Fact(
            type=f"Exists (fun n : N => Eq ({name} n) {grouped(raised(argument))})",
            proof=f"Exists.intro {grouped(argument)} (Eq.refl {grouped(image)})",
        ),
    ]
    return definition, Lemma(fact=pick(rng, facts))


def _formula(rng: np.random.Generator, name: str) -> tuple[Definition, Lemma]:
    """A name for a proposition, and that it says the same."""
    body = proposition(rng)
    atoms = atoms_of(body)
    definition = Definition(binders=f"({' '.join(atoms)} : Prop)", type="Prop", value=body)
    short = applied(name, *atoms)
    lemmas = (
        _given(body, short, "x"),
        _given(short, body, "x"),
        Lemma(
            fact=Fact(
                type=applied("Iff", short, body), proof="Iff.intro (fun h => h) (fun h => h)"
            ),
        ),
        Lemma(fact=Fact(type=f"{grouped(body)} → {short}", proof="fun h => h")),
    )
    return definition, pick(rng, lemmas)


def _predicate(rng: np.random.Generator, name: str) -> tuple[Definition, Lemma]:
    """A property that one value has for certain, and that it has it."""
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
        Fact(type=f"{short} {grouped(value)}", proof=proof),
        Fact(type=f"Exists ({short})", proof=f"Exists.intro {grouped(value)} {grouped(proof)}"),
        Fact(
            type=f"Exists (fun n : {carrier} => {short} n)",
            proof=f"Exists.intro {grouped(value)} {grouped(proof)}",
        ),
    )
    return definition, Lemma(hypotheses=(("x", extra),), fact=pick(rng, facts))


def _exhaustion(rng: np.random.Generator, kind: str, constructors: Sequence[str]) -> Fact:
    """That every value is one of the constructors, by looking at each."""
    listed = [f"{kind}.{constructors[int(i)]}" for i in rng.permutation(len(constructors))]
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
    return Fact(
        type=f"∀ n : {kind}, {claim}", proof=f"fun n => {applied(f'{kind}.rec', *proofs, 'n')}"
    )


def _given(hypothesis: str, kind: str, proof: str) -> Lemma:
    """A lemma under one hypothesis, ``x``."""
    return Lemma(hypotheses=(("x", hypothesis),), fact=Fact(type=kind, proof=proof))


def _equations(left: str, right: str) -> list[Fact]:
    """That two texts for one value are equal, both ways round."""
    return [
        Fact(type=applied("Eq", left, right), proof=applied("Eq.refl", left)),
        Fact(type=applied("Eq", right, left), proof=applied("Eq.refl", right)),
    ]


def _existence(carrier: str, value: str) -> Fact:
    """That something equals ``value``."""
    value = grouped(value)
    return Fact(
        type=f"Exists (fun n : {carrier} => Eq n {value})",
        proof=f"Exists.intro {value} (Eq.refl {value})",
    )
