"""The paper's experiment on pretrained language models, part by part, over as many calls and machines as it takes.

    git worktree add --detach build/frozen COMMIT
    cd build/frozen
    python benchmarks/language_models/experiment.py --parts words-clrs --minutes 120

Each part is one held-out environment of one comparison, by one command, ``vcrt reproduce``: a search on source items
alone, a plan, training, one evaluation of everything held out, a report. What is finished is read and what was
interrupted goes on, so the same call is given again until it says that all is done; ``--minutes`` interrupts it. The
parts of ``qwen`` need ``fetch_models.py qwen2.5-coder-0.5b`` first. After each call, what there is of a part lies in
``benchmarks/results/language_models``: ``run.json`` (command, minutes, machine, versions, commits, trials so far) and,
as soon as they exist, the search, the plan, each run's log, the scores of every item and the tables. With these a new
machine goes on: its search takes the trials that were finished, if the code, the data and the backbone are the same.

Plans and trials hold the hash of the library's source: run this in a tree that nobody edits, each time at one commit.
``tables.py`` puts the parts together.
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
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from gpu_results import commit, machine, versions

from vcrt.policy.number_format import instructions
from vcrt.protocol.plan import read_plan

RESULTS = Path(__file__).parents[1] / "results" / "language_models"
HARD = "--preset several --relations reduced --commutations omitted --distractors 2 --episodes 100"
DATASETS = {"data": "--episodes 500", "hard-data": HARD}
SMOLLM2 = "--preset smollm2-135m --data.validation-share 0.1 --schedule.validate-every 100"
SEARCHED = "--trials 3 --trial-updates 100"
FOLDS = ("clrs", "lean", "proofwriter")
#: By comparison: its dataset, and the options of ``vcrt reproduce`` beside ``--output``, ``--dataset``, ``--held-out``.
COMPARISONS = {
    "words": ("data", f"{SMOLLM2} {SEARCHED} --checkpoints 400"),
    "opaque": (
        "data",
        f"{SMOLLM2} {SEARCHED} --checkpoints 100 400 --relation-names opaque --methods canonical-grpo vcrt",
    ),
    "hard": (
        "hard-data",
        f"{SMOLLM2} --trials 0 --runs 2 --checkpoints 100 400 "
        "--methods canonical-grpo vcrt no-orbit shuffled-orbit no-anti",
    ),
    "qwen": (
        "data",
        "--backbone build/models/qwen2.5-coder-0.5b --relation-names words --lora-rank 64 --lora-alpha 128 "
        "--learning-rate 5e-5 --trials 0 --runs 1 --updates 200 --checkpoints 200 "
        "--schedule.validate-every 100 --methods canonical-grpo vcrt",
    ),
}
#: By part, one fold of a comparison.
PARTS = {
    f"{name}-{fold}": (data, f"{options} --held-out {fold}")
    for name, (data, options) in COMPARISONS.items()
    for fold in FOLDS
}
#: What is kept of a part, by its path below the part's folder.
KEPT = (
    "search.json",
    "experiment/scores.json",
    "report/tables.txt",
    "report/results.json",
)
#: Where an unfinished search keeps its trials, below the part's folder.
TRIALS = "search.json.trials"


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


def certified(output: Path, name: str, seconds: float) -> int | None:
    """Certify and verify a dataset, or whatever of that is missing."""
    path = output / name
    if not path.exists():
        status = called(f"certify {DATASETS[name]} --output {path}", seconds)
        if status != 0:
            return status
    return 0 if (path / "agreement.json").exists() else called(f"verify {path}", seconds)


def is_finished(folder: Path) -> bool:
    """Whether a part has its report, which is written last."""
    return (folder / "report" / "tables.txt").is_file()


def gathered(part: str, folder: Path, minutes: float, *, finished: bool) -> None:
    """Copy what there is of a part, and add the call to what is known of it."""
    place = RESULTS / part
    place.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, place / Path(name).name)
    if (folder / "experiment" / "plan.json").is_file():
        # Where files lay is no part of its hash.
        plan = read_plan(folder / "experiment" / "plan.json")
        value = {"plan": plan.without_places, "plan_hash": plan.plan_hash}
        (place / "plan.json").write_text(json.dumps(value, indent=1) + "\n")
    runs = folder / "experiment" / "runs"
    logs = {
        str(path.parent.relative_to(runs)): json.loads(path.read_text())
        for path in sorted(runs.rglob("metrics.json"))
    }
    if logs:
        with gzip.GzipFile(place / "logs.json.gz", "wb", mtime=0) as file:
            file.write(json.dumps(logs).encode())
    about = place / "run.json"
    known: dict[str, Any] = json.loads(about.read_text()) if about.exists() else {"calls": []}
    calls = known["calls"] + [{"minutes": round(minutes, 1), "commit": commit()}] * (minutes > 0)
    trials = sorted((folder / TRIALS).glob("*-*.json"))
    value = {
        "command": f"vcrt reproduce {PARTS[part][1]} --dataset {PARTS[part][0]} --output {part}",
        "finished": finished,
        # Of a search that is not whole yet.
        "trials_so_far": {trial.name: json.loads(trial.read_text()) for trial in trials},
        "minutes": round(sum(call["minutes"] for call in calls), 1),
        "calls": calls,
        "machine": machine(torch.device("cpu")) | {"instructions": instructions()},
        "versions": versions(),
    }
    about.write_text(json.dumps(value, indent=1) + "\n")


def restored(part: str, folder: Path) -> None:
    """Lay the search, or the trials, that another machine finished where they are looked for."""
    place = RESULTS / part
    if folder.exists() or not (place / "run.json").is_file():
        return
    (folder / TRIALS).mkdir(parents=True)
    for name, trial in json.loads((place / "run.json").read_text())["trials_so_far"].items():
        (folder / TRIALS / name).write_text(json.dumps(trial))
    if (place / "search.json").is_file():
        shutil.copyfile(place / "search.json", folder / "search.json")


def main() -> None:
    """Go on with each part until it is finished or time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("build/language-models"))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--minutes", type=float, default=1e6, help="interrupt after so many")
    parser.add_argument(
        "--gather", action="store_true", help="only copy what there is to the results"
    )
    options = parser.parse_args()
    # Whoever began this in the background may have had them ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    options.output.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * options.minutes
    if options.gather:
        for part in options.parts:
            folder = options.output / part
            gathered(part, folder, 0.0, finished=is_finished(folder))
        return
    for part in options.parts:
        dataset, settings = PARTS[part]
        status = certified(options.output, dataset, ends - time.monotonic())
        folder, began = options.output / part, time.monotonic()
        if is_finished(folder):
            gathered(part, folder, 0.0, finished=True)
            continue
        if status == 0:
            restored(part, folder)
            status = called(
                f"reproduce {settings} --dataset {options.output / dataset} --output {folder}",
                ends - time.monotonic(),
            )
            gathered(part, folder, (time.monotonic() - began) / 60, finished=status == 0)
        if status != 0:
            print("interrupted: give the same command again" if status is None else "it failed")
            raise SystemExit(130 if status is None else status)
    print("all done")


if __name__ == "__main__":
    main()
