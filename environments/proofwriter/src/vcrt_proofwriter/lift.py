"""Certify episodes from ProofWriter theories: ``vcrt lift proofwriter``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vcrt.api.lifting import Lifted, certified, require_within, some
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, tell
from vcrt.storage import require_new
from vcrt_proofwriter.files import Refused
from vcrt_proofwriter.lifting import lift_theories

#: Refused lines that are told one by one; the rest are counted.
SHOWN_REFUSALS = 20


def lift_proofwriter(
    files: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    limit: int | None = None,
    jobs: int | None = None,
    backend: Backend = "loky",
    progress: Progress = SILENT,
) -> Lifted:
    """Certify episodes of four steps from ProofWriter theories, every order replayed by itself.

    Example: vcrt lift proofwriter theories.jsonl

    Args:
        files: JSON lines, each an official structured row or an English theory with its questions.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished work
            lies in OUTPUT.shards.
        limit: The most episodes of a schema from one theory.

    Raises:
        VcrtError: Nothing was found, a file is not there or empty; or, before anything is read, `output` exists.
    """
    if limit is not None:
        require_within("limit", limit, 1)
    paths = [Path(file) for file in some(files)]
    for file in paths:
        _require_material(file)
    if output is not None:
        require_new(Path(output), VcrtError)
    found = list(lift_theories(paths, limit=limit))
    theories = [one for one in found if not isinstance(one, Refused)]
    refusals = [one for one in found if isinstance(one, Refused)]
    episodes = [episode for theory in theories for episode in theory.episodes]
    for refusal in refusals[:SHOWN_REFUSALS]:
        detail = f": {refusal.error.found}" if refusal.error.found else ""
        tell(f"refused: {refusal.where}: {refusal.error.what}{detail}")
    tell(
        f"{counted(len(theories), 'theory', 'theories')} read, {len(refusals)} refused, "
        f"{counted(len(episodes), 'candidate')}"
    )
    if not theories:
        raise MalformedInputError(
            "no theory could be read",
            where=", ".join(map(str, paths)),
            expected="JSON lines: ProofWriter's structured rows, or English theories with their questions",
            remedy="the lines above say what is wrong with each",
        )
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found="no theory with four steps of which exactly one pair must keep its order",
            remedy="give more theories, or theories with more rules that apply",
        )
    return certified(episodes, output, jobs, backend, progress)


def _require_material(file: Path) -> None:
    found = None
    if not file.exists():
        found = "no such file"
    elif file.is_dir():
        found = "a directory"
    elif not os.access(file, os.R_OK):
        found = "a file that you may not read"
    elif file.is_file() and file.stat().st_size == 0:
        found = "an empty file"
    if found is not None:
        raise MalformedInputError(
            "no theories there",
            where=str(file),
            found=found,
            expected="a file of JSON lines, one theory each",
        )
