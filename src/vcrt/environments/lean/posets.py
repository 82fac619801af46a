"""The generators of Lean episodes with several dependent steps: facts, or declarations, that speak of one another.

A shape is drawn, and each step cites those that it comes after. Some pairs are made to conflict instead: two facts of
one name, of which the later one is seen, or two instances of one class, of which the later one is found. Whether the
relations come out is for certification to say. Names are drawn at random and tell nothing about a step's part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vcrt.environments.contract import Episode, Operation, Provenance, Schema
from vcrt.environments.lean.definitions import definition
from vcrt.environments.lean.schemas import frame_of, have_step, named, proof_with
from vcrt.environments.lean.terms import (
    ATOMS,
    Fact,
    Lemma,
    extended,
    fresh_names,
    grouped,
    numeral,
    pick,
)
from vcrt.environments.posets import NUM_STEPS, SHAPES, Pairs, linear_order
from vcrt.hashing import Json
from vcrt.orders import transitive_closure
from vcrt.randomness import generator

POSET_SCHEMAS = (
    Schema(
        name="cite_poset",
        summary="theorems, definitions and instances, several of which cite others or replace them",
        relation="either",
        preset="several",
    ),
    Schema(
        name="have_poset",
        summary="facts within one proof, several of which follow from others or hide them",
        relation="either",
        preset="several",
    ),
)
#: How often a pair that may conflict does, and how often a first declaration is a definition.
_CONFLICT, _DEFINITION = 0.5, 0.3
#: Carriers of instances, with two values each.
_CARRIERS = ("N", "Bool")


def sample_poset(schema: str, seed: int) -> Episode:
    """A candidate episode of a schema of several anti-diamonds, in a random legal order."""
    rng = generator(seed, "lean", schema)
    shape = pick(rng, tuple(SHAPES))
    initial, operations = _GENERATORS[schema](rng, SHAPES[shape], NUM_STEPS)
    order = linear_order(shape, lambda number: int(rng.integers(number)))
    return Episode(
        environment="lean",
        schema=schema,
        initial=initial,
        operations=tuple(operations[step] for step in order),
        provenance=Provenance(
            source=f"lean.{schema}/seed={seed}", generator=f"lean.{schema}", seed=seed
        ),
    )


def have_steps(
    rng: np.random.Generator, shape: Pairs, num_steps: int
) -> tuple[Json, list[Operation]]:
    """A proof and the facts that are stated in it, each with those before it in ``shape`` in its proof, or hidden."""
    theorem, *names = fresh_names(rng, 1 + 2 * num_steps)
    signatures, names = names[:num_steps], names[num_steps:]
    frame, facts = frame_of(rng)
    steps = stated(rng, shape, names, facts)
    return proof_with(rng, theorem, frame, facts), list(map(named, signatures, steps))


def stated(
    rng: np.random.Generator, shape: Pairs, names: Sequence[str], facts: Sequence[Fact]
) -> list[str]:
    """``have`` steps that cite those before them in ``shape``; some of them hide one instead, and have its name."""
    names = list(names)
    conflicts = _conflicting(rng, shape, _may_hide)
    for shared, hiding in conflicts:
        names[hiding] = names[shared]
    made: list[Fact] = []
    for step in range(len(names)):
        hidden = [a for a, b in conflicts if b == step]
        cited = [
            Fact(type=made[a].type, proof=names[a])
            for a, b in sorted(shape)
            if b == step and a not in hidden
        ]
        fact = _following(rng, cited, facts)
        while any(fact.type == made[a].type for a in hidden):
            fact = _following(rng, cited, facts)
        made.append(fact)
    return [have_step(name, fact) for name, fact in zip(names, made, strict=True)]


def _may_hide(shape: Pairs, hidden: int, hiding: int) -> bool:
    """Nothing may speak of the name that two facts share after the second one has it."""
    closure = transitive_closure(shape)
    last = not any(a == hiding for a, _ in closure)
    users = {b for a, b in closure if a == hidden} - {hiding}
    return last and all((user, hiding) in closure for user in users)


def cite_steps(
    rng: np.random.Generator, shape: Pairs, num_steps: int, num_classes: int = 1
) -> tuple[Json, list[Operation]]:
    """Declarations that cite those before them in ``shape``; some are instances and replace one instead.

    Each class has room for two pairs of instances.
    """
    names = fresh_names(rng, 2 * num_classes + num_steps)
    classes = list(zip(names[::2], names[1::2], strict=False))[:num_classes]
    names = names[2 * num_classes :]
    frame, facts = frame_of(rng)
    conflicts = _conflicting(rng, shape, _may_replace)
    room = [(*each, c) for each in classes for c in rng.permutation(_CARRIERS).tolist()]
    values: dict[int, _Instance] = {}
    for (class_name, field, carrier), pair in zip(room, conflicts, strict=False):
        for step, value in zip(pair, _two_values(rng, carrier), strict=True):
            values[step] = _Instance(class_name, field, carrier, value)
    texts: list[str] = []
    offers: list[Fact] = []
    for step, name in enumerate(names):
        cited = [offers[a] for a, b in sorted(shape) if b == step]
        if step in values:
            texts.append(values[step].text(name))
            offers.append(values[step].fact(name))
        elif not cited and rng.random() < _DEFINITION:
            made, about = definition(rng, name)
            while about.hypotheses:
                made, about = definition(rng, name)
            texts.append(made.text(name))
            offers.append(about.fact)
        else:
            lemma = Lemma(hypotheses=frame, fact=_following(rng, cited, facts))
            texts.append(f"{lemma.statement(name, ATOMS)} := {lemma.fact.proof}")
            binders = [*ATOMS, *(label for label, _ in frame)]
            offers.append(Fact(type=lemma.fact.type, proof=" ".join([name, *binders])))
    probes = sorted({f"{each.class_name} {each.carrier}" for each in values.values()})
    used = {each.class_name for each in values.values()}
    initial: Json = {
        "form": "declarations",
        "setup": [f"class {c} (α : Type) where {field} : α" for c, field in classes if c in used],
        "probes": probes,
    }
    return initial, list(map(named, names, texts))


class _Instance(NamedTuple):
    """An instance of a class with one field."""

    class_name: str
    field: str
    carrier: str
    value: str

    def text(self, name: str) -> str:
        head = f"noncomputable instance {name} : {self.class_name} {self.carrier}"
        return f"{head} := ⟨{self.value}⟩"

    def fact(self, name: str) -> Fact:
        """What the instance called ``name`` has for its field."""
        value = grouped(self.value)
        return Fact(type=f"Eq {name}.{self.field} {value}", proof=f"Eq.refl {value}")


def _may_replace(shape: Pairs, replaced: int, replacing: int) -> bool:
    """An instance cites nothing, so it comes after no other step than the one that it replaces."""
    before = [(a, b) for a, b in shape if b in (replaced, replacing)]
    return before == [(replaced, replacing)]


def _conflicting(
    rng: np.random.Generator, shape: Pairs, may: Callable[[Pairs, int, int], bool]
) -> list[tuple[int, int]]:
    """Pairs of the shape that conflict, no two with a step in common."""
    chosen: list[tuple[int, int]] = []
    for place in rng.permutation(len(shape)).tolist():
        pair = sorted(shape)[place]
        free = not {step for other in chosen for step in other} & set(pair)
        if free and may(shape, *pair) and rng.random() < _CONFLICT:
            chosen.append(pair)
    return chosen


def _following(rng: np.random.Generator, cited: Sequence[Fact], facts: Sequence[Fact]) -> Fact:
    """A fact whose proof uses all that are cited; from what is known, if none are."""
    if not cited:
        return extended(rng, pick(rng, facts), facts)
    order = [cited[place] for place in rng.permutation(len(cited)).tolist()]
    fact = order[0]
    for other in order[1:]:
        fact = Fact(
            type=f"And {grouped(fact.type)} {grouped(other.type)}",
            proof=f"And.intro {grouped(fact.proof)} {grouped(other.proof)}",
        )
    return extended(rng, fact)


def _two_values(rng: np.random.Generator, carrier: str) -> list[str]:
    if carrier == "Bool":
        values = ["Bool.true", "Bool.false"]
    else:
        values = list(dict.fromkeys(numeral(rng) for _ in range(2)))
        while len(values) < 2:
            values = list(dict.fromkeys((*values, numeral(rng))))
    return [values[place] for place in rng.permutation(2).tolist()]


_GENERATORS: dict[
    str, Callable[[np.random.Generator, Pairs, int], tuple[Json, list[Operation]]]
] = {
    "cite_poset": cite_steps,
    "have_poset": have_steps,
}
