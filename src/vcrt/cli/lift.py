"""Run the commands lift log, django, lean, rocq, proofwriter and clrs: episodes in the user's own material."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

import vcrt
from vcrt.cli.certify import print_dataset
from vcrt.cli.options import (
    Backend,
    Jobs,
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
    with_named_paths,
)
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.lifting import Lifted
    from vcrt.certification.lifted_files import FileLift, LiftedTheorem
    from vcrt.certification.pairs import OrdersReport
    from vcrt.certification.run import CertifiedSchema

#: Where the numbers of legal orders come from.
MERGED = (
    "The numbers of orders come from merged replay: orders that reach equal states by the same steps are continued "
    "once for all of them."
)


def lean(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    project: Path | None = None,
    steps: int = 4,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Report on the proofs of Lean files, by windows of consecutive steps: how many orders are legal, which commute.

    The Lean of the files' own project judges them, with their imports. The exit status is 2 if a file cannot be read or
    nothing can be judged; the rest is reported all the same.

    Example: vcrt lift lean Proofs.lean --project .

    Args:
        inputs: Lean files of the project.
        project: The folder of their Lake project, built by lake build; must be given.
        steps: Steps of a window, 2 to 8.
        json: Print the report for machines.
    """
    if project is None:
        raise VcrtError(
            "lift lean needs a Lake project with a Lean toolchain: name its folder with --project"
        )
    set_verifier_timeout(verifier_timeout)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt.lift_lean(inputs, project=project, steps=steps, progress=progress)
        _report(inputs, found, json=json)


def rocq(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    steps: int = 4,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Report on the proofs of Rocq files, by windows of consecutive steps: how many orders are legal, which commute.

    Each window starts in the state that the file has before it. The exit status is 2 if a file cannot be read or
    nothing can be judged; the rest is reported all the same.

    Example: vcrt lift rocq Proofs.v

    Args:
        inputs: Rocq files over the standard library.
        steps: Steps of a window, 2 to 8.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt.lift_rocq(inputs, steps=steps, progress=progress)
        _report(inputs, found, json=json)


def _report(
    inputs: Sequence[Path],
    outcomes: Iterable[FileLift | MalformedInputError],
    *,
    json: bool,
) -> None:
    """Print what was found in each file as it comes, and raise what must end the command."""
    console, judged, refused = plain_console(), 0, Counter[str]()
    documents, unread = list[Json](), list[MalformedInputError]()
    for file, found in zip(inputs, outcomes, strict=True):
        if isinstance(found, MalformedInputError):
            unread.append(found)
            error: Json = {"what": found.what, "found": found.found}
            documents.append({"file": str(file), "error": error})
            if not json and len(inputs) > 1:
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
    _require_judged(inputs, judged, unread)


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
            remedy="what stands above says what is allowed",
        )


