"""Print the results for a log of calls, in words and as JSON: traces, certified episodes, and which calls must wait.

Not covered: schedules by themselves (see :mod:`vcrt.words.schedule_words`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from vcrt.api.logs import LiftedCalls, LiftedLog
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion
from vcrt.cli.certify import say_dataset
from vcrt.cli.options import plain_console, print_document, say
from vcrt.cli.schedule import left_out_lines, require_all
from vcrt.environments.mcp_commands import McpServer
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.words.certificate_words import EXCLUSIONS, legal_text
from vcrt.words.schedule_words import edge_reason, schedule_document


def print_log(
    lifted: LiftedLog,
    *,
    environment: str | McpServer,
    output: Path | None,
    window: int | None,
    json: bool = False,
) -> None:
    """Print the results for a log; raises an error if nothing certifies, or if calls are in no episode.

    Args:
        json: Print the report for machines.
    """
    console = plain_console(aside=json)
    if json:
        print_document(log_document(lifted))
    else:
        say(console, *log_lines(lifted))
    if lifted.dataset is not None:
        say_dataset(console, lifted.dataset, environment)
    require_all(lifted.left_out)
    require_some(lifted, output, window)


def log_lines(lifted: LiftedLog) -> list[str]:
    """Give the report on a log: each episode with the pairs that must keep their order, then the log's totals."""
    lines = left_out_lines(lifted.left_out)
    for calls in lifted.calls:
        lines += ["", *_calls_lines(calls)]
    lines += ["", *_summary(lifted)]
    return lines


def _calls_lines(calls: LiftedCalls) -> list[str]:
    number = calls.episode.num_operations
    last = calls.first + number - 1
    lines = [f"{calls.trace.name}, calls {calls.first} to {last}: {_outcome(calls)}"]
    lines += [f"  {n:>2}  {one.signature}" for n, one in enumerate(calls.episode.operations)]
    schedule = calls.schedule
    if schedule is None:
        return [*lines, f"  no relations, {calls.problem}"]
    for edge in schedule.edges:
        verb = {"observes": "before", "data flow": "feeds", "not compared": "before"}.get(
            edge.kind, edge.kind
        )
        lines.append(f"  {edge.first} {verb} {edge.second} ({edge.kind}): {edge_reason(edge)}")
    free = number * (number - 1) // 2 - len(schedule.order.pairs)
    waves = counted(len(schedule.waves), "wave")
    return [*lines, f"  {counted(free, 'pair')} in any order; {waves} in place of {number}"]


def _outcome(calls: LiftedCalls) -> str:
    outcome = calls.outcome
    if isinstance(outcome, CertifiedEpisode):
        return f"certified, {legal_text(outcome)}"
    return f"not certified as an episode, {outcome.kind}: {EXCLUSIONS[outcome.kind]} ({outcome.detail})"


def _summary(lifted: LiftedLog) -> list[str]:
    num_calls = sum(len(run.trace.calls) for run in lifted.traces)
    logged = sum(run.num_logged for run in lifted.traces)
    certified = sum(isinstance(calls.outcome, CertifiedEpisode) for calls in lifted.calls)
    refused = sum(run.num_refused for run in lifted.traces)
    lines = [
        f"{counted(len(lifted.traces), 'trace')} of {counted(num_calls, 'call')}, {logged:,} of them with an output "
        f"in the log; {certified:,} of {counted(len(lifted.calls), 'episode')} certified",
    ]
    if refused:
        verb = "was" if refused == 1 else "were"
        lines.append(
            f"{counted(refused, 'call')} {verb} refused in the trace itself: that is the output there"
        )
    lines += [run.warning for run in lifted.traces if run.warning is not None]
    for finding in lifted.failed_checks:
        lines += [f"{finding.check}: {finding.problem}", f"  to mend: {finding.remedy}"]
    return lines


def require_some(lifted: LiftedLog, output: Path | None, window: int | None) -> None:
    """Raise an error if a log gave no result: no dataset if one was requested, otherwise no schedule."""
    if lifted.dataset or (output is None and any(calls.schedule for calls in lifted.calls)):
        return
    if any(isinstance(calls.outcome, CertifiedEpisode) for calls in lifted.calls):
        return
    kinds = Counter(c.outcome.kind for c in lifted.calls if isinstance(c.outcome, Exclusion))
    shorter = window is None and any(calls.episode.num_operations > 4 for calls in lifted.calls)
    fits = "context_dependent" in kinds or "too_large" in kinds
    raise VcrtError(
        "no episode of the log certifies" + (": nothing was written" if output else ""),
        where=None if output is None else str(output),
        found=", ".join(f"{n} {kind} ({EXCLUSIONS[kind]})" for kind, n in sorted(kinds.items())),
        expected="an episode whose pairs have the same relation in every context",
        remedy="--window 4 certifies shorter episodes, each four calls that follow each other"
        if shorter and fits
        else "read the lines above: they say why for each episode",
    )


def log_document(lifted: LiftedLog) -> dict[str, Json]:
    """Return the report on a log as JSON, with each schedule and its certificates."""
    return {
        "traces": [
            {
                "name": run.trace.name,
                "calls": len(run.trace.calls),
                "outputs_in_log": run.num_logged,
                "refused_in_trace": run.num_refused,
                "warning": run.warning,
                "departure": None
                if run.departure is None
                else {
                    "call": run.departure.place,
                    "logged": run.departure.logged,
                    "replayed": run.departure.replayed,
                },
            }
            for run in lifted.traces
        ],
        "left_out": [one.to_json() for one in lifted.left_out],
        "complete": not lifted.left_out,
        "episodes": [_calls_document(calls) for calls in lifted.calls],
        "failed_checks": [
            {"check": f.check, "found": f.problem, "remedy": f.remedy} for f in lifted.failed_checks
        ],
    }


def _calls_document(calls: LiftedCalls) -> dict[str, Json]:
    value: dict[str, Json] = {
        "trace": calls.trace.name,
        "first": calls.first,
        "episode": calls.episode.episode_id,
        "certified": isinstance(calls.outcome, CertifiedEpisode),
        "outcome": _outcome(calls),
    }
    if calls.schedule is None:
        return {**value, "problem": calls.problem}
    names = [operation.signature for operation in calls.episode.operations]
    return {**value, "schedule": schedule_document(calls.schedule, names)}
