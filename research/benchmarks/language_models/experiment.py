"""The paper's experiment on pretrained language models, run by run, over as many calls and machines as it takes.

    git clone . build/frozen && cd build/frozen && git checkout COMMIT
    python research/benchmarks/language_models/experiment.py --parts words-clrs --minutes 120
    python research/benchmarks/language_models/tables.py

A part is one held-out environment of one comparison. First comes its search, on source items alone; then, for each
seed, an experiment of its own: plan, one run of every method with the settings that the search chose, one evaluation of
everything held out, a report. What is finished is read and what was interrupted goes on, so the same call is given
again until it says that all is done; ``--minutes`` interrupts it. On a GPU give ``--jobs``, and several calls of one
part each at a time, as many runs in all as there are cores: they wait for Python. The parts of ``qwen`` need
``fetch_models.py qwen2.5-coder-0.5b`` first. After each call, what there is of a part lies in
``research/benchmarks/results/language_models``: ``run.json`` (commands, minutes, machine, versions, commits, trials so
far), the search, and for each finished seed its plan, logs, scores of every item and tables. With these a new machine
goes on: it takes the trials and seeds that were finished, if the code, the data and the backbone are the same. A seed
that was interrupted begins anew there, as its checkpoints are too large to be kept. In a checkout all those seeds are
there: ``--results DIRECTORY``, and an ``--output`` of its own, make them again.

Plans and trials hold the hash of the library's source: run this in a tree that nobody edits, each time at one commit.
``tables.py`` puts the seeds together.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from gpu_results import commit, machine, versions
from report_contents import CONTENTS, to_json

from vcrt_train.config_files import load_config
from vcrt_train.policy.reference import instructions
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.planning import frozen_plan
from vcrt_train.protocol.search import read_search
from vcrt_train.report.gather import gather
from vcrt_train.training.methods import PAPER_METHODS

RESULTS = Path(__file__).parents[1] / "results" / "language_models"
#: By dataset, the options of ``vcrt certify``.
DATASETS = {
    "data": "--episodes 500",
    "hard-data": "--preset several --relations reduced --commutations omitted --distractors 2 --episodes 100",
    # No relations: what each step declares to read and to write.
    "footprints-data": "--view footprints --episodes 100",
}
FOLDS = ("clrs", "lean", "proofwriter")
#: Settings of all comparisons: what a validation on source items takes part in, and how often it is made.
VALIDATED = {"data.validation_share": 0.1, "schedule.validate_every": 100}
#: Settings of those that name relations by tokens which say nothing.
OPAQUE = {"model.relation_names": "opaque", "schedule.checkpoints": [100, 400]}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared on each fold: methods on a dataset, under settings beside those of a preset."""

    dataset: str = "data"
    methods: tuple[str, ...] = PAPER_METHODS
    seeds: int = 3
    #: Settings tried for each method; with none, all have the preset's.
    trials: int = 0
    trial_updates: int = 100
    preset: str | None = "smollm2-135m"
    settings: dict[str, Any] = field(default_factory=dict)


COMPARISONS = {
    "words": Comparison(trials=3, settings={"schedule.checkpoints": [400]}),
    "opaque": Comparison(
        methods=("canonical-grpo", "vcrt"),
        trials=3,
        settings=OPAQUE,
    ),
    # Whether ``opaque`` hangs on its learning rates, none of which is above 5.2e-5.
    "opaque-1e-4": Comparison(
        methods=("canonical-grpo", "vcrt"),
        seeds=1,
        settings=OPAQUE | {"optimiser.learning_rate": 1e-4},
    ),
    # Of the same items in the same order as ``opaque``.
    "opaque-ablations": Comparison(
        methods=("no-orbit", "shuffled-orbit", "no-anti"), trials=3, settings=OPAQUE
    ),
    "hard": Comparison(
        dataset="hard-data",
        methods=("canonical-grpo", "vcrt", "no-orbit", "shuffled-orbit", "no-anti"),
        seeds=2,
        settings={"schedule.checkpoints": [100, 400]},
    ),
    "footprints": Comparison(
        dataset="footprints-data",
        methods=("canonical-grpo", "vcrt", "no-orbit", "no-anti", "augmentation"),
        settings={"schedule.updates": 300, "schedule.checkpoints": [150, 300]},
    ),
    "qwen": Comparison(
        methods=("canonical-grpo", "vcrt"),
        seeds=1,
        preset=None,
        settings={
            "model.backbone": "build/models/qwen2.5-coder-0.5b",
            "model.relation_names": "words",
            "adapter.rank": 64,
            "adapter.alpha": 128.0,
            "optimiser.learning_rate": 5e-5,
            "schedule.updates": 200,
            "schedule.checkpoints": [200],
        },
    ),
}
PARTS = {f"{name}-{fold}": (one, fold) for name, one in COMPARISONS.items() for fold in FOLDS}
SEARCH = "search.json"
#: Where an unfinished search keeps its trials, below the part's folder.
TRIALS = f"{SEARCH}.trials"


