"""The experiment at length in one command: `make at-length`, or

    python research/benchmarks/length/at_length.py --output build/at-length
    python research/benchmarks/length/at_length.py --parts orbit-6-more --result at_length_orbit_more.json

Suites are taken from ``--suites`` and made there if they are missing (the time for that is counted apart). Then every
part is planned, trained, evaluated once and measured; what is finished is read, what was interrupted goes on. What came
out is written to ``research/benchmarks/results/at_length.json`` and printed.

Records of four steps are made in the form of the longer ones (directed relations only, pointers drawn from 32), so that
what differs between training at four and testing at eight is the length alone. The settings of all parts stand in
``PARTS``; they were fixed before any held-out item was scored. Not covered: how they were found
(research/at-length.md).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import vcrt
from vcrt.certificates.episodes import preset_named
from vcrt.processes import in_fresh_processes, num_jobs
from vcrt.records.dataset import load_items, open_dataset, require_agreement
from vcrt.records.manifest import AGREEMENT
from vcrt.records.record_form import RecordForm
from vcrt.replay.config import sampled, select_schemas
from vcrt.storage import write_file
from vcrt_train.config import EMBEDDED_LONG_NAME, RunConfig
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.protocol.crossed import crossed_interval
from vcrt_train.protocol.evaluation import encoded, evaluate
from vcrt_train.protocol.experiment import (
    Experiment,
    create_experiment,
    open_experiment,
    planned_backbone,
    planned_dataset,
    trained_models,
)
from vcrt_train.protocol.plan import Plan, PlannedRun
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import frozen_plan
from vcrt_train.protocol.same_code import versions_of_training
from vcrt_train.protocol.scores import SCORES_FILE, read_scores
from vcrt_train.protocol.statistics import Interval, paired_bootstrap
from vcrt_train.randomness import generator
from vcrt_train.report.analysis import Analysis, analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.estimates import Estimate, compare
from vcrt_train.report.gather import gather
from vcrt_train.report.tables import seen_on
from vcrt_train.report.task import chance
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_spread

RESULT = Path(__file__).parents[1] / "results" / "at_length.json"
#: Episodes of each environment in each suite; those of four steps come from two schemas. Of twelve and sixteen steps,
#: which are for testing alone, there are fewer.
EPISODES, FEW = 50, 20
#: By suite: the preset, episodes of each schema, and the form of the records.
LONG_FORM = RecordForm(commutations="omitted")
SHORT_FORM = LONG_FORM.model_copy(update={"pool": "large"})
SUITES = {
    "posets4": ("several", EPISODES // 2, SHORT_FORM),
    **{f"posets{n}": (f"posets{n}", EPISODES, LONG_FORM) for n in (6, 8)},
    **{f"posets{n}": (f"posets{n}", FEW, LONG_FORM) for n in (12, 16)},
}
TOLD_APART = ("canonical-grpo", "vcrt", "no-orbit", "shuffled-orbit", "no-anti")
HOW_CHOSEN = (
    "One learning rate for all methods and lengths, chosen on random partial orders that belong to no environment; see "
    "research/at-length.md."
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One experiment: a suite to train on, further ones to test on, and the settings of its runs."""

    suite: str
    also_test: tuple[str, ...] = ()
    methods: tuple[str, ...] = TOLD_APART
    runs: int = 2
    #: Seed of the plan: of what is set aside, of how records are rendered, and of all runs.
    seed: int = 0
    updates: int = 200
    learning_rate: float = 1e-3
    samples: int = 8
    epochs: int = 2
    #: Whether orbit mass and entropy are measured after the evaluation.
    measured: bool = False
    #: Which difference is reported beside those of vcrt.
    planned: tuple[str, str] | None = None


PARTS: Mapping[str, Part] = {
    # The planned comparison: the orbit ratio alone against the sampled order's, where rewards alone can teach.
    "orbit-6": Part(
        suite="posets6",
        methods=("canonical-grpo", "orbit-grpo"),
        runs=5,
        measured=True,
        planned=("orbit-grpo", "canonical-grpo"),
    ),
    "train-4": Part(
        suite="posets4", also_test=("posets6", "posets8", "posets12", "posets16"), runs=3
    ),
    "train-6": Part(suite="posets6", also_test=("posets8",), measured=True),
    "train-8": Part(suite="posets8", also_test=("posets12", "posets16"), measured=True),
}
#: What is run by name alone: the planned comparison once more, with other draws and more runs.
MORE: Mapping[str, Part] = {"orbit-6-more": replace(PARTS["orbit-6"], runs=10, seed=1)}


