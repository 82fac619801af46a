"""Run the command ``vcrt lift lean``: episodes in Lean files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

import vcrt_lean
from vcrt.cli.lifted_view import report_files
from vcrt.cli.options import VerifierTimeout, plain_console, set_verifier_timeout
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.errors import VcrtError


def lean(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    project: Path | None = None,
    steps: int = 4,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Report on the proofs of Lean files, by windows of consecutive steps: how many orders are legal, which commute.

    The Lean of the files' own project judges them, with their imports. The exit status is 2 if a file cannot be read or
    nothing can be judged; the rest is reported all the same.

    Example: vcrt lift lean Proofs.lean --project .

    Args:
        inputs: Lean files of the project.
        project: The folder of their Lake project, built by lake build; must be given.
        steps: Steps of a window, 2 to 8.
        json: Print the report for machines.
    """
    if project is None:
        raise VcrtError(
            "lift lean needs a Lake project with a Lean toolchain: name its folder with --project"
        )
    set_verifier_timeout(verifier_timeout)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt_lean.lift_lean(inputs, project=project, steps=steps, progress=progress)
        report_files(inputs, found, json=json)
