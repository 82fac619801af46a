"""Run the commands ``vcrt lift proofwriter`` and ``vcrt theories``: ProofWriter's files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

import vcrt_proofwriter
from vcrt.cli.contents import Command
from vcrt.cli.lifted_view import print_lifted
from vcrt.cli.options import Backend, Jobs, VerifierTimeout, plain_console, set_verifier_timeout
from vcrt.cli.progress import showing_progress
from vcrt.errors import VcrtError


def proofwriter(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    output: Path | None = None,
    limit: int | None = None,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Certify episodes of four steps from ProofWriter theories, every order replayed by itself.

    Example: vcrt lift proofwriter theories.jsonl

    Args:
        inputs: ProofWriter files, structured or English rows.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished
            work lies in OUTPUT.shards.
        limit: The most episodes of a schema from one theory; all by default.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console()
    with showing_progress(console) as progress:
        lifted = vcrt_proofwriter.lift_proofwriter(
            inputs, output=output, limit=limit, jobs=jobs, backend=backend, progress=progress
        )
    print_lifted(console, lifted)


def theories(files: Annotated[tuple[Path, ...], tyro.conf.Positional]) -> None:
    """Read ProofWriter files, answer every question, and compare with the gold answers and with clingo.

    Example: vcrt theories meta-test.jsonl

    Args:
        files: JSON lines, each an official structured row or an English theory with its questions.
    """
    if not files:
        raise VcrtError("which files?", expected="at least one", remedy="vcrt theories FILE...")
    table = Table(
        "file", "theories", "questions", "as labelled", "clingo as labelled", "models equal"
    )
    answers = vcrt_proofwriter.theories(files)
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


#: What this package adds to the commands.
CHAPTERS = {"certify": {"theories": Command(theories, "check ProofWriter files by their answers")}}
