"""What ``vcrt lift lean`` does: report on the theorems of Lean files, for people or as JSON.

A file that cannot be read is reported and does not stop the others. Orders are counted by merged replay
(:mod:`vcrt.certification.lattice_replay`), which asks Lean once for all orders that reach equal states by the same
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vcrt.certification.lattice_replay import replay_merged
from vcrt.certification.lean_lifting import LeanLift, LiftedTheorem, lift_lean
from vcrt.certification.pairs import PairReport
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.cli.options import plain_console
from vcrt.cli.orders_view import MERGED, PLAIN, print_orders
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.environments.calls import Noting, counting, hearing
from vcrt.environments.contract import Environment, Episode
from vcrt.environments.registry import load_environment
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.progress import Task


def lift_lean_files(console: Console, files: Sequence[Path], *, as_json: bool) -> None:
    """Report on the theorems of Lean files; raises if one cannot be read, or if nothing in them could be judged."""
    environment = counting(load_environment("lean").thorough())
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        task = progress.task("lift", len(files), "files")
        with hearing(Noting(task)):
            _lift(console, files, environment, task, as_json=as_json)


def _lift(
    console: Console, files: Sequence[Path], environment: Environment, task: Task, *, as_json: bool
) -> None:
    judged = refused = 0
    unread: list[MalformedInputError] = []
    documents: list[Json] = []
    for place, file in enumerate(files):
        if place:
            task.advance()
        try:
            lifted = lift_lean(file, environment, _merged)
        except MalformedInputError as error:
            unread.append(error)
            documents.append(
                {"file": str(file), "error": {"what": error.what, "found": error.found}}
            )
            if not as_json and len(files) > 1:
                console.print(f"\nrefused: {error}", **PLAIN)
            continue
        judged += len(lifted.theorems)
        refused += len(lifted.refused)
        documents.append(_file_json(lifted, str(file)))
        if not as_json:
            _print_file(console, lifted, str(file))
    if as_json:
        console.print_json(data=documents)
    elif judged:
        console.print(f"\n{MERGED}\n{_summary(judged, refused)}", **PLAIN)
    if unread and len(files) == 1:
        raise unread[0]
    if unread:
        raise MalformedInputError(
            f"{len(unread)} of {counted(len(files), 'file')} could not be read",
            where=", ".join(str(error.where) for error in unread),
            remedy="check their names and what is in them; the other files are reported above",
        )
    if not judged:
        raise VcrtError(
            "nothing in these files could be judged",
            where=", ".join(map(str, files)),
            remedy="what stands above says what is allowed",
        )


def _merged(environment: Environment, episodes: Sequence[Episode]) -> list[EpisodeReplays]:
    return [merged.evidence for merged in replay_merged(environment, episodes)]


def _print_file(console: Console, lifted: LeanLift, file: str) -> None:
    for theorem in lifted.theorems:
        where = f"{file}:{theorem.lifted.line} {theorem.lifted.theorem}"
        console.print(f"\n{where}", style="bold", **PLAIN)
        for number, step in enumerate(theorem.lifted.steps, start=1):
            console.print(f"  {number}. {step.text}", **PLAIN)
        labels = [f"{n}. {s.label}" for n, s in enumerate(theorem.lifted.steps, start=1)]
        print_orders(console, theorem.orders, labels)
    for refusal in lifted.refused:
        name = f" {refusal.theorem}" if refusal.theorem else ""
        console.print(
            f"\nrefused: {file}:{refusal.line}{name} ({refusal.cause})\n"
            f"  found: {refusal.found}\n  allowed: {refusal.allowed}",
            **PLAIN,
        )


def _summary(judged: int, refused: int) -> str:
    return f"{judged} judged in vcrt's own prelude, without the file's imports; {refused} refused"


def _file_json(lifted: LeanLift, file: str) -> Json:
    return {
        "file": file,
        "sha256": lifted.digest,
        "replay": "merged",
        "theorems": [_theorem_json(theorem) for theorem in lifted.theorems],
        "refused": [
            {
                "line": refusal.line,
                "theorem": refusal.theorem,
                "cause": refusal.cause,
                "found": refusal.found,
                "allowed": refusal.allowed,
            }
            for refusal in lifted.refused
        ],
    }


def _theorem_json(theorem: LiftedTheorem) -> Json:
    return {
        "name": theorem.lifted.theorem,
        "line": theorem.lifted.line,
        "steps": [{"label": s.label, "text": s.text, "line": s.line} for s in theorem.lifted.steps],
        "orders": theorem.orders.num_orders,
        "legal_orders": theorem.orders.num_legal,
        "other_state": theorem.orders.num_other_state,
        "pairs": [_pair_json(pair) for pair in theorem.orders.pairs],
    }


def _pair_json(pair: PairReport) -> Json:
    return {
        "first": pair.first,
        "second": pair.second,
        "relation": pair.relation,
        "before": pair.before,
        "always_first": pair.always_first,
        "reason": pair.reason,
        "contexts": {str(verdict): count for verdict, count in pair.contexts.items()},
    }
