"""Lean files of a user: what is lifted from them, what is refused and where, and what Lean says of the steps."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcrt.certification.lean_lifting import lift_lean
from vcrt.certification.lifted_files import FileLift, LiftedTheorem
from vcrt.certification.pairs import PairReport, report_orders
from vcrt.certification.replay import replay_exhaustively
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import (
    Episode,
    Operation,
    Provenance,
    Rejected,
    Replay,
    Versions,
)
from vcrt.environments.lean.environment import LeanEnvironment
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.lifting import LeanLifted, lift_file
from vcrt.environments.lean.program import read_program
from vcrt.environments.lean.source import read_commands
from vcrt.environments.lean.spelling import spelling_of, with_explicit_binders
from vcrt.environments.lifted_files import LiftedFile
from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt.hashing import sha256_hex

GOOD = """
theorem good (p q : Prop) (x : p) (y : q) : p := by
  have h1 : q := y
  have h2 : p := x
  exact x
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "user.lean"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> LiftedFile:
    return lift_file(written(folder, text))


def judged(folder: Path, text: str) -> FileLift:
    return lift_lean(written(folder, text), LeanEnvironment(), replay_exhaustively)


def only(result: FileLift) -> LiftedTheorem:
    assert result.refused == ()
    (theorem,) = result.theorems
    return theorem


def pairs(theorem: LiftedTheorem) -> dict[tuple[str, str], PairReport]:
    labels = [step.label for step in theorem.lifted.steps]
    return {(labels[p.first], labels[p.second]): p for p in theorem.orders.pairs}