def made_suite(folder: Path, name: str, jobs: int) -> float:
    """Make and verify a suite that is missing; the seconds that took."""
    preset, episodes, form = SUITES[name]
    path, began = folder / name, time.monotonic()
    if not path.exists():
        say(f"certify {name}")
        vcrt.certify(path, preset=preset, episodes=episodes, jobs=jobs, **form.model_dump())
    if not (path / AGREEMENT).exists():
        say(f"verify {name}")
        vcrt.verify(path, jobs=jobs)
    dataset = open_dataset(path)
    require_agreement(dataset)
    manifest = dataset.manifest
    asked = sampled(select_schemas(preset=preset), episodes, preset=preset_named(preset)).to_json()
    found = {"seed": manifest.seed, "series": manifest.series, "form": manifest.record_form}
    if found != {"seed": asked["seed"], "series": asked["series"], "form": form}:
        raise SystemExit(
            f"{path}: not the suite of {episodes} episodes a schema of {preset}, seed 0, in this form of records; "
            "choose another --suites"
        )
    return time.monotonic() - began


def planned(part: Part, suites: Path) -> Plan:
    """The plan of a part on all three folds."""
    config = RunConfig().override(
        {
            "model.backbone": EMBEDDED_LONG_NAME,
            "optimiser.learning_rate": part.learning_rate,
            "sampling.samples_per_prompt": part.samples,
            "schedule.updates": part.updates,
            "schedule.epochs_per_update": part.epochs,
            "schedule.checkpoints": (part.updates,),
        }
    )
    plan = frozen_plan(
        suites / part.suite,
        methods=part.methods,
        held_out=(),
        runs=part.runs,
        config=config,
        seed=part.seed,
        also_test=[suites / name for name in part.also_test],
    )
    return plan.model_copy(update={"how_chosen": HOW_CHOSEN})


def finished(part: Part, plan: Plan, path: Path, jobs: int) -> Experiment:
    """The part's experiment, trained and evaluated, going on where an interrupted call stopped."""
    experiment = open_experiment(path) if path.exists() else create_experiment(plan, path)
    if experiment.plan.plan_hash != plan.plan_hash:
        raise SystemExit(f"{path}: made with other settings or suites; choose another --output")
    train(experiment, jobs=jobs)
    if not ((path / SCORES_FILE).exists() and experiment.ledger.entries("scores")):
        evaluate(experiment, jobs=jobs)
    return experiment


@dataclass(frozen=True)
class _Measure:
    path: Path
    fold: str
    run: PlannedRun | None


def _measure(job: _Measure) -> tuple[list[float], list[float]]:
    """Mass and entropy on the held-out items of a run at its last update, or of the backbone before training."""
    import torch

    torch.set_num_threads(1)
    experiment = open_experiment(job.path)
    plan = experiment.plan
    backbone = planned_backbone(plan)
    chosen = method(job.run.method if job.run else "canonical-grpo")
    items = encoded(backbone, load_items(planned_dataset(plan), job.fold), chosen, plan.seed)
    model = backbone.model
    if job.run:
        last = [plan.config.schedule.updates]
        (model,) = (
            one.model for one in trained_models(experiment, job.run, backbone, updates=last)
        )
    posets = [item for item in items if item.listed is None]
    found = orbit_spread(model, posets, interface="pointers", seed=plan.seed)
    return found.log_mass.exp().tolist(), found.shares.tolist()


