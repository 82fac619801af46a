"""Shared by the ProofWriter tests: data, tiny random theories and an oracle that enumerates all models."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path

import pytest
from hypothesis import strategies as st

from vcrt_proofwriter.theory import Assumption, Atom, Rule, Theory

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def data_file(name: str) -> Path:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"the shared data file {name} is not beside the repository")
    return path


def rule(*atoms: Atom) -> Rule:
    *conditions, conclusion = atoms
    return Rule(conditions=tuple(conditions), conclusion=conclusion)


def theory(assumption: Assumption, facts: list[Atom], rules: list[Rule]) -> Theory:
    return Theory(assumption=assumption, facts=tuple(facts), rules=tuple(rules))


@st.composite
def small_theories(draw: st.DrawFn, assumption: Assumption | None = None) -> Theory:
    """Two people, three attributes, one verb; any negation that the assumption allows, stratified or not."""
    world = draw(st.sampled_from(("CWA", "OWA"))) if assumption is None else assumption
    asserted = st.just("+") if world == "CWA" else st.sampled_from("++-")
    conditional = st.sampled_from("+~" if world == "CWA" else "+-")
    people = ("Ann", "Bo")

    def atoms(
        subjects: tuple[str, ...], polarity: st.SearchStrategy[str]
    ) -> st.SearchStrategy[Atom]:
        quality = st.builds(
            Atom, st.sampled_from(subjects), st.just("is"), st.sampled_from("pqr"), polarity
        )
        relation = st.builds(
            Atom, st.sampled_from(subjects), st.just("likes"), st.sampled_from(people), polarity
        )
        return st.one_of(quality, quality, relation)

    facts = draw(st.lists(atoms(people, asserted), max_size=4))
    rules = []
    for _ in range(draw(st.integers(1, 4))):
        subjects = ("someone",) if draw(st.booleans()) else people
        conditions = draw(st.lists(atoms(subjects, conditional), min_size=1, max_size=3))
        rules.append(rule(*conditions, draw(atoms(subjects, asserted))))
    return theory(world, facts, rules)


def ground_clauses(given: Theory) -> list[tuple[tuple[Atom, ...], Atom]]:
    """Each rule under each entity, bound anew here so that the engine's grounding is not trusted."""
    people = sorted(
        {t for a in _atoms(given) for t in (a[0], a[2] if a[1] != "is" else a[0]) if t != "someone"}
    )
    return [
        (
            tuple(Atom(*(p if t == "someone" else t for t in c)) for c in r.conditions),
            Atom(*(p if t == "someone" else t for t in r.conclusion)),
        )
        for r in given.rules
        for p in people
    ]


def _atoms(given: Theory) -> list[Atom]:
    return [*given.facts, *chain.from_iterable((*r.conditions, r.conclusion) for r in given.rules)]


def stable_models(given: Theory) -> list[frozenset[Atom]]:
    """All stable models by enumeration: a set is one if it is the least model of its own reduct."""
    clauses = ground_clauses(given)
    facts = frozenset(given.facts)
    heads = sorted({head for _, head in clauses} - facts)
    found = []
    for size in range(len(heads) + 1):
        for extra in combinations(heads, size):
            guess = facts | set(extra)
            if _least_model(facts, clauses, guess) == guess:
                found.append(guess)
    return found


def _least_model(facts, clauses, guess):
    derived = set(facts)
    for _ in range(len(clauses) + 1):
        for body, head in clauses:
            if all(
                (c._replace(polarity="+") not in guess) if c.polarity == "~" else c in derived
                for c in body
            ):
                derived.add(head)
    return derived


def negates_itself(given: Theory) -> bool:
    """Whether a ground atom depends on its own absence: Warshall's closure over the dependency relation."""
    clauses = ground_clauses(given)
    plain = [(head, c._replace(polarity="+")) for body, head in clauses for c in body]
    reach = {(a, b) for a, b in plain}
    nodes = sorted({n for edge in plain for n in edge})
    reach |= {(n, n) for n in nodes}
    for k in nodes:
        reach |= {(i, j) for i in nodes if (i, k) in reach for j in nodes if (k, j) in reach}
    return any(
        (c._replace(polarity="+"), head) in reach
        for body, head in clauses
        for c in body
        if c.polarity == "~"
    )
