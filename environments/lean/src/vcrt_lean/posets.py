"""Write Lean episodes with several dependent steps: declarations, or facts and sibling goals of one proof.

A shape of four steps, or one to six relations of 6 to 16, are drawn, and each step cites the steps that must precede
it. Some pairs conflict instead: two facts of one name, of which the later is visible, or two instances of one class, of
which the later is found. In a long proof, facts (``have``) stand in its main goal, which comes first; beside it there
are sibling goals, and witnesses that the proofs of their properties need or would determine. Certification decides
whether the relations hold. Names are drawn at random and reveal nothing about a step's role.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from vcrt.environments.contract import Episode, Operation, Provenance, Schema
from vcrt.environments.posets import (
    DrawnRelations,
    Pair,
    Pairs,
    below_of,
    components,
    long_schemas,
    several_schema,
)
from vcrt.hashing import Json
from vcrt.orders import transitive_closure
from vcrt.randomness import Generator, generator
from vcrt_lean.schemas import (
    case_step,
    conjunction,
    equation,
    frame_of,
    have_step,
    named,
    proof_of,
    proof_with,
)
from vcrt_lean.terms import (
    ATOMS,
    Fact,
    Lemma,
    definition,
    extended,
    fresh_names,
    grouped,
    numeral,
    pick,
    two_values,
)

#: The schemas of several dependent steps.
POSET_SCHEMAS = (
    several_schema(
        "cite_poset",
        "theorems, definitions and instances, several of which cite others or replace them",
    ),
    several_schema(
        "have_poset", "facts within one proof, several of which follow from others or hide them"
    ),
    *long_schemas("declarations, or facts and goals of one proof, some of which depend"),
)
#: Probabilities: a pair that may conflict does, and a first declaration is a definition.
_CONFLICT, _DEFINITION = 0.5, 0.3
#: Carriers of instances, with two values each.
_CARRIERS = ("N", "Bool")
#: Classes of instances, each with room for two pairs.
_CLASSES = 3
#: The probability that steps that could be sibling goals are, and the most goals that one witness settles.
_SIBLING, _MOST_GOALS = 0.5, 3
#: Longer texts are drawn anew: the grammar would refuse them.
_MAX_CHARS = 1900
#: The proof of a goal that is a bare equation.
_BARE = "Eq.refl _"
_Draft: TypeAlias = tuple[Json, list[Operation]]
_Writer: TypeAlias = Callable[[Generator, Pairs, int], _Draft]
#: Part of a theorem: its type, the term that leaves its goals open, and their steps by number.
_Goals: TypeAlias = tuple[str, str, dict[int, Operation]]


def sample_poset(schema: Schema, seed: int) -> Episode:
    """Return a candidate episode of several dependent steps, in a legal order."""
    rng = generator(seed, "lean", schema.name)
    drawn = DrawnRelations.of(schema, below_of(rng))
    write = _WRITERS.get(schema.name) or pick(rng, _LONG_WRITERS)
    initial, operations = write(rng, drawn.pairs, drawn.num_steps)
    while _longest(initial, operations) > _MAX_CHARS:
        initial, operations = write(rng, drawn.pairs, drawn.num_steps)
    name = f"lean.{schema.name}"
    return Episode(
        environment="lean",
        schema=schema.name,
        initial=initial,
        operations=tuple(drawn.arranged(operations, below_of(rng))),
        provenance=Provenance(
            source=f"{name}/seed={seed}",
            generator=name if drawn.shape is not None else f"{name}/1",
            seed=seed,
        ),
    )


def have_steps(rng: Generator, shape: Pairs, num_steps: int) -> _Draft:
    """Return a proof and the facts stated in it; each cites those before it in ``shape`` in its proof, or hides one."""
    theorem, *names = fresh_names(rng, 1 + 2 * num_steps)
    signatures, names = names[:num_steps], names[num_steps:]
    frame, facts = frame_of(rng)
    steps = have_texts(rng, shape, names, facts)
    return proof_with(rng, theorem, frame, facts), list(map(named, signatures, steps))


def have_texts(
    rng: Generator, shape: Pairs, names: Sequence[str], facts: Sequence[Fact]
) -> list[str]:
    """Return ``have`` steps that cite those before them in ``shape``; some hide one instead, under its name."""
    names = list(names)
    conflicts = _conflicting(rng, shape, _may_hide)
    for shared, hiding in conflicts:
        names[hiding] = names[shared]
    made: list[Fact] = []
    for step in range(len(names)):
        hidden = [a for a, b in conflicts if b == step]
        cited = [
            Fact(made[a].type, names[a]) for a, b in sorted(shape) if b == step and a not in hidden
        ]
        fact = _following(rng, cited, facts)
        while any(fact.type == made[a].type for a in hidden):
            fact = _following(rng, cited, facts)
        made.append(fact)
    return [have_step(name, fact) for name, fact in zip(names, made, strict=True)]


def _may_hide(shape: Pairs, hidden: int, hiding: int) -> bool:
    """Return whether the hiding is safe: no step uses the shared name after the second fact has it."""
    closure = transitive_closure(shape)
    last = not any(a == hiding for a, _ in closure)
    users = {b for a, b in closure if a == hidden} - {hiding}
    return last and all((user, hiding) in closure for user in users)


def cite_steps(rng: Generator, shape: Pairs, num_steps: int, num_classes: int = 1) -> _Draft:
    """Return declarations that cite those before them in ``shape``; some are instances that replace one instead.

    Each class has room for two pairs of instances.
    """
    names = fresh_names(rng, 2 * num_classes + num_steps)
    classes = list(zip(names[::2], names[1::2], strict=False))[:num_classes]
    names = names[2 * num_classes :]
    frame, facts = frame_of(rng)
    conflicts = _conflicting(rng, shape, _may_replace)
    room = [(*each, c) for each in classes for c in rng.permutation(_CARRIERS)]
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
            offers.append(Fact(lemma.fact.type, " ".join([name, *binders])))
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
        """Return the fact that gives the field's value in the instance called ``name``."""
        value = grouped(self.value)
        return Fact(f"Eq {name}.{self.field} {value}", f"Eq.refl {value}")