def settings_of(one: Comparison) -> dict[str, Any]:
    """The settings of a run of the comparison, beside those of its preset."""
    return {**VALIDATED, **one.settings}


def searched(one: Comparison, fold: str) -> str:
    """The options of ``vcrt search`` beside its files."""
    settings = settings_of(one) | {
        "schedule.updates": one.trial_updates,
        "schedule.checkpoints": [one.trial_updates],
    }
    words = [f"--methods {' '.join(one.methods)} --held-out {fold} --trials {one.trials}"]
    words += [f"--settings {one.preset}"] * (one.preset is not None)
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        words.append(f"--{name.replace('_', '-')} {' '.join(map(str, values))}")
    return " ".join(words)


def called(arguments: str, seconds: float) -> int | None:
    """The status of a command of vcrt that is interrupted after so many seconds; None if it was."""
    print(f"{time.strftime('%H:%M:%S')} vcrt {arguments}", flush=True)
    # Large pages for what is allocated: some 4% less time.
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    process = subprocess.Popen([sys.executable, "-m", "vcrt", *arguments.split()], env=environment)
    try:
        return process.wait(timeout=max(seconds, 0.1))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait()
        return None


def certified(dataset: Path) -> Iterator[str]:
    """The commands that certify and verify a dataset, or whatever of that is missing."""
    if not dataset.exists():
        yield f"certify {DATASETS[dataset.name]} --output {dataset}"
    if not (dataset / "agreement.json").exists():
        yield f"verify {dataset}"


def plan_seed(part: str, seed: int, dataset: Path, folder: Path) -> None:
    """Plan one seed of a part by itself: the plan of all its seeds, with the others left out."""
    one, fold = PARTS[part]
    search = read_search(folder / SEARCH) if one.trials else None
    whole = frozen_plan(
        dataset,
        methods=one.methods,
        held_out=(fold,),
        runs=one.seeds,
        config=load_config(settings=one.preset, overrides=settings_of(one)),
        seed=0,
        search=search,
    )
    orders = {f"{fold}/{seed}": whole.episode_order_hashes[f"{fold}/{seed}"]}
    only = whole.model_copy(update={"seeds": (seed,), "episode_order_hashes": orders})
    create_experiment(only, folder / f"seed-{seed}", search=search)


def commands(part: str, options: argparse.Namespace) -> Iterator[str]:
    """The commands that are missing of a part, each asked for when those before it are done."""
    beside = "" if options.jobs is None else f" --jobs {options.jobs}"
    one, fold = PARTS[part]
    dataset, folder = options.output / one.dataset, options.output / part
    place: Path = options.results / part
    missing = [seed for seed in range(one.seeds) if not (place / f"seed-{seed}").exists()]
    if not missing:
        return
    yield from certified(dataset)
    if one.trials and not (folder / SEARCH).exists():
        yield f"search {dataset} --output {folder / SEARCH} {searched(one, fold)}{beside}"
    for seed in missing:
        experiment = folder / f"seed-{seed}"
        if not experiment.exists():
            plan_seed(part, seed, dataset, folder)
        if not (experiment / "scores.json").exists():
            yield f"train {experiment}{beside}"
            yield f"evaluate {experiment}{beside}"
        if not (experiment / "report" / "tables.txt").exists():
            yield f"report {experiment}"
        keep_seed(experiment, place / f"seed-{seed}")


