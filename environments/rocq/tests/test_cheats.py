"""Cheats on Rocq, past the grammar too: none makes False a theorem, and none moves another verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocq_cheats import BEFORE, DECLARED, TACTICS
from rocq_support import declarations, needs_rocq, proof, replayed
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt_rocq import grammar
from vcrt_rocq.environment import RocqEnvironment
from vcrt_rocq.grammar import Declared
from vcrt_rocq.judging import Judge
from vcrt_rocq.program import Declarations, Proof
from vcrt_rocq.session import Limits, shared_session
from vcrt_rocq.toolchain import find_toolchain

pytestmark = needs_rocq
FALSE = "Lemma t : 0 = 1."
LIMITS = Limits(sentence_seconds=5, max_memory_mb=1500)
#: What speaks past the proof once no grammar stands before it: it begins another one, of something true.
ANOTHER_PROOF = {
    "exact I. Abort. Lemma t : True. exact I.",
}


@pytest.fixture(scope="module")
def environment():
    return RocqEnvironment(limits=LIMITS)


@pytest.fixture(scope="module")
def judge():
    return Judge(shared_session(find_toolchain(), LIMITS))


def control(environment):
    """A proof and a declaration that nothing may move."""
    one = proof(
        "Lemma t (n : nat) : n = n.",
        "assert (h : 0 = 0) by exact eq_refl.",
        closing=["exact eq_refl."],
    )
    other = declarations("Lemma a1 : True. Proof. exact I. Qed.")
    return [*replayed(environment, one), *replayed(environment, other)]


@pytest.fixture(scope="module")
def untouched(environment):
    found = control(environment)
    assert all(replay.accepted for replay in found)
    return found


def outcome(ask):
    """What becomes of a cheat: the grammar's refusal, none of a verdict, or what the replay says."""
    try:
        (replay,) = ask()
    except (MalformedInputError, VerifierFailure) as error:
        return type(error).__name__
    return "accepted" if replay.accepted else "refused"


def test_the_corpus_is_large_and_each_is_one_of_its_own():
    assert len(set(TACTICS)) + len(set(DECLARED)) + len(set(BEFORE)) >= 170
    assert all(len(set(corpus)) == len(corpus) for corpus in (TACTICS, DECLARED, BEFORE))


class TestThroughTheGrammar:
    @pytest.mark.parametrize("text", TACTICS)
    def test_a_step(self, environment, text):
        assert outcome(lambda: replayed(environment, proof(FALSE, text))) != "accepted"

    @pytest.mark.parametrize("text", DECLARED)
    def test_a_declaration(self, environment, text):
        assert outcome(lambda: replayed(environment, declarations(text))) != "accepted"

    @pytest.mark.parametrize("text", BEFORE)
    def test_before_the_steps(self, environment, text):
        one = declarations("Lemma a2 : True. Proof. exact I. Qed.", before=(text,))
        assert outcome(lambda: replayed(environment, one)) == "MalformedInputError"

    def test_an_axiom_of_the_library_is_named(self, environment):
        one = proof(
            "Lemma t (P : Prop) : P \\/ ~ P.",
            "exact (classic P).",
            before=("From Coq Require Import Classical.",),
        )
        (replay,) = replayed(environment, one)
        assert len(replay.state_hashes) == 2
        assert "rests on what is not proved: Axioms: classic" in replay.rejection.reason

    @pytest.mark.parametrize("name", ["X", "Χ", "é", "Xé"])
    def test_what_a_parameter_of_a_module_asks_for_is_an_axiom_whatever_its_letters(
        self, environment, name
    ):
        asked = "with Definition t := nat with Definition eq := fun (_ _ : nat) => False"
        one = proof(
            FALSE,
            f"assert (h : False) by exact ({name}.eq_refl 0).",
            "destruct h.",
            before=(
                "From Coq Require Import DecidableType.",
                f"Module F ({name} : DecidableType {asked}).",
            ),
        )
        (replay,) = replayed(environment, one, (0, 1))
        assert len(replay.state_hashes) == 3
        assert "rests on what is not proved: Axioms:" in replay.rejection.reason

    def test_an_axiom_whose_name_a_notation_makes_a_keyword(self, environment):
        """Of a keyword nothing can be asked."""
        one = proof(
            FALSE,
            "idtac.",
            "exact (match M.bad with end).",
            before=(
                *("Module Type S.", "Axiom bad : False.", "End S."),
                *("Module M.", "Include S.", "End M.", "Import M."),
                "Notation \"'bad' x\" := (not x) (at level 10).",
            ),
        )
        (replay,) = replayed(environment, one, (0, 1))
        assert "rests on what is not proved: Axioms:" in replay.rejection.reason

    def test_nothing_else_is_moved(self, environment, untouched):
        assert control(environment) == untouched


def raw_proof(*steps):
    """A proof that no grammar has seen; a step is as many sentences as the text has."""
    return Proof(
        before=(),
        statement=Declared("Lemma", "t", (FALSE,)),
        opening=(),
        closing=(),
        steps=tuple((step,) for step in steps),
        goals_named=False,
        hypotheses_named=False,
    )


class TestPastTheGrammar:
    @pytest.mark.parametrize("text", TACTICS)
    def test_a_step(self, judge, text):
        program = raw_proof(text)
        assert outcome(lambda: judge.replays(program, [(0,)], where="cheat")) != "accepted"

    @pytest.mark.parametrize("text", DECLARED)
    def test_a_declaration(self, judge, text):
        program = Declarations(before=(), probes=(), declared=(Declared("Axiom", "a1", (text,)),))
        found = outcome(lambda: judge.replays(program, [(0,)], where="cheat"))
        harmless = text.startswith(
            ("Definition a1 := 1", "Class", "Record", "Module", "Lemma a1 : True")
        )
        assert found != "accepted" or harmless

    @pytest.mark.parametrize(
        "option",
        ["Unset Guard Checking.", "Unset Universe Checking.", "Unset Positivity Checking."],
    )
    def test_checks_that_are_off(self, judge, option):
        program = raw_proof(option, "exact ((fix f (n : nat) : 0 = 1 := f n) 0).")
        assert outcome(lambda: judge.replays(program, [(0, 1)], where="cheat")) != "accepted"

    def test_a_goal_that_is_given_up_is_refused_where_it_is(self, judge):
        (replay,) = judge.replays(raw_proof("admit.", "exact I."), [(0, 1)], where="cheat")
        assert (len(replay.state_hashes), replay.rejection.reason) == (1, "a goal is given up")

    def test_a_check_that_is_off_is_named_for_what_is_true_too(self, judge):
        program = replace(
            raw_proof("Unset Universe Checking.", "exact eq_refl."),
            statement=Declared("Lemma", "t", ("Lemma t : 0 = 0.",)),
        )
        (replay,) = judge.replays(program, [(0, 1)], where="cheat")
        assert "check_universes: false" in replay.rejection.reason

    def test_an_axiom_in_the_middle(self, judge):
        program = Declarations(
            before=("Axiom bad : False.",),
            probes=(),
            declared=(
                Declared("Lemma", "a1", ("Lemma a1 : 0 = 1.", "Proof.", "destruct bad.", "Qed.")),
            ),
        )
        (replay,) = judge.replays(program, [(0,)], where="cheat")
        assert "rests on what is not proved" in replay.rejection.reason

    def test_nothing_else_is_moved(self, environment, untouched):
        assert control(environment) == untouched


def test_the_grammar_alone_stands_before_another_proof():
    for text in ANOTHER_PROOF:
        with pytest.raises(MalformedInputError, match="may not reach Rocq"):
            grammar.read_tactic(text, where="here")
