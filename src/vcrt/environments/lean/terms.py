"""Draw random propositions, facts and names for the generators of Lean episodes.

Everything is text in the vocabulary of the prelude. Not covered: what an episode is made of (see
:mod:`vcrt.environments.lean.schemas`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

T = TypeVar("T")
#: The propositional variables.
ATOMS = "pqrst"
_ATOM = re.compile(rf"(?<![\w.])[{ATOMS}]\b")


@dataclass(frozen=True, kw_only=True, slots=True)
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
        """``theorem name (binders) : type``, without the proof, over ``atoms`` or those that are in it."""
        variables = " ".join(atoms or self.atoms)
        binders = [f"({variables} : Prop)"] if variables else []
        binders += [f"({label} : {kind})" for label, kind in self.hypotheses]
        return " ".join(["theorem", name, *binders, ":", self.fact.type])

    def theorem(self, name: str) -> str:
        """The whole theorem under ``name``."""
        return f"{self.statement(name)} := {self.fact.proof}"

    def application(self, name: str) -> str:
        """The theorem ``name`` applied to all its binders by their own names."""
        return " ".join([name, *self.atoms, *(label for label, _ in self.hypotheses)])


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def fresh_names(rng: np.random.Generator, count: int) -> list[str]:
    """``count`` different random names, such as ``fi482``."""
    names: list[str] = []
    while len(names) < count:
        name = pick(rng, "bcdfgjklmnprtvw") + pick(rng, "aeiou") + str(rng.integers(10, 1000))
        if name not in names:
            names.append(name)
    return names


def atoms_of(*texts: str) -> tuple[str, ...]:
    """The propositional variables in ``texts``, sorted."""
    return tuple(sorted(set(_ATOM.findall(" ".join(texts)))))


def applied(head: str, *arguments: str) -> str:
    """``head`` applied to ``arguments``, each in brackets where it needs them."""
    return " ".join([head, *map(grouped, arguments)])


def grouped(text: str) -> str:
    """``text`` in brackets, unless it is one word."""
    return f"({text})" if " " in text else text


def proposition(rng: np.random.Generator, depth: int = 2) -> str:
    """A random proposition over the propositional variables."""
    if depth == 0 or rng.random() < 0.5:
        return pick(rng, ATOMS)
    left, right = grouped(proposition(rng, depth - 1)), grouped(proposition(rng, depth - 1))
    form = pick(rng, ("And {} {}", "Or {} {}", "{} → {}", "Iff {} {}"))
    return form.format(left, right)


def numeral(rng: np.random.Generator, low: int = 0, high: int = 4) -> str:
    """A numeral of the prelude, from ``low`` to ``high - 1``."""
    text = "N.z"
    for _ in range(int(rng.integers(low, high))):
        text = f"N.s {grouped(text)}"
    return text


def two_values(rng: np.random.Generator) -> tuple[str, tuple[str, str]]:
    """A type and two different values of it."""
    if rng.random() < 0.25:
        return "Bool", pick(rng, (("Bool.true", "Bool.false"), ("Bool.false", "Bool.true")))
    first = second = numeral(rng)
    while second == first:
        second = numeral(rng)
    return "N", (first, second)


def lemma(rng: np.random.Generator) -> Lemma:
    """A random lemma that needs nothing else."""
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
    return Lemma(
        hypotheses=tuple(zip("xy", hypotheses, strict=False)), fact=Fact(type=kind, proof=proof)
    )


def extended(rng: np.random.Generator, fact: Fact, others: Sequence[Fact] = ()) -> Fact:
    """A larger fact whose proof uses that of ``fact``, beside one of ``others`` if there are any."""
    kind, proof = grouped(fact.type), grouped(fact.proof)
    extra, value = grouped(proposition(rng, 1)), grouped(numeral(rng))
    shapes = [
        Fact(type=f"Or {kind} {extra}", proof=f"Or.inl {proof}"),
        Fact(type=f"Or {extra} {kind}", proof=f"Or.inr {proof}"),
        Fact(type=f"{extra} → {kind}", proof=f"fun h => {fact.proof}"),
        Fact(
            type=f"Exists (fun n : N => And (Eq n {value}) {kind})",
            proof=f"Exists.intro {value} (And.intro (Eq.refl {value}) {proof})",
        ),
    ]
    if others:
        other = pick(rng, others)
        other_kind, other_proof = grouped(other.type), grouped(other.proof)
        shapes += [
            Fact(type=f"And {kind} {other_kind}", proof=f"And.intro {proof} {other_proof}"),
            Fact(type=f"And {other_kind} {kind}", proof=f"And.intro {other_proof} {proof}"),
        ]
    return pick(rng, shapes)
