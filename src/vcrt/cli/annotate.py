"""Print what replayed calls say of each tool and each pair of tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from vcrt.cli.options import plain_console, print_document, say

if TYPE_CHECKING:
    from vcrt.certification.annotations import Annotations


def print_annotations(found: Annotations, *, json: bool = False) -> None:
    """Print the tools, the pairs, and what was never tried.

    Args:
        json: Print one document: tools with annotations as MCP lists them, pairs, declared hints, and all evidence.
    """
    from vcrt.cli.schedule import left_out_lines, require_all
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