class TestJudged:
    """Through the real Lean."""

    def test_independent_steps_commute(self, tmp_path):
        theorem = only(judged(tmp_path, GOOD))
        assert theorem.lifted.theorem == "good"
        assert theorem.orders.num_legal == theorem.orders.num_orders == 2
        assert theorem.orders.reference_refusal is None
        (pair,) = theorem.orders.pairs
        assert (pair.relation, pair.before, pair.contexts) == ("commutes", None, {"diamond": 1})

    def test_a_step_that_uses_another_comes_after_it(self, tmp_path):
        """Names that the grammar does not know, symbols, braces, comments and lines that go on."""
        result = judged(
            tmp_path,
            """/-! # Title /- nested -/ -/
/-- What it says. -/
theorem swapped {p q : Prop} (hp : p)   -- the first
    (hpq : p → q) :
    q ∧ p := by
  -- a remark
  have hq : q := hpq hp

  have «old» : p := hp
  exact ⟨hq, hp⟩

theorem swapped' {p q : Prop} (hp : p) (hpq : p → q) : q ∧ p := by
  have hq : q :=  /- in the
    midst -/
      hpq hp
  have h₁ : p ∨ q := Or.inl hp
  have hqp : q ∧ p :=
    ⟨hq, hp⟩
  exact hqp
""",
        )
        (refusal,) = result.refused
        assert refusal.where == "user.lean:9"
        (theorem,) = result.theorems
        assert [(s.label, s.line) for s in theorem.lifted.steps] == [
            ("hq", 13),
            ("h₁", 16),
            ("hqp", 17),
        ]
        assert theorem.lifted.steps[2].text == "have hqp : q ∧ p := ⟨hq, hp⟩"
        found = pairs(theorem)
        assert found["hq", "hqp"].relation == "precedes"
        assert found["hq", "hqp"].before == 0
        assert found["hq", "hqp"].reason == "Unknown identifier `hq`"
        assert found["hq", "h₁"].relation == found["h₁", "hqp"].relation == "commutes"
        assert theorem.orders.num_legal == 3

    def test_shadowing_conflicts(self, tmp_path):
        theorem = only(
            judged(
                tmp_path,
                "theorem t1 (p q : Prop) (x : p) (y : q) : p := by\n"
                "  have h : p := x\n  have h : q := y\n  have z : p ∧ q := ⟨x, y⟩\n  exact x\n",
            )
        )
        assert [s.label for s in theorem.lifted.steps] == ["h", "h#2", "z"]
        found = pairs(theorem)
        assert found["h", "h#2"].relation == "conflicts"
        assert found["h", "h#2"].before == 0
        assert "different states" in found["h", "h#2"].reason
        assert (theorem.orders.num_legal, theorem.orders.num_other_state) == (3, 3)

    def test_cases_that_unify(self, tmp_path):
        theorem = only(
            judged(
                tmp_path,
                """
theorem siblings (p : Prop) (hp : p) : (∃ n : N, n = N.s N.z) ∧ p ∧ p := by
  refine ⟨Exists.intro ?w ?proof, ?left, ?right⟩
  case w => exact N.s N.z
  case proof =>
    exact Eq.refl _
  case left => exact hp
  case right => exact hp
""",
            )
        )
        found = pairs(theorem)
        assert found["w", "proof"].relation == "precedes"
        assert found["w", "proof"].reason == "Case tag `w` not found."
        assert {p.relation for key, p in found.items() if key != ("w", "proof")} == {"commutes"}
        assert found["w", "left"].contexts == {"diamond": 2, "vacuous": 3}
        assert (theorem.orders.num_legal, theorem.orders.num_orders) == (12, 24)

    def test_five_steps(self, tmp_path):
        theorem = only(
            judged(
                tmp_path,
                """
theorem chain (p q r s : Prop) (x : p) (f : p → q) (g : q → r) (u : s) : r ∧ s := by
  have a : q := f x
  have b : r := g a
  have c : s := u
  have d : r ∧ s := ⟨b, c⟩
  have e : p := x
  exact d
""",
            )
        )
        rules = {("a", "b"), ("b", "d"), ("c", "d")}
        found = pairs(theorem)
        for key, pair in found.items():
            if key in rules:
                assert pair.relation == "precedes"
                assert f"`{key[0]}`" in pair.reason
            elif key == ("a", "d"):
                # With a still to come, b is missing too: d is refused right before a and right after it.
                assert (pair.relation, pair.always_first) == ("uncertified", 0)
            else:
                assert pair.relation == "commutes"
        orders = [
            order
            for order in itertools.permutations("abcde")
            if all(order.index(a) < order.index(b) for a, b in rules)
        ]
        assert theorem.orders.num_legal == len(orders) == 15
        assert theorem.orders.num_orders == 120

    def test_relations_that_depend_on_the_context(self, tmp_path):
        """Before there is another ``h``, a step may use the first one; and the end needs the second."""
        theorem = only(
            judged(
                tmp_path,
                "theorem t1 (p q : Prop) (x : p) (y : q) : q := by\n"
                "  have a : p := x\n  have h : p := x\n  have h : q := y\n  exact h\n",
            )
        )
        pair = pairs(theorem)["h", "h#2"]
        assert pair.relation == "depends on context"
        assert "after nothing: conflicts" in pair.reason
        assert "after a: precedes (h first)" in pair.reason
        assert "ype mismatch" in pair.reason
        assert {c.verdict for c in pair.examples} == {"conflicts", "precedes"}
        assert theorem.orders.num_legal == 3

    def test_an_unprovable_theorem_is_reported_with_leans_message(self, tmp_path):
        wrong = (
            "theorem wrong (p q : Prop) (hp : p) : q := by\n"
            "  have h₁ : p := hp\n  have h₂ : q := h₁\n  exact h₂\n"
        )
        result = judged(tmp_path, wrong + GOOD)
        assert result.refused == ()
        first, second = result.theorems
        refusal = first.orders.reference_refusal
        assert refusal is not None
        assert (refusal.num_accepted, refusal.step) == (1, 1)
        assert refusal.reason == "Type mismatch h₁ has type p but is expected to have type q"
        assert first.orders.num_legal == 0
        assert first.orders.pairs[0].relation == "uncertified"
        assert "Type mismatch" in first.orders.pairs[0].reason
        assert second.orders.num_legal == 2

    def test_an_end_that_fails_is_the_wholes_fault(self, tmp_path):
        theorem = only(judged(tmp_path, GOOD.replace("exact x", "exact y")))
        refusal = theorem.orders.reference_refusal
        assert refusal is not None
        assert (refusal.num_accepted, refusal.step) == (2, None)
        assert "ype mismatch" in refusal.reason
        assert theorem.orders.num_other_state == 0

    def test_a_statement_that_lean_refuses_stops_nothing_else(self, tmp_path):
        result = judged(tmp_path, GOOD.replace("good (p q : Prop)", "bad (p : Prop)") + GOOD)
        (refusal,) = result.refused
        assert (refusal.where, refusal.theorem, refusal.cause) == ("user.lean:2", "bad", "lean")
        assert refusal.found == "Unknown identifier `q`"
        assert [t.lifted.theorem for t in result.theorems] == ["good"]

    def test_declarations(self, tmp_path):
        theorem = only(
            judged(
                tmp_path,
                """-- A file of declarations.
inductive Colour : Type where
  | red
  | green

def favourite : Colour := Colour.green
theorem exists_one : ∃ c : Colour, c = favourite :=
  ⟨favourite, Eq.refl favourite⟩
theorem apart (p : Prop) (hp : p) : p ∧ p := ⟨hp, hp⟩
""",
            )
        )
        found = pairs(theorem)
        assert [s.label for s in theorem.lifted.steps] == [
            "Colour",
            "favourite",
            "exists_one",
            "apart",
        ]
        assert found["Colour", "favourite"].relation == "precedes"
        assert "`Colour`" in found["Colour", "favourite"].reason
        assert found["favourite", "exists_one"].relation == "precedes"
        assert "`favourite`" in found["favourite", "exists_one"].reason
        assert theorem.orders.num_legal == 4

    def test_instances_among_declarations(self, tmp_path):
        theorem = only(
            judged(
                tmp_path,
                "class Default (α : Type) where value : α\n"
                "noncomputable instance first : Default N := ⟨N.z⟩\n"
                "noncomputable instance second : Default N := ⟨N.s N.z⟩\n"
                "noncomputable def used : N := Default.value\n",
            )
        )
        found = pairs(theorem)
        assert found["first", "second"].relation == "conflicts"
        assert theorem.orders.reference_refusal is None


