"""What ``vcrt lift`` does: find episodes in material of the user's own, certify them, and say what was found.

Theories and traces give many candidates of four steps, which are certified like sampled ones and can be frozen as a
dataset. Windows of 2 to 8 steps other than four are reported one by one, their orders counted by merged replay. Lean
files have a module of their own (:mod:`vcrt.cli.lean_files`).
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from vcrt.certification.config import given
from vcrt.certification.episodes import PAPER_PRESET
from vcrt.certification.lattice_replay import replay_merged
from vcrt.certification.pairs import report_orders
from vcrt.certification.run import CertifiedSchema, certify
from vcrt.cli.counts import print_counts
from vcrt.cli.lift_options import require_within
from vcrt.cli.orders_view import MERGED, PLAIN, print_orders
from vcrt.cli.progress import showing_progress
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.clrs.lifting import MAX_SEED, MIN_STEPS, lift_windows
from vcrt.environments.clrs.reading import MAX_LENGTH
from vcrt.environments.contract import Environment, Episode
from vcrt.environments.proofwriter.files import Refused
from vcrt.environments.proofwriter.lifting import lift_theories
from vcrt.environments.registry import load_environment
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.storage import require_new

#: Refused lines that are printed in full; the rest are counted.
SHOWN_REFUSALS = 20


def lift_proofwriter(
    console: Console,
    files: Sequence[Path],
    *,
    limit: int | None,
    output: Path | None,
    jobs: int,
    backend: Backend,
) -> None:
    """Lift theories, certify what was found, and freeze it if ``output`` is given.

    Raises :class:`vcrt.errors.VcrtError` if nothing was found, if a file is not there or empty, and, before anything
    is read, if the output exists.
    """
    if limit is not None:
        require_within("--limit", limit, 1)
    for file in files:
        _require_material(file)
    if output is not None:
        require_new(output, VcrtError)
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
        console.print(f"refused: {refusal.where}: {refusal.error.what}{detail}", **PLAIN)
    console.print(
        f"{counted(num_theories, 'theory', 'theories')} read, {len(refusals)} refused, "
        f"{counted(len(episodes), 'candidate')}",
        highlight=False,
    )
    if not num_theories:
        raise MalformedInputError(
            "no theory could be read",
            where=", ".join(map(str, files)),
            expected="JSON lines: ProofWriter's structured rows, or English theories with their questions",
            remedy="the lines above say what is wrong with each",
        )
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found="no theory with four steps of which exactly one pair must keep its order",
            remedy="give more theories, or theories with more rules that apply",
        )
    _certify(console, episodes, output=output, jobs=jobs, backend=backend)


def _require_material(file: Path) -> None:
    found = None
    if not file.exists():
        found = "no such file"
    elif file.is_dir():
        found = "a directory"
    elif not os.access(file, os.R_OK):
        found = "a file that you may not read"
    elif file.is_file() and file.stat().st_size == 0:
        found = "an empty file"
    if found is not None:
        raise MalformedInputError(
            "no theories there",
            where=str(file),
            found=found,
            expected="a file of JSON lines, one theory each",
        )


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
    """Lift all windows of genuine runs; those of four steps are certified, others reported one by one.

    Raises :class:`vcrt.errors.VcrtError` if there is no window, and, before anything is lifted, for a number out of
    range, an unknown algorithm or an output that exists.
    """
    require_within("--runs", num_runs, 1)
    require_within("--length", length, 2, MAX_LENGTH)
    require_within("--steps", num_steps, MIN_STEPS, MAX_LIFTED)
    require_within("--seed", seed, 0, MAX_SEED + 1 - num_runs)
    if output is not None and num_steps != PAPER_PRESET.num_operations:
        raise VcrtError(
            "only episodes of four steps can be frozen",
            found=f"--steps {num_steps} with --output",
            remedy="leave out one of the two",
        )
    environment = load_environment("clrs")
    names = list(dict.fromkeys(environment.schema(algorithm).name for algorithm in algorithms))
    if output is not None:
        require_new(output, VcrtError)
    seeds = range(seed, seed + num_runs)
    episodes = []
    for name in names:
        windows = lift_windows(name, seeds, length, num_operations=num_steps)
        console.print(
            f"{counted(len(windows), 'window')} of {counted(num_steps, 'step')} in {counted(num_runs, 'run')} of "
            f"{name} on inputs of {length}",
            highlight=False,
        )
        episodes += windows
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found=f"no run of {counted(num_steps, 'step')} or more",
            remedy="give a longer input with --length, more runs with --runs, or fewer --steps",
        )
    if num_steps == PAPER_PRESET.num_operations:
        _certify(console, episodes, output=output, jobs=jobs, backend=backend)
    else:
        _report(console, environment, episodes)


def _report(console: Console, environment: Environment, episodes: Sequence[Episode]) -> None:
    for episode in episodes:
        (merged,) = replay_merged(environment, [episode])
        labels = [operation.signature for operation in episode.operations]
        console.print(f"\n{episode.provenance.source}, {episode.provenance.generator}", **PLAIN)
        print_orders(console, report_orders(merged.evidence), labels)
    console.print(f"\n{MERGED}", **PLAIN)


def _certify(
    console: Console,
    episodes: Sequence[Episode],
    *,
    output: Path | None,
    jobs: int,
    backend: Backend,
) -> None:
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
