"""Generate Lean episodes of one dependent pair, by one generator for each schema.

Each makes one pair of steps that depend on each other and others that do not, in a random legal order. Whether that
holds is for certification to say. Names are drawn at random and tell nothing about a step's part in the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from vcrt.environments.contract import AntiDiamonds, Episode, Operation, Provenance, Schema
from vcrt.hashing import Json
from vcrt.randomness import generator
from vcrt_lean.terms import (
    ATOMS,
    MAX_CONSTRUCTORS,
    Fact,
    Lemma,
    constructors_from,
    definition,
    definition_on,
    extended,
    fresh_names,
    grouped,
    inductive_type,
    lemma,
    lemma_on,
    pick,
    proposition,
    two_values,
)

#: A start without classes, for steps that are declarations.
_PLAIN: Json = {"form": "declarations", "setup": [], "probes": []}
#: The initial state, the dependent pair of operations, and the independent ones.
_Draft: TypeAlias = tuple[Json, tuple[Operation, Operation], Sequence[Operation]]
_Generator: TypeAlias = Callable[[np.random.Generator, int], _Draft]


def sample_episode(schema: str, seed: int, *, num_operations: int = 4) -> Episode:
    """A candidate episode of ``schema`` with ``num_operations`` (at least 2) steps."""
    if num_operations < 2:
        raise ValueError(f"num_operations is {num_operations}; an episode needs at least 2")
    rng = generator(seed, "lean", schema, num_operations)
    *_, generate = _FAMILIES[schema]
    initial, pair, others = generate(rng, num_operations)
    return Episode(
        environment="lean",
        schema=schema,
        initial=initial,
        operations=_arranged(rng, pair, others),
        provenance=Provenance(
            source=f"lean.{schema}/seed={seed}", generator=f"lean.{schema}", seed=seed
        ),
    )


def _arranged(
    rng: np.random.Generator, pair: tuple[Operation, Operation], others: Sequence[Operation]
) -> tuple[Operation, ...]:
    """A random order in which the pair stands as given; all such orders are equally likely."""
    operations = [*pair, *others]
    places = [int(place) for place in rng.permutation(len(operations))]
    places[:2] = sorted(places[:2])
    placed = dict(zip(places, operations, strict=True))
    return tuple(placed[place] for place in range(len(operations)))


def _cite(rng: np.random.Generator, num_operations: int) -> _Draft:
    cited, citing, *rest = fresh_names(rng, num_operations)
    first = lemma(rng)
    used = Fact(first.fact.type, first.application(cited))
    second = Lemma(hypotheses=first.hypotheses, fact=extended(rng, used))
    # The second theorem's type extends the first's, so it binds every variable that the citation names.
    pair = (named(cited, first.theorem(cited)), named(citing, second.theorem(citing)))
    return _PLAIN, pair, [_declaration(rng, name) for name in rest]


def _defn(rng: np.random.Generator, num_operations: int) -> _Draft:
    defined, proving, *rest = fresh_names(rng, num_operations)
    made, about = definition(rng, defined)
    pair = (
        named(defined, made.text(defined)),
        named(proving, _widened(rng, about).theorem(proving)),
    )
    return _PLAIN, pair, [_declaration(rng, name) for name in rest]


def _inductive(rng: np.random.Generator, num_operations: int) -> _Draft:
    most = num_operations + (num_operations - 1) * MAX_CONSTRUCTORS
    kind, using, *names = fresh_names(rng, most)
    rest, spare = names[: num_operations - 2], names[num_operations - 2 :]
    constructors = constructors_from(rng, spare)
    if rng.random() < 0.4:
        use = definition_on(rng, kind, constructors).text(using)
    else:
        use = _widened(rng, lemma_on(rng, kind, constructors)).theorem(using)
    pair = (named(kind, inductive_type(kind, constructors)), named(using, use))
    others = [
        named(name, inductive_type(name, constructors_from(rng, spare)))
        if rng.random() < 0.2
        else _declaration(rng, name)
        for name in rest
    ]
    return _PLAIN, pair, others


def _instances(rng: np.random.Generator, num_operations: int) -> _Draft:
    class_name, field, *names = fresh_names(rng, num_operations + 2)
    carrier, values = two_values(rng)
    result, wrap = pick(rng, (("α", "{}"), ("N → α", "fun n => {}"), ("Prop → α", "fun p => {}")))
    first, second = (
        named(
            name,
            f"noncomputable instance {name} : {class_name} {carrier} := ⟨{wrap.format(value)}⟩",
        )
        for name, value in zip(names, values, strict=False)
    )
    initial: Json = {
        "form": "declarations",
        "setup": [f"class {class_name} (α : Type) where {field} : {result}"],
        "probes": [f"{class_name} {carrier}"],
    }
    return initial, (first, second), [_declaration(rng, name) for name in names[2:]]


def _have(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, first, second, *rest = fresh_names(rng, num_operations + 1)
    frame, facts = frame_of(rng)
    base = extended(rng, pick(rng, facts), facts)
    derived = extended(rng, Fact(base.type, first), facts)
    pair = (named(first, have_step(first, base)), named(second, have_step(second, derived)))
    others = [named(n, have_step(n, extended(rng, pick(rng, facts), facts))) for n in rest]
    return proof_with(rng, theorem, frame, facts), pair, others


def _shadow(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, shared, *names = fresh_names(rng, 2 * num_operations)
    signatures = names[:num_operations]
    frame, facts = frame_of(rng)
    older = extended(rng, pick(rng, facts), facts)
    newer = older
    while newer.type == older.type:
        newer = extended(rng, pick(rng, facts), facts)
    steps = [have_step(shared, older), have_step(shared, newer)] + [
        have_step(name, extended(rng, pick(rng, facts), facts)) for name in names[num_operations:]
    ]
    first, second, *others = map(named, signatures, steps)
    return proof_with(rng, theorem, frame, facts), (first, second), others


def _tactic_siblings(rng: np.random.Generator, num_operations: int) -> _Draft:
    theorem, witness, proof, *rest = fresh_names(rng, num_operations + 1)
    frame, facts = frame_of(rng)
    carrier, (value, _) = two_values(rng)
    body, closed = equation(rng, carrier, value, facts)
    kind = f"Exists (fun n : {carrier} => {body})"
    goals = {tag: extended(rng, pick(rng, facts), facts) for tag in rest}
    parts = [(kind, f"Exists.intro ?{witness} ?{proof}")]
    parts += [(fact.type, f"?{tag}") for tag, fact in goals.items()]
    shuffled = [parts[int(place)] for place in rng.permutation(len(parts))]
    target = conjunction([kind for kind, _ in shuffled], "And {} {}")
    opening = conjunction([term for _, term in shuffled], "And.intro {} {}")
    pair = (
        named(witness, f"case {witness} => exact {value}"),
        named(proof, f"case {proof} => exact {closed}"),
    )
    others = [named(tag, f"case {tag} => exact {fact.proof}") for tag, fact in goals.items()]
    return proof_of(theorem, frame, target, opening=f"refine {opening}"), pair, others


def named(signature: str, text: str) -> Operation:
    """The step of that text."""
    return Operation(signature=signature, payload=text)


def _declaration(rng: np.random.Generator, name: str) -> Operation:
    """A theorem, or now and then a definition, that needs nothing else."""
    if rng.random() < 0.15:
        made, _ = definition(rng, name)
        return named(name, made.text(name))
    return named(name, lemma(rng).theorem(name))


def _widened(rng: np.random.Generator, about: Lemma) -> Lemma:
    """``about`` itself, or with a larger fact that still speaks of the same thing."""
    if rng.random() < 0.4:
        return about
    return Lemma(hypotheses=about.hypotheses, fact=extended(rng, about.fact))


def have_step(name: str, fact: Fact) -> str:
    """The step that states a fact under a name."""
    return f"have {name} : {fact.type} := {fact.proof}"


def frame_of(rng: np.random.Generator) -> tuple[tuple[tuple[str, str], ...], list[Fact]]:
    """The hypotheses of a proof, and the facts that follow from them at once."""
    a, b, c = (proposition(rng) for _ in range(3))
    hypotheses = (("x", a), ("y", f"{grouped(a)} → {grouped(b)}"), ("z", c))
    proofs = (("x", a), ("y x", b), ("z", c))
    return hypotheses, [Fact(kind, proof) for proof, kind in proofs]


def proof_of(
    theorem: str,
    hypotheses: tuple[tuple[str, str], ...],
    target: str,
    *,
    opening: str | None = None,
    closing: str | None = None,
) -> Json:
    """The start of a proof of ``target``."""
    goal = Lemma(hypotheses=hypotheses, fact=Fact(target, ""))
    statement = goal.statement(theorem, ATOMS)
    return {"form": "tactics", "statement": statement, "opening": opening, "closing": closing}


def proof_with(
    rng: np.random.Generator,
    theorem: str,
    hypotheses: tuple[tuple[str, str], ...],
    facts: Sequence[Fact],
) -> Json:
    """A theorem whose steps state facts, and which one of the hypotheses' own consequences ends."""
    goal = pick(rng, facts)
    return proof_of(theorem, hypotheses, goal.type, closing=f"exact {goal.proof}")


