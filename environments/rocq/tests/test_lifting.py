"""Windows of a user's own Rocq proofs: what is lifted, what is refused and why, and what their orders do."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from command_line import refused as refused_command
from command_line import run
from rocq_support import needs_rocq
from vcrt.errors import MalformedInputError
from vcrt.replay.lattice_replay import replay_merged
from vcrt_rocq.environment import RocqEnvironment
from vcrt_rocq.lift import lift_file
from vcrt_rocq.lift import lift_rocq_file as lift_rocq

FILE = """From Coq Require Import Arith.
(* A comment. *)
Lemma both (n m : nat) (H : n <= m) : n <= m + 1 /\\ (exists x, x = n).
Proof.
  split.
  - apply Nat.le_trans with m.
    + exact H.
    + apply Nat.le_add_r.
  - exists n. reflexivity.
Qed.

Section S.
Variable k : nat.
Local Lemma facts (n m : nat) (H : n = m) : m + n = n + n.
Proof using k.
  assert (h1 : m = n) by (symmetry; exact H).
  assert (h2 : n + 0 = n) by apply Nat.add_0_r.
  assert (h3 : m + n = n + n) by (rewrite h1; reflexivity).
  assert (h4 : 0 <= k) by apply Nat.le_0_l.
  exact h3.
Qed.
End S.

Lemma short : True.
Proof. exact I. Qed.

