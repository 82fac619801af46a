from __future__ import annotations

from collections import Counter

import pytest

from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt_proofwriter.english import parse_theory, theory_text
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_proofwriter.generator import plant
from vcrt_proofwriter.search import SCHEMAS, is_pair, search_space
from vcrt_proofwriter.theory import theory_from_json
from vcrt_proofwriter.vocabulary import ANIMALS, ATTRIBUTES, PEOPLE, VERBS, Draws


def planted(schema, seed):
    return plant(schema, Draws(generator(seed, "test")))


def test_draws_are_uniform_and_repeatable() -> None:
    draws, again = (Draws(generator(0, "draws")) for _ in range(2))
    orders = Counter(tuple(draws.shuffled("abc")) for _ in range(6000))
    assert orders == Counter(tuple(again.shuffled("abc")) for _ in range(6000))
    assert len(orders) == 6
    assert all(850 < number < 1150 for number in orders.values())
    pairs = Counter(tuple(draws.some(range(4), 2)) for _ in range(6000))
    assert len(pairs) == 12
    assert all(400 < number < 600 for number in pairs.values())
    assert sorted(draws.some("ab", 5)) == ["a", "b"]
    assert Counter(draws.between(2, 4) for _ in range(3000)).keys() == {2, 3, 4}
    assert 2300 < sum(draws.chance(0.25) for _ in range(10000)) < 2700


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_planting_is_deterministic_distinct_and_mostly_left_alone(schema) -> None:
    drawn = [planted(schema, seed) for seed in range(150)]
    assert drawn == [planted(schema, seed) for seed in range(150)]
    assert len({theory.content_hash() for theory, _ in drawn}) == 150
    whole = 0
    for theory, pair in drawn:
        try:
            space = search_space(theory)
        except MalformedInputError:
            continue
        whole += is_pair(schema, space, tuple(pair))
    assert whole > 60


def test_theories_vary_as_those_of_proofwriter_do() -> None:
    """The ranges that are asserted are those of the open-world depth-5 theories, or a little wider."""
    env = ProofWriterEnvironment()
    for schema in SCHEMAS:
        theories = [theory_from_json(env.sample(schema.name, seed).initial) for seed in range(150)]
        rules = [r for t in theories for r in t.rules]
        assert {len(r.conditions) for r in rules} == {1, 2}
        assert {r.variable for r in rules} == {None, "someone", "something"}
        assert all(len({r.variable for r in t.rules} - {None}) == 1 for t in theories)
        assert {len(t.rules) for t in theories} == set(range(5, 10))
        assert len({len(t.facts) for t in theories}) > 8
        assert all(4 <= len(t.facts) <= 25 for t in theories)
        assert {len(t.entities()) for t in theories} >= {4, 5, 6}
        entities = Counter(entity for t in theories for entity in t.entities())
        attributes = {a.object for t in theories for a in t.facts if a.predicate == "is"}
        verbs = {a.predicate for t in theories for a in t.facts} - {"is"}
        assert set(entities) == {*ANIMALS, *(PEOPLE if schema.name != "relational_join" else ())}
        assert attributes == {*ATTRIBUTES} or schema.name == "relational_join"
        assert verbs == {*VERBS}
        assert any(c.predicate != "is" for r in rules for c in r.conditions)
        assert {c.polarity for r in rules for c in r.conditions} == (
            {"+", "~"} if schema.name == "naf_sweep" else {"+", "-", "~"}
        )


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_generated_theories_read_as_english(schema) -> None:
    for seed in range(60):
        theory, _ = planted(schema, seed)
        assert parse_theory(theory_text(theory), assumption=theory.assumption) == theory


def test_golden_hash() -> None:
    """A change here changes every dataset made from generated theories: give the generator a new name."""
    env = ProofWriterEnvironment()
    hashes = [env.sample(schema.name, 0).content_hash()[:16] for schema in SCHEMAS]
    assert hashes == [
        "f9c273c6ad11688c",
        "5fc2b747d11e6d0a",
        "97b24cccaec9b529",
        "4663e5c1fbf842cc",
        "37a1d88022f9d924",
    ]