def proofwriter(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    output: Path | None = None,
    limit: int | None = None,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Certify episodes of four steps from ProofWriter theories, every order replayed by itself.

    Example: vcrt lift proofwriter theories.jsonl

    Args:
        inputs: ProofWriter files, structured or English rows.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished
            work lies in OUTPUT.shards.
        limit: The most episodes of a schema from one theory; all by default.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console()
    with showing_progress(console) as progress:
        lifted = vcrt.lift_proofwriter(
            inputs, output=output, limit=limit, jobs=jobs, backend=backend, progress=progress
        )
    _print_lifted(console, lifted)


def clrs(
    inputs: Annotated[tuple[str, ...], tyro.conf.Positional],
    output: Path | None = None,
    runs: int = 20,
    length: int = 8,
    steps: int = 4,
    seed: int = 0,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Lift all windows of genuine runs of CLRS algorithms; those of four steps are certified, others reported.

    Example: vcrt lift clrs mst_kruskal --runs 10

    Args:
        inputs: Names of CLRS algorithms.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished
            work lies in OUTPUT.shards.
        runs: Genuine runs whose windows are lifted.
        length: Length of those runs' inputs.
        steps: Steps of a window, 2 to 8; others than 4 are reported, not frozen, by this process alone.
        seed: Seed of the first run.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console()
    with showing_progress(console) as progress:
        lifted = vcrt.lift_clrs(
            inputs,
            output=output,
            runs=runs,
            length=length,
            steps=steps,
            seed=seed,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
    _print_lifted(console, lifted)


def log(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    environment: str,
    window: int | None = None,
    redact: bool = False,
    output: Path | None = None,
    json: bool = False,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Certify the calls in logs of tool calls: which commute, which do not, and why.

    Example: vcrt lift log trace.jsonl --environment shop.py:Shop

    Args:
        inputs: Logs: JSON lines of messages with tool calls, of MCP's tools/call, or of plain names and arguments.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS.
        window: Certify each window of so many calls, in place of whole traces.
        redact: Print and keep the SHA-256 of a log's outputs and refusals in place of them; arguments are not hidden.
        output: A new dataset of the certified episodes; nothing is written without it.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console(aside=json)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        lifted = vcrt.lift_log(
            inputs,
            environment=environment,
            window=window,
            redact=redact,
            output=output,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
    from vcrt.cli.log_view import log_document, log_lines, require_all, require_some

    if json:
        print_document(log_document(lifted))
    else:
        say(console, *log_lines(lifted))
    if lifted.dataset is not None:
        print_dataset(console, lifted.dataset, environment)
    require_all(lifted.left_out)
    require_some(lifted, output, window)


def django(
    project: Annotated[Path, tyro.conf.Positional],
    settings: str | None = None,
    app: str | None = None,
    window: int | None = None,
    database: str | None = None,
    python: str | None = None,
    rows: Path | None = None,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Judge branches of migrations that `makemigrations --merge` would ask about: what commutes, which order is right.

    This runs the project's code (settings, apps, migrations) in a worker process. Its databases are never connected
    to: an empty SQLite in memory takes their place or, with --database, a new database on that server.

    Example: vcrt lift django myproject

    Args:
        project: The folder of manage.py.
        settings: The module of its settings; by default what DJANGO_SETTINGS_MODULE or manage.py says.
        app: This app alone.
        window: Judge consecutive operations of each migration, so many at a time, in place of branches.
        database: sqlite, or postgresql://USER@HOST/NAME of a server on which a database is made and dropped.
        python: The Python of the project's own environment, 3.11 or later, if vcrt is not installed there.
        rows: A file of SQL that puts rows where two branches begin; without it, empty tables get a few made ones.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console(aside=json)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt.lift_django(
            project,
            settings=settings,
            app=app,
            window=window,
            database=database,
            python=python,
            rows=rows,
            progress=progress,
        )
    from vcrt.cli.django_view import django_document, django_lines

    if json:
        print_document(django_document(found))
        return
    say(console, *django_lines(found))
    for one in found.windows:
        if one.orders is not None:
            say(console, f"\n{one.window.steps[0].app}.{one.window.steps[0].migration}")
            _print_orders(console, one.orders, [step.text for step in one.window.steps])


Source = (
    Annotated[Any, tyro.conf.subcommand("log", constructor=with_named_paths(log))]
    | Annotated[Any, tyro.conf.subcommand("django", constructor=with_named_paths(django))]
    | Annotated[Any, tyro.conf.subcommand("lean", constructor=with_named_paths(lean))]
    | Annotated[Any, tyro.conf.subcommand("rocq", constructor=with_named_paths(rocq))]
    | Annotated[Any, tyro.conf.subcommand("proofwriter", constructor=with_named_paths(proofwriter))]
    | Annotated[Any, tyro.conf.subcommand("clrs", constructor=with_named_paths(clrs))]
)


def lift(
    source: Annotated[tyro.conf.OmitSubcommandPrefixes[Source], tyro.conf.arg(name="")],
) -> None:
    """Find episodes in your own logs, migrations, theories, Lean and Rocq files, and say which steps commute.

    Theories and windows of four steps of runs are certified like sampled episodes: every order is replayed by itself.
    For proofs, and for windows of another length, the numbers of legal orders come from merged replay: orders that
    reach equal states by the same steps are continued once for all of them.

    Example: vcrt lift lean Proofs.lean --project .

    Args:
        source: The kind of material.
    """


def _print_lifted(console: Console, lifted: Lifted) -> None:
    for orders in lifted.orders:
        source = orders.episode.provenance
        say(console, f"\n{source.source}, {source.generator}")
        _print_orders(console, orders, [one.signature for one in orders.episode.operations])
    if lifted.orders:
        say(console, f"\n{MERGED}")
    elif lifted.dataset is not None:
        print_dataset(console, lifted.dataset)
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
        _print_orders(console, theorem.orders, labels)
    for refusal in lifted.refused:
        name = f" {refusal.theorem}" if refusal.theorem else ""
        say(
            console,
            f"\nrefused: {file}:{refusal.line}{name} ({refusal.cause})",
            f"  found: {refusal.found}",
            f"  allowed: {refusal.allowed}",
        )


def _print_orders(console: Console, report: OrdersReport, labels: Sequence[str]) -> None:
    """Print the number of legal orders and the relation of every pair of steps, which go by their labels."""
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


def _file_document(lifted: FileLift, file: str) -> Json:
    return {
        "file": file,
        "sha256": lifted.digest,
        "replay": "merged",
        "theorems": [_theorem_document(theorem) for theorem in lifted.theorems],
        "refused": [
            {name: getattr(one, name) for name in ("line", "theorem", "cause", "found", "allowed")}
            for one in lifted.refused
        ],
    }


def _theorem_document(theorem: LiftedTheorem) -> Json:
    return {
        "name": theorem.lifted.theorem,
        "line": theorem.lifted.line,
        "steps": [{"label": s.label, "text": s.text, "line": s.line} for s in theorem.lifted.steps],
        "orders": theorem.orders.num_orders,
        "legal_orders": theorem.orders.num_legal,
        "other_state": theorem.orders.num_other_state,
        "certificates_sha256": theorem.orders.digest,
        "pairs": [
            {
                "first": pair.first,
                "second": pair.second,
                "relation": pair.relation,
                "before": pair.before,
                "always_first": pair.always_first,
                "reason": pair.reason,
                "contexts": {str(verdict): count for verdict, count in pair.contexts.items()},
            }
            for pair in theorem.orders.pairs
        ],
    }