def measures(experiment: Experiment, part: Part, jobs: int) -> dict[str, Any]:
    """Mass and entropy by method, their means over folds, and the planned difference; kept once measured."""
    kept = _kept(experiment)
    if not kept.exists():
        runs = [_Measure(experiment.path, run.held_out, run) for run in experiment.plan.runs]
        runs += [_Measure(experiment.path, fold, None) for fold in experiment.plan.held_out]
        found = list(in_fresh_processes(_measure, runs, jobs=jobs, error=RuntimeError))
        rows = [
            [job.run.name if job.run else f"frozen/{job.fold}/0", *values]
            for job, values in zip(runs, found, strict=True)
        ]
        write_file(kept, json.dumps(rows).encode())
    by_method: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    for name, *values in json.loads(kept.read_text()):
        of_method, fold, _ = name.split("/")
        for what, of_items in zip(("mass", "entropy"), values, strict=True):
            folds = by_method.setdefault(of_method, {}).setdefault(what, {})
            folds.setdefault(fold, []).append(of_items)
    result: dict[str, Any] = {
        name: {what: both(folds, what, name) for what, folds in of_method.items()}
        for name, of_method in by_method.items()
    }
    if part.planned:
        first, second = (by_method[name] for name in part.planned)
        result["difference"] = {
            what: both(
                {f: np.array(first[what][f]) - np.array(second[what][f]) for f in first[what]},
                what,
                "difference",
            )
            for what in first
        }
    return result


def by_run(experiment: Experiment, part: Part) -> dict[str, dict[str, Any]]:
    """What each run got on each held-out item: whether it passes, and the measures where there are some."""
    measured = {}
    if part.measured:
        measured = {name: values for name, *values in json.loads(_kept(experiment).read_text())}
    passes = read_scores(experiment).runs
    found = {}
    for run in experiment.plan.runs:
        found[run.name] = {"passes": passes[run.name].held_out}
        for what, values in zip(("mass", "entropy"), measured.get(run.name, ()), strict=False):
            found[run.name][what] = [round(one, 4) for one in values]
    return found


def _kept(experiment: Experiment) -> Path:
    return experiment.path / "measures.json"


