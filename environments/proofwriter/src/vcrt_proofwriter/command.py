"""Declare the commands ``vcrt lift proofwriter`` and ``vcrt theories``, and print how files are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vcrt.cli.commands import Command

if TYPE_CHECKING:
    from vcrt_proofwriter.answers import Answers

proofwriter = Command(
    function="vcrt_proofwriter:lift_proofwriter",
    summary="episodes of four steps from ProofWriter theories",
    view="vcrt.cli.lifted_view:print_lifted",
    asks_verifier=True,
)
#: The commands that this package adds.
CHAPTERS = {
    "certify": {
        "theories": Command(
            function="vcrt_proofwriter:theories",
            summary="check ProofWriter files by their answers",
            view="vcrt_proofwriter.command:print_answers",
        )
    }
}


def print_answers(answers: Sequence[Answers]) -> None:
    """Print how each file was answered; raises :class:`VcrtError` if an answer or a model differs."""
    from rich.table import Table

    from vcrt.cli.options import plain_console
    from vcrt.errors import VcrtError

    table = Table(
        "file", "theories", "questions", "as labelled", "clingo as labelled", "models equal"
    )
    for one in answers:
        questions, theories = one.num_questions, one.num_theories
        table.add_row(
            str(one.file),
            str(theories),
            str(questions),
            f"{one.num_right}/{questions}",
            f"{one.num_right_by_clingo}/{questions}",
            f"{one.num_equal}/{theories}",
        )
    plain_console().print(table)
    if differing := sum(one.num_differing for one in answers):
        raise VcrtError("not every answer and model agrees", found=f"{differing} differ")