def _may_replace(shape: Pairs, replaced: int, replacing: int) -> bool:
    """Return whether an instance may replace another: it cites nothing, so it may only follow the one it replaces."""
    before = [(a, b) for a, b in shape if b in (replaced, replacing)]
    return before == [(replaced, replacing)]


def _conflicting(
    rng: Generator, shape: Pairs, may: Callable[[Pairs, int, int], bool]
) -> list[tuple[int, int]]:
    """Return pairs of the shape that conflict, without common steps."""
    chosen: list[tuple[int, int]] = []
    for place in rng.permutation(len(shape)):
        pair = sorted(shape)[place]
        free = not {step for other in chosen for step in other} & set(pair)
        if free and may(shape, *pair) and rng.random() < _CONFLICT:
            chosen.append(pair)
    return chosen


def _following(rng: Generator, cited: Sequence[Fact], facts: Sequence[Fact]) -> Fact:
    """Return a fact whose proof uses all cited facts; without any, one that follows from known facts."""
    if not cited:
        return extended(rng, pick(rng, facts), facts)
    order = [cited[place] for place in rng.permutation(len(cited))]
    fact = order[0]
    for other in order[1:]:
        fact = Fact(
            f"And {grouped(fact.type)} {grouped(other.type)}",
            f"And.intro {grouped(fact.proof)} {grouped(other.proof)}",
        )
    return extended(rng, fact)


def _two_values(rng: Generator, carrier: str) -> list[str]:
    if carrier == "Bool":
        values = ["Bool.true", "Bool.false"]
    else:
        values = []
        while len(values) < 2:
            values = list(dict.fromkeys((*values, numeral(rng))))
    return [values[place] for place in rng.permutation(2)]