def both(scores: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The macro mean with its interval over runs and items, and the paper's bootstrap over items."""
    arrays = {fold: np.array(values, dtype=np.float64) for fold, values in scores.items()}
    items = paired_bootstrap(arrays, generator(0, "at length", *names))
    runs = crossed_interval(arrays, same_runs="frozen" in names)
    return as_json(Estimate(items=items, runs_and_items=runs))


def as_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """An estimate and the ends of both intervals."""
    if estimate is None:
        return None

    def ends(interval: Interval) -> list[float]:
        return [round(interval.low, 5), round(interval.high, 5)]

    return {
        "value": round(estimate.value, 5),
        "runs_and_items": ends(estimate.runs_and_items),
        "over_runs": estimate.runs_and_items.over_runs,
        "bootstrap_over_items": ends(estimate.items),
    }


def table(contents: ReportContents, analysis: Analysis, part: Part) -> dict[str, Any]:
    """Every cell of one test set: rates by method and fold, and differences, each with both intervals."""
    pairs = {("vcrt", other): c for other, c in analysis.comparisons.items()}
    if part.planned:
        pairs[part.planned] = compare(contents, *part.planned)
    return {
        "steps": int(contents.dataset["num_operations"]),
        "items": {fold: analysis.num_items(fold) for fold in analysis.folds},
        "random_order": None if (random := chance(contents)) is None else round(random, 5),
        "frozen": {
            "macro": as_json(analysis.frozen_macro),
            "folds": {fold: as_json(one) for fold, one in analysis.frozen.items()},
        },
        "methods": {
            result.method: {
                "macro": as_json(result.macro),
                "folds": {fold: as_json(one) for fold, one in result.folds.items()},
            }
            for result in analysis.results
        },
        "differences": {
            f"{one} minus {other}": {
                "macro": as_json(found.macro),
                "folds": {fold: as_json(each) for fold, each in found.folds.items()},
            }
            for (one, other), found in pairs.items()
        },
    }


class Made:
    """How long a part took, over all calls that were not killed, and from which commits it was made.

    Kept beside the part, so that a call which only reads it again changes neither.
    """

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        known = json.loads(kept.read_text()) if kept.exists() else {}
        self.seconds: float = known.get("seconds", 0.0)
        self.commits: list[str | None] = known.get("commits", [])
        self.is_whole: bool = known.get("whole", False)

    def __enter__(self) -> Made:
        self.began = time.monotonic()
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self.is_whole:
            return
        self.seconds += time.monotonic() - self.began
        self.commits = list(dict.fromkeys([*self.commits, commit()]))
        self.is_whole = error is None
        value = {"seconds": self.seconds, "commits": self.commits, "whole": self.is_whole}
        write_file(self.kept, json.dumps(value).encode())


def done(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One part from its plan to its cells."""
    part = {**PARTS, **MORE}[name]
    with Made(options.output / f"{name}.made.json") as made:
        plan = planned(part, options.suites)
        say(f"{name}: {len(plan.runs)} runs of {part.updates} updates")
        experiment = finished(part, plan, options.output / name, options.jobs)
        contents = gather(experiment)
        sets = {part.suite: table(contents, analyse(contents), part)}
        for other in part.also_test:
            there = seen_on(contents, other)
            sets[other] = table(there, analyse(there), part)
        measured = measures(experiment, part, options.jobs) if part.measured else None
    cpu = sum(run.cpu_seconds or 0.0 for run in contents.runs)
    value = {
        "settings": asdict(part),
        "plan_hash": plan.plan_hash,
        "opening": dict(contents.opening),
        "test_sets": sets,
        "opened_before": {
            other: scores.opened_by_others for other, scores in contents.also_test.items()
        },
        "measures": measured,
        "runs": by_run(experiment, part),
        "training_cpu_seconds": round(cpu),
        "seconds": round(made.seconds),
        "commits": made.commits,
    }
    for test_set, cells in sets.items():
        say(f"  tested on {test_set}: " + ", ".join(words(cells)))
    return value


def words(cells: Mapping[str, Any]) -> list[str]:
    """The macro rates of a test set in percent, for the terminal."""
    rows = {"random": None, "frozen": cells["frozen"], **cells["methods"]}
    found = [f"random order {100 * cells['random_order']:.1f}"]
    for name, row in rows.items():
        if row and row["macro"]:
            low, high = row["macro"]["runs_and_items"]
            found.append(
                f"{name} {100 * row['macro']['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
            )
    return found


def commit() -> str | None:
    """The commit of the working tree, if it is one; with a + if files differ from it."""
    try:
        here = ["git", "-C", str(Path(__file__).parents[1])]
        head = subprocess.check_output([*here, "rev-parse", "HEAD"], text=True).strip()
        changed = subprocess.check_output([*here, "status", "--porcelain", "-uno"], text=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed.strip() else "")


def say(line: str) -> None:
    """Print at once: a log is looked at while this runs."""
    print(time.strftime("%H:%M:%S"), line, flush=True)


def main() -> None:
    """Make what is missing, run what is not finished, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/at-length"), help="the folder of the experiments"
    )
    parser.add_argument(
        "--suites", type=Path, default=Path("build/suites"), help="the folder of the suites"
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="the JSON that is written")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=[*PARTS, *MORE])
    parser.add_argument("--jobs", type=int, default=None)
    options = parser.parse_args()
    if options.parts != list(PARTS) and options.result == RESULT:
        parser.error("some parts alone are no whole result: add --result FILE")
    options.jobs = num_jobs(options.jobs)
    needed = dict.fromkeys(
        name
        for part in ({**PARTS, **MORE}[name] for name in options.parts)
        for name in (part.suite, *part.also_test)
    )
    for_suites = sum(made_suite(options.suites, name, options.jobs) for name in needed)
    result: dict[str, Any] = {
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
        "versions": versions_of_training(),
        "backbone": load_backbone(EMBEDDED_LONG_NAME).digest,
        "suites": {
            name: {
                "root_hash": (one := open_dataset(options.suites / name)).manifest.root_hash,
                "series": one.manifest.series,
            }
            for name in needed
        },
        "seconds_for_suites": round(for_suites),
        "parts": {name: done(name, options) for name in options.parts},
    }
    result["seconds"] = sum(part["seconds"] for part in result["parts"].values())
    options.result.parent.mkdir(parents=True, exist_ok=True)
    write_file(options.result, (json.dumps(result, indent=1) + "\n").encode())
    say(f"{options.result}: {result['seconds']} s, suites apart")


if __name__ == "__main__":
    main()
