"""The whole way in one command: certify, freeze, verify, plan, train, evaluate once, report."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from vcrt.certification.config import sampled
from vcrt.certification.schema_names import select_schemas
from vcrt.cli.counts import print_counts
from vcrt.cli.progress import showing_progress
from vcrt.cli.reporting import print_report
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.protocol.evaluation import evaluate
from vcrt.protocol.experiment import create_experiment
from vcrt.protocol.planned_training import train
from vcrt.protocol.planning import frozen_plan
from vcrt.report.explorer import write_explorer
from vcrt.report.neighbours import EXPLORER_FILE, REPORT_FILE
from vcrt.storage import make_directory
from vcrt.training.run import RunConfig

ENVIRONMENTS = ("clrs", "lean", "proofwriter")
METHODS = ("canonical-grpo", "vcrt")


def run_demo(
    console: Console,
    output: Path,
    *,
    episodes: int,
    updates: int,
    runs: int,
    seed: int,
    jobs: int,
) -> Path:
    """Run the demo in a new numbered folder below ``output`` and return that folder."""
    began = time.monotonic()
    folder = _new_folder(output)
    dataset_path, experiment_path = folder / "dataset", folder / "experiment"
    schemas = select_schemas(ENVIRONMENTS)
    per_schema = {name: -(-episodes // len(some)) for name, some in schemas.items()}
    config = sampled(schemas, per_schema, seed=seed)
    with showing_progress(console) as progress:
        dataset = make_dataset(config, dataset_path, jobs=jobs, progress=progress)
        print_counts(console, dataset.manifest)
        agreement = verify_agreement(dataset, jobs=jobs, progress=progress)
        plan = frozen_plan(
            dataset_path,
            methods=METHODS,
            held_out=(),
            runs=runs,
            run=RunConfig(num_updates=updates),
            seed=seed,
        )
        experiment = create_experiment(plan, experiment_path)
        train(experiment, jobs=jobs, progress=progress)
        evaluate(experiment, jobs=jobs, progress=progress)
        explorer = folder / "report" / EXPLORER_FILE
        write_explorer(
            dataset, explorer, experiment=experiment, report=REPORT_FILE, progress=progress
        )
    print_report(console, experiment, folder / "report")
    vcrt = _command()
    lines = (
        f"{agreement.episodes} episodes, {agreement.agreed} of {agreement.replays} replays agree; "
        f"{time.monotonic() - began:.0f} s in all",
        f"root hash  {dataset.manifest.root_hash}",
        f"dataset    {dataset_path}",
        f"experiment {experiment_path}",
        f"report     {folder / 'report' / REPORT_FILE}",
        f"explorer   {explorer}",
        "",
        "try next:",
        f"  {vcrt} verify {dataset_path}",
        f"  {vcrt} environments validate clrs",
        f"  {vcrt} plan {dataset_path} --output {folder / 'ablation'} --methods vcrt no-orbit no-anti",
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)
    return folder


def _command() -> str:
    """How to call this very command from the shell: by its name only if the shell finds it."""
    called = Path(sys.argv[0])
    return called.name if shutil.which(called.name) else str(called)


def _new_folder(output: Path) -> Path:
    make_directory(output)
    number = 1
    while True:
        folder = output / f"demo-{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
