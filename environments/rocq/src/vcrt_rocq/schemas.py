"""Generate Rocq episodes: one dependent pair among four steps, or several dependent steps of any number.

Each makes steps over facts of the standard library, about numbers, lists and truth values, in a legal order; some of
them depend on each other. Certification decides whether that holds. Names are drawn at random and reveal nothing about
a step's role in the episode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.environments.contract import AntiDiamonds, Episode, Operation, Provenance, Schema
from vcrt.environments.posets import (
    DrawnRelations,
    Pairs,
    below_of,
    long_schemas,
    several_schema,
)
from vcrt.hashing import Json
from vcrt.randomness import Generator, fresh_names, generator, pick

#: The beginning of every sampled episode.
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
#: Steps of an episode with one dependent pair.
_NUM_STEPS = 4
#: The initial state and the operations, a dependent pair first.
_Draft: TypeAlias = tuple[Json, list[Operation]]
#: Facts that take one inequality to another; no two of them do so alike in both orders.
_FORWARD = (
    ("le_S _ _", "le_n_S _ _"),
    ("Nat.mul_le_mono_l _ _ {}",),
    ("Nat.add_le_mono_l _ _ {}",),
    ("Nat.add_le_mono_r _ _ {}",),
)


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
        """Return the sentence that states it under ``name``."""
        return f"Lemma {name} {self.binders} : {self.type}."

    def lemma(self, name: str) -> str:
        """Return the whole lemma under ``name``."""
        return f"{self.statement(name)} Proof. exact ({self.proof}). Qed."

    def cited(self, name: str) -> Fact:
        """Return the same fact, proved by the lemma of that name."""
        variables = [variable for _, names in _used(self.type) for variable in names]
        return Fact(self.type, " ".join([name, *variables]))


#: Binders of every variable, for proofs whose steps may use any.
ALL_BINDERS = " ".join(f"({' '.join(names)} : {kind})" for kind, names in _BINDERS)


def fact(rng: Generator) -> Fact:
    """Draw a random fact."""
    sorts, kind, proof = pick(rng, _FACTS)
    terms = [expression(rng, sort) for sort in sorts]
    return Fact(kind.format(*terms), proof.format(*terms))


def expression(rng: Generator, sort: str = "N") -> str:
    """Draw a random expression of a sort, in brackets where it needs them."""
    return pick(rng, _EXPRESSIONS[sort])


def both(one: Fact, other: Fact) -> Fact:
    """Return the conjunction of both facts."""
    return Fact(f"({one.type}) /\\ ({other.type})", f"conj ({one.proof}) ({other.proof})")


def following(rng: Generator, cited: Sequence[Fact]) -> Fact:
    """Draw a fact whose proof needs the cited ones, and one more."""
    made = fact(rng)
    for one in cited:
        made = both(one, made) if rng.random() < 0.5 else both(made, one)
    return made


def _used(text: str) -> list[tuple[str, list[str]]]:
    words = set(_WORD.findall(text))
    found = [(kind, [name for name in names if name in words]) for kind, names in _BINDERS]
    return [(kind, names) for kind, names in found if names]


def sample_episode(schema: Schema, seed: int) -> Episode:
    """Return a candidate episode of ``schema``."""
    rng = generator(seed, "rocq", schema.name)
    if schema.num_steps is None:
        *_, generate = _FAMILIES[schema.name]
        initial, steps = generate(rng)
        # The pair keeps its order; all such orders are equally likely.
        places = rng.permutation(_NUM_STEPS)
        places[:2] = sorted(places[:2])
        operations = [steps[places.index(place)] for place in range(_NUM_STEPS)]
    else:
        drawn = DrawnRelations.of(schema, below_of(rng))
        write = _WRITERS.get(schema.name) or pick(rng, (_cite_steps, _assert_steps))
        initial, steps = write(rng, drawn.pairs, drawn.num_steps)
        operations = drawn.arranged(steps, below_of(rng))
    name = f"rocq.{schema.name}"
    return Episode(
        environment="rocq",
        schema=schema.name,
        initial=initial,
        operations=tuple(operations),
        provenance=Provenance(source=f"{name}/seed={seed}", generator=name, seed=seed),
    )


def _cite(rng: Generator) -> _Draft:
    cited, citing, *rest = fresh_names(rng, _NUM_STEPS)
    first = fact(rng)
    second = following(rng, [first.cited(cited)])
    pair = [named(cited, first.lemma(cited)), named(citing, second.lemma(citing))]
    return _declarations(), [*pair, *(_other(rng, name) for name in rest)]


def _computes(rng: Generator) -> _Draft:
    made, about, *rest = fresh_names(rng, _NUM_STEPS)
    base, step = int(rng.integers(4)), int(rng.integers(1, 4))
    if rng.random() < 0.5:
        value = f"{'S (' * step}{made} p{')' * step}"
        text = f"Fixpoint {made} (n : nat) : nat := match n with 0 => {base} | S p => {value} end."
        at = int(rng.integers(1, 4))
        claim = pick(
            rng,
            (
                Fact(f"{made} {at} = {base + at * step}", "eq_refl"),
                Fact(f"{made} (S n) = {value.replace(' p)', ' n)')}", "eq_refl"),
            ),
        )
    else:
        value = expression(rng)
        binders = "(n m k : nat) (l : list nat)"
        text = f"Definition {made} {binders} : nat := {value} + {base}."
        claim = Fact(f"{made} n m k l = {value} + {base}", "eq_refl")
    claim = both(claim, fact(rng)) if rng.random() < 0.5 else claim
    pair = [named(made, text), named(about, claim.lemma(about))]
    return _declarations(), [*pair, *(_other(rng, name) for name in rest)]


def _instances(rng: Generator) -> _Draft:
    class_name, field, *names = fresh_names(rng, 2 + _NUM_STEPS)
    kind, values = pick(
        rng,
        (
            ("nat", [str(number) for number in range(6)]),
            ("bool", ["true", "false"]),
            ("(list nat)", ["nil", "(1 :: nil)", "(0 :: 2 :: nil)"]),
        ),
    )
    chosen = [values[place] for place in rng.permutation(len(values))[:2]]
    pair = [
        named(name, f"Instance {name} : {class_name} {kind} := {value}.")
        for name, value in zip(names, chosen, strict=False)
    ]
    initial = _declarations(
        f"Class {class_name} (A : Type) := {field} : A.", probes=[f"_ : {class_name} {kind}"]
    )
    return initial, [*pair, *(_other(rng, name) for name in names[2:])]


def _asserts(rng: Generator) -> _Draft:
    theorem, first, *names = fresh_names(rng, 1 + _NUM_STEPS)
    base = fact(rng)
    facts = [base, following(rng, [Fact(base.type, first)])]
    initial = _proof(rng, theorem)
    facts += [fact(rng) for _ in names[1:]]
    return initial, list(map(_assert, (first, *names), facts))


def _forward(rng: Generator) -> _Draft:
    theorem, changed, *names = fresh_names(rng, 2 + _NUM_STEPS)
    kinds = [_FORWARD[place] for place in rng.permutation(len(_FORWARD))[:2]]
    pair = [
        named(name, f"apply ({pick(rng, kind).format(int(rng.integers(2, 6)))}) in {changed}.")
        for name, kind in zip(names, kinds, strict=False)
    ]
    hypothesis = f"({changed} : {expression(rng)} <= {expression(rng)})"
    others = [_assert(name, fact(rng)) for name in names[2:]]
    return _proof(rng, theorem, hypothesis), [*pair, *others]


def _siblings(rng: Generator) -> _Draft:
    theorem, witness, proof, *rest = fresh_names(rng, 1 + _NUM_STEPS)
    value, aside = expression(rng), fact(rng)
    body, closed = pick(
        rng,
        (
            (f"x = {value}", "eq_refl"),
            (f"{value} = x", "eq_refl"),
            (f"x = {value} /\\ {aside.type}", f"conj eq_refl ({aside.proof})"),
            (f"S x = S {value}", "eq_refl"),
        ),
    )
    goals = {name: fact(rng) for name in rest}
    parts = [(f"(exists x : nat, {body})", f"(ex_intro _ ?[{witness}] ?[{proof}])")]
    parts += [(f"({one.type})", f"?[{name}]") for name, one in goals.items()]
    parts = [parts[place] for place in rng.permutation(len(parts))]
    target, opening = parts[-1]
    for kind, term in reversed(parts[:-1]):
        target, opening = f"{kind} /\\ ({target})", f"(conj {term} {opening})"
    steps = [named(witness, f"[{witness}]: exact {value}.")]
    proofs = {proof: closed, **{name: one.proof for name, one in goals.items()}}
    steps += [named(name, f"[{name}]: exact ({term}).") for name, term in proofs.items()]
    initial: Json = {
        "form": "proof",
        "before": [LIBRARIES],
        "statement": f"Lemma {theorem} {ALL_BINDERS} : {target}.",
        "opening": [f"refine {opening}."],
        "closing": [],
    }
    return initial, steps


def _cite_steps(rng: Generator, pairs: Pairs, num_steps: int) -> _Draft:
    """Return lemmas, each of which cites those before it in ``pairs``."""
    names, made = fresh_names(rng, num_steps), list[Fact]()
    for step in range(num_steps):
        cited = [made[a].cited(names[a]) for a, b in sorted(pairs) if b == step]
        made.append(following(rng, cited))
    steps = [named(name, one.lemma(name)) for name, one in zip(names, made, strict=True)]
    return _declarations(), steps


def _assert_steps(rng: Generator, pairs: Pairs, num_steps: int) -> _Draft:
    """Return facts within one proof, each of which follows from those before it in ``pairs``."""
    theorem, *names = fresh_names(rng, 1 + num_steps)
    made = list[Fact]()
    for step in range(num_steps):
        cited = [Fact(made[a].type, names[a]) for a, b in sorted(pairs) if b == step]
        made.append(following(rng, cited))
    steps = [_assert(name, one) for name, one in zip(names, made, strict=True)]
    return _proof(rng, theorem), steps


def named(signature: str, text: str) -> Operation:
    """Return the step of that text."""
    return Operation(signature=signature, payload=text)


def _assert(name: str, one: Fact) -> Operation:
    return named(name, f"assert ({name} : {one.type}) by exact ({one.proof}).")


def _other(rng: Generator, name: str) -> Operation:
    """Return a lemma, or sometimes a definition, that needs nothing else."""
    if rng.random() < 0.15:
        return named(
            name, f"Definition {name} (n m k : nat) (l : list nat) : nat := {expression(rng)}."
        )
    return named(name, fact(rng).lemma(name))


def _declarations(*before: str, probes: Sequence[str] = ()) -> Json:
    return {"form": "declarations", "before": [LIBRARIES, *before], "probes": list(probes)}


def _proof(rng: Generator, theorem: str, hypotheses: str = "") -> Json:
    """Return a theorem whose steps state facts, closed by a fact of its own."""
    goal = fact(rng)
    binders = " ".join(filter(None, (ALL_BINDERS, hypotheses)))
    return {
        "form": "proof",
        "before": [LIBRARIES],
        "statement": f"Lemma {theorem} {binders} : {goal.type}.",
        "opening": [],
        "closing": [f"exact ({goal.proof})."],
    }


#: By name: the content of an episode, how its pair depends, and its generator.
_FAMILIES: Mapping[str, tuple[str, AntiDiamonds, Callable[[Generator], _Draft]]] = {
    "cite": ("lemmas, one of which cites another", "precedes", _cite),
    "computes": (
        "a function among lemmas, and a lemma about what it computes",
        "precedes",
        _computes,
    ),
    "siblings": (
        "sibling goals of one proof, one of which is closed by proving another",
        "precedes",
        _siblings,
    ),
    "asserts": ("facts within one proof, one of which follows from another", "precedes", _asserts),
    "forward": (
        "facts within one proof, and two lemmas applied to one hypothesis",
        "conflicts",
        _forward,
    ),
    "instances": (
        "two instances of one class among lemmas; the later one is found",
        "conflicts",
        _instances,
    ),
}
_WRITERS = {"cite_poset": _cite_steps, "assert_poset": _assert_steps}
SCHEMAS = (
    *(
        Schema(name=name, summary=summary, relation=relation)
        for name, (summary, relation, _) in _FAMILIES.items()
    ),
    several_schema("cite_poset", "lemmas, several of which cite others", "precedes"),
    several_schema("assert_poset", "facts within one proof, several of which follow", "precedes"),
    *long_schemas("lemmas, or facts of one proof, some of which follow from others", "precedes"),
)
