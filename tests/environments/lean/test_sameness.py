"""What is lifted says what the file says: asked of the real Lean, on the text as it stands."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lean_readings import (
    CHANGED,
    CHANGING,
    IDLE,
    PARSERS,
    READINGS,
    compared,
    lean_errors,
    lean_parsers,
    misread_statements,
    outcome,
    random_statements,
)
from vcrt.environments.lean import spelling
from vcrt.environments.lean.grammar import GLOBAL
from vcrt.environments.lean.lifting import lift_file
from vcrt.environments.lean.sameness import MACROS, NOTATIONS
from vcrt.environments.lean.spelling import Spelling


@pytest.fixture(scope="module")
def errors():
    return lean_errors([reading.text for reading in READINGS])


def named(reading):
    return reading.name


class TestReadings:
    def test_there_are_many_and_each_is_another(self):
        assert len(READINGS) >= 50
        assert len({reading.text for reading in READINGS}) == len(READINGS)

    def test_lean_itself_decides_what_is_expected(self, errors):
        found = {r.name: not said for r, said in zip(READINGS, errors, strict=True)}
        assert found == {reading.name: reading.lean for reading in READINGS}

    @pytest.mark.parametrize("reading", READINGS, ids=named)
    def test_what_vcrt_makes_of_it(self, tmp_path, reading):
        found = outcome(reading.text, tmp_path)
        assert found == reading.outcome
        assert reading.lean or found != "legal"


class TestOtherCommands:
    """What stands in the file besides; nothing here needs Lean."""

    @pytest.mark.parametrize("before", CHANGING)
    def test_what_may_change_the_reading_refuses_what_follows(self, tmp_path, before):
        path = tmp_path / "user.lean"
        path.write_text(before + CHANGED, encoding="utf-8")
        result = lift_file(path)
        assert result.lifted == ()
        (refusal,) = [r for r in result.refused if r.theorem == "t1"]
        assert refusal.cause == "reading"
        assert refusal.found.startswith("line ")
        assert "in a file without it" in refusal.allowed
        path.write_text(CHANGED + before, encoding="utf-8")
        begins_line = not before.startswith(("run_cmd", "initialize_simps"))
        assert bool(lift_file(path).lifted) or not begins_line

    @pytest.mark.parametrize("before", IDLE)
    def test_what_cannot_change_it_does_not(self, tmp_path, before):
        path = tmp_path / "user.lean"
        path.write_text(before + CHANGED, encoding="utf-8")
        assert [lifted.theorem for lifted in lift_file(path).lifted] == ["t1"]

    def test_a_quotation_over_lines_holds_no_commands(self, tmp_path):
        path = tmp_path / "user.lean"
        path.write_text(f'def s : String := "\n{CHANGED}"\n', encoding="utf-8")
        assert lift_file(path).lifted == ()
        path.write_text(f"def c : Char := '\"' /- \" \n{CHANGED}-/\n", encoding="utf-8")
        assert lift_file(path).lifted == ()


class TestNotations:
    def test_they_are_those_of_lean(self):
        """Names, strengths and symbols, against the parsers that are compiled into Lean."""
        line = re.compile(r"syntax:(\d+) \(name := «?([^»)]+)»?\) (.*) : (?:term|tactic)")
        declared = {
            match[2]: (int(match[1]), match[3])
            for match in map(line.fullmatch, NOTATIONS.splitlines())
            if match is not None
        }
        assert len(declared) == len(PARSERS) == 13
        for parser in lean_parsers():
            kind, strength, text = parser["kind"], *declared.pop(parser["kind"])
            assert parser["strength"] == strength
            before, strings, after = re.match(
                r"(?:term:(\d+) )?(.*?)(?: term:(\d+))?$", text
            ).groups()
            assert parser["left"] == (int(before) if before else None), kind
            said = [json.loads(string).strip() for string in re.findall(r'"[^"]*"', strings)]
            assert parser["symbols"][: len(said)] == said, kind
            assert parser["right"] == (int(after) if after else 0), kind
        assert declared == {}

    def test_every_one_but_tactics_of_leans_own_is_expanded_by_lean(self):
        assert {kind[-1] for kind in MACROS} == set(PARSERS) - {"focus", "rotateRight"}


def lifted_from(text, folder):
    path = folder / "user.lean"
    path.write_text(text, encoding="utf-8")
    return lift_file(path)


class TestStatements:
    """Lean accepts each text as it stands, vcrt lifts each, and Lean finds that the spelling says the same."""

    @settings(max_examples=5, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def test_random_statements_over_dangerous_names_say_the_same(self, tmp_path_factory, seed):
        texts = random_statements(seed, 12)
        assert misread_statements(texts, tmp_path_factory.mktemp("statements")) == []

    @pytest.mark.slow
    @settings(max_examples=20, deadline=None)
    @given(seed=st.integers(0, 2**32))
    def test_many_more(self, tmp_path_factory, seed):
        texts = random_statements(seed, 40)
        assert misread_statements(texts, tmp_path_factory.mktemp("statements")) == []

    def test_they_are_of_the_dangerous_kind(self):
        texts = random_statements(1, 400)
        assert len(set(texts)) > 150
        for word, symbol in (("And", "∧"), ("Or", "∨"), ("Not", "¬"), ("Eq", "="), ("Iff", "↔")):
            assert sum(f"{word} :" in text and symbol in text for text in texts) > 10


class TestTheCheckCanFail:
    """With a spelling that is wrong, Lean sees the difference."""

    CAPTURE = (
        "theorem t1 (p q : Prop) (And : Prop → Prop → Prop) (x : p ∧ q) : p ∧ q := by\n"
        "  have a : p ∧ q := x\n  have b : p ∧ q := x\n  exact a\n"
    )

    def test_a_symbol_that_is_captured(self, tmp_path, monkeypatch):
        (lifted,) = lifted_from(self.CAPTURE, tmp_path).lifted
        assert compared(lifted) is None
        monkeypatch.setattr(Spelling, "_said", lambda _: {word: word for word in GLOBAL})
        (lifted,) = lifted_from(self.CAPTURE, tmp_path).lifted
        found = compared(lifted)
        assert found is not None
        assert found.line == 1
        assert outcome(self.CAPTURE, tmp_path) == "reading"

    @pytest.mark.parametrize(
        ("symbol", "form"),
        [
            ("∧", "{Or} {} {}"),
            ("≠", "{Eq} {} {}"),
            ("≠", "{Not} ({Eq} {1} {0})"),
            ("→", "{} → {0}"),
        ],
    )
    def test_a_symbol_that_is_read_as_another(self, tmp_path, monkeypatch, symbol, form):
        strengths = spelling._INFIX[symbol][:3]
        form = form.replace("{} {}", "{0} {1}").replace("{} →", "{0} →")
        monkeypatch.setitem(spelling._INFIX, symbol, (*strengths, form))
        text = self.CAPTURE.replace("(And : Prop → Prop → Prop) ", "").replace("∧", symbol)
        (lifted,) = lifted_from(text, tmp_path).lifted
        assert compared(lifted) is not None

    def test_a_strength_that_is_wrong(self, tmp_path, monkeypatch):
        monkeypatch.setattr(spelling, "_NEGATION", 20)
        text = self.CAPTURE.replace("(And : Prop → Prop → Prop) ", "").replace("p ∧ q", "¬p ∧ q")
        (lifted,) = lifted_from(text, tmp_path).lifted
        assert compared(lifted) is not None

    @pytest.mark.parametrize("which", range(4))
    def test_declarations_whose_names_are_mixed_up(self, tmp_path, which):
        text = (
            "inductive Colour : Type where\n  | red\n  | green\n"
            "def first' : Colour := Colour.red\ndef second' : Colour := Colour.green\n"
            "theorem same : ∃ c : Colour, c = first' := ⟨first', Eq.refl first'⟩\n"
        )
        (lifted,) = lifted_from(text, tmp_path).lifted
        assert compared(lifted) is None
        old, new = (
            ("Colour1.red1", "Colour1.green1"),
            ("| red1 | green1", "| green1 | red1"),
            ("first1", "second1"),
            ("c Colour", "c"),
        )[which]
        assert "=" in text
        operations = tuple(
            dataclasses.replace(operation, payload=str(operation.payload).replace(old, new))
            if index == (0 if which == 1 else 1 if which == 0 else 3)
            else operation
            for index, operation in enumerate(lifted.episode.operations)
        )
        episode = dataclasses.replace(lifted.episode, operations=operations)
        changed = dataclasses.replace(lifted, episode=episode)
        assert (compared(changed) is not None) == (operations != lifted.episode.operations)
