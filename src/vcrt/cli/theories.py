"""What ``vcrt theories`` does: read ProofWriter files, answer every question, compare with gold and with clingo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vcrt.environments.proofwriter.clingo_engine import clingo_model
from vcrt.environments.proofwriter.engine import ground, model, truth
from vcrt.environments.proofwriter.english import parse_english_row
from vcrt.environments.proofwriter.rows import LabelledTheory, json_rows, read_text
from vcrt.environments.proofwriter.structured import parse_structured
from vcrt.errors import VcrtError


def check_theories(console: Console, files: tuple[Path, ...]) -> None:
    """Print one line a file; raises if an answer differs from the gold label or a model from clingo's."""
    table = Table("file", "theories", "questions", "as labelled", "models equal to clingo's")
    differing = 0
    for file in files:
        theories = questions = labelled = equal = 0
        for item in read_theories(file):
            grounding = ground(item.theory)
            facts = model(grounding)
            theories += 1
            equal += facts == {atom.text for atom in clingo_model(item.theory)}
            questions += len(item.questions)
            labelled += sum(
                truth(question.atom, facts, item.theory.assumption) == question.answer
                for question in item.questions
            )
        differing += questions - labelled + theories - equal
        table.add_row(
            str(file),
            str(theories),
            str(questions),
            f"{labelled}/{questions}",
            f"{equal}/{theories}",
        )
    console.print(table)
    if differing:
        raise VcrtError("not every answer and model agrees", found=f"{differing} differ")


def read_theories(path: Path) -> Iterator[LabelledTheory]:
    """The theories of a file, structured or English as each row shows; a bad row raises and none is skipped."""
    text = read_text(path)
    for (where, row), line in zip(json_rows(text, str(path)), text.split("\n"), strict=False):
        parse = parse_structured if "triples" in row else parse_english_row
        yield parse(line, where=where)
