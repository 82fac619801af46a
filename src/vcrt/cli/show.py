"""Run the command show: one episode, by its name or from a certificate's file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

import vcrt
from vcrt.cli.options import VerifierTimeout, plain_console, set_verifier_timeout
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.errors import VcrtError


def show(
    episode: Annotated[str, tyro.conf.Positional],
    dataset: Path | None = None,
    json: bool = False,
    pair: tuple[int, int] | None = None,
    brief: bool = False,
    full: bool = False,
    environment: tuple[str, ...] = (),
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Show one episode: its steps, which of them commute and which do not, and the verifier's own evidence for it.

    Example: vcrt show clrs/bellman_ford/7

    Args:
        episode: An episode as environment/schema/seed, or a certificate's file.
        dataset: Take the sealed evidence of this dataset; without it, the episode is replayed on the spot.
        json: Print one self-contained document, which `vcrt verify --certificate` checks.
        pair: Show only these two steps, by their numbers.
        brief: Leave out the initial state, the single orders and the evidence of each pair; so it is in a terminal.
        full: Show all of it, in a terminal too; so it is where the output is piped.
        environment: Environments that are not registered, as FILE.py:CLASS.
    """
    set_verifier_timeout(verifier_timeout)
    if sum((brief, full, json, pair is not None)) > 1:
        raise VcrtError(
            "options that do not go together",
            expected="one of --brief, --full, --json and --pair",
        )
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        shown = vcrt.show(episode, dataset, environments=environment, progress=progress)
    if json:
        from vcrt.records.certificate import document_text

        print(document_text(shown.examined.document()))
        return
    from vcrt.cli.certificate_view import print_shown

    console = plain_console()
    brief = brief or (console.is_terminal and not full and pair is None)
    print_shown(console, shown, pair=pair, brief=brief)
