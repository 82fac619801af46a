"""Rocq as the verifier: verdicts, states, ends, second opinions, limits and what a process may do."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from dataclasses import replace

import pytest

from rocq_support import declarations, needs_rocq, proof, replayed
from vcrt.environments.contract import Rejected, Schema
from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt_rocq import grammar, protocol, toolchain
from vcrt_rocq.environment import RocqEnvironment
from vcrt_rocq.judging import classes_in
from vcrt_rocq.program import read_program
from vcrt_rocq.recheck import second_opinions
from vcrt_rocq.session import Limits, Session

pytestmark = needs_rocq
CITING = (
    "Lemma a1 (n : nat) : n + 0 = n. Proof. exact (Nat.add_0_r n). Qed.",
    "Lemma b1 (n : nat) : n + 0 = n. Proof. exact (a1 n). Qed.",
)
WITNESS = proof(
    "Lemma t : exists n : nat, n = 2.",
    "[w]: exact 2.",
    "[p]: exact eq_refl.",
    opening=["refine (ex_intro _ ?[w] ?[p])."],
)


@pytest.fixture(scope="module")
def environment():
    return RocqEnvironment()


def outcomes(environment, one):
    """The digest that each order ends in, or why it is refused."""
    return {
        replay.sequence: replay.terminal_hash or replay.rejection.reason
        for replay in replayed(environment, one)
    }


class TestVerdicts:
    def test_a_lemma_before_the_one_that_cites_it(self, environment):
        found = outcomes(environment, declarations(*CITING))
        assert re.fullmatch(
            "sentence 3, characters 7-9: The (reference|variable) a1 was not found in the current environment.",
            found[1, 0],
        )
        assert len(found[0, 1]) == 64

    def test_a_witness_that_the_proof_of_what_it_fulfils_settles(self, environment):
        found = outcomes(environment, WITNESS)
        assert len(found[0, 1]) == 64
        assert found[1, 0].endswith("No such goal.")

    def test_two_lemmas_applied_to_one_hypothesis_end_apart(self, environment):
        steps = ("apply le_n_S in h.", "apply (Nat.mul_le_mono_l _ _ 2) in h.")
        one = proof("Lemma t (n : nat) (h : n <= 3) : 0 = 0.", *steps, closing=["reflexivity."])
        found = set(outcomes(environment, one).values())
        assert [len(end) for end in found] == [64, 64]

    def test_the_later_instance_is_found(self, environment):
        one = declarations(
            "Instance a1 : K nat := 1.",
            "Instance b1 : K nat := 2.",
            before=("Class K (A : Type) := k : A.",),
            probes=["_ : K nat"],
        )
        assert len(set(outcomes(environment, one).values())) == 2
        alike = replace(one, initial={**one.initial, "probes": []})
        assert len(set(outcomes(environment, alike).values())) == 1

    def test_a_rest_that_does_not_close_the_proof_refuses_the_whole(self, environment):
        one = proof("Lemma t : 0 = 1.", "assert (h : 1 = 1) by reflexivity.", closing=["exact h."])
        (replay,) = replayed(environment, one)
        assert len(replay.state_hashes) == 2
        assert replay.rejection.reason.startswith(
            "at the end, sentence 1, characters 6-7: In environment"
        )

    def test_recursion_that_does_not_end_is_refused_by_the_kernel(self, environment):
        one = proof("Lemma t : 0 = 1.", "exact ((fix f (n : nat) : 0 = 1 := f n) 0).")
        (replay,) = replayed(environment, one)
        assert "at the end" in replay.rejection.reason or "Recursive" in replay.rejection.reason

    def test_a_start_that_is_refused_is_malformed(self, environment):
        with pytest.raises(MalformedInputError, match="before the steps") as error:
            replayed(environment, proof("Lemma t : nothing.", "exact I."))
        assert "characters 10-17: The reference nothing was not found" in error.value.found

    def test_steps_that_there_are_not(self, environment):
        with pytest.raises(MalformedInputError, match="does not have"):
            replayed(environment, WITNESS, (0, 2))


class TestStates:
    def test_only_the_order_of_hypotheses_is_no_matter_where_no_step_sees_it(self, environment):
        steps = ("assert (h1 : 0 = 0) by reflexivity.", "assert (h2 : 1 = 1) by reflexivity.")
        named = proof("Lemma t : True.", *steps, closing=["exact I."])
        seen = proof("Lemma t : True.", *steps, closing=["try assumption.", "exact I."])
        assert len(set(outcomes(environment, named).values())) == 1
        assert len(set(outcomes(environment, seen).values())) == 2

    def test_what_notations_hide_is_seen(self, environment):
        steps = (
            "assert (h : @nil nat = @nil nat) by reflexivity.",
            "assert (h : @nil bool = @nil bool) by reflexivity.",
        )
        one = proof("Lemma t : True.", *steps, closing=["exact I."])
        ends = {replay.state_hashes[1] for replay in replayed(environment, one, (0,), (1,))}
        assert len(ends) == 2

    def test_a_state_comes_from_the_prover_and_not_from_the_text(self, environment):
        ways = (
            "assert (h : 1 + 1 = 2) by reflexivity.",
            "assert  (h : 1  + 1 = 2)  by (reflexivity).",
        )
        one = proof("Lemma t : True.", *ways, closing=["exact I."])
        first, second = replayed(environment, one, (0,), (1,))
        assert first.state_hashes == second.state_hashes

    def test_the_proof_of_a_lemma_is_nobody_s_to_see(self, environment):
        two = [
            declarations(
                f"Lemma a1 : True. Proof. {how} Qed.", "Lemma b1 : 0 = 0. Proof. reflexivity. Qed."
            )
            for how in ("exact I.", "split.")
        ]
        ends = [replayed(environment, one, (0, 1))[0].terminal_hash for one in two]
        assert ends[0] == ends[1]

    def test_bullets_are_part_of_it(self, environment):
        one = proof(
            "Lemma t : 0 = 0 /\\ 1 = 1.", "- reflexivity.", "- reflexivity.", opening=["split."]
        )
        assert {replay.accepted for replay in replayed(environment, one)} == {True}
        other = proof("Lemma t : 0 = 0 /\\ 1 = 1.", "- idtac.", "+ idtac.", opening=["split."])
        ends = [replay.state_hashes[1] for replay in replayed(environment, other, (0,), (1,))]
        assert ends[0] != ends[1]


class TestSchemas:
    @pytest.mark.parametrize(
        "schema", [s for s in RocqEnvironment.schemas if s.preset == "paper"], ids=lambda s: s.name
    )
    def test_twelve_of_24_orders_are_legal(self, environment, schema: Schema):
        for seed in range(3):
            replays = replayed(environment, environment.sample(schema.name, seed))
            ends = Counter(replay.terminal_hash for replay in replays)
            assert ends[replays[0].terminal_hash] == 12
            assert (None in ends) == (schema.relation == "precedes")

    def test_equal_seeds_give_equal_episodes(self, environment):
        for schema in environment.schemas:
            one, same, other = (environment.sample(schema.name, seed) for seed in (1, 1, 2))
            assert one == same != other
            assert one.num_operations == (schema.num_steps or 4)


class TestSecondOpinions:
    def test_every_order_is_asked_about_and_agrees(self, environment):
        (check,) = environment.cross_check(declarations(*CITING))
        assert (check.checker, check.checked, check.agreed) == ("whole files", 2, 2)

    @pytest.mark.parametrize("one", [declarations(*CITING), WITNESS], ids=["cite", "witness"])
    def test_a_verdict_that_is_wrong_is_found(self, environment, one):
        program = read_program(one)
        good, bad = replayed(environment, one, (0, 1), (1, 0))
        accepted = replace(bad, state_hashes=good.state_hashes, rejection=None)
        refused = replace(good, state_hashes=good.state_hashes[:2], rejection=Rejected("no"))
        (check,) = second_opinions(
            toolchain.find_toolchain(), Limits(), [(program, [accepted, refused, good, bad])]
        )
        assert (check.checked, check.agreed) == (4, 2)

    def test_what_is_compiled_is_checked_by_another_kernel(self, environment):
        thorough = environment.thorough()
        assert thorough.cross_check(WITNESS) == environment.cross_check(WITNESS)
        assert thorough.guards().checked_again == {"orders compiled, checked by coqchk": 2}


class TestProcesses:
    def session(self, **limits):
        return Session(toolchain.find_toolchain(), Limits(**limits))

    def test_one_that_dies_is_replaced_and_asked_again(self):
        session = self.session()
        path = ["Lemma t : 0 = 0."]
        assert session.go_to(path, where="here") is None
        os.kill(session._process.number, signal.SIGKILL)
        assert session.step(path, ["reflexivity."], where="here").focused == ()
        session.close()

    @pytest.mark.parametrize(
        ("limits", "step", "found"),
        [
            (
                {"sentence_seconds": 0.5},
                "repeat (assert (0 = 0) by reflexivity).",
                "no answer after 0.5 s",
            ),
            (
                {"max_memory_mb": 250, "sentence_seconds": 30},
                "let x := eval cbv in (Nat.pow 2 26) in pose (y := x).",
                "over the limit",
            ),
        ],
    )
    def test_a_limit_is_a_failure_and_no_refusal(self, limits, step, found):
        session = self.session(**limits)
        with pytest.raises(VerifierFailure, match=f"(?s)new process.*{found}|Stack overflow"):
            session.step(["Lemma t : 0 = 0."], [step], where="here")
        session.close()

    def test_it_writes_no_file_and_starts_no_program(self, tmp_path):
        session = self.session()
        target = tmp_path / "t"
        session.step([], [f'Redirect "{target}" Print nat.'], where="here")
        session.step([], [f'Extraction "{target}.ml" nat.'], where="here")
        session.close()
        assert list(tmp_path.iterdir()) == []

    def test_what_protects_is_named(self, environment):
        guards = environment.guards()
        assert "files" in {**guards.in_force, **guards.absent}
        assert "network" in {**guards.in_force, **guards.absent}


class TestInstances:
    """A search for an instance of a class takes the last hypothesis that is one."""

    CLASS = "Class K (A : Type) := k : A."

    @pytest.mark.parametrize(
        ("kind", "term", "counts"),
        [
            ("K nat", "1", True),
            ("forall n : nat, K nat", "(fun _ => 1)", True),
            ("forall (_ : K bool) (f : (forall n : nat, nat)), K nat", "(fun _ _ => 1)", True),
            ("(fun A => A) (K nat)", "1", True),
            ("nat", "1", False),
            ("forall n : nat, list (K nat)", "(fun _ => nil)", False),
        ],
    )
    def test_their_order_counts(self, environment, kind, term, counts):
        one = proof(
            "Lemma t : True.",
            f"assert (a : {kind}) by exact {term}.",
            f"assert (b : {kind}) by exact {term}.",
            closing=["exact I."],
            before=(self.CLASS,),
        )
        ends = [replay.state_hashes[-1] for replay in replayed(environment, one)]
        assert (ends[0] != ends[1]) is counts

    def test_names_of_bound_variables_are_no_classes(self):
        said = (
            "K : forall {A : Type} (_ : A -> B), Type M.L@{Type u} : forall x y : nat, Prop "
            "Proper : forall (A : Type) {_ : forall z : A, A}, Prop"
        )
        assert classes_in(said) == {"K", "M.L", "Proper"}

    def test_library_classes_are_found_and_nothing_else(self, environment):
        one = proof(
            "Lemma t (A : Type) (R : nat -> nat -> Prop) (x y : A) : True.",
            "assert (a : A) by exact x.",
            "assert (b : A) by exact y.",
            closing=["exact I."],
            before=("From Coq Require Import List Setoid Lia.",),
        )
        ends = [replay.state_hashes[-1] for replay in replayed(environment, one)]
        assert ends[0] == ends[1]

    @pytest.mark.parametrize(
        "before",
        [
            "Notation \"'hyp'\" := (ltac:(assumption) : nat).",
            "Ltac specialize := assumption.",
            "Ltac reflexivity ::= assumption.",
            'Tactic Notation "pose" constr(x) := assumption.',
            "#[local] Hint Extern 0 nat => assumption : core.",
        ],
    )
    def test_what_may_look_at_hypotheses_makes_their_order_count(self, environment, before):
        assert grammar.reorders(before)
        one = proof("Lemma t : True.", "idtac.", "exact I.", before=(before,))
        assert not read_program(one).hypotheses_named

    @pytest.mark.parametrize(
        "before", ["Ltac mine := assumption.", "Hint Resolve I : core.", "Notation N := nat."]
    )
    def test_other_definitions_do_not(self, before):
        assert not grammar.reorders(before)

    def test_equal_states_have_equal_futures(self, environment):
        one = proof(
            "Lemma t : exists n : nat, n = n.",
            "assert (a : K nat) by exact 1.",
            "assert (b : K nat) by exact 2.",
            "pose (x := k (A := nat)).",
            "assert (c : 0 = 0) by reflexivity.",
            closing=["exists x.", "reflexivity."],
            before=(self.CLASS,),
        )
        futures = {}
        for replay in replayed(environment, one):
            for done, state in enumerate(replay.state_hashes):
                rest, after = replay.sequence[done:], replay.state_hashes[done:]
                assert futures.setdefault((state, rest), after) == after


class TestToolchains:
    def test_one_that_is_too_old(self, tmp_path, monkeypatch):
        server = tmp_path / "coqidetop"
        (tmp_path / "coq" / "theories").mkdir(parents=True)
        server.write_text(
            f"#!/bin/sh\nif [ $1 = -where ]; then echo {tmp_path}/coq; else echo version 8.9.1; fi\n"
        )
        server.chmod(0o755)
        monkeypatch.setenv(toolchain.VARIABLE, str(server))
        with pytest.raises(UnavailableError, match="too old"):
            toolchain.find_toolchain()

    def test_one_that_is_named_and_not_there(self, monkeypatch):
        monkeypatch.setenv(toolchain.VARIABLE, "/nowhere/coqidetop")
        with pytest.raises(UnavailableError, match="cannot be run"):
            RocqEnvironment().versions()

    def test_none(self, monkeypatch, tmp_path):
        monkeypatch.delenv(toolchain.VARIABLE, raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(UnavailableError, match="apt-get install coq"):
            RocqEnvironment().versions()

    @pytest.mark.parametrize(
        ("folder", "found"), [("theories", "Coq 8.20.1"), ("user-contrib/Stdlib", "Rocq 9.2")]
    )
    def test_where_the_standard_library_is(self, tmp_path, monkeypatch, folder, found):
        for name in ("coqtop", "coqc", "coqchk"):
            (tmp_path / name).touch()
        server, library = tmp_path / "coqidetop", tmp_path / "coq"
        said = f"echo 'The Prover, version {found.split()[1]}'"
        server.write_text(f"#!/bin/sh\nif [ $1 = -where ]; then echo {library}; else {said}; fi\n")
        server.chmod(0o755)
        (library / "theories").mkdir(parents=True)
        monkeypatch.setenv(toolchain.VARIABLE, str(server))
        with pytest.raises(UnavailableError, match="without its standard library"):
            toolchain.find_toolchain()
        file = library / folder / "Arith" / "PeanoNat.vo"
        file.parent.mkdir(parents=True)
        file.touch()
        assert toolchain.find_toolchain().label == found

    def test_the_place_of_a_refusal_in_the_form_of_each_version(self):
        place = '<loc line_nb="0" bol_pos="0" start="10" stop="17"/>'
        old, new = (
            f'<value val="fail"{at}><state_id val="5"/>{within}<richpp><pp>The reason.</pp></richpp></value>'
            for at, within in (
                (' loc_s="10" loc_e="17"', ""),
                ("", f'<option val="some">{place}</option>'),
            )
        )
        for answer in (old, new):
            (read,) = protocol.read_answers(answer)
            assert read.refusal.text == "characters 10-17: The reason."

    def test_one_that_judges_otherwise_is_not_used(self, tmp_path, monkeypatch):
        found = toolchain.find_toolchain()
        session = Session(found, Limits())
        monkeypatch.setattr(session, "go_to", lambda path, where: (0, None))
        with pytest.raises(UnavailableError, match="does not judge as it should"):
            session.check()
        session.close()
