"""Draw facts of Rocq's standard library, about numbers, lists and truth values, with the terms that prove them.

Not covered: what an episode is made of (see :mod:`vcrt_rocq.schemas`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcrt.environments.random_names import pick

#: What every sampled episode begins with.
LIBRARIES = "From Coq Require Import Arith List Bool."
_BINDERS = (("nat", ("n", "m", "k")), ("list nat", ("l", "r")), ("bool", ("b", "c")))
_WORD = re.compile(r"(?<![\w'.])[a-z](?![\w'])")
#: A proposition and its proof over expressions of these sorts: N numbers, L lists, B truth values.
_FACTS = (
    ("NN", "{0} + {1} = {1} + {0}", "Nat.add_comm {0} {1}"),
    ("NN", "{0} * {1} = {1} * {0}", "Nat.mul_comm {0} {1}"),
    ("NNN", "{0} + ({1} + {2}) = {0} + {1} + {2}", "Nat.add_assoc {0} {1} {2}"),
    ("NNN", "({0} + {1}) * {2} = {0} * {2} + {1} * {2}", "Nat.mul_add_distr_r {0} {1} {2}"),
    ("NN", "{0} <= {0} + {1}", "Nat.le_add_r {0} {1}"),
    ("NN", "Nat.max {0} {1} = Nat.max {1} {0}", "Nat.max_comm {0} {1}"),
    ("NN", "Nat.min {0} {1} <= {0}", "Nat.le_min_l {0} {1}"),
    ("N", "{0} - {0} = 0", "Nat.sub_diag {0}"),
    ("NN", "{0} + {1} - {1} = {0}", "Nat.add_sub {0} {1}"),
    ("LL", "length ({0} ++ {1}) = length {0} + length {1}", "app_length {0} {1}"),
    ("L", "rev (rev {0}) = {0}", "rev_involutive {0}"),
    ("LL", "rev ({0} ++ {1}) = rev {1} ++ rev {0}", "rev_app_distr {0} {1}"),
    ("LL", "map S ({0} ++ {1}) = map S {0} ++ map S {1}", "map_app S {0} {1}"),
    ("L", "length (rev {0}) = length {0}", "rev_length {0}"),
    ("NL", "In {0} ({0} :: {1})", "in_eq {0} {1}"),
    ("B", "negb (negb {0}) = {0}", "negb_involutive {0}"),
    ("BB", "andb {0} {1} = andb {1} {0}", "andb_comm {0} {1}"),
    ("BB", "negb (orb {0} {1}) = andb (negb {0}) (negb {1})", "negb_orb {0} {1}"),
)
_EXPRESSIONS = {
    "N": ("n", "m", "k", "(S n)", "(m + 2)", "(2 * k)", "(n + m)", "(k * 3)", "(length l)", "5"),
    "L": ("l", "r", "(rev l)", "(l ++ r)", "(n :: r)", "(map S l)", "(m :: nil)"),
    "B": ("b", "c", "(negb b)", "(andb b c)", "(Nat.leb n m)", "true"),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A proposition and a term that proves it."""

    type: str
    proof: str

    @property
    def binders(self) -> str:
        """The variables in it with their types, as a theorem binds them."""
        return " ".join(f"({' '.join(names)} : {kind})" for kind, names in _used(self.type))

    def statement(self, name: str) -> str:
        """The sentence that states it under ``name``."""
        return f"Lemma {name} {self.binders} : {self.type}."

    def lemma(self, name: str) -> str:
        """The whole lemma under ``name``."""
        return f"{self.statement(name)} Proof. exact ({self.proof}). Qed."

    def cited(self, name: str) -> Fact:
        """The same fact, proved by the lemma of that name."""
        variables = [variable for _, names in _used(self.type) for variable in names]
        return Fact(self.type, " ".join([name, *variables]))


#: Binds every variable, for proofs whose steps may speak of any.
ALL_BINDERS = " ".join(f"({' '.join(names)} : {kind})" for kind, names in _BINDERS)


def fact(rng: np.random.Generator) -> Fact:
    """A random fact."""
    sorts, kind, proof = pick(rng, _FACTS)
    terms = [expression(rng, sort) for sort in sorts]
    return Fact(kind.format(*terms), proof.format(*terms))


def expression(rng: np.random.Generator, sort: str = "N") -> str:
    """A random expression of a sort, in brackets where it needs them."""
    return pick(rng, _EXPRESSIONS[sort])


def both(one: Fact, other: Fact) -> Fact:
    """That both facts hold."""
    return Fact(f"({one.type}) /\\ ({other.type})", f"conj ({one.proof}) ({other.proof})")


def following(rng: np.random.Generator, cited: Sequence[Fact]) -> Fact:
    """A fact whose proof needs those that are cited, and one more."""
    made = fact(rng)
    for one in cited:
        made = both(one, made) if rng.random() < 0.5 else both(made, one)
    return made


def _used(text: str) -> list[tuple[str, list[str]]]:
    words = set(_WORD.findall(text))
    found = [(kind, [name for name in names if name in words]) for kind, names in _BINDERS]
    return [(kind, names) for kind, names in found if names]
