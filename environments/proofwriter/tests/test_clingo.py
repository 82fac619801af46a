from __future__ import annotations

import sys
from importlib import metadata

import pytest
from hypothesis import given, settings

from proofwriter_support import negates_itself, rule, small_theories, theory
from vcrt.errors import UnavailableError, VerifierFailure
from vcrt_proofwriter import clingo_engine
from vcrt_proofwriter.clingo_engine import clingo_answers, clingo_version
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_proofwriter.theory import Atom, Theory

RED, BIG, CALM = (Atom("Bob", "is", what) for what in ("red", "big", "calm"))


def test_model_of_names_that_are_not_identifiers() -> None:
    odd = Atom("Ünal & Söhne", "is not like", "a; b.", "-")
    world = theory("OWA", [odd], [rule(odd, Atom("'x' %", "is", "+"))])
    assert clingo_answers(world).model == {odd.text, Atom("'x' %", "is", "+").text}


def test_run_judges_absence_at_each_moment() -> None:
    world = theory("CWA", [BIG], [rule(BIG, RED), rule(RED.with_polarity("~"), CALM)])
    runs = ([(1, None), (2, None)], [(2, None), (1, None)], [])
    big, red, calm = BIG.text, RED.text, CALM.text
    answers = clingo_answers(world, runs)
    assert answers.model == {big, red}
    assert answers.runs == (({big, red}, {big, red}), ({big, calm}, {big, calm, red}), ())


@settings(max_examples=60, deadline=None)
@given(small_theories())
def test_run_of_one_binding_is_part_of_the_sweep(given_theory: Theory) -> None:
    if given_theory.rules[0].variable is None or negates_itself(given_theory):
        return
    runs = [[(1, None)], *([(1, entity)] for entity in given_theory.entities())]
    (sweep,), *bindings = clingo_answers(given_theory, runs).runs
    facts = frozenset(fact.text for fact in given_theory.facts)
    assert sweep == facts.union(*(after for (after,) in bindings))


@pytest.mark.parametrize("names", [("p",), ("p", "q")])
def test_no_or_two_models_are_a_failure(names: tuple[str, ...]) -> None:
    """not p -> p has no stable model; not p -> q, not q -> p has two."""
    rules = [
        rule(Atom("Bob", "is", names[i], "~"), Atom("Bob", "is", names[i - 1]))
        for i in range(len(names))
    ]
    with pytest.raises(VerifierFailure, match="one stable model"):
        clingo_answers(theory("CWA", [], rules))


def test_version_in_use_is_reported() -> None:
    assert ProofWriterEnvironment().versions().to_json() == {
        "environment": "proofwriter",
        "adapter": "2",
        "canonicalizer": "1",
        "verifier": "vcrt forward chaining 2",
        "libraries": {"clingo": metadata.version("clingo")},
    }


@pytest.mark.parametrize("version", ["5.7.1", "6.0.0", "4.9", "10.0", "unknown"])
def test_other_versions_are_refused(monkeypatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    for call in (
        ProofWriterEnvironment().versions,
        lambda: clingo_answers(theory("CWA", [], [])).model,
    ):
        with pytest.raises(UnavailableError) as caught:
            call()
        assert version in (caught.value.found or "")
        assert caught.value.remedy == 'python -m pip install "clingo>=5.8,<6"'


@pytest.mark.parametrize("version", ["5.8.0", "5.8", "5.12.1.post1"])
def test_supported_versions(monkeypatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert clingo_version() == version


def test_missing_package(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(UnavailableError, match="not installed") as caught:
        ProofWriterEnvironment().versions()
    assert "pip install" in (caught.value.remedy or "")


def test_package_that_does_not_import(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "clingo", None)
    with pytest.raises(UnavailableError, match="does not import"):
        clingo_answers(theory("CWA", [], []))


def test_solver_error_is_a_failure_not_a_verdict(monkeypatch) -> None:
    monkeypatch.setattr(clingo_engine, "program_of", lambda given, runs: "this is no program")
    with pytest.raises(VerifierFailure, match="clingo broke"):
        clingo_answers(theory("CWA", [], []))
