"""Generate Rocq episodes: one dependent pair among four steps, or several dependent steps of any number.

Each makes steps over facts of the standard library, some of which depend on each other, in a legal order. Whether that
holds is for certification to say. Names are drawn at random and tell nothing about a step's part in the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from vcrt.environments.contract import AntiDiamonds, Episode, Operation, Provenance, Schema
from vcrt.environments.posets import (
    DrawnRelations,
    Pairs,
    below_of,
    long_schemas,
    several_schema,
)
from vcrt.environments.random_names import fresh_names, pick
from vcrt.hashing import Json
from vcrt.randomness import generator
from vcrt_rocq.facts import (
    ALL_BINDERS,
    LIBRARIES,
    Fact,
    both,
    expression,
    fact,
    following,
)

#: The initial state, the dependent pair of operations, and the independent ones.
_Draft: TypeAlias = tuple[Json, tuple[Operation, Operation], Sequence[Operation]]
_Generator: TypeAlias = Callable[[np.random.Generator, int], _Draft]
#: Facts about an inequality that take it to another, no two of which do so in both orders alike.
_FORWARD = (
    ("le_S _ _", "le_n_S _ _"),
    ("Nat.mul_le_mono_l _ _ {}",),
    ("Nat.add_le_mono_l _ _ {}",),
    ("Nat.add_le_mono_r _ _ {}",),
)


def sample_episode(schema: Schema, seed: int, *, num_operations: int = 4) -> Episode:
    """A candidate episode of ``schema``."""
    rng = generator(seed, "rocq", schema.name)
    if schema.num_steps is None:
        *_, generate = _FAMILIES[schema.name]
        initial, pair, others = generate(rng, num_operations)
        operations = _arranged(rng, pair, others)
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


def _arranged(
    rng: np.random.Generator, pair: tuple[Operation, Operation], others: Sequence[Operation]
) -> list[Operation]:
    """A random order in which the pair stands as given; all such orders are equally likely."""
    operations = [*pair, *others]
    places = [int(place) for place in rng.permutation(len(operations))]
    places[:2] = sorted(places[:2])
    placed = dict(zip(places, operations, strict=True))
    return [placed[place] for place in range(len(operations))]


def _cite(rng: np.random.Generator, num_operations: int) -> _Draft:
    cited, citing, *rest = fresh_names(rng, num_operations)
    first = fact(rng)
    second = following(rng, [first.cited(cited)])
    pair = named(cited, first.lemma(cited)), named(citing, second.lemma(citing))
    return _declarations(), pair, [_other(rng, name) for name in rest]


def _computes(rng: np.random.Generator, num_operations: int) -> _Draft:
    made, about, *rest = fresh_names(rng, num_operations)
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
    pair = named(made, text), named(about, claim.lemma(about))
    return _declarations(), pair, [_other(rng, name) for name in rest]


def _instances(rng: np.random.Generator, num_operations: int) -> _Draft:
    class_name, field, *names = fresh_names(rng, num_operations + 2)
    kind, values = pick(
        rng,
        (
            ("nat", [str(number) for number in range(6)]),
            ("bool", ["true", "false"]),
            ("(list nat)", ["nil", "(1 :: nil)", "(0 :: 2 :: nil)"]),
        ),
    )
    chosen = [values[int(place)] for place in rng.permutation(len(values))[:2]]
    first, second = (
        named(name, f"Instance {name} : {class_name} {kind} := {value}.")
        for name, value in zip(names, chosen, strict=False)
    )
    initial = _declarations(
        f"Class {class_name} (A : Type) := {field} : A.", probes=[f"_ : {class_name} {kind}"]
    )
    return initial, (first, second), [_other(rng, name) for name in names[2:]]


def _asserts(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, first, second, *rest = fresh_names(rng, num_operations + 1)
    base = fact(rng)
    derived = following(rng, [Fact(base.type, first)])
    pair = _assert(first, base), _assert(second, derived)
    return _proof(rng, theorem), pair, [_assert(name, fact(rng)) for name in rest]


def _forward(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, changed, *names = fresh_names(rng, num_operations + 2)
    kinds = [_FORWARD[int(place)] for place in rng.permutation(len(_FORWARD))[:2]]
    first, second = (
        named(
            name,
            f"apply ({pick(rng, kind).format(int(rng.integers(2, 6)))}) in {changed}.",
        )
        for name, kind in zip(names, kinds, strict=False)
    )
    hypothesis = f"({changed} : {expression(rng)} <= {expression(rng)})"
    others = [_assert(name, fact(rng)) for name in names[2:]]
    return _proof(rng, theorem, hypothesis), (first, second), others


def _siblings(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, witness, proof, *rest = fresh_names(rng, num_operations + 1)
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
    parts = [parts[int(place)] for place in rng.permutation(len(parts))]
    target, opening = parts[-1]
    for kind, term in reversed(parts[:-1]):
        target, opening = f"{kind} /\\ ({target})", f"(conj {term} {opening})"
    pair = (
        named(witness, f"[{witness}]: exact {value}."),
        named(proof, f"[{proof}]: exact ({closed})."),
    )
    others = [named(name, f"[{name}]: exact ({one.proof}).") for name, one in goals.items()]
    initial: Json = {
        "form": "proof",
        "before": [LIBRARIES],
        "statement": f"Lemma {theorem} {ALL_BINDERS} : {target}.",
        "opening": [f"refine {opening}."],
        "closing": [],
    }
    return initial, pair, others


def _cite_steps(
    rng: np.random.Generator, pairs: Pairs, num_steps: int
) -> tuple[Json, list[Operation]]:
    """Lemmas each of which cites those before it in ``pairs``."""
    names, made = fresh_names(rng, num_steps), list[Fact]()
    for step in range(num_steps):
        cited = [made[a].cited(names[a]) for a, b in sorted(pairs) if b == step]
        made.append(following(rng, cited))
    steps = [named(name, one.lemma(name)) for name, one in zip(names, made, strict=True)]
    return _declarations(), steps


def _assert_steps(
    rng: np.random.Generator, pairs: Pairs, num_steps: int
) -> tuple[Json, list[Operation]]:
    """Facts within one proof, each of which follows from those before it in ``pairs``."""
    theorem, *names = fresh_names(rng, 1 + num_steps)
    made = list[Fact]()
    for step in range(num_steps):
        cited = [Fact(made[a].type, names[a]) for a, b in sorted(pairs) if b == step]
        made.append(following(rng, cited))
    steps = [_assert(name, one) for name, one in zip(names, made, strict=True)]
    return _proof(rng, theorem), steps


def named(signature: str, text: str) -> Operation:
    """The step of that text."""
    return Operation(signature=signature, payload=text)


def _assert(name: str, one: Fact) -> Operation:
    return named(name, f"assert ({name} : {one.type}) by exact ({one.proof}).")


def _other(rng: np.random.Generator, name: str) -> Operation:
    """A lemma, or now and then a definition, that needs nothing else."""
    if rng.random() < 0.15:
        return named(
            name, f"Definition {name} (n m k : nat) (l : list nat) : nat := {expression(rng)}."
        )
    return named(name, fact(rng).lemma(name))


def _declarations(*before: str, probes: Sequence[str] = ()) -> Json:
    return {"form": "declarations", "before": [LIBRARIES, *before], "probes": list(probes)}


def _proof(rng: np.random.Generator, theorem: str, hypotheses: str = "") -> Json:
    """A theorem whose steps state facts, and which its own fact ends."""
    goal = fact(rng)
    binders = " ".join(filter(None, (ALL_BINDERS, hypotheses)))
    return {
        "form": "proof",
        "before": [LIBRARIES],
        "statement": f"Lemma {theorem} {binders} : {goal.type}.",
        "opening": [],
        "closing": [f"exact ({goal.proof})."],
    }


#: By name: what an episode is made of, how its pair depends, and what generates it.
_FAMILIES: Mapping[str, tuple[str, AntiDiamonds, _Generator]] = {
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