def keep_seed(experiment: Path, place: Path) -> None:
    """Keep what a finished seed has shown: its tables, and all that a report is made from."""
    contents = gather(open_experiment(experiment))
    whole, place = place, place.with_name(f"{place.name}.partial")
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(experiment / "report" / "tables.txt", place / "tables.txt")
    (place / "plan.json").write_text(json.dumps(contents.plan, indent=1) + "\n")
    with gzip.GzipFile(place / CONTENTS, "wb", mtime=0) as file:
        file.write(json.dumps(to_json(contents)).encode())
    place.rename(whole)


def gathered(part: str, folder: Path, place: Path, minutes: float) -> None:
    """Keep what there is of a part's search, and add the call to what is known of the part."""
    one, fold = PARTS[part]
    place.mkdir(parents=True, exist_ok=True)
    if (folder / SEARCH).is_file():
        shutil.copyfile(folder / SEARCH, place / SEARCH)
    about = place / "run.json"
    known: dict[str, Any] = json.loads(about.read_text()) if about.exists() else {"calls": []}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    call = {
        "minutes": round(minutes, 1),
        "commit": commit(),
        "machine": machine(device) | {"instructions": instructions()},
        "versions": versions(),
    }
    calls = known["calls"] + [call] * (minutes > 0)
    trials = sorted((folder / TRIALS).glob("*-*.json"))
    value = {
        "certify": f"vcrt certify {DATASETS[one.dataset]} --output {one.dataset}",
        "search": f"vcrt search {one.dataset} --output {SEARCH} {searched(one, fold)}"
        if one.trials
        else None,
        "seeds": [seed for seed in range(one.seeds) if (place / f"seed-{seed}").exists()],
        "of": one.seeds,
        # Of a search that is not whole yet.
        "trials_so_far": {trial.name: json.loads(trial.read_text()) for trial in trials},
        "minutes": round(sum(call["minutes"] for call in calls), 1),
        "calls": calls,
        # Of the last of those calls that do not say their own.
        **{name: known[name] for name in ("machine", "versions") if name in known},
    }
    partial = about.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    partial.rename(about)


def restored(folder: Path, place: Path) -> None:
    """Lay the search, or the trials, that another machine finished where they are looked for."""
    if folder.exists() or not (place / "run.json").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        return
    (folder / TRIALS).mkdir(parents=True)
    for name, trial in json.loads((place / "run.json").read_text())["trials_so_far"].items():
        (folder / TRIALS / name).write_text(json.dumps(trial))
    if (place / SEARCH).is_file():
        shutil.copyfile(place / SEARCH, folder / SEARCH)


def main() -> None:
    """Go on with each part until it is finished or time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("build/language-models"))
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="an empty folder makes all again"
    )
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument(
        "--jobs", type=int, help="runs beside each other; as many as cores, or one on a GPU"
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="interrupt after so many")
    options = parser.parse_args()
    # Whoever began this in the background may have had them ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    ends = time.monotonic() + 60 * options.minutes
    for part in options.parts:
        folder, place, began = options.output / part, options.results / part, time.monotonic()
        status: int | None = 0
        restored(folder, place)
        try:
            for command in commands(part, options):
                status = called(command, ends - time.monotonic())
                gathered(part, folder, place, (time.monotonic() - began) / 60)
                began = time.monotonic()
                if status != 0:
                    break
        except KeyboardInterrupt:
            # Between two commands.
            status = None
        # The last seed was kept after its last command; of a part that was finished nothing changes.
        gathered(part, folder, place, 0.0)
        if status != 0:
            print("interrupted: give the same call again" if status is None else "it failed")
            raise SystemExit(130 if status is None else status)
    print("all done")


if __name__ == "__main__":
    main()
