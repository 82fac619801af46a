"""What ``vcrt theories`` does: read ProofWriter files, answer every question, compare with gold and with clingo."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from vcrt.environments.proofwriter.clingo_engine import clingo_model
from vcrt.environments.proofwriter.engine import Facts, holding, truth
from vcrt.environments.proofwriter.files import read_theories
from vcrt.environments.proofwriter.rows import LabelledTheory, placed
from vcrt.errors import MalformedInputError, VcrtError


def check_theories(console: Console, files: tuple[Path, ...]) -> None:
    """Print one line a file; raises if an answer differs from the gold label or a model from clingo's."""
    table = Table(
        "file", "theories", "questions", "as labelled", "clingo as labelled", "models equal"
    )
    differing = 0
    for file in files:
        theories = questions = ours_right = theirs_right = equal = 0
        for item in read_theories(file):
            try:
                ours = holding(item.theory)
            except MalformedInputError as error:
                raise placed(error, item.where) from error
            theirs = clingo_model(item.theory)
            theories += 1
            equal += ours == theirs
            questions += len(item.questions)
            ours_right += num_as_labelled(item, ours)
            theirs_right += num_as_labelled(item, theirs)
        differing += 2 * questions - ours_right - theirs_right + theories - equal
        table.add_row(
            str(file),
            str(theories),
            str(questions),
            f"{ours_right}/{questions}",
            f"{theirs_right}/{questions}",
            f"{equal}/{theories}",
        )
    console.print(table)
    if differing:
        raise VcrtError("not every answer and model agrees", found=f"{differing} differ")


def num_as_labelled(item: LabelledTheory, facts: Facts) -> int:
    """How many of a theory's questions have their gold answer where these facts hold."""
    return sum(
        truth(question.atom, facts, item.theory.assumption) == question.answer
        for question in item.questions
    )
