"""What ``vcrt lift`` does: find episodes in material of the user's own, certify them, and say what was found.

Theories and traces give many candidates of four steps, which are certified like sampled ones and can be frozen as a
dataset. A Lean file gives a report on each theorem, for 2 to 8 steps.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from vcrt.certification.config import given
from vcrt.certification.lean_lifting import LiftedTheorem, lift_lean
from vcrt.certification.merged import replay_merged
from vcrt.certification.pairs import OrdersReport, PairReport, report_orders
from vcrt.certification.replay import EpisodeReplays
from vcrt.certification.run import CertifiedSchema, certify
from vcrt.cli.counts import print_counts
from vcrt.cli.progress import showing_progress
from vcrt.environments.clrs.lifting import lift_windows
from vcrt.environments.contract import Environment, Episode
from vcrt.environments.lean.lifting import Refusal
from vcrt.environments.proofwriter.files import Refused
from vcrt.environments.proofwriter.lifting import lift_theories
from vcrt.environments.registry import load_environment
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.processes import Backend
from vcrt.records.freezing import make_dataset

#: Refused lines that are printed in full; the rest are counted.
SHOWN_REFUSALS = 20
_PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}


def lift_proofwriter(
    console: Console,
    files: Sequence[Path],
    *,
    limit: int | None,
    output: Path | None,
    jobs: int,
    backend: Backend,
) -> None:
    """Lift theories, certify what was found, and freeze it if ``output`` is given."""
    episodes: list[Episode] = []
    refusals: list[Refused] = []
    num_theories = 0
    for found in lift_theories(files, limit=limit):
        if isinstance(found, Refused):
            refusals.append(found)
        else:
            num_theories += 1
            episodes += found.episodes
    for refusal in refusals[:SHOWN_REFUSALS]:
        detail = f": {refusal.error.found}" if refusal.error.found else ""
        console.print(f"refused: {refusal.where}: {refusal.error.what}{detail}", **_PLAIN)
    console.print(
        f"{num_theories} theories read, {len(refusals)} refused, {len(episodes)} candidates",
        highlight=False,
    )
    _certify(console, episodes, output=output, jobs=jobs, backend=backend)


def lift_clrs(
    console: Console,
    algorithms: Sequence[str],
    *,
    num_runs: int,
    length: int,
    num_steps: int,
    seed: int,
    output: Path | None,
    jobs: int,
    backend: Backend,
) -> None:
    """Lift all windows of genuine runs; those of four steps are certified, longer ones reported one by one."""
    environment = load_environment("clrs")
    names = [environment.schema(algorithm).name for algorithm in algorithms]
    seeds = range(seed, seed + num_runs)
    episodes = []
    for name in names:
        windows = lift_windows(name, seeds, length, num_operations=num_steps)
        console.print(
            f"{len(windows)} windows of {num_steps} steps in {num_runs} runs of {name} on inputs of {length}",
            highlight=False,
        )
        episodes += windows
    if num_steps == given(()).preset.num_operations:
        _certify(console, episodes, output=output, jobs=jobs, backend=backend)
        return
    if output is not None:
        raise VcrtError(
            "only episodes of four steps can be frozen",
            found=f"--steps {num_steps} with --output",
            remedy="leave out one of the two",
        )
    for merged in replay_merged(environment, episodes):
        report = report_orders(merged.evidence)
        labels = [operation.signature for operation in report.episode.operations]
        console.print(f"\n{report.episode.provenance.generator}", highlight=False, soft_wrap=True)
        _print_orders(console, report, labels)


def lift_lean_files(console: Console, files: Sequence[Path], *, as_json: bool) -> None:
    """Report on the theorems of Lean files, by merged replay; raises if nothing in them could be judged."""
    environment = load_environment("lean")
    judged = 0
    documents: list[Json] = []
    for file in files:
        lifted = lift_lean(file, environment, _merged)
        judged += len(lifted.theorems)
        if as_json:
            documents.append(_lean_json(lifted.theorems, lifted.refused, str(file), lifted.digest))
            continue
        for theorem in lifted.theorems:
            where = f"{file}:{theorem.lifted.line}"
            console.print(f"\n{where} {theorem.lifted.theorem}", style="bold", soft_wrap=True)
            for number, step in enumerate(theorem.lifted.steps, start=1):
                console.print(f"  {number}. {step.text}", **_PLAIN)
            labels = [f"{n}. {s.label}" for n, s in enumerate(theorem.lifted.steps, start=1)]
            _print_orders(console, theorem.orders, labels)
        for refusal in lifted.refused:
            name = f" {refusal.theorem}" if refusal.theorem else ""
            console.print(
                f"\nrefused: {file}:{refusal.line}{name} ({refusal.cause})\n"
                f"  found: {refusal.found}\n  allowed: {refusal.allowed}",
                **_PLAIN,
            )
    if as_json:
        console.print_json(data=documents)
    if not judged:
        raise VcrtError(
            "nothing in these files could be judged",
            where=", ".join(map(str, files)),
            remedy="the lines above say what is allowed",
        )


def _merged(environment: Environment, episodes: Sequence[Episode]) -> list[EpisodeReplays]:
    return [merged.evidence for merged in replay_merged(environment, episodes)]


def _certify(
    console: Console,
    episodes: Sequence[Episode],
    *,
    output: Path | None,
    jobs: int,
    backend: Backend,
) -> None:
    if not episodes:
        raise VcrtError(
            "nothing was lifted", remedy="give more material, or a longer input with --length"
        )
    config = given(episodes)
    with ExitStack() as stack:
        progress = stack.enter_context(showing_progress(console))
        if output is not None:
            dataset = make_dataset(config, output, jobs=jobs, backend=backend, progress=progress)
        else:
            shards = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            schemas, _ = certify(config, shards, jobs=jobs, backend=backend, progress=progress)
    if output is None:
        _print_schemas(console, schemas)
        console.print("nothing was written; --output DIRECTORY freezes the certified episodes")
        return
    print_counts(console, dataset.manifest)
    console.print(
        f"dataset   {output}\nroot hash {dataset.manifest.root_hash}\nnext: vcrt verify {output}",
        highlight=False,
        soft_wrap=True,
    )


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


def _print_orders(console: Console, report: OrdersReport, labels: Sequence[str]) -> None:
    line = f"{report.num_legal} of {report.num_orders} orders are legal"
    if report.num_other_state:
        line += f"; {report.num_other_state} more are accepted, but end in another state"
    console.print(line, highlight=False)
    if report.reference_refusal is not None:
        refusal = report.reference_refusal
        step = "the whole" if refusal.step is None else labels[refusal.step]
        console.print(f"the order as it stands is refused at {step}: {refusal.reason}", **_PLAIN)
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
        console.print(f"somewhere without any effect: {names}", **_PLAIN)


def _lean_json(
    theorems: Sequence[LiftedTheorem], refused: Sequence[Refusal], file: str, digest: str
) -> Json:
    return {
        "file": file,
        "sha256": digest,
        "theorems": [
            {
                "name": theorem.lifted.theorem,
                "line": theorem.lifted.line,
                "steps": [
                    {"label": s.label, "text": s.text, "line": s.line} for s in theorem.lifted.steps
                ],
                "orders": theorem.orders.num_orders,
                "legal_orders": theorem.orders.num_legal,
                "other_state": theorem.orders.num_other_state,
                "pairs": [_pair_json(pair) for pair in theorem.orders.pairs],
            }
            for theorem in theorems
        ],
        "refused": [
            {
                "line": refusal.line,
                "theorem": refusal.theorem,
                "cause": refusal.cause,
                "found": refusal.found,
                "allowed": refusal.allowed,
            }
            for refusal in refused
        ],
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
