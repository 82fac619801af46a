"""Long Lean episodes: 6 to 16 declarations, or one proof of as many facts and sibling goals.

One to six relations are drawn, and steps are written that cite, hide, replace or close each other accordingly. In a
proof, facts (``have``) stand in its main goal, which comes first; beside it there are sibling goals, and witnesses that
the proof of what they must fulfil needs or would settle. Whether the relations come out is for certification to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import numpy as np

from vcrt.environments.contract import Episode, Operation, Provenance, Schema
from vcrt.environments.lean.posets import cite_steps, stated
from vcrt.environments.lean.schemas import conjunction, equation, frame_of, named
from vcrt.environments.lean.terms import ATOMS, Fact, Lemma, extended, fresh_names, pick, two_values
from vcrt.environments.long_posets import (
    Pair,
    components,
    draw_relations,
    long_schemas,
    num_steps_of,
)
from vcrt.hashing import Json
from vcrt.randomness import generator

#: The schemas of long episodes.
LONG_SCHEMAS = long_schemas("declarations, or facts and goals of one proof, some of which depend")
#: Classes of instances, each with room for two pairs.
_CLASSES = 3
#: How often steps that could be sibling goals are, and the most goals that one witness settles.
_SIBLING, _MOST_GOALS = 0.5, 3
#: Longer texts are drawn anew: they would not be let through to Lean.
_MAX_CHARS = 1900
#: The proof of a goal that is a bare equation.
_BARE = "Eq.refl _"
_Draft: TypeAlias = tuple[Json, list[Operation]]
#: Part of what is to be proved: its type, the term that leaves its goals open, and their steps by number.
_Goals: TypeAlias = tuple[str, str, dict[int, Operation]]


def sample_long(schema: Schema, seed: int) -> Episode:
    """A candidate episode; its reference order is that in which the steps were drawn."""
    num_steps = num_steps_of(schema)
    rng = generator(seed, "lean", schema.name)
    pairs = draw_relations(num_steps, lambda number: int(rng.integers(number)))
    write = pick(rng, _WRITERS)
    initial, operations = write(rng, pairs, num_steps)
    while _longest(initial, operations) > _MAX_CHARS:
        initial, operations = write(rng, pairs, num_steps)
    return Episode(
        environment="lean",
        schema=schema.name,
        initial=initial,
        operations=tuple(operations),
        provenance=Provenance(
            source=f"lean.{schema.name}/seed={seed}", generator=f"lean.{schema.name}/1", seed=seed
        ),
    )


def _declarations(rng: np.random.Generator, pairs: frozenset[Pair], num_steps: int) -> _Draft:
    return cite_steps(rng, pairs, num_steps, num_classes=_CLASSES)


def _proof(rng: np.random.Generator, pairs: frozenset[Pair], num_steps: int) -> _Draft:
    """Some groups of steps close sibling goals; all other steps state facts."""
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
    texts = stated(rng, shape, [names[step] for step in rest], facts)
    operations |= {s: named(signatures[s], t) for s, t in zip(rest, texts, strict=True)}
    last = pick(rng, facts)
    shuffled = [parts[index] for index in rng.permutation(len(parts)).tolist()]
    if rest:
        shuffled.insert(0, (last.type, f"?{main}", {}))
    target = conjunction([kind for kind, *_ in shuffled], "And {} {}")
    opening = conjunction([term for _, term, _ in shuffled], "And.intro {} {}")
    goal = Lemma(hypotheses=frame, fact=Fact(type=target, proof=""))
    initial: Json = {
        "form": "tactics",
        "statement": goal.statement(theorem, ATOMS),
        "opening": f"refine {opening}" if parts else None,
        "closing": f"exact {last.proof}" if rest else None,
    }
    return initial, [operations[step] for step in range(num_steps)]


def _settled_at_once(group: Sequence[int], pairs: Collection[Pair]) -> bool:
    """Whether all other steps of a group depend on its first one alone, and there are not too many."""
    first, *others = group
    inside = {pair for pair in pairs if pair[1] in group}
    return inside == {(first, other) for other in others} and len(others) <= _MOST_GOALS


def _goals(
    rng: np.random.Generator, group: Sequence[int], names: Sequence[str], facts: Sequence[Fact]
) -> _Goals:
    """One goal; or a witness, and the goals about it that its value, or the proof of any of them, settles."""
    first, *others = group
    if not others:
        fact = extended(rng, pick(rng, facts), facts)
        step = named(names[first], f"case {names[first]} => exact {fact.proof}")
        return fact.type, f"?{names[first]}", {first: step}
    carrier, (value, _) = two_values(rng)
    made = [equation(rng, carrier, value, facts)]
    while len(made) < len(others):
        # Lean finds the value from a bare equation alone: of two kinds, one would need the witness or the other.
        more = equation(rng, carrier, value, facts)
        made += [more] * ((more[1] == _BARE) == (made[0][1] == _BARE))
    body = conjunction([kind for kind, _ in made], "And {} {}")
    proof = conjunction([f"?{names[step]}" for step in others], "And.intro {} {}")
    operations = {first: named(names[first], f"case {names[first]} => exact {value}")}
    for number, (_, closed) in zip(others, made, strict=True):
        operations[number] = named(names[number], f"case {names[number]} => exact {closed}")
    proof = f"({proof})" if " " in proof else proof
    kind = f"Exists (fun n : {carrier} => {body})"
    return kind, f"Exists.intro ?{names[first]} {proof}", operations


def _longest(initial: Json, operations: Sequence[Operation]) -> int:
    """The characters of the longest text that Lean would get."""
    assert isinstance(initial, dict)
    texts = [text for text in initial.values() if isinstance(text, str)]
    return max(len(text) for text in [*texts, *(str(each.payload) for each in operations)])


_WRITERS: tuple[Callable[[np.random.Generator, frozenset[Pair], int], _Draft], ...] = (
    _declarations,
    _proof,
)
