"""What may reach Lean and what may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_lean import grammar
from vcrt_lean.program import read_program
from vcrt_lean.schemas import SCHEMAS, sample_episode

PROOF = " (p : Prop) (x : p) : p := x"
CLASS = "class K1 (α : Type) where v1 : α"


def declaration(text: str) -> grammar.Step:
    return grammar.read_declaration(text, where="here", classes={"K1"})


def tactic(text: str) -> grammar.Step:
    return grammar.read_tactic(text, where="here")


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("theorem a1" + PROOF, "theorem", "a1"),
        ("def a : N := N.s N.z", "def", "a"),
        ("noncomputable def a1 (n : N) : N := N.s n", "def", "a1"),
        ("inductive a1 : Type where | c1 | c2", "inductive", "a1"),
        ("instance a1 : K1 N := ⟨N.z⟩", "instance", "a1"),
        ("noncomputable instance a1 : K1 N := K1.mk N.z", "instance", "a1"),
        ("theorem a1 : ∀ p q : Prop, p → q → p := fun p q x _ => x", "theorem", "a1"),
    ],
)
def test_declarations_that_are_allowed(text, kind, name):
    assert declaration(text) == grammar.Step(kind=kind, name=name, text=text)


@pytest.mark.parametrize(
    "text", ["case a1 => exact And.intro x y", "have a1 : p → q := fun z => y z"]
)
def test_tactics_that_are_allowed(text):
    assert tactic(text).name == "a1"


ATTACKS = [
    "",
    " ",
    "axiom a1 : False",
    "unsafe def a1 : N := N.z",
    "opaque a1 : N := N.z",
    "set_option debug.skipKernelTC true",
    "set_option debug.skipKernelTC true in theorem a1" + PROOF,
    "@[simp] theorem a1" + PROOF,
    "attribute [instance] a1",
    "#eval a1",
    "#print a1",
    "theorem a1" + PROOF + "\n#eval 1",
    "theorem a1" + PROOF + "\r#eval a1",
    "theorem a1" + PROOF + "\u2028#eval a1",
    "theorem a1\t(p : Prop) (x : p) : p := x",
    "theorem a1\u00a0(p : Prop) (x : p) : p := x",
    "theorem a1" + PROOF + " -- done",
    "theorem a1" + PROOF + " /- done",
    "/- theorem a1" + PROOF,
    "theorem «a1»" + PROOF,
    "theorem a1 : «False» := x",
    "syntax a1 : term",
    "macro a1 : term => x",
    "notation a1 => x",
    "open Lean",
    "namespace a1",
    "end Lean",
    "import Lean",
    "universe w1",
    "theorem a1" + PROOF + " theorem b1" + PROOF,
    "theorem a1" + PROOF + " := x",
    "theorem a1 : False := by trivial",
    "theorem a1 : False := sorry",
    "theorem a1 : False := sorryAx False Bool.true",
    "theorem a1 : False := lcProof",
    "theorem a1 : False := b1_r0003",
    "theorem a1_r0003" + PROOF,
    "theorem a1 : False := x _r0003",
    "theorem a1 : vcrt_end_r0000 := x",
    "theorem _root_.a1" + PROOF,
    "theorem Lean.a1" + PROOF,
    "theorem a1.b1" + PROOF,
    "theorem And" + PROOF,
    "theorem fun" + PROOF,
    "theorem a1 (p : Prop : p := x",
    "theorem a1 (p : Prop⟩ : p := x",
    "theorem a1 : ) p ( := x",
    "theorem a1 : p :=",
    "theorem a1 : := x",
    "theorem a1 := x",
    "theorem a1 : p where x",
    "theorem a1 : p := ?b1",
    "theorem a1 : p := x | y",
    "theorem a1 : p := x; y",
    'theorem a1 : p := "x"',
    "theorem a1 : p := 1",
    "theorem a1 : p := x.1",
    "theorem a1 : p := {x}",
    "theorem a1 : p := x ▸ y",
    "theorem a1 : p := f!x",
    "theorem a1 : p := (have b1 : q := x)",
    "def a1 : N := N.z deriving Repr",
    "inductive a1 : Type where",
    "inductive a1 : Prop where | c1",
    "inductive a1 : Type where | c1 (x : N)",
    "noncomputable theorem a1" + PROOF,
    "noncomputable inductive a1 : Type where | c1",
    "noncomputable",
    "instance : K1 N := ⟨N.z⟩",
    "instance a1 : OfNat N := ⟨N.z⟩",
    "instance a1 : And p q := ⟨x, y⟩",
    "instance a1 (p : Prop) : K1 N := ⟨N.z⟩",
    "instance a1 : K2 N := ⟨N.z⟩",
    CLASS,
    "abbrev a1 : N := N.z",
    "example : p := x",
    "variable (p : Prop)",
    "local instance a1 : K1 N := ⟨N.z⟩",
    "theorem a1" + PROOF + " " * 2000,
]


@pytest.mark.parametrize("text", ATTACKS)
def test_declarations_that_are_refused(text):
    with pytest.raises(MalformedInputError):
        declaration(text)


@pytest.mark.parametrize(
    "text",
    [
        *ATTACKS,
        "case a1",
        "case a1 =>",
        "case a1 => exact",
        "case a1 => skip",
        "case a1 b1 => exact x",
        "case _ => exact x",
        "case a1 => exact x; exact y",
        "case a1 => exact ?b1",
        "case a1 => exact case b1",
        "have : p := x",
        "have a1 := x",
        "have a1 : p",
        "have a1 : p := x := y",
        "exact x",
        "refine ?a1",
        "theorem a1" + PROOF,
    ],
)
def test_tactics_that_are_refused(text):
    with pytest.raises(MalformedInputError):
        tactic(text)


FRAGMENTS = st.sampled_from(
    [
        *("theorem", "def", "instance", "have", "case", "exact", "fun", "a1", "x", "p", "K1", "N"),
        *("Prop", "And.intro", "(", ")", "⟨", "⟩", ":", ":=", "=>", "→", ",", "∀", "_", "|", " "),
        *("#", "--", "/-", "«", "\n", ";", "@[", "]", ".", "?", "_r0001", "axiom", "sorry", "by"),
        *("end", "unsafe", "1", "'", '"', "\\", "λ", "∃", "∧", "set_option", "\t", "\u200b"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(
    head=st.sampled_from(["theorem a1 : p := x", "case a1 => exact x", "have a1 : p := x", ""]),
    parts=st.lists(FRAGMENTS, max_size=12),
    spaced=st.booleans(),
)
def test_nothing_that_is_accepted_holds_a_forbidden_token(head, parts, spaced):
    text = head + " " + (" " if spaced else "").join(parts)
    for read in (declaration, tactic):
        try:
            read(text)
        except MalformedInputError:
            continue
        assert not set(text) & set("#«\n\t;@[].?'\"\\1λ∃∧\u200b-/") - set(".1")
        words = text.replace("(", " ").replace(")", " ").split()
        assert not {"axiom", "sorry", "by", "end", "unsafe", "set_option"} & set(words)
        assert "_r0001" not in text


@pytest.mark.parametrize("schema", [schema.name for schema in SCHEMAS])
def test_sampled_episodes_are_allowed(schema):
    for seed in range(150):
        episode = sample_episode(schema, seed)
        program = read_program(episode)
        assert [step.text for step in program.steps] == [o.payload for o in episode.operations]


def episode(initial: Json, *operations: tuple[str, Json]) -> Episode:
    return Episode(
        environment="lean",
        schema="by_hand",
        initial=initial,
        operations=tuple(Operation(signature=s, payload=p) for s, p in operations),
        provenance=Provenance(source="by hand", generator="by hand", seed=0),
    )


PLAIN = {"form": "declarations", "setup": [], "probes": []}
FACTS = {"form": "tactics", "statement": "theorem t1 : p", "opening": None, "closing": None}


@pytest.mark.parametrize(
    "initial",
    [
        None,
        [],
        {},
        {"form": "other"},
        {**PLAIN, "more": 1},
        {"form": "declarations", "setup": []},
        {**PLAIN, "setup": "class K1"},
        {**PLAIN, "setup": [1]},
        {**PLAIN, "setup": ["instance a1 : K1 N := ⟨N.z⟩"]},
        {**PLAIN, "setup": [CLASS + "\n#eval 1"]},
        {**PLAIN, "setup": ["class K1 where v1 : N"]},
        {**PLAIN, "setup": ["class K1 (α : Type) extends K2 where v1 : α"]},
        {**PLAIN, "probes": ["OfNat N"]},
        {**PLAIN, "probes": ["And p"]},
        {**PLAIN, "setup": [CLASS], "probes": ["K1 N #"]},
        {**FACTS, "statement": None},
        {**FACTS, "statement": "theorem t1 : p := x"},
        {**FACTS, "statement": "def t1 : p"},
        {**FACTS, "opening": "exact x"},
        {**FACTS, "opening": "refine x\n#eval 1"},
        {**FACTS, "opening": 1},
        {**FACTS, "closing": "exact ?a1"},
        {**FACTS, "closing": "refine x"},
    ],
)
def test_starts_that_are_refused(initial):
    with pytest.raises(MalformedInputError):
        read_program(episode(initial))


def test_starts_that_are_allowed():
    read_program(episode({**PLAIN, "setup": [CLASS], "probes": ["K1 N"]}))
    read_program(episode({**FACTS, "opening": "refine And.intro ?a1 ?b1"}))


@pytest.mark.parametrize(
    "operations",
    [
        [("a1", 1)],
        [("a1", ["theorem a1" + PROOF])],
        [("b1", "theorem a1" + PROOF)],
        [("a1", "theorem a1" + PROOF), ("a1", "theorem a1" + PROOF)],
    ],
)
def test_operations_that_are_refused(operations):
    with pytest.raises(MalformedInputError):
        read_program(episode(PLAIN, *operations))


def test_renaming_touches_whole_first_components_only():
    names = {"a1": "a1_r0001", "K1": "K1_r0001"}
    text = "theorem a1 (b1 : K1.v1) : a11 xa1 x.a1 := ⟨a1, K1.mk⟩"
    expected = "theorem a1_r0001 (b1 : K1_r0001.v1) : a11 xa1 x.a1 := ⟨a1_r0001, K1_r0001.mk⟩"
    assert grammar.rename(text, names) == expected