Lemma braced (a b : nat) : a = a /\\ b = b.
Proof. split. { reflexivity. } { simpl. reflexivity. } Qed.
"""


def written(folder, text):
    file = folder / "Mine.v"
    file.write_text(text, encoding="utf-8")
    return file


def lifted(folder, text, steps=4):
    return lift_rocq(
        written(folder, text),
        RocqEnvironment(),
        replay_merged,
        steps=steps,
    )


def causes(found):
    return [(one.line, one.theorem, one.cause) for one in found.refused]


class TestReading:
    def test_bullets_go_with_what_follows_and_braces_with_what_they_close(self, tmp_path):
        found = lift_file(written(tmp_path, FILE))
        steps = {one.theorem: [step.text for step in one.steps] for one in found.lifted}
        assert steps["both"] == [
            "split.",
            "- apply Nat.le_trans with m.",
            "+ exact H.",
            "+ apply Nat.le_add_r.",
        ]
        assert steps["braced"] == ["split.", "{ reflexivity. }", "{ simpl.", "reflexivity. }"]
        assert causes(found) == [(24, "short", "short")]

    def test_what_stands_before_a_window_is_in_its_episode(self, tmp_path):
        (window,) = [
            one for one in lift_file(written(tmp_path, FILE), steps=2).lifted if one.line == 7
        ]
        initial = window.episode.initial
        assert initial["before"] == ["From Coq Require Import Arith."]
        assert initial["opening"] == ["split.", "- apply Nat.le_trans with m."]
        assert initial["closing"] == ["- exists n.", "reflexivity."]

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("Lemma a : True. Proof. split. Admitted.", "grammar"),
            ("Lemma a : True. Proof. admit. split. Qed.", "grammar"),
            ('Lemma a : True. Proof. idtac "x". split. Qed.', "grammar"),
            ("Lemma a : True. Proof with auto. split. split... Qed.", "grammar"),
            ("Axiom x : False. Lemma a : True. Proof. split. split. Qed.", "before"),
            ("Unset Guard Checking. Lemma a : True. Proof. split. split. Qed.", "before"),
            ("Lemma a : True. Proof. split. Qed.", "short"),
        ],
    )
    def test_refusals(self, tmp_path, text, cause):
        found = lift_file(written(tmp_path, text), steps=2)
        assert [one.cause for one in found.refused] == [cause]
        assert not found.lifted

    def test_a_hole_in_one_proof_closes_what_stands_behind_it(self, tmp_path):
        text = "Lemma a : False. Proof. Admitted.\nLemma b : True /\\ True. Proof. split. - split. - split. Qed."
        found = lift_file(written(tmp_path, text), steps=2)
        assert causes(found) == [(1, "a", "grammar"), (2, "b", "before")]

    def test_lines_end_as_they_may(self, tmp_path):
        plain = lift_file(written(tmp_path, FILE))
        file = tmp_path / "Mine.v"
        file.write_bytes(b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode())
        found = lift_file(file)
        assert [one.line for one in found.lifted] == [one.line for one in plain.lifted]
        assert [one.steps for one in found.lifted] == [one.steps for one in plain.lifted]
        assert causes(found) == causes(plain)

    @pytest.mark.parametrize(
        "text",
        [
            "Check nat. Print nat. Compute (1 + 1). Fail Check x.",
            "Lemma z : True. Proof. Show. eapply I. Unshelve. Qed.",
            "Goal True. Proof. exact I. Qed.",
            "Lemma z : False. Proof. idtac. Abort.",
            "Module Type T. Parameter t : nat. Axiom a : t = 0. End T.",
            "Module Type T. Module N. Axiom a : False. End N. Axiom b : False. End T.",
            "Module Type S. Parameter t : Type. End S. "
            "Module Type T (X : S with Definition t := nat). Axiom a : False. End T.",
        ],
    )
    def test_what_changes_nothing_closes_nothing(self, tmp_path, text):
        proved = "Lemma a : True. Proof. idtac. Check nat. exact I. Qed."
        (found,) = lift_file(written(tmp_path, f"{text} {proved}"), steps=2).lifted
        assert found.theorem == "a"
        assert [step.text for step in found.steps] == ["idtac.", "exact I."]

    @pytest.mark.parametrize(
        "proof",
        ["Proof. Z.order. Qed.", "Z.order. Qed.", "Proof. split. 2: Z.order. - N.order. Qed."],
    )
    def test_tactics_of_modules_close_nothing(self, tmp_path, proof):
        text = f"Lemma z : True. {proof} Lemma a : True. Proof. Z.order. exact I. Qed."
        found = lift_file(written(tmp_path, text), steps=2)
        assert [s.text for s in found.lifted[-1].steps] == ["Z.order.", "exact I."]
        assert all(one.theorem == "z" and one.cause == "short" for one in found.refused)

    @pytest.mark.parametrize(
        "text",
        [
            "Parameter t : nat.",
            "Axiom a : False.",
            "Module T. Axiom a : False. End T.",
            "Abort All.",
        ],
    )
    def test_what_is_assumed_elsewhere_closes_what_follows(self, tmp_path, text):
        found = lift_file(
            written(tmp_path, f"{text} Lemma a : True. Proof. idtac. exact I. Qed."), steps=2
        )
        assert causes(found) == [(1, "a", "before")]

    @pytest.mark.parametrize(
        "kind", ["Definition a : True.", "Fixpoint a (n : nat) : True.", "Goal True."]
    )
    def test_other_proofs_are_counted(self, tmp_path, kind):
        found = lift_file(written(tmp_path, f"{kind} Proof. idtac. exact I. Defined."), steps=2)
        assert [one.cause for one in found.refused] == ["grammar"]

    @pytest.mark.parametrize("data", [b"\xff", b"Lemma a", b"(* "])
    def test_files_that_cannot_be_read(self, tmp_path, data):
        file = tmp_path / "Mine.v"
        file.write_bytes(data)
        with pytest.raises(MalformedInputError):
            lift_file(file)


@needs_rocq
class TestJudging:
    def test_a_proof_of_asserts(self, tmp_path):
        found = lifted(tmp_path, FILE)
        reports = {one.lifted.theorem: one.orders for one in found.theorems}
        assert reports["facts"].num_legal == 12
        assert Counter(pair.relation for pair in reports["facts"].pairs) == {
            "commutes": 5,
            "precedes": 1,
        }
        assert reports["both"].num_legal == 1

    def test_behind_a_tactic_of_a_module_a_proof_is_judged_as_behind_any(self, tmp_path):
        text = (
            "From Coq Require Import ZArith. Local Open Scope Z_scope.\n"
            "Lemma z (a b : Z) (H : a < b) : a <= b. Proof. BY. Qed.\n"
            "Lemma s (p q r : Prop) (hp : p) (hq : q) (hr : r) : (q /\\ p) /\\ r. Proof.\n"
            "assert (h1 : q /\\ p) by (split; assumption). assert (h2 : p \\/ r) by (left; exact hp).\n"
            "assert (h3 : (q /\\ p) /\\ r) by (split; assumption). exact h3. Qed.\n"
            "Lemma t (a b c : Z) (h : a < b) (k : b < c) : a < c. Proof.\n"
            "assert (m : b <= c) by Z.order. assert (n : a <= b) by Z.order. Z.order. Qed."
        )
        one, other = (
            lifted(tmp_path, text.replace("BY", by), steps=3)
            for by in ("Z.order", "now apply Z.lt_le_incl")
        )
        assert one.theorems[0].lifted.theorem == "s"
        kinds = [
            [[pair.relation for pair in each.orders.pairs] for each in found.theorems]
            for found in (one, other)
        ]
        assert kinds[0] == kinds[1]
        assert len(kinds[0]) == 2

    @pytest.mark.parametrize(
        ("text", "cause"),
        [
            ("Lemma a : 0 = 1. Proof. symmetry. reflexivity. Qed.", "rocq"),
            ("From Mine Require Import X. Lemma a : True. Proof. idtac. exact I. Qed.", "rocq"),
            (
                "From Coq Require Import Classical.\n"
                "Lemma a (P : Prop) : P \\/ ~ P. Proof. assert (h : True) by exact I. exact (classic P). Qed.",
                "assumptions",
            ),
        ],
    )
    def test_what_rocq_refuses_is_named(self, tmp_path, text, cause):
        found = lifted(tmp_path, text, steps=2)
        assert [one.cause for one in found.refused] == [cause]
        assert not found.theorems

    def test_a_file_that_does_not_compile_names_the_proof(self, tmp_path):
        text = "Lemma a : True. Proof. discriminate. idtac. Qed. Lemma b : True. Proof. idtac. exact I. Qed."
        *_, refusal = lifted(tmp_path, text, steps=2).refused
        assert (refusal.theorem, refusal.cause) == ("b", "rocq")
        assert refusal.found.startswith("Lemma a: discriminate. ")

    def test_the_same_evidence_has_the_same_digest(self, capsys, tmp_path):
        file = written(tmp_path, FILE)
        (one,), (again,) = (
            json.loads(run(capsys, "lift", "rocq", file, "--json")[1]) for _ in range(2)
        )
        digests = [theorem["certificates_sha256"] for theorem in one["theorems"]]
        assert [theorem["certificates_sha256"] for theorem in again["theorems"]] == digests
        assert len(set(digests)) == len(digests) == 3

    def test_the_command(self, capsys, tmp_path):
        file = written(tmp_path, FILE)
        printed = run(capsys, "lift", "rocq", file)[1]
        assert "12 of 24 orders are legal" in printed
        assert "3 windows judged; 1 refused (1 short)" in printed
        document = json.loads(run(capsys, "lift", "rocq", file, "--json", "--steps", "2")[1])
        (one,) = document
        assert {theorem["name"] for theorem in one["theorems"]} == {"both", "facts", "braced"}

    def test_nothing_to_judge(self, capsys, tmp_path):
        file = written(tmp_path, "Lemma a : True. Proof. split. Qed.")
        assert "nothing in these files could be judged" in refused_command(
            capsys, "lift", "rocq", file
        )
