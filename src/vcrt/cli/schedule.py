"""Run the command schedule: which steps may run at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

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
from vcrt.errors import VcrtError
from vcrt.hashing import Json

if TYPE_CHECKING:
    from vcrt.api.schedules import Scheduled


def schedule(
    source: Annotated[str, tyro.conf.Positional],
    environment: str | None = None,
    dataset: Path | None = None,
    window: int | None = None,
    redact: bool = False,
    json: bool = False,
    mermaid: bool = False,
    dot: bool = False,
    jobs: Jobs = None,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Say which calls of a log, or steps of an episode, may run at once, which must wait, and why each waits.

    Example: vcrt schedule trace.jsonl --environment shop.py:Shop

    Args:
        source: A log of calls, with --environment; or an episode as environment/schema/seed, or a certificate's file.
        environment: The environment of the log's calls: a registered name, or FILE.py:CLASS.
        dataset: Take the sealed evidence of this dataset for an episode.
        window: Schedule each window of so many calls, in place of whole traces.
        redact: Print and keep the SHA-256 of a log's outputs and refusals in place of them; arguments are not hidden.
        json: Print one document, with the certificate of each edge.
        mermaid: Print flow charts for Mermaid.
        dot: Print graphs for Graphviz.
    """
    set_verifier_timeout(verifier_timeout)
    if sum((json, mermaid, dot)) > 1:
        raise VcrtError(
            "options that do not go together", expected="one of --json, --mermaid, --dot"
        )
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt.schedule(
            source,
            environment=environment,
            dataset=dataset,
            window=window,
            redact=redact,
            jobs=jobs,
            progress=progress,
        )
    from vcrt.cli.log_view import left_out_lines, require_all
    from vcrt.words.schedule_words import (
        as_dot,
        as_mermaid,
        schedule_lines,
    )

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
            say(console, *schedule_lines(one.schedule, one.names))
    require_all(missing)
    if all(one.schedule is None for one in found):
        raise VcrtError(
            "nothing could be scheduled",
            where=source,
            found=found[0].problem,
            remedy="what stands above says why for each trace",
        )


def _document(one: Scheduled) -> dict[str, Json]:
    from vcrt.words.schedule_words import schedule_document

    left_out: Json = [each.to_json() for each in one.left_out]
    if one.schedule is None:
        return {
            "name": one.name,
            "problem": one.problem,
            "complete": False,
            "left_out": left_out,
        }
    found = schedule_document(one.schedule, one.names)
    complete = one.schedule.complete and not left_out
    return {"name": one.name, **found, "complete": complete, "left_out": left_out}