def _proof(rng: Generator, pairs: Pairs, num_steps: int) -> _Draft:
    """Return a proof in which some groups of steps close sibling goals, and all other steps state facts."""
    theorem, main, *names = fresh_names(rng, 2 + 2 * num_steps)
    signatures, names = names[:num_steps], names[num_steps:]
    frame, facts = frame_of(rng)
    groups = [
        group
        for group in components(num_steps, pairs)
        if _settled_at_once(group, pairs) and rng.random() < _SIBLING
    ]
    parts = [_goals(rng, group, names, facts) for group in groups]
    operations = {step: operation for *_, steps in parts for step, operation in steps.items()}
    rest = [step for step in range(num_steps) if step not in operations]
    place = {step: index for index, step in enumerate(rest)}
    shape = frozenset((place[a], place[b]) for a, b in pairs if a in place)
    texts = have_texts(rng, shape, [names[step] for step in rest], facts)
    operations |= {s: named(signatures[s], t) for s, t in zip(rest, texts, strict=True)}
    last = pick(rng, facts)
    shuffled = [parts[index] for index in rng.permutation(len(parts))]
    if rest:
        shuffled.insert(0, (last.type, f"?{main}", {}))
    target = conjunction([kind for kind, *_ in shuffled], "And {} {}")
    opening = conjunction([term for _, term, _ in shuffled], "And.intro {} {}")
    initial = proof_of(
        theorem,
        frame,
        target,
        opening=f"refine {opening}" if parts else None,
        closing=f"exact {last.proof}" if rest else None,
    )
    return initial, [operations[step] for step in range(num_steps)]


def _settled_at_once(group: Sequence[int], pairs: Collection[Pair]) -> bool:
    """Return whether all other steps of a group depend on its first one alone, and there are not too many."""
    first, *others = group
    inside = {pair for pair in pairs if pair[1] in group}
    return inside == {(first, other) for other in others} and len(others) <= _MOST_GOALS


def _goals(
    rng: Generator, group: Sequence[int], names: Sequence[str], facts: Sequence[Fact]
) -> _Goals:
    """Return one goal; or a witness, and the goals about it that its value, or the proof of any of them, settles."""
    first, *others = group
    if not others:
        fact = extended(rng, pick(rng, facts), facts)
        return fact.type, f"?{names[first]}", {first: case_step(names[first], fact.proof)}
    carrier, (value, _) = two_values(rng)
    made = [equation(rng, carrier, value, facts)]
    while len(made) < len(others):
        # Lean finds the value from a bare equation alone: with both kinds, a goal would need the witness or that proof.
        more = equation(rng, carrier, value, facts)
        made += [more] * ((more[1] == _BARE) == (made[0][1] == _BARE))
    body = conjunction([kind for kind, _ in made], "And {} {}")
    proof = conjunction([f"?{names[step]}" for step in others], "And.intro {} {}")
    proofs = [value, *(closed for _, closed in made)]
    operations = {
        step: case_step(names[step], term) for step, term in zip(group, proofs, strict=True)
    }
    kind = f"Exists (fun n : {carrier} => {body})"
    return kind, f"Exists.intro ?{names[first]} {grouped(proof)}", operations


def _longest(initial: Json, operations: Sequence[Operation]) -> int:
    """Return the number of characters of the longest text that Lean would get."""
    assert isinstance(initial, dict)
    texts = [text for text in initial.values() if isinstance(text, str)]
    return max(len(text) for text in [*texts, *(str(each.payload) for each in operations)])


#: The writers of episodes of four steps, by schema, and of long ones: one of two ways.
_WRITERS: Mapping[str, _Writer] = {"cite_poset": cite_steps, "have_poset": have_steps}
_LONG_WRITERS: Sequence[_Writer] = (partial(cite_steps, num_classes=_CLASSES), _proof)
