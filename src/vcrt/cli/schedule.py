"""Print which steps may run at once, and the annotations of each tool and each pair of tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.cli.options import plain_console, print_document, say
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.words.declarations import Target

if TYPE_CHECKING:
    from rich.console import Console

    from vcrt.api.schedules import Scheduled
    from vcrt.calls.annotations import Annotations
    from vcrt.calls.log_lifting import LeftOut
    from vcrt.calls.retries import Retries
    from vcrt.calls.reuse import Reuse


def print_schedules(
    found: Sequence[Scheduled],
    *,
    source: Path,
    json: bool = False,
    mermaid: bool = False,
    dot: bool = False,
) -> None:
    """Print each schedule; raises :class:`VcrtError` if there is none, or if calls are in no schedule.

    Args:
        json: Print one document, with the certificate of each edge.
        mermaid: Print flow charts for Mermaid.
        dot: Print graphs for Graphviz.
    """
    from vcrt.words.schedule_words import as_dot, as_mermaid, schedule_lines

    missing = tuple(dict.fromkeys(each for one in found for each in one.left_out))
    if json:
        print_document([_document(one) for one in found])
        require_all(missing)
        return
    console = plain_console()
    say(plain_console(aside=mermaid or dot), *left_out_lines(missing))
    for one in found:
        if one.schedule is None:
            say(plain_console(aside=True), f"{one.name}: no schedule, {one.problem}")
        elif mermaid or dot:
            print((as_mermaid if mermaid else as_dot)(one.schedule, one.names), end="")
        else:
            say(console, f"\n{one.name}", style="bold")
            say(console, *schedule_lines(one, one.schedule))
    if not (mermaid or dot):
        rests = dict.fromkeys(each for one in found if one.schedule for each in one.caveats)
        say(console, *([""] if rests else []), *rests)
    require_all(missing)
    if all(one.schedule is None for one in found):
        raise VcrtError(
            "nothing could be scheduled",
            where=str(source),
            found=found[0].problem,
            remedy="read the lines above: they say why for each trace",
        )


def print_retries(found: Sequence[Retries], *, json: bool = False) -> None:
    """Print which calls may be made again; raises :class:`VcrtError` if nothing can be said, or calls are left out.

    Args:
        json: Print one document.
    """
    from vcrt.words.retry_words import retries_document, retries_lines

    missing = tuple(dict.fromkeys(each for one in found for each in one.left_out))
    if json:
        print_document([retries_document(one) for one in found])
        require_all(missing)
        return
    say(plain_console(), *left_out_lines(missing))
    for one in found:
        say(plain_console(), f"\n{one.name}", style="bold")
        say(plain_console(), *retries_lines(one))
    require_all(missing)
    if all(one.problem is not None for one in found):
        raise VcrtError("no call could be made again", found=found[0].problem)


def print_reuse(found: Sequence[Reuse], *, json: bool = False) -> None:
    """Print which calls a cache could have answered; raises :class:`VcrtError` if calls are left out.

    Args:
        json: Print one document, with the key of each call.
    """
    from vcrt.words.reuse_words import reuse_document, reuse_lines, reuse_summary

    missing = tuple(dict.fromkeys(each for one in found for each in one.left_out))
    if json:
        print_document([reuse_document(one) for one in found])
    else:
        say(plain_console(), *left_out_lines(missing))
        for one in found:
            say(plain_console(), f"\n{one.name}", style="bold")
            say(plain_console(), *reuse_lines(one))
        say(plain_console(), "", *reuse_summary(found))
    require_all(missing)


def _document(one: Scheduled) -> dict[str, Json]:
    from vcrt.words.schedule_words import scheduled_document

    left_out: Json = [each.to_json() for each in one.left_out]
    if one.schedule is None:
        return {"name": one.name, "problem": one.problem, "complete": False, "left_out": left_out}
    found = scheduled_document(one, one.schedule)
    complete = one.schedule.complete and not left_out
    return {"name": one.name, **found, "complete": complete, "left_out": left_out}


def print_annotations(
    found: Annotations, *, json: bool = False, target: Target | None = None
) -> None:
    """Print the tools, the pairs, and what was never tried.

    Args:
        json: Print one document: tools with annotations as MCP lists them, pairs, declared hints, and all evidence.
        target: Print what may run at once as this framework declares it, with the evidence as comments.
    """
    if target is not None:
        from vcrt.words.declarations import declaration

        say(plain_console(aside=True), *left_out_lines(found.missing))
        require_all(found.missing)
        print(declaration(found, target), end="")
        return
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
    """Print rows, if there are any, without columns that are empty in all rows."""
    from rich.table import Table

    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    table = Table(*(columns[place] for place in kept))
    for row in rows:
        table.add_row(*(row[place] for place in kept))
    if rows:
        console.print(table, markup=False)


def left_out_lines(missing: Sequence[LeftOut]) -> list[str]:
    """Give the calls of a log that are in no certified episode, and why; these lines come first in a report."""
    lines = []
    for one in missing:
        lines.append(one.text)
        if one.departure is not None:
            lines += [
                f"  logged:   {one.departure.logged[:300]}",
                f"  replayed: {one.departure.replayed[:300]}",
                f"  to mend: {one.departure.remedy}",
            ]
    return lines


def require_all(missing: Sequence[LeftOut]) -> None:
    """Raise the error of a call that gives another output than the log has, if there is one."""
    from vcrt.api.logs import departed

    if (error := departed(missing)) is not None:
        raise error
