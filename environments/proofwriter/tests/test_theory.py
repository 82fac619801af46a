from __future__ import annotations

import pytest
from hypothesis import given, settings

from proofwriter_support import rule, small_theories, theory
from vcrt.errors import MalformedInputError
from vcrt.hashing import canonical_json
from vcrt_proofwriter.english import base_form, parse_theory, theory_text, third_person
from vcrt_proofwriter.theory import (
    Atom,
    Rule,
    Theory,
    theory_from_json,
    theory_to_json,
)

RED = Atom("Bob", "is", "red")


@given(small_theories())
def test_json_round_trip(given_theory: Theory) -> None:
    form = theory_to_json(given_theory)
    canonical_json(form)
    assert theory_from_json(form) == given_theory


@settings(deadline=None)
@given(small_theories())
def test_english_round_trip(given_theory: Theory) -> None:
    text = theory_text(given_theory)
    assert parse_theory(text, assumption=given_theory.assumption) == given_theory


def test_content_hash_ignores_order_only() -> None:
    rules = [rule(RED, Atom("Bob", "is", "big")), rule(RED, Atom("Bob", "is", "calm"))]
    facts = [RED, Atom("Ann", "is", "red")]
    base = theory("CWA", facts, rules)
    assert theory("CWA", facts[::-1], rules[::-1]).content_hash() == base.content_hash()
    assert theory("OWA", facts, rules).content_hash() != base.content_hash()
    assert theory("CWA", facts[:1], rules).content_hash() != base.content_hash()
    assert theory("CWA", facts, rules[:1]).content_hash() != base.content_hash()


@pytest.mark.parametrize(
    ("assumption", "facts", "rules", "says"),
    [
        ("CWA", [RED.with_polarity("-")], [], "fact 1"),
        ("CWA", [], [rule(RED, Atom("Bob", "is", "big", "-"))], "rule 1, conclusion"),
        ("CWA", [], [rule(RED.with_polarity("-"), RED)], "rule 1, condition"),
        ("OWA", [], [rule(RED.with_polarity("~"), RED)], "rule 1, condition"),
        ("OWA", [RED.with_polarity("~")], [], "fact 1"),
        ("OWA", [RED, Atom("someone", "is", "red")], [], "fact 2"),
        ("OWA", [], [Rule(conditions=(), conclusion=RED)], "needs a condition"),
        ("OWA", [], [rule(RED, Atom("someone", "is", "red"))], "no condition has"),
        ("OWA", [], [rule(Atom("someone", "sees", "something"), RED)], "one variable"),
        ("OWA", [], [rule(Atom("Bob", "is", "someone"), RED)], "entities only"),
        ("OWA", [Atom('B"b', "is", "red")], [], "subject"),
        ("OWA", [Atom("Bob", "is", "")], [], "object"),
        ("OWA", [Atom("Bob", "is\n", "red")], [], "predicate"),
        ("OWA", [Atom("B\ud800b", "is", "red")], [], "subject"),
        ("XWA", [], [], "unknown assumption"),
    ],
)
def test_malformed_theory_is_refused(assumption, facts, rules, says) -> None:
    with pytest.raises(MalformedInputError) as caught:
        theory(assumption, facts, rules)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"assumption": "BWA"}, "theory.assumption"),
        ({"assumption": ["CWA"]}, "theory.assumption"),
        ({"facts": "Bob is red"}, "theory.facts"),
        ({"facts": [["Bob", "is", "red"]]}, "theory.facts[0][3]"),
        ({"facts": [["Bob", "is", "red", 1]]}, "theory.facts[0][3]"),
        ({"rules": [{"if": []}]}, "theory.rules[0].then"),
        ({"rules": [{"if": 3, "then": list(RED)}]}, "theory.rules[0].if"),
        ({"rules": [{"if": [None], "then": list(RED)}]}, "theory.rules[0].if[0]"),
        ({"rules": [{"if": [], "then": ["Bob"]}]}, "theory.rules[0].then[1]"),
        ({"more": 1}, "theory.more"),
    ],
)
def test_malformed_json_names_the_field(change, where) -> None:
    form = {**theory_to_json(theory("CWA", [RED], [])), **change}
    with pytest.raises(MalformedInputError) as caught:
        theory_from_json(form)
    assert caught.value.where == where


@pytest.mark.parametrize("base", ["like", "see", "chase", "watch", "carry", "play", "go", "need"])
def test_verb_forms(base: str) -> None:
    assert base_form(third_person(base)) == base


def test_sentences_read_as_english() -> None:
    tabby = Atom("someone", "likes", "tabby cat")
    world = theory(
        "OWA",
        [Atom("tabby cat", "is", "big", "-"), Atom("Bob", "watches", "tabby cat", "-")],
        [rule(tabby, Atom("someone", "is", "red", "-"), Atom("tabby cat", "sees", "someone"))],
    )
    assert theory_text(world) == (
        "The tabby cat is not big. Bob does not watch the tabby cat. "
        "If someone likes the tabby cat and they are not red then the tabby cat sees them."
    )
