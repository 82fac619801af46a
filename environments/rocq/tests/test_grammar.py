"""What the grammar of Rocq makes of a text: sentences, steps, declarations and what stands before them."""

from __future__ import annotations

import pytest

from vcrt.errors import MalformedInputError
from vcrt_rocq import grammar


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("intros. exact I.", ["intros.", "exact I."]),
        ("exact Nat.add.\n  exact (1, 2).", ["exact Nat.add.", "exact (1, 2)."]),
        ("- split. + exact I. * exact I.", ["-", "split.", "+", "exact I.", "*", "exact I."]),
        ("{ exact I. } 2: { exact I. }", ["{", "exact I.", "}", "2: {", "exact I.", "}"]),
        ("[x]: exact (* a. (* b. *) c. *) I.", ["[x]: exact   I."]),
        ('Notation "a . b" := a. exact I.', ['Notation "a . b" := a.', "exact I."]),
        ("auto... exact I.", ["auto...", "exact I."]),
        ("(* only *)", []),
    ],
)
def test_sentences(text, expected):
    found = [one.text for one in grammar.sentences(text, where="here")]
    assert [" ".join(one.split()) for one in found] == [" ".join(one.split()) for one in expected]


def test_lines():
    text = "(* one *)\nLemma a : True.\nProof.\n\n  - exact\n  I.\nQed.\n"
    found = [(one.line, one.text.split()[0]) for one in grammar.sentences(text, where="here")]
    assert found == [(2, "Lemma"), (3, "Proof."), (5, "-"), (5, "exact"), (7, "Qed.")]


@pytest.mark.parametrize("text", ["exact I", "(* exact I.", '"a', "exact I. exact"])
def test_what_does_not_end(text):
    with pytest.raises(MalformedInputError):
        grammar.sentences(text, where="here")


@pytest.mark.parametrize(
    ("text", "indifferent"),
    [
        ("exact (conj x y).", True),
        ("assert (h : a = b) by (symmetry; exact k).", True),
        ("assert (do817 : n - 1 = m) by exact (p 1).", True),
        ("[x]: exact y.", True),
        ("assert (h : a = b) by auto.", False),
        ("assert (h : a = b) by (symmetry; mine).", False),
        ("exact x || mine.", False),
        ("(exact x).", False),
        ("assumption.", False),
        ("destruct x; [exact y | mine].", False),
        ("match goal with H : _ |- _ => exact H end.", False),
        ("rewrite h in *.", False),
        ("mine.", False),
        ("assert (h : a) by (exact x + mine).", False),
        ("Z.order.", False),
        ("assert (h : a = b) by Z.order.", False),
        ("exact.mine.", False),
    ],
)
def test_which_tactics_do_not_see_the_order_of_hypotheses(text, indifferent):
    assert grammar.is_orderless(text) is indifferent


def test_sections_hold_assumptions_and_files_do_not():
    inside = ["Section S.", "Variable n : nat.", "End S."]
    assert grammar.read_before(inside, where="here") == tuple(inside)
    for texts in (inside[1:], [*inside, "Variable m : nat."], ["Module M.", "Variable n : nat."]):
        with pytest.raises(MalformedInputError, match="assumptions within a section"):
            grammar.read_before(texts, where="here")


def test_a_declaration():
    found = grammar.read_declaration("Lemma a' : True. Proof. exact I. Qed.", where="here")
    assert (found.keyword, found.name, len(found.sentences), found.proved) == (
        "Lemma",
        "a'",
        4,
        True,
    )
    assert not grammar.read_declaration("Definition a := 1.", where="here").proved


def test_room():
    with pytest.raises(MalformedInputError, match="at most"):
        grammar.read_tactic(f"exact ({'x' * grammar.MAX_STEP_CHARS}).", where="here")


@pytest.mark.parametrize(
    "text",
    [
        "Z.order.",
        "Coq.ZArith.BinInt.Z.order.",
        "M.mine x (N.add 1 2) in h.",
        "Z.order; Nat.order.",
        "M._mine'.",
    ],
)
def test_a_tactic_of_a_module_is_no_command(text):
    assert not grammar.command_of(text)
    assert grammar.read_tactic(text, where="here") == (text,)
    assert grammar.read_before([text], where="here") == (text,)
    assert grammar.read_tactic(f"2: {text}", where="here") == (f"2: {text}",)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("Axiom a.b : False.", "Axiom"),
        ("Ltac Z.order ::= idtac.", "Ltac"),
        ("Local Z.order.", "Z"),
        ("#[local] Z.order.", "Z"),
        ("M.Order.", "M"),
        ("M.order.Now.", "M"),
        ("Order.", "Order"),
        ("Admitted.x.", "Admitted"),
        ("Set.x Kernel Checking.", "Set"),
        ("Z .order.", "Z"),
    ],
)
def test_what_may_be_a_command_stays_one(text, head):
    assert grammar.command_of(text) == head
    with pytest.raises(MalformedInputError):
        grammar.read_tactic(text, where="here")


@pytest.mark.parametrize(
    "text",
    [
        "Coq.Init.Ltac.give_up.",
        "idtac; Ltac.admit.",
        "exact ltac:(Init.Ltac.give_up).",
        "M.transparent_abstract x.",
    ],
)
def test_what_is_denied_is_denied_by_its_module_too(text):
    with pytest.raises(MalformedInputError, match="a text without"):
        grammar.read_tactic(text, where="here")
    if text[0].isupper():
        with pytest.raises(MalformedInputError, match="a text without"):
            grammar.read_before([text], where="here")
