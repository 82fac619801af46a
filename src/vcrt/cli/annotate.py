"""Run the command annotate: what replayed calls say of each tool and each pair of tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

import vcrt
from vcrt.cli.options import (
    Jobs,
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
)
from vcrt.cli.progress import PATIENCE, showing_progress


def annotate(
    sources: Annotated[tuple[Path, ...], tyro.conf.Positional] = (),
    environment: str | None = None,
    schemas: tuple[str, ...] = (),
    episodes: int = 20,
    seed: int = 0,
    window: int | None = None,
    risk: float = 0.1,
    redact: bool = False,
    json: bool = False,
    jobs: Jobs = None,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Say of each tool whether it changes the state, and of each pair of tools when their calls commute.

    Every statement counts replayed calls, with an exact bound of the chance that the next source has the opposite, and
    with the relations of arguments that were never tried. Conditions on arguments are learned on some sources and
    tested on others. Declared hints that replay contradicts are listed.

    Example: vcrt annotate trace.jsonl --environment shop.py:Shop

    Args:
        sources: Frozen datasets, or logs of calls with --environment; without any, episodes are sampled.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS.
        schemas: Without sources: the environment's schemas to sample, all by default.
        episodes: Without sources: sampled episodes of each schema.
        seed: Without sources: seed of the first episode.
        window: Replay each window of so many calls of a log, in place of whole traces.
        risk: Give a hint as true if the chance that the next source has the opposite is bounded by this.
        redact: Print and keep the SHA-256 of a log's outputs and refusals in place of them; arguments are not hidden.
        json: Print one document: tools with annotations as MCP lists them, pairs, declared hints, and all evidence.
    """
    set_verifier_timeout(verifier_timeout)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt.annotate(
            sources,
            environment=environment,
            schemas=schemas,
            episodes=episodes,
            seed=seed,
            window=window,
            risk=risk,
            redact=redact,
            jobs=jobs,
            progress=progress,
        )
    from vcrt.cli.log_view import left_out_lines, require_all
    from vcrt.words.annotation_words import (
        PAIR_COLUMNS,
        TOOL_COLUMNS,
        annotation_document,
        declared_lines,
        pair_rows,
        summary_lines,
        tool_rows,
        untried_lines,
    )

    if json:
        print_document(annotation_document(found))
        require_all(found.missing)
        return
    console = plain_console()
    say(console, *left_out_lines(found.missing))
    _print_table(console, TOOL_COLUMNS, tool_rows(found))
    _print_table(console, PAIR_COLUMNS, pair_rows(found))
    say(console, *untried_lines(found), *declared_lines(found), *summary_lines(found))
    require_all(found.missing)


def _print_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows, if there are any, without the columns that are empty in all."""
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    table = Table(*(columns[place] for place in kept))
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    if rows:
        console.print(table, markup=False)
