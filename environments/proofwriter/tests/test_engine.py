from __future__ import annotations

import pytest
from hypothesis import given, settings

from proofwriter_support import negates_itself, rule, small_theories, stable_models, theory
from vcrt.errors import MalformedInputError
from vcrt_proofwriter.clingo_engine import clingo_answers
from vcrt_proofwriter.engine import Answer, holding, truth
from vcrt_proofwriter.theory import Atom, Theory


def is_(who: str, what: str, polarity: str = "+") -> Atom:
    return Atom(who, "is", what, polarity)


def answer(world: Theory, question: Atom) -> Answer:
    return truth(question, holding(world), world.assumption)


def texts(atoms) -> frozenset[str]:
    return frozenset(atom.text for atom in atoms)


@settings(max_examples=150, deadline=None)
@given(small_theories())
def test_model_equals_the_only_stable_model_or_is_refused(given_theory: Theory) -> None:
    models = stable_models(given_theory)
    if negates_itself(given_theory):
        refusal = "not stratified"
    elif any(a.with_polarity("-") in models[0] for a in models[0] if a.polarity == "+"):
        refusal = "contradicts itself"
    else:
        assert [holding(given_theory)] == [texts(m) for m in models]
        return
    with pytest.raises(MalformedInputError, match=refusal):
        holding(given_theory)


@settings(max_examples=80, deadline=None)
@given(small_theories())
def test_clingo_agrees_with_the_engine(given_theory: Theory) -> None:
    try:
        ours = holding(given_theory)
    except MalformedInputError:
        return
    assert ours == clingo_answers(given_theory).model


def test_open_world_answers() -> None:
    world = theory(
        "OWA",
        [is_("Bob", "red"), is_("Ann", "red", "-")],
        [rule(is_("someone", "red"), is_("someone", "big", "-"))],
    )
    asked = {q: answer(world, is_(*q)) for q in [("Bob", "red"), ("Ann", "red"), ("Ann", "big")]}
    assert list(asked.values()) == ["True", "False", "Unknown"]
    assert answer(world, is_("Bob", "big", "-")) == "True"
    assert answer(world, is_("Bob", "big")) == "False"
    assert answer(world, is_("Ann", "big", "-")) == "Unknown"
    assert answer(world, is_("Stranger", "red")) == "Unknown"


def test_closed_world_answers() -> None:
    world = theory(
        "CWA",
        [is_("Bob", "red"), is_("Ann", "big")],
        [rule(is_("someone", "red", "~"), is_("someone", "calm"))],
    )
    assert answer(world, is_("Ann", "calm")) == "True"
    assert answer(world, is_("Ann", "calm", "-")) == "False"
    assert answer(world, is_("Bob", "calm")) == "False"
    assert answer(world, is_("Bob", "calm", "~")) == "True"
    assert answer(world, is_("Stranger", "red")) == "False"


def test_positive_loop_has_a_model() -> None:
    loop = [rule(is_("someone", a), is_("someone", b)) for a, b in (("p", "q"), ("q", "p"))]
    assert answer(theory("CWA", [is_("Ann", "p")], loop), is_("Ann", "q")) == "True"
    assert answer(theory("CWA", [is_("Ann", "r")], loop), is_("Ann", "q")) == "False"


@pytest.mark.parametrize("length", [1, 2, 3])
def test_odd_and_even_loops_through_negation_are_refused(length: int) -> None:
    names = [f"p{i}" for i in range(length)]
    rules = [
        rule(is_("someone", names[i], "~"), is_("someone", names[(i + 1) % length]))
        for i in range(length)
    ]
    with pytest.raises(MalformedInputError, match="not stratified") as caught:
        holding(theory("CWA", [is_("Ann", "r")], rules))
    assert '"Ann"' in (caught.value.found or "")


def test_negation_inside_a_longer_positive_loop_is_refused() -> None:
    rules = [
        rule(is_("Ann", "p"), is_("Ann", "q")),
        rule(is_("Ann", "q"), is_("Ann", "r")),
        rule(is_("Ann", "s"), is_("Ann", "r", "~"), is_("Ann", "p")),
    ]
    with pytest.raises(MalformedInputError, match="not stratified"):
        answer(theory("CWA", [is_("Ann", "s")], rules), is_("Ann", "s"))


def test_locally_stratified_theory_is_accepted() -> None:
    """As RelNeg-CWA-D2-1420: `likes` depends on the absence of `likes`, but of other entities."""
    rules = [
        rule(Atom("mouse", "likes", "cat", "~"), Atom("cat", "likes", "dog")),
        rule(Atom("dog", "likes", "cat", "~"), Atom("mouse", "likes", "cat")),
        rule(Atom("something", "likes", "dog"), Atom("dog", "likes", "something")),
    ]
    # By predicate, `likes` negates itself; by ground atoms only the third rule closes the circle.
    facts = [Atom("dog", "sees", "mouse")]
    with pytest.raises(MalformedInputError):
        holding(theory("CWA", facts, rules))
    accepted = theory("CWA", facts, rules[:2])
    assert holding(accepted) == {
        Atom("dog", "sees", "mouse").text,
        Atom("mouse", "likes", "cat").text,
    }


def test_strata_are_evaluated_in_order() -> None:
    """Three levels: a premature answer at any of them would change the next."""
    rules = [
        rule(is_("Ann", "r", "~"), is_("Ann", "s")),
        rule(is_("Ann", "q", "~"), is_("Ann", "r")),
        rule(is_("Ann", "p"), is_("Ann", "q")),
    ]
    held = holding(theory("CWA", [is_("Ann", "p")], rules))
    assert held == texts([is_("Ann", "p"), is_("Ann", "q"), is_("Ann", "s")])


def test_contradiction_is_refused_not_answered() -> None:
    world = theory("OWA", [is_("Ann", "p")], [rule(is_("Ann", "p"), is_("Ann", "p", "-"))])
    with pytest.raises(MalformedInputError, match="contradicts itself") as caught:
        answer(world, is_("Ann", "q"))
    assert caught.value.found == 'both ("Ann" "is" "p" "-") and ("Ann" "is" "p" "+")'
