"""Print the findings of lifters: the relation of every pair, file by file, or what was certified for each schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from vcrt.cli.certify import say_dataset
from vcrt.cli.options import plain_console, say
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.lifting import Lifted
    from vcrt.certificates.pairs import OrdersReport
    from vcrt.replay.lifted_files import FileLift, LiftedTheorem
    from vcrt.replay.run import CertifiedSchema

#: Where the numbers of legal orders come from.
MERGED = (
    "The numbers of orders come from merged replay: orders that reach equal states by the same steps are continued "
    "once for all of them."
)


def print_files(
    outcomes: Iterable[FileLift | MalformedInputError],
    *,
    files: Sequence[Path],
    json: bool = False,
) -> None:
    """Print the findings of each file as soon as they are there, and raise an error that must end the command.

    Args:
        json: Print the report for machines.
    """
    console, judged, refused = plain_console(), 0, Counter[str]()
    documents, unread = list[Json](), list[MalformedInputError]()
    for file, found in zip(files, outcomes, strict=True):
        if isinstance(found, MalformedInputError):
            unread.append(found)
            error: Json = {"what": found.what, "found": found.found}
            documents.append({"file": str(file), "error": error})
            if not json and len(files) > 1:
                say(console, f"\nrefused: {found}")
            continue
        judged += len(found.theorems)
        refused.update(refusal.cause for refusal in found.refused)
        documents.append(_file_document(found, str(file)))
        if not json:
            _print_file(console, found, str(file))
    if json:
        console.print_json(data=documents)
    elif judged:
        causes = ", ".join(f"{number} {cause}" for cause, number in sorted(refused.items()))
        said = f"{refused.total()} refused" + (f" ({causes})" if causes else "")
        say(console, f"\n{MERGED}", f"{counted(judged, 'window')} judged; {said}")
    _require_judged(files, judged, unread)


def _require_judged(
    files: Sequence[Path], judged: int, unread: Sequence[MalformedInputError]
) -> None:
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
            remedy="read the lines above: they say what is allowed",
        )


def print_lifted(lifted: Lifted) -> None:
    """Print the certified dataset, or the findings about each window."""
    console = plain_console()
    for orders in lifted.orders:
        source = orders.episode.provenance
        say(console, f"\n{source.source}, {source.generator}")
        print_orders(console, orders, [one.signature for one in orders.episode.operations])
    if lifted.orders:
        say(console, f"\n{MERGED}")
    elif lifted.dataset is not None:
        say_dataset(console, lifted.dataset)
    else:
        _print_schemas(console, lifted.schemas)
        say(console, "nothing was written; --output DIRECTORY freezes the certified episodes")


def _print_schemas(console: Console, schemas: Sequence[CertifiedSchema]) -> None:
    table = Table("schema", "candidates", "certified", "left out")
    for schema in schemas:
        kinds = Counter(exclusion.kind for exclusion in schema.exclusions)
        table.add_row(
            schema.series.name,
            str(schema.num_candidates),
            str(schema.num_episodes),
            ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none",
        )
    console.print(table)


def _print_file(console: Console, lifted: FileLift, file: str) -> None:
    for theorem in lifted.theorems:
        where = f"{file}:{theorem.lifted.line} {theorem.lifted.theorem}"
        say(console, f"\n{where}", style="bold")
        steps = theorem.lifted.steps
        for number, step in enumerate(steps, start=1):
            say(console, f"  {number}. {step.text}" + (f"  ({step.span})" if step.span else ""))
        labels = [f"{n}. {s.label}" for n, s in enumerate(steps, start=1)]
        print_orders(console, theorem.orders, labels)
    for refusal in lifted.refused:
        name = f" {refusal.theorem}" if refusal.theorem else ""
        say(
            console,
            f"\nrefused: {file}:{refusal.line}{name} ({refusal.cause})",
            f"  found: {refusal.found}",
            f"  allowed: {refusal.allowed}",
        )


def print_orders(console: Console, report: OrdersReport, labels: Sequence[str]) -> None:
    """Print the number of legal orders and the relation of every pair of steps; steps are named by their labels."""
    line = f"{report.num_legal} of {report.num_orders} orders are legal"
    if report.num_other_state:
        line += f"; {report.num_other_state} more are accepted, but end in another state"
    say(console, line)
    if report.reference_refusal is not None:
        refusal = report.reference_refusal
        step = "the whole" if refusal.step is None else labels[refusal.step]
        say(console, f"the order as it stands is refused at {step}: {refusal.reason}")
    table = Table("first", "second", "relation", "why")
    for pair in report.pairs:
        relation: str = pair.relation
        if pair.before is not None:
            relation = f"{labels[pair.before]} {pair.relation}"
        why = pair.reason
        if pair.relation == "uncertified" and pair.always_first is not None:
            why += f"; {labels[pair.always_first]} comes first in every legal order"
        table.add_row(labels[pair.first], labels[pair.second], relation, why)
    console.print(table, markup=False)
    if report.idle:
        names = ", ".join(labels[step] for step in report.idle)
        say(console, f"somewhere without any effect: {names}")


def _fields(one: object, *names: str) -> dict[str, Json]:
    return {name: getattr(one, name) for name in names}


def _file_document(lifted: FileLift, file: str) -> Json:
    return {
        "file": file,
        "sha256": lifted.digest,
        "replay": "merged",
        "theorems": [_theorem_document(theorem) for theorem in lifted.theorems],
        "refused": [
            _fields(one, "line", "theorem", "cause", "found", "allowed") for one in lifted.refused
        ],
    }


def _theorem_document(theorem: LiftedTheorem) -> Json:
    return {
        "name": theorem.lifted.theorem,
        "line": theorem.lifted.line,
        "steps": [_fields(step, "label", "text", "line") for step in theorem.lifted.steps],
        "orders": theorem.orders.num_orders,
        "legal_orders": theorem.orders.num_legal,
        "other_state": theorem.orders.num_other_state,
        "certificates_sha256": theorem.orders.digest,
        "pairs": [
            {
                **_fields(pair, "first", "second", "relation", "before", "always_first", "reason"),
                "contexts": {str(verdict): count for verdict, count in pair.contexts.items()},
            }
            for pair in theorem.orders.pairs
        ],
    }
