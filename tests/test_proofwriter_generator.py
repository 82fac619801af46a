from __future__ import annotations

import pytest

from vcrt.environments.proofwriter.engine import ground, model
from vcrt.environments.proofwriter.english import parse_theory
from vcrt.environments.proofwriter.generator import sample_theory
from vcrt.environments.proofwriter.sentences import theory_text

WORLDS = ("CWA", "OWA")


@pytest.mark.parametrize("assumption", WORLDS)
def test_theories_are_deterministic_distinct_and_have_a_model(assumption) -> None:
    theories = [sample_theory(seed, assumption=assumption) for seed in range(150)]
    assert theories == [sample_theory(seed, assumption=assumption) for seed in range(150)]
    assert len({t.content_hash() for t in theories}) == 150
    assert sum(len(model(ground(t))) > len(t.facts) for t in theories) > 100


@pytest.mark.parametrize("assumption", WORLDS)
def test_theories_vary(assumption) -> None:
    theories = [sample_theory(seed, assumption=assumption) for seed in range(150)]
    rules = [r for t in theories for r in t.rules]
    negation = "~" if assumption == "CWA" else "-"
    assert {len(r.conditions) for r in rules} == {1, 2, 3}
    assert {r.variable for r in rules} == {None, "someone"}
    assert {c.polarity for r in rules for c in r.conditions} == {"+", negation}
    assert len({len(t.facts) for t in theories}) > 8
    assert len({len(t.rules) for t in theories}) == 5
    assert len({len(t.entities()) for t in theories}) >= 4
    assert any(r.conclusion.predicate != "is" for r in rules)
    assert any(c.predicate != "is" for r in rules for c in r.conditions)


def test_names_separate_theories() -> None:
    assert sample_theory(1, "a", assumption="CWA") != sample_theory(1, "b", assumption="CWA")


@pytest.mark.parametrize("assumption", WORLDS)
def test_generated_theories_read_as_english(assumption) -> None:
    for seed in range(60):
        theory = sample_theory(seed, assumption=assumption)
        assert parse_theory(theory_text(theory), assumption=assumption) == theory


def test_golden_hash() -> None:
    """A change here changes every dataset made from generated theories: give the generator a new name."""
    hashes = [sample_theory(0, assumption=world).content_hash()[:16] for world in WORLDS]
    assert hashes == ["78aca883749d00a3", "7d69bc53ee47778b"]
