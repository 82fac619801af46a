"""Run the command ``vcrt lift rocq``: episodes in Rocq files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

import vcrt_rocq
from vcrt.cli.lifted_view import report_files
from vcrt.cli.options import VerifierTimeout, plain_console, set_verifier_timeout
from vcrt.cli.progress import PATIENCE, showing_progress


def rocq(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    steps: int = 4,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Report on the proofs of Rocq files, by windows of consecutive steps: how many orders are legal, which commute.

    Each window starts in the state that the file has before it. The exit status is 2 if a file cannot be read or
    nothing can be judged; the rest is reported all the same.

    Example: vcrt lift rocq Proofs.v

    Args:
        inputs: Rocq files over the standard library.
        steps: Steps of a window, 2 to 8.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt_rocq.lift_rocq(inputs, steps=steps, progress=progress)
        report_files(inputs, found, json=json)
