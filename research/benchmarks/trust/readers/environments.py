"""Readers of theories, proofs and native episodes, with valid inputs of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from fuzz_watch import Target

from readers.forms import dumped, text_of
from vcrt.environments.contract import Rejected
from vcrt.records import audit
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import Dataset
from vcrt.records.manifest import audit_name
from vcrt.records.rows import read_rows as rows_of_view
from vcrt_clrs.environment import ClrsEnvironment
from vcrt_lean import grammar
from vcrt_lean.program import read_program
from vcrt_proofwriter.english import parse_question, parse_theory
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_proofwriter.files import Refused, parse_atom, parse_rule, read_row, read_rows

#: A file is read row by row; so many are asked for.
MOST_ROWS = 2_000


STRUCTURED = {
    "id": "AttNeg-OWA-D2-1",
    "triples": {
        "triple1": {"text": "Bob is red.", "representation": '("Bob" "is" "red" "+")'},
        "triple2": {"text": "x", "representation": '("the cat" "likes" "Bob" "+")'},
    },
    "rules": {
        "rule1": {
            "text": "x",
            "representation": '((("someone" "is" "red" "+") ("someone" "is" "big" "~"))'
            ' -> ("someone" "is" "kind" "+"))',
        }
    },
    "questions": {
        "Q1": {
            "question": "Bob is kind.",
            "answer": True,
            "QDep": "1",
            "QLen": "",
            "representation": '("Bob" "is" "kind" "+")',
        }
    },
}


ENGLISH = {
    "id": "RelNeg-OWA-D1-7",
    "theory": "Bob is red. The cat likes Bob. If someone is red and not big then they are kind. "
    "All red, kind people are quiet. If something likes the cat then it does not see Bob.",
    "questions": [{"question": "Bob is not red.", "answer": "False"}],
}


def proofwriter_readers(place: Path) -> Iterator[Target]:
    file = place / "rows.jsonl"

    def rows(data: bytes) -> object:
        file.write_bytes(data)
        found = list(islice(read_rows(file), MOST_ROWS))
        return _refusal(found[-1]) if found else None

    yield Target(
        name="ProofWriter structured row",
        form="JSON line",
        seeds=dumped(STRUCTURED),
        read=lambda data: _refusal(read_row(text_of(data), "fuzz")),
        weight=25,
        is_json=True,
    )
    yield Target(
        name="ProofWriter English row",
        form="JSON line",
        seeds=dumped(ENGLISH),
        read=lambda data: _refusal(read_row(text_of(data), "fuzz")),
        weight=25,
        is_json=True,
    )
    yield Target(
        name="ProofWriter file",
        form="JSON lines",
        seeds=(b"\n".join(dumped(STRUCTURED, ENGLISH)) + b"\n",),
        read=rows,
        weight=6,
    )
    yield Target(
        name="s-expression",
        form="text",
        seeds=(
            b'("Bob" "is" "red" "+")',
            b'((("someone" "is" "red" "+") ("someone" "is" "big" "~")) -> ("someone" "is" "kind" "+"))',
        ),
        read=lambda data: (parse_rule if b"->" in data else parse_atom)(text_of(data)),
        weight=80,
    )
    yield Target(
        name="English theory",
        form="text",
        seeds=(
            ENGLISH["theory"].encode(),
            b"Anne is big. If Anne is big and not red then Anne is kind.",
        ),  # type: ignore[attr-defined]
        read=lambda data: parse_theory(text_of(data), assumption="OWA"),
        weight=40,
    )
    yield Target(
        name="English question",
        form="text",
        seeds=(b"Bob is not red.", b"The bald eagle does not see the cat."),
        read=lambda data: parse_question(text_of(data)),
        weight=50,
    )


def lean_readers() -> Iterator[Target]:
    def line(data: bytes) -> object:
        text = text_of(data)
        read: Callable[..., object] = (
            grammar.read_tactic if text[:4] in ("case", "have") else grammar.read_declaration
        )
        return read(text, where="fuzz")

    yield Target(
        name="Lean step",
        form="text",
        seeds=(
            "have h1 : And q p := ⟨b, a⟩".encode(),
            b"case a => exact Or.inl h",
            b"theorem thm1 (p q : Prop) (h : And p q) : q := h.right",
            "noncomputable def def1 : N → N := fun n => N.s n".encode(),
            b"inductive Ty1 : Type where | con1 | con2",
        ),
        read=line,
        weight=60,
    )


def episode_readers(dataset: Dataset) -> Iterator[Target]:
    """Native episodes, as certificates and datasets bring them: read and replayed forwards and backwards."""
    lean_episode = {
        "environment": "lean",
        "schema": "lift",
        "initial": {
            "form": "tactics",
            "statement": "theorem thm1 (p q : Prop) (h1 : p) (h2 : q) : And p q",
            "opening": "refine And.intro ?a ?b",
            "closing": None,
        },
        "operations": [
            {"signature": "a", "payload": "case a => exact h1"},
            {"signature": "b", "payload": "case b => exact h2"},
        ],
        "provenance": {"source": "s", "generator": "g", "seed": 1},
    }
    lean_declarations = {
        **lean_episode,
        "initial": {
            "form": "declarations",
            "setup": ["class Cls1 (α : Type) where f : α"],
            "probes": ["Cls1 Bool"],
        },
        "operations": [
            {"signature": "ins1", "payload": "instance ins1 : Cls1 Bool := Cls1.mk Bool.true"},
            {"signature": "def1", "payload": "def def1 : N → N := fun n => N.s n"},
        ],
    }

    def replay(environment: Any) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            episode = audit.episode_of_json(data.decode("utf-8", "replace"), "fuzz")
            places = list(range(len(episode.operations)))
            for sequence in (places, places[::-1]):
                state = environment.initial_state(episode)
                for place in sequence:
                    answer = environment.step(state, episode.operations[place])
                    if isinstance(answer, Rejected):
                        break
                    state = answer.state
                environment.canonical(state)
            return episode

        return read

    for name, environment in (
        ("clrs", ClrsEnvironment()),
        ("proofwriter", ProofWriterEnvironment()),
    ):
        rows = rows_of_view(dataset.path / audit_name(name), AUDIT_COLUMNS)
        yield Target(
            name=f"{name} episode",
            form="JSON",
            seeds=tuple(row["episode"].encode() for row in rows[:2]),
            read=replay(environment),
            weight=6,
            is_json=True,
        )
    yield Target(
        name="Lean episode",
        form="JSON",
        seeds=dumped(lean_episode, lean_declarations),
        read=lambda data: read_program(
            audit.episode_of_json(data.decode("utf-8", "replace"), "fuzz")
        ),
        weight=10,
        is_json=True,
    )


def _refusal(row: object) -> object:
    """A refusal is a value of lifting; here it is the named error that it holds."""
    if isinstance(row, Refused):
        raise row.error
    return row
