"""Report findings about branches of Django migrations, in plain words and as JSON. Text alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt_django.branches import DjangoLift, JudgedBranches, OnRows, Outcome

#: The most differences shown between two states, and the most characters of each.
MAX_DIFFERENCES, MAX_WIDTH = 6, 200
#: The most tables that are named at a time.
MAX_TABLES = 4
_WORDS: dict[Outcome, str] = {
    "either": "both orders run and end in one state",
    "first": "{0} must come first",
    "second": "{1} must come first",
    "other state": "both orders run, and end in different states: somebody must choose",
    "neither": "neither order runs",
}
_ADVICE: dict[Outcome, str] = {
    "either": "answer y to `makemigrations --merge {app}`",
    "first": "let the first migration of {1}'s branch depend on {0}, in place of a merge",
    "second": "let the first migration of {0}'s branch depend on {1}, in place of a merge",
    "other state": "let one branch depend on the other, in the order that you want; databases that have only one of "
    "them need care",
    "neither": "change one of the branches: no merge makes them run together",
}


def django_lines(lift: DjangoLift) -> list[str]:
    """Return the report on a project."""
    held = "what migrations and migrate put there" if lift.merges else "what migrations put there"
    held += " and the rows that were given" if lift.has_rows else ""
    lines = [f"{lift.project}: judged by {lift.verifier}; tables hold {held}"]
    elsewhere = lift.engine.rpartition(".")[2] not in lift.verifier.lower().replace(
        "sqlite ", "sqlite3 "
    )
    if elsewhere:
        lines.append(f"its settings name {lift.engine}, which may judge otherwise: see --database")
    for judged in lift.merges:
        lines += ["", *_merge_lines(judged, elsewhere=elsewhere)]
    judged_windows = [one for one in lift.windows if one.orders is not None]
    if lift.windows:
        relations = Counter(
            pair.relation for one in judged_windows if one.orders for pair in one.orders.pairs
        )
        told = ", ".join(f"{number} {name}" for name, number in sorted(relations.items()))
        lines.append(f"{counted(len(judged_windows), 'window')} judged; pairs: {told or 'none'}")
    for one in lift.windows:
        if one.problem is not None:
            lines.append(f"no verdict on {one.window.steps[0].label}: {one.problem}")
    return lines


def _difference_lines(differences: Sequence[str]) -> list[str]:
    lines = [f"    {line[:MAX_WIDTH]}{'...' * (len(line) > MAX_WIDTH)}" for line in differences]
    rest = len(lines) - MAX_DIFFERENCES
    return lines[:MAX_DIFFERENCES] + [f"    and {rest} more: see --json"] * (rest > 0)


def _merge_lines(judged: JudgedBranches, *, elsewhere: bool) -> list[str]:
    branches, steps = judged.branches, judged.steps
    named = branches.leaves
    lines = [
        f"{branches.app}: {named[0]} and {named[1]}, after {counted(branches.base, 'migration')}"
    ]
    lines += [f"  {n:>2}  {step.label}" for n, step in enumerate(steps, start=1)]
    is_shown = not judged.idle and not judged.unmade and judged.without_verdict is None
    right = ": a merge migration is right, in either order" * is_shown
    lines.append(_WORDS[judged.outcome].format(*named) + right * (judged.outcome == "either"))
    for first, refusal in zip((named, named[::-1]), judged.refusals, strict=True):
        if refusal is not None:
            lines.append(f"  {first[0]}, then {first[1]}: refused at {refusal}")
    if elsewhere and any(judged.refusals):
        lines.append(
            "  the project's own database may accept what this one refuses: see --database"
        )
    lines += _difference_lines(judged.differences)
    lines += _row_lines(judged)
    counts = Counter(pair.relation for pair in judged.pairs)
    told = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    lines.append(f"  {counted(len(judged.pairs), 'pair')} across the branches: {told or 'none'}")
    for pair in judged.pairs:
        if pair.relation != "commutes":
            head = f"{pair.first + 1} and {pair.second + 1}"
            if pair.before is not None:
                other = pair.second if pair.before == pair.first else pair.first
                head = f"{pair.before + 1} before {other + 1}"
            lines.append(f"  {head} ({pair.relation}): {pair.reason}")
            lines += _difference_lines(pair.differences)
    if judged.orders is not None:
        orders, ends = judged.orders, judged.orders.ends
        states = (
            f"in {counted(len(ends), 'state')} ({', '.join(map(str, ends))})"
            if ends[1:]
            else "in one state"
        )
        lines.append(
            f"  orders of these {counted(len(steps), 'operation')} that are accepted: {orders.accepted} of "
            f"{orders.number}{f', which end {states}' if ends else ''}"
        )
    advice = _ADVICE[judged.outcome].format(*named, app=branches.app)
    if judged.outcome == "either" and not is_shown:
        advice = f"give rows with --rows that the branches change; if they end in one state then, {advice}"
    lines.append(f"  to do: {advice}")
    return lines


def _row_lines(judged: JudgedBranches) -> list[str]:
    """Return the rows on which the verdict rests, and those about which it says nothing."""
    lines = list[str]()
    names = judged.branches.leaves
    for one in judged.rests_on:
        if one.made is not None or one.tables:
            lines.append(f"  {_rows_of(one)}: {_WORDS[one.outcome].format(*names)}")
    failing = judged.without_verdict
    if failing is not None:
        why = failing.refusals[0] or failing.refusals[1]
        lines.append(
            f"  {_rows_of(failing)} neither order runs, so they show nothing ({why}): give rows with --rows"
        )
    for model, why in judged.unmade:
        lines.append(f"  no rows could be made for {model} ({why}): give some with --rows")
    for step in judged.idle:
        lines.append(
            f"  {step + 1} changed nothing on these rows, in any order: of what it does to others nothing is shown"
        )
    for column in judged.drawn:
        lines.append(f"  not compared, as two runs of one order differ there: {column}")
    for receiver, why in judged.failed:
        lines.append(f"  {receiver} failed after the migrations before the branches: {why}")
    return lines


def _rows_of(found: OnRows) -> str:
    tables = ", ".join(found.tables[:MAX_TABLES])
    tables += f" and {len(found.tables) - MAX_TABLES} more" * (len(found.tables) > MAX_TABLES)
    if found.made is None:
        return f"with nothing in {tables}"
    kinds = f", with {' and '.join(found.made)}" if found.made else ""
    return f"on rows made for {tables or 'no table'}{kinds}"


def django_document(lift: DjangoLift) -> dict[str, Json]:
    """Return the report for machines."""
    return {
        "project": lift.project,
        "verifier": lift.verifier,
        "engine": lift.engine,
        "rows": lift.has_rows,
        "merges": [
            {
                "app": one.branches.app,
                "leaves": list(one.branches.leaves),
                "base": one.branches.base,
                "steps": [asdict(step) for step in one.steps],
                "outcome": one.outcome,
                "refusals": list(one.refusals),
                "differences": list(one.differences),
                "pairs": [asdict(pair) for pair in one.pairs],
                "orders": None if one.orders is None else one.orders.number,
                "accepted_orders": None if one.orders is None else one.orders.accepted,
                "orders_by_state": None if one.orders is None else list(one.orders.ends),
                "rests_on": [asdict(each) for each in one.rests_on],
                "without_verdict": None
                if one.without_verdict is None
                else asdict(one.without_verdict),
                "unmade": [list(each) for each in one.unmade],
                "changed_nothing": list(one.idle),
                "drawn": list(one.drawn),
                "failed_receivers": [list(each) for each in one.failed],
            }
            for one in lift.merges
        ],
        "windows": [
            {
                "steps": [asdict(step) for step in one.window.steps],
                "reduces": list(one.window.reduces),
                "problem": one.problem,
                "changed_nothing": [] if one.orders is None else list(one.orders.idle),
                "pairs": []
                if one.orders is None
                else [
                    {
                        "first": pair.first,
                        "second": pair.second,
                        "relation": pair.relation,
                        "before": pair.before,
                        "reason": pair.reason,
                    }
                    for pair in one.orders.pairs
                ],
            }
            for one in lift.windows
        ],
    }