class TestRefused:
    """Nothing here needs Lean."""

    HOSTILE = """
set_option debug.skipKernelTC true
axiom ax : False
#eval 1
attribute [simp] good
@[simp] theorem marked (p : Prop) (x : p) : p := by
  have a : p := x
  have b : p := x
  exact a
open Lean in
theorem elaborated : False := by
  have a : False := by sorry
  have b : False := ax; run_tac a
  exact a
theorem sorry1 : False := by
  have a : False := sorry
  have b : False := sorryAx False Bool.true
  exact (by native_decide : False)
macro "boom" : term => `(1)
theorem forged : False := by
  have a_r0001 : False := vcrt_end_r0000
  have b : False := a_r0001
  exact b
"""

    def test_a_hostile_file(self, tmp_path):
        result = read(tmp_path, self.HOSTILE + GOOD + "/- never closed\ntheorem x1 : p := by\n")
        assert result.lifted == ()
        lines = [refusal.line for refusal in result.refused]
        assert lines == sorted(lines)
        assert {2, 3, 4, 5, 6, 10, 12, 13, 16, 17, 18, 19, 21} <= set(lines)
        assert all(refusal.found and refusal.allowed for refusal in result.refused)
        by_line = {refusal.line: refusal for refusal in result.refused}
        assert by_line[3].found == "axiom ax : False"
        assert "theorem NAME ... := by" in by_line[3].allowed
        assert by_line[16].theorem == "sorry1"
        assert by_line[16].found.startswith("the word 'sorry'")
        assert by_line[25].theorem == "good"
        assert by_line[25].cause == "reading"
        assert by_line[25].found.startswith("line 2 may change what is read here: set_option debug")
        before = read(tmp_path, GOOD + self.HOSTILE)
        assert [lifted.theorem for lifted in before.lifted] == ["good"]
        assert result.refused[-1].found == "a comment that never ends"
        assert lines[-1] == (self.HOSTILE + GOOD).count("\n") + 1

    @pytest.mark.parametrize(
        ("proof", "line", "found"),
        [
            ("  intro h\n  have a : p := x\n", 2, "intro"),
            ("  have a : p := x\n  simp at a\n  have b : p := x\n", 3, "simp"),
            ("  have a := x\n  have b : p := x\n", 2, "have a := x"),
            ("  intro h x\n  exact x\n", 2, "intro"),
            ("  have a' := x\n  have b : p := x\n", 2, "have a' := x"),
            ("  have : p := x\n  have b : p := x\n", 2, "have :"),
            ("  have a : p := x; have c : p := x\n  have b : p := x\n", 2, "';'"),
            ("  have a : p := x\n  · exact x\n", 3, "'·'"),
            ("  have a : p := x\n  exact x\n  have b : p := x\n", 3, "exact"),
            ("  have a : p := x\n  refine x\n  have b : p := x\n", 3, "refine"),
            ("  have a : p := x\n have b : p := x\n", 3, "column 1"),
            ("  have a : p := «x»\n  have b : p := x\n", 2, "«"),
            ("  have a : p := x.1\n  have b : p := x\n", 2, "'.'"),
            ("  have a : p := (x\n  have b : p := x\n", 2, "partner"),
            ("  have a : p := 1\n  have b : p := x\n", 2, "'1'"),
            ('  have a : p := "/-"\n  have b : p := x\n', 2, "'\"'"),
            ("  have a : p := x\n\thave b : p := x\n", 3, "\t"),
            ("  have a : p := x\n", 1, "1 step"),
            ("", 1, "0 steps"),
            ("".join(f"  have a{i} : p := x\n" for i in range(9)), 1, "9 steps"),
            ("  have a : p = p = p := x\n  have b : p := x\n", 2, "'='"),
            ("  have a : p := " + "(" * 900 + "¬p\n  have b : p := x\n", 2, ""),
            ("  have a : p := " + "x " * 2000 + "\n  have b : p := x\n", 2, "characters"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_line(self, tmp_path, proof, line, found):
        result = read(tmp_path, "theorem t1 (p : Prop) (x : p) : p := by\n" + proof + GOOD)
        assert [lifted.theorem for lifted in result.lifted] == ["good"]
        assert any(
            refusal.where == f"user.lean:{line}" and found in refusal.found
            for refusal in result.refused
        )

    def test_every_line_that_is_wrong_is_reported(self, tmp_path):
        result = read(
            tmp_path,
            "theorem t1 (p : Prop) : List p := by\n  have a : p := simp\n  intro h\n  have b : p := a\n",
        )
        assert result.lifted == ()
        assert [refusal.line for refusal in result.refused] == [1, 2, 3]
        assert {refusal.theorem for refusal in result.refused} == {"t1"}

    @pytest.mark.parametrize(
        "text",
        [
            "theorem a (p : Prop) (x : p) : p := x\n",
            "theorem a (p : Prop) (x : p) : p := x\nexample : True := True.intro\n",
            "theorem a (p : Prop) (x : p) : p := x\ntheorem a (p : Prop) (x : p) : p := x\n",
            "def a : N := N.z\nclass K (α : Type) where v : α\ndef b : N := N.z\n",
            "class K (α : Type) where v : α\n",
            "instance a : Inhabited N := ⟨N.z⟩\ndef b : N := N.z\n",
            "def a : N := 0\ndef b : N := N.z\n",
            "".join(f"def a{i} : N := N.z\n" for i in range(9)),
            "theorem a (p : Prop) (x : p) : p := x\ndef b : N := N.z\n" + GOOD,
            "theorem\n",
            "theorem a\n",
            "  theorem a : p := by\n",
            "/-",
            '"',
        ],
    )
    def test_declarations_that_are_not_lifted(self, tmp_path, text):
        result = read(tmp_path, text)
        assert [lifted.theorem for lifted in result.lifted] == ["good"] * ("good" in text)
        assert result.refused

    def test_what_is_no_text(self, tmp_path):
        path = tmp_path / "user.lean"
        with pytest.raises(MalformedInputError, match="cannot be read"):
            lift_file(path)
        path.write_bytes(b"theorem \xff")
        with pytest.raises(MalformedInputError, match="UTF-8"):
            lift_file(path)
        path.write_bytes(b" " * 1_000_001)
        with pytest.raises(MalformedInputError, match="more than 1,000,000 bytes"):
            lift_file(path)
        path.write_bytes(b"")
        assert lift_file(path).lifted == lift_file(path).refused == ()

    def test_a_comment_that_never_ends_takes_the_command_that_it_stands_in(self, tmp_path):
        result = read(tmp_path, GOOD + GOOD.replace("have h2", "/- have h2"))
        assert len(result.lifted) == 1
        (refusal,) = result.refused
        assert refusal.line == 9


class TestEpisodes:
    def test_provenance_names_the_file_the_theorem_and_the_digest(self, tmp_path):
        result = read(tmp_path, GOOD)
        (lifted,) = result.lifted
        provenance = lifted.episode.provenance
        assert result.digest == sha256_hex(GOOD.encode())
        assert provenance.source == f"user.lean/good@sha256:{result.digest}"
        assert provenance.generator == "lean.lift"
        assert lifted.line == 2
        assert lifted.episode == read(tmp_path, GOOD).lifted[0].episode
        again = read(tmp_path, GOOD + GOOD)
        assert len({item.episode.episode_id for item in again.lifted}) == 2

    def test_lines_ends_and_marks_of_other_systems(self, tmp_path):
        (plain,) = read(tmp_path, GOOD).lifted
        (other,) = read(tmp_path, "\ufeff" + GOOD.replace("\n", "\r\n")).lifted
        assert other.steps == plain.steps
        assert other.episode.operations == plain.episode.operations

    @pytest.mark.parametrize(
        "text",
        [
            GOOD.replace("by\n  have h1", "\n    by have h1")
            .replace("\n  have", "\n       have")
            .replace("\n  exact", "\n       exact"),
            GOOD.replace(" := by", "\n  := by"),
            GOOD.replace("\n  ", "\n      "),
            GOOD.replace("have h1 : q := y", "have h1 :\n      q :=\n    y"),
            GOOD.replace("have h1", "have /- a\n b -/ h1"),
            GOOD.replace("have h1 : q := y", 'have h1 : q := y -- "'),
        ],
        ids=range(6),
    )
    def test_layouts_of_one_theorem(self, tmp_path, text):
        (plain,) = read(tmp_path, GOOD).lifted
        (other,) = read(tmp_path, text).lifted
        assert other.episode.operations == plain.episode.operations
        assert other.episode.initial == plain.episode.initial


def lifted_texts(lifted: LeanLifted) -> list[str]:
    program = read_program(lifted.episode, max_chars=Limits().max_step_chars)
    return [step.text for step in program.steps]


FRAGMENTS = st.sampled_from(
    [
        *(
            "theorem t1 (p : Prop) (x : p) : p := by\n",
            "  have a : p := x\n",
            "  case b => exact x\n",
        ),
        *(
            "  refine And.intro ?b ?c\n",
            "  exact x\n",
            "def d : N := N.z\n",
            "inductive T where | c\n",
        ),
        *(
            "--",
            "/-",
            "-/",
            '"',
            "\n",
            "  ",
            "\t",
            "\\",
            "«",
            "#eval 1",
            "sorry",
            "by",
            "∀ x, ",
            "∃ y, ",
        ),
        *(
            "have h' : ",
            "¬",
            "∧",
            "=",
            ":=",
            "(",
            ")",
            "{",
            "}",
            "λ x => ",
            "axiom f : False\n",
            "; ",
        ),
    ]
)


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(FRAGMENTS, max_size=25))
def test_no_file_is_too_strange(tmp_path_factory, parts):
    """Every line is lifted or refused, and what is lifted passes the grammar."""
    result = read(tmp_path_factory.mktemp("strange"), "".join(parts))
    for lifted in result.lifted:
        for text in lifted_texts(lifted):
            assert not set(text) & set('#«\n\t;"\\-{}¬∧∃')
            assert not {"axiom", "sorry", "by"} & set(text.replace("(", " ").split())
    commands, _ = read_commands("".join(parts))
    if any(command.text.startswith("theorem") and "by" in command.text for command in commands):
        lines = {item.line for item in (*result.lifted, *result.refused)}
        for command in commands:
            assert lines & {line.number for line in command.lines}


FORMULAS = st.recursive(
    st.sampled_from(["p", "q", "r"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("↔→∨∧"), inner, inner),
        st.tuples(st.just("¬"), inner),
        st.tuples(st.sampled_from("∀∃"), inner),
    ),
    max_leaves=8,
)
STRENGTH = {"↔": 20, "→": 25, "∨": 30, "∧": 35, "¬": 40}
WORDS = {"↔": "Iff", "∨": "Or", "∧": "And"}


def in_brackets(formula) -> str:
    """With brackets around everything: no strength is needed to read it."""
    match formula:
        case str():
            return formula
        case ("¬", inner):
            return f"¬({in_brackets(inner)})"
        case (("∀" | "∃") as binder, inner):
            return f"({binder} x : N, ({in_brackets(inner)}))"
        case (symbol, left, right):
            return f"(({in_brackets(left)}) {symbol} ({in_brackets(right)}))"


def sparing(formula, strength: int = 0, last: bool = True) -> str:
    """With as few brackets as Lean's strengths of symbols allow."""
    match formula:
        case str():
            return formula
        case ("¬", inner):
            return f"¬{sparing(inner, 40, last)}"
        case (("∀" | "∃") as binder, inner):
            text = f"{binder} x : N, {sparing(inner)}"
            return text if last else f"({text})"
        case (symbol, left, right):
            own = STRENGTH[symbol]
            closed = own < strength
            sides = (own + 1, own + 1) if symbol == "↔" else (own + 1, own)
            text = (
                f"{sparing(left, sides[0], False)} {symbol} "
                f"{sparing(right, sides[1], last or closed)}"
            )
            return f"({text})" if closed else text


def in_words(formula) -> str:
    match formula:
        case str():
            return formula
        case ("¬", inner):
            return f"Not ({in_words(inner)})"
        case ("∀", inner):
            return f"∀ x : N, {in_words(inner)}"
        case ("∃", inner):
            return f"Exists (fun x : N => {in_words(inner)})"
        case ("→", left, right):
            return f"({in_words(left)}) → {in_words(right)}"
        case (symbol, left, right):
            return f"{WORDS[symbol]} ({in_words(left)}) ({in_words(right)})"


def structure(text: str) -> object:
    """Words, arrows and binders as nested lists, whatever brackets there are."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()

    def term(position: int) -> tuple[object, int]:
        items: list[object] = []
        while position < len(tokens) and tokens[position] != ")":
            token = tokens[position]
            if token == "(":
                inner, position = term(position + 1)
                items.append(inner)
                position += 1
            elif token == "→":
                right, position = term(position + 1)
                return ["→", bare(items), right], position
            elif token in ("∀", "fun"):
                inner, after = term(position + 5)
                items.append([*tokens[position : position + 4], inner])
                position = after
            else:
                items.append(token)
                position += 1
        return bare(items), position

    def bare(items: list[object]) -> object:
        return items[0] if len(items) == 1 else items

    return term(0)[0]


@settings(max_examples=300, deadline=None)
@given(formula=FORMULAS)
def test_symbols_become_words_by_leans_strengths(formula):
    spelling = spelling_of(["fun p q r x => x"])
    expected = structure(in_words(formula).replace(", ", " , ").replace(" : N ,", " : N ,"))
    for text in (in_brackets(formula), sparing(formula)):
        spelt = spelling.spelt(text, where="here").replace(", ", " , ")
        assert structure(spelt) == expected


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("have h' : ¬p ∧ q → r := x", "have h1 : And (Not p) q → r := x"),
        ("have hx : a = b ∨ a ≠ b := x", "have hx1 : Or (Eq a b) (Not (Eq a b)) := x"),
        ("exact (λ z ↦ p ∧ q : N → Prop)", "exact (fun z => And p q : N → Prop)"),
        (
            "refine (x : ∃ x y : N, x = y)",
            "refine (x : Exists (fun x : N => Exists (fun y : N => Eq x y)))",
        ),
        (
            "exact f (∃ (x y : N), x = y)",
            "exact f (Exists (fun (x : N) => Exists (fun (y : N) => Eq x y)))",
        ),
        ("have h : f fun x => x ∧ p := z", "have h : f fun x => And x p := z"),
        ("case left => exact h.left", "case left1 => exact h.left"),
        ("have h : p -> q /\\ r <-> s := x", "have h : Iff (p → And q r) s := x"),
        ("have φ : (p ↔ q) = (q ↔ p) := x", "have v1 : Eq (Iff p q) (Iff q p) := x"),
    ],
)
def test_spellings(text, spelt):
    spelling = spelling_of([text])
    found = spelling.spelt(text, where="here")
    assert found == spelt
    assert spelling.spelt(found, where="here") == found


def test_new_names_never_meet_old_ones():
    texts = ["have hp : p := hp1", "have hp' : p := hp2", "have hp'' : p := x"]
    spelling = spelling_of(texts)
    new = list(spelling.aliases.values())
    assert len(set(new)) == 3
    assert not set(new) & {"hp1", "hp2", "p", "x"}
    for text in texts:
        assert spelling.restored(spelling.spelt(text, where="here")) == text


def test_only_outer_braces_are_opened():
    found = with_explicit_binders("theorem t {p : Prop} (h : ∀ {x : N}, p) {q : Prop} : p")
    assert found == "theorem t (p : Prop) (h : ∀ {x : N}, p) (q : Prop) : p"


def evidence(num_operations: int, needs: Sequence[tuple[int, int]]) -> EpisodeReplays:
    """Replays in which ``b`` is refused before ``a`` for each pair; states are the sets of steps taken."""
    episode = Episode(
        environment="toy",
        schema="toy",
        initial=None,
        operations=tuple(Operation(signature=f"s{i}", payload=i) for i in range(num_operations)),
        provenance=Provenance(source="toy", generator="toy", seed=0),
    )
    states: dict[frozenset[int], str] = {}

    def replay(order: tuple[int, ...]) -> Replay:
        hashes = [states.setdefault(frozenset(), sha256_hex(b""))]
        for count, step in enumerate(order):
            taken = frozenset(order[:count])
            if any(b == step and a not in taken for a, b in needs):
                return Replay(order, tuple(hashes), Rejected(f"s{step} is too early"))
            taken |= {step}
            hashes.append(states.setdefault(taken, sha256_hex(repr(sorted(taken)).encode())))
        return Replay(order, tuple(hashes))

    orders = itertools.permutations(range(num_operations))
    return EpisodeReplays.of_every_order(episode, tuple(replay(order) for order in orders))


class TestReports:
    def test_eight_steps_take_seconds(self):
        needs = [(0, 3), (3, 6), (1, 7)]
        replays = evidence(8, needs)
        assert len(replays.replays) == math.factorial(8)
        start = time.perf_counter()
        report = report_orders(replays)
        assert time.perf_counter() - start < 20
        found = {(p.first, p.second): p.relation for p in report.pairs}
        assert len(found) == 28
        assert [pair for pair, kind in found.items() if kind == "precedes"] == [
            (0, 3),
            (1, 7),
            (3, 6),
        ]
        assert found[0, 6] == "uncertified"
        assert list(found.values()).count("commutes") == 24
        # One chain of three, one of two and three free steps.
        assert report.num_legal == math.factorial(8) // (6 * 2)

    def test_nothing_is_accepted(self):
        report = report_orders(evidence(3, [(0, 1), (1, 0), (0, 2), (1, 2), (2, 0)]))
        assert report.num_legal == 0
        assert {p.relation for p in report.pairs} == {"uncertified"}
        assert report.reference_refusal is not None

    def test_no_accepted_step_leads_to_a_pair(self):
        (*_, last) = report_orders(evidence(2, [(0, 1), (1, 0)])).pairs
        assert last.reason.startswith("neither order is accepted anywhere: s")

    def test_steps_that_change_nothing_are_named(self):
        replays = evidence(2, [])
        idle = tuple(
            Replay(r.sequence, (r.state_hashes[0], r.state_hashes[0], r.state_hashes[2]))
            for r in replays.replays
        )
        assert report_orders(EpisodeReplays.of_every_order(replays.episode, idle)).idle == (0, 1)


class TestWhatGoesWrong:
    def test_one_theorem_without_a_verdict_stops_no_other(self, tmp_path):
        def breaking(environment, episodes):
            if "fragile" in episodes[0].provenance.source:
                raise VerifierFailure("Lean broke", found="no answer about fragile1")
            return replay_exhaustively(environment, episodes)

        path = written(tmp_path, GOOD.replace("good", "fragile_one") + GOOD)
        result = lift_lean(path, LeanEnvironment(), breaking)
        assert [t.lifted.theorem for t in result.theorems] == ["good"]
        (refusal,) = result.refused
        assert (refusal.cause, refusal.theorem) == ("no verdict", "fragile_one")

    def test_answers_that_contradict_each_other_are_no_verdict(self, tmp_path):
        def wavering(environment, episodes):
            (found,) = replay_exhaustively(environment, episodes)
            first, *rest = found.replays
            hashes = (sha256_hex(b"another"), *first.state_hashes[1:])
            return [
                EpisodeReplays.of_every_order(
                    found.episode, (Replay(first.sequence, hashes), *rest)
                )
            ]

        result = lift_lean(written(tmp_path, GOOD), LeanEnvironment(), wavering)
        assert result.theorems == ()
        assert [refusal.cause for refusal in result.refused] == ["no verdict"]

    def test_without_a_lean_there_is_no_report(self, tmp_path, monkeypatch):
        monkeypatch.setenv("VCRT_LEAN", str(tmp_path / "none"))
        with pytest.raises(UnavailableError):
            judged(tmp_path, GOOD)

    def test_the_report_names_the_judge(self, tmp_path):
        assert isinstance(judged(tmp_path, GOOD).versions, Versions)


@pytest.mark.parametrize(
    "text",
    [
        "theorem a1 : False := " + "fun x => " * 60_000 + "x",
        "theorem a1 : False := " + "(" * 100_000 + "x" + ")" * 100_000,
        "def " * 120_000,
        "theorem a1 "
        + " ".join(f"(x{chr(0x3B1 + k % 20)}{k}' : Prop)" for k in range(25_000))
        + " : x",
    ],
    ids=["functions", "brackets", "keywords", "names"],
)
def test_long_files_take_time_in_proportion(tmp_path, text):
    """Each would take minutes if the time grew with the square of the length."""
    path = tmp_path / "long.lean"
    path.write_text(f"{text}\ntheorem b1 (p : Prop) (x : p) : p := x\n", encoding="utf-8")
    start = time.process_time()
    assert not lift_file(path).lifted
    assert time.process_time() - start < 6
