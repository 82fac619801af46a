"""Generate Lean episodes of one dependent pair among four steps, by one generator for each schema.

Each makes one pair of dependent steps and two independent ones, in a random legal order. Certification decides whether
that holds. Names are drawn at random and reveal nothing about a step's role in the episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from vcrt.environments.contract import AntiDiamonds, Episode, Operation, Provenance, Schema
from vcrt.hashing import Json
from vcrt.randomness import Generator, generator
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

_NUM_STEPS = 4
#: A start without classes, for steps that are declarations.
_PLAIN: Json = {"form": "declarations", "setup": [], "probes": []}
#: The initial state and the operations, the dependent pair first.
_Draft: TypeAlias = tuple[Json, list[Operation]]
#: The hypotheses of a proof, by name.
Frame: TypeAlias = tuple[tuple[str, str], ...]


def sample_episode(schema: str, seed: int) -> Episode:
    """Return a candidate episode of ``schema``."""
    rng = generator(seed, "lean", schema, _NUM_STEPS)
    *_, generate = _FAMILIES[schema]
    initial, operations = generate(rng)
    # The pair keeps its order; all such orders are equally likely.
    places = rng.permutation(_NUM_STEPS)
    places[:2] = sorted(places[:2])
    return Episode(
        environment="lean",
        schema=schema,
        initial=initial,
        operations=tuple(operations[places.index(place)] for place in range(_NUM_STEPS)),
        provenance=Provenance(
            source=f"lean.{schema}/seed={seed}", generator=f"lean.{schema}", seed=seed
        ),
    )


def _cite(rng: Generator) -> _Draft:
    cited, citing, *rest = fresh_names(rng, _NUM_STEPS)
    first = lemma(rng)
    used = Fact(first.fact.type, first.application(cited))
    second = Lemma(hypotheses=first.hypotheses, fact=extended(rng, used))
    # The second theorem's type extends the first's, so it binds every variable that the citation names.
    return _PLAIN, [
        named(cited, first.theorem(cited)),
        named(citing, second.theorem(citing)),
        *(_declaration(rng, name) for name in rest),
    ]


def _defn(rng: Generator) -> _Draft:
    defined, proving, *rest = fresh_names(rng, _NUM_STEPS)
    made, about = definition(rng, defined)
    return _PLAIN, [
        named(defined, made.text(defined)),
        named(proving, _widened(rng, about).theorem(proving)),
        *(_declaration(rng, name) for name in rest),
    ]


def _inductive(rng: Generator) -> _Draft:
    kind, using, *names = fresh_names(rng, _NUM_STEPS + (_NUM_STEPS - 1) * MAX_CONSTRUCTORS)
    rest, spare = names[: _NUM_STEPS - 2], names[_NUM_STEPS - 2 :]
    constructors = constructors_from(rng, spare)
    if rng.random() < 0.4:
        use = definition_on(rng, kind, constructors).text(using)
    else:
        use = _widened(rng, lemma_on(rng, kind, constructors)).theorem(using)
    return _PLAIN, [
        named(kind, inductive_type(kind, constructors)),
        named(using, use),
        *(
            named(name, inductive_type(name, constructors_from(rng, spare)))
            if rng.random() < 0.2
            else _declaration(rng, name)
            for name in rest
        ),
    ]


def _instances(rng: Generator) -> _Draft:
    class_name, field, *names = fresh_names(rng, 2 + _NUM_STEPS)
    carrier, values = two_values(rng)
    result, wrap = pick(rng, (("α", "{}"), ("N → α", "fun n => {}"), ("Prop → α", "fun p => {}")))
    head = f"{class_name} {carrier}"
    pair = [
        named(name, f"noncomputable instance {name} : {head} := ⟨{wrap.format(value)}⟩")
        for name, value in zip(names, values, strict=False)
    ]
    initial: Json = {
        "form": "declarations",
        "setup": [f"class {class_name} (α : Type) where {field} : {result}"],
        "probes": [head],
    }
    return initial, [*pair, *(_declaration(rng, name) for name in names[2:])]


def _have(rng: Generator) -> _Draft:
    theorem, first, *names = fresh_names(rng, 1 + _NUM_STEPS)
    frame, facts = frame_of(rng)
    base = extended(rng, pick(rng, facts), facts)
    made = [base, extended(rng, Fact(base.type, first), facts)]
    made += [extended(rng, pick(rng, facts), facts) for _ in names[1:]]
    steps = [
        named(name, have_step(name, fact)) for name, fact in zip((first, *names), made, strict=True)
    ]
    return proof_with(rng, theorem, frame, facts), steps


def _shadow(rng: Generator) -> _Draft:
    theorem, shared, *names = fresh_names(rng, 2 * _NUM_STEPS)
    signatures, names = names[:_NUM_STEPS], [shared, shared, *names[_NUM_STEPS:]]
    frame, facts = frame_of(rng)
    older = extended(rng, pick(rng, facts), facts)
    newer = older
    while newer.type == older.type:
        newer = extended(rng, pick(rng, facts), facts)
    made = [older, newer, *(extended(rng, pick(rng, facts), facts) for _ in names[2:])]
    steps = map(named, signatures, map(have_step, names, made))
    return proof_with(rng, theorem, frame, facts), list(steps)


def _tactic_siblings(rng: Generator) -> _Draft:
    theorem, witness, proof, *rest = fresh_names(rng, 1 + _NUM_STEPS)
    frame, facts = frame_of(rng)
    carrier, (value, _) = two_values(rng)
    body, closed = equation(rng, carrier, value, facts)
    kind = f"Exists (fun n : {carrier} => {body})"
    goals = {tag: extended(rng, pick(rng, facts), facts) for tag in rest}
    parts = [(kind, f"Exists.intro ?{witness} ?{proof}")]
    parts += [(fact.type, f"?{tag}") for tag, fact in goals.items()]
    shuffled = [parts[place] for place in rng.permutation(len(parts))]
    target = conjunction([kind for kind, _ in shuffled], "And {} {}")
    opening = conjunction([term for _, term in shuffled], "And.intro {} {}")
    proofs = {witness: value, proof: closed, **{tag: fact.proof for tag, fact in goals.items()}}
    steps = [case_step(tag, term) for tag, term in proofs.items()]
    return proof_of(theorem, frame, target, opening=f"refine {opening}"), steps


def named(signature: str, text: str) -> Operation:
    """Return the step of that text."""
    return Operation(signature=signature, payload=text)


def case_step(tag: str, proof: str) -> Operation:
    """Return the step that closes the goal ``tag``."""
    return named(tag, f"case {tag} => exact {proof}")


def have_step(name: str, fact: Fact) -> str:
    """Return the step that states a fact under a name."""
    return f"have {name} : {fact.type} := {fact.proof}"


def _declaration(rng: Generator, name: str) -> Operation:
    """Return a theorem, or sometimes a definition, that needs nothing else."""
    if rng.random() < 0.15:
        made, _ = definition(rng, name)
        return named(name, made.text(name))
    return named(name, lemma(rng).theorem(name))


def _widened(rng: Generator, about: Lemma) -> Lemma:
    """Return ``about`` itself, or with a larger fact about the same thing."""
    if rng.random() < 0.4:
        return about
    return Lemma(hypotheses=about.hypotheses, fact=extended(rng, about.fact))


def frame_of(rng: Generator) -> tuple[Frame, list[Fact]]:
    """Return the hypotheses of a proof, and the facts that follow from them at once."""
    a, b, c = (proposition(rng) for _ in range(3))
    hypotheses = (("x", a), ("y", f"{grouped(a)} → {grouped(b)}"), ("z", c))
    return hypotheses, [Fact(a, "x"), Fact(b, "y x"), Fact(c, "z")]


def proof_of(
    theorem: str,
    frame: Frame,
    target: str,
    *,
    opening: str | None = None,
    closing: str | None = None,
) -> Json:
    """Return the start of a proof of ``target``."""
    statement = Lemma(hypotheses=frame, fact=Fact(target, "")).statement(theorem, ATOMS)
    return {"form": "tactics", "statement": statement, "opening": opening, "closing": closing}


def proof_with(rng: Generator, theorem: str, frame: Frame, facts: Sequence[Fact]) -> Json:
    """Return a theorem whose steps state facts, closed by a consequence of the hypotheses."""
    goal = pick(rng, facts)
    return proof_of(theorem, frame, goal.type, closing=f"exact {goal.proof}")


def equation(rng: Generator, carrier: str, value: str, facts: Sequence[Fact]) -> tuple[str, str]:
    """Return a proposition about ``n`` that only ``value`` fulfils, and a proof that finds the value by itself."""
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
    """Return ``parts`` nested to the right in ``form``."""
    text = parts[-1]
    for part in reversed(parts[:-1]):
        text = form.format(grouped(part), grouped(text))
    return text


#: By name: the content of an episode, how its pair depends, and its generator.
_FAMILIES: Mapping[str, tuple[str, AntiDiamonds, Callable[[Generator], _Draft]]] = {
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