def equation(
    rng: np.random.Generator, carrier: str, value: str, facts: Sequence[Fact]
) -> tuple[str, str]:
    """A proposition about ``n`` that only ``value`` fulfils, and a proof that finds the value by itself."""
    fact = pick(rng, facts)
    kind, proof = grouped(fact.type), grouped(fact.proof)
    plain = f"Eq n {grouped(value)}"
    shapes = [
        (plain, "Eq.refl _"),
        (f"Eq {grouped(value)} n", "Eq.refl _"),
        (f"And ({plain}) {kind}", f"And.intro (Eq.refl _) {proof}"),
        (f"And {kind} ({plain})", f"And.intro {proof} (Eq.refl _)"),
    ]
    if carrier == "N":
        shapes.append((f"Eq (N.s n) (N.s {grouped(value)})", "Eq.refl _"))
    return pick(rng, shapes)


def conjunction(parts: Sequence[str], form: str) -> str:
    """``parts`` nested to the right in ``form``."""
    text = parts[-1]
    for part in reversed(parts[:-1]):
        text = form.format(grouped(part), grouped(text))
    return text


#: By name: what an episode is made of, how its pair depends, and what generates it.
_FAMILIES: Mapping[str, tuple[str, AntiDiamonds, _Generator]] = {
    "cite": ("theorems, one of which cites another", "precedes", _cite),
    "defn": ("a definition among theorems, and a proof about what it defines", "precedes", _defn),
    "inductive": (
        "an inductive type among theorems, and a theorem or a definition on it",
        "precedes",
        _inductive,
    ),
    "tactic_siblings": (
        "sibling goals of one proof, one of which is closed by proving another",
        "precedes",
        _tactic_siblings,
    ),
    "instances": (
        "two instances of one class among theorems; the later one is found",
        "conflicts",
        _instances,
    ),
    "have": ("facts within one proof, one of which follows from another", "precedes", _have),
    "shadow": (
        "facts within one proof, two of which have one name; the later one is seen",
        "conflicts",
        _shadow,
    ),
}
SCHEMAS = tuple(
    Schema(name=name, summary=summary, relation=relation, default=name not in ("have", "shadow"))
    for name, (summary, relation, _) in _FAMILIES.items()
)
