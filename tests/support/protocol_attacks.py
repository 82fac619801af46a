"""Attacks on what a plan promises, on real environments: each ends in a named error, or the plan and the report say so.

For the tests and for research/benchmarks/trust/protocol.py. A :class:`Place` is made once; every attack gets a
copy of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import vcrt
import vcrt_train
from alias_environments import FewEpisodes, SameEpisodes, SameVersions
from configs import config
from language_models import save_model
from one_process import in_this_process
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import VcrtError
from vcrt.hashing import json_digest
from vcrt.replay.config import sampled
from vcrt_clrs.environment import ClrsEnvironment
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_train.api.models import export_model
from vcrt_train.policy.locking import make_lock
from vcrt_train.policy.model_provenance import PROVENANCE_FILE
from vcrt_train.policy.reference import EMBEDDED, backbone_reference
from vcrt_train.protocol import planned_training
from vcrt_train.protocol.evaluation import evaluate
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.plan import PLAN_FILE, Plan
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import frozen_plan
from vcrt_train.protocol.search import SEARCH_FILE, Search, read_search
from vcrt_train.protocol.trials import run_search
from vcrt_train.report.analysis import analyse
from vcrt_train.report.gather import gather
from vcrt_train.report.page import write_report
from vcrt_train.report.summary import summary

RUN = config(updates=2)
SCHEMAS = {"clrs": ("bubble_sort",), "proofwriter": ("attribute_chain",)}


def make_data(folder: Path, name: str, factories, schemas, episodes: int = 6) -> Path:
    dataset = make_dataset(sampled(schemas, episodes), folder / name, jobs=1, factories=factories)
    verify_agreement(dataset, jobs=1, factories=factories)
    return dataset.path


def plan(folder: Path, name: str, held_out: str, **options):
    reference = options.pop("backbone", EMBEDDED)
    model = {"model.backbone": reference.folder or reference.name}
    config = options.pop("config", RUN).override(model)
    made = frozen_plan(
        folder / options.pop("data", "data"),
        **{
            "methods": ("vcrt",),
            "held_out": (held_out,),
            "runs": 1,
            "config": config,
            "seed": 0,
            **options,
        },
    )
    return create_experiment(made, folder / name, search=options.get("search"))


def exported(folder: Path, experiment: str, name: str) -> Path:
    export_model(folder / experiment, folder / name)
    return folder / name


def locked(model: Path):
    reference = backbone_reference(str(model))
    make_lock(reference)
    return reference


def make_place(folder: Path) -> Path:
    """Data of CLRS and ProofWriter, a run that was trained on CLRS, its exported model, and a search."""
    factories = {"clrs": ClrsEnvironment, "proofwriter": ProofWriterEnvironment}
    make_data(folder, "data", factories, SCHEMAS)
    with in_this_process():
        base = locked(save_model(folder / "base"))
        train(plan(folder, "first", "proofwriter", backbone=base), jobs=1)
        exported(folder, "first", "model")
        run_search(
            vcrt.open_dataset(folder / "data"),
            folder / SEARCH_FILE,
            backbone=EMBEDDED,
            methods=("vcrt",),
            held_out=("clrs",),
            num_trials=2,
            config=RUN,
            jobs=1,
        )
    return folder


def reported(experiment, folder: Path) -> str:
    """Train and evaluate what was planned; the report's sentences and the text of its page."""
    train(experiment, jobs=1)
    evaluate(experiment, jobs=1)
    contents = gather(experiment)
    page = write_report(analyse(contents), folder / "report", paper_figures=False)["report.html"]
    marked = all(f'<p class="alert">{line[:40]}' in page.read_text() for line in contents.warnings)
    return "\n".join([*summary(analyse(contents)), "" if marked else "THE PAGE IS NOT MARKED"])


def said(experiment) -> str:
    """What the plan says of itself, in its file."""
    value = json.loads((experiment.path / PLAN_FILE).read_text())
    return "\n".join([*value["warnings"], *value["remarks"]])


# What the backbone was trained on.


def trained_on_the_held_out_one(folder):
    experiment = plan(folder, "second", "clrs", backbone=locked(folder / "model"))
    return said(experiment) + reported(experiment, folder)


def two_generations(folder):
    second = plan(folder, "second", "proofwriter", backbone=locked(folder / "model"))
    train(second, jobs=1)
    exported(folder, "second", "again")
    return said(plan(folder, "third", "clrs", backbone=locked(folder / "again")))


def provenance_deleted(folder):
    (folder / "model" / PROVENANCE_FILE).unlink()
    locked(folder / "model")


def provenance_emptied(folder):
    edit_provenance(folder / "model")
    locked(folder / "model")


def provenance_of_another_export(folder):
    base = backbone_reference(str(folder / "base"))
    train(plan(folder, "honest", "clrs", backbone=base), jobs=1)
    exported(folder, "honest", "other")
    shutil.copy(folder / "other" / PROVENANCE_FILE, folder / "model" / PROVENANCE_FILE)
    locked(folder / "model")


def provenance_changed_after_the_lock(folder):
    reference = locked(folder / "model")
    edit_provenance(folder / "model")
    plan(folder, "second", "clrs", backbone=reference)


def provenance_taken_out_of_the_plan(folder):
    experiment = plan(folder, "second", "clrs", backbone=locked(folder / "model"))
    forge_plan(
        experiment, provenance={"origin": "nothing", "trainings": [], "changed_since": False}
    )
    train(open_experiment(experiment.path), jobs=1)


def provenance_and_its_mark_deleted(folder):
    (folder / "model" / PROVENANCE_FILE).unlink()
    config = folder / "model" / "config.json"
    value = json.loads(config.read_text())
    del value["vcrt_provenance"]
    config.write_text(json.dumps(value))
    experiment = plan(folder, "second", "clrs", backbone=locked(folder / "model"))
    return said(experiment) + reported(experiment, folder)


def weights_changed_elsewhere(folder):
    path = folder / "model" / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name] = tensors[name] * 1.001
    save_file(tensors, path, metadata={"format": "pt"})
    return said(plan(folder, "second", "proofwriter", backbone=locked(folder / "model")))


def edit_provenance(model: Path) -> None:
    """No training any more, and a digest that holds."""
    path = model / PROVENANCE_FILE
    value = json.loads(path.read_text())
    value["provenance"]["trainings"] = []
    value["digest"] = json_digest({k: value[k] for k in ("provenance", "weights")})
    path.write_text(json.dumps(value))


# Matched controls.


def code_changed_between_two_methods(folder):
    """One method is trained by this package; then training stops, and an edited copy goes on with the other."""
    experiment = plan(folder, "second", "clrs", methods=("canonical-grpo", "vcrt"))
    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(planned_training, "in_fresh_processes", first_and_no_more)
        train(experiment, jobs=1)
    train_elsewhere(folder, experiment, "--resume", "--other-code", "a quick look")
    return reported(experiment, folder)


def first_and_no_more(work, arguments, **options):
    yield work(arguments[0])
    raise KeyboardInterrupt


def code_changed_in_silence(folder):
    experiment = plan(folder, "second", "clrs")
    train_elsewhere(folder, experiment)


def train_elsewhere(folder: Path, experiment, *options: str) -> None:
    package = Path(vcrt_train.__file__).parent
    copy = folder / "edited" / "vcrt_train"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "objective" / "losses.py"
    file.write_text(file.read_text() + "\n# another line\n")
    command = [sys.executable, "-m", "vcrt", "train", str(experiment.path), "--jobs", "1"]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise VcrtError(done.stderr.strip())


def plan_edited_to_another_code(folder):
    experiment = open_experiment(folder / "first")
    value = json.loads((experiment.path / PLAN_FILE).read_text())
    value["plan"]["code"] = {"vcrt": "0" * 64}
    (experiment.path / PLAN_FILE).write_text(json.dumps(value))
    open_experiment(experiment.path)


def plan_and_ledger_forged_to_another_code(folder):
    experiment = open_experiment(folder / "first")
    forge_plan(experiment, code={"vcrt": "0" * 64})
    evaluate(open_experiment(experiment.path), jobs=1, other_code="because")


def run_folder_of_another_plan(folder):
    first = open_experiment(folder / "first")
    other = plan(folder, "other", "proofwriter", config=config(updates=2, learning_rate=1e-2))
    shutil.copytree(first.path / "runs", other.path / "runs")
    (row,) = first.ledger.entries("run")
    other.ledger.append("run", row.body)
    evaluate(other, jobs=1)


def forge_plan(experiment, **changes) -> None:
    """Change a plan with its hash, and the ledger with its chain."""
    path = experiment.path / PLAN_FILE
    value = json.loads(path.read_text())
    value["plan"].update(changes)
    value["plan_hash"] = Plan.model_validate(value["plan"]).plan_hash
    path.write_text(json.dumps(value))
    rows = [(entry.kind, entry.body) for entry in experiment.ledger.entries()]
    experiment.ledger.path.unlink()
    for kind, body in rows:
        changed = {"plan_hash": value["plan_hash"]} if kind == "plan" else body
        experiment.ledger.append(kind, changed)


# The search.


def forged_search(folder) -> Search:
    """The trial that was not chosen now has the best pass rate, and the digest holds."""
    search = read_search(folder / SEARCH_FILE)
    best = search.best("vcrt", "clrs")
    return search.model_copy(
        update={
            "trials": tuple(
                one if one == best else one.model_copy(update={"pass_rate": 1.0, "orbit_mass": 1.0})
                for one in search.trials
            )
        }
    )


def search_forged(folder):
    experiment = plan(folder, "second", "clrs", search=forged_search(folder))
    return said(experiment) + reported(experiment, folder)


def search_forged_and_checked(folder):
    plan(folder, "second", "clrs", search=forged_search(folder), check_search=1)


# Environments under other names.


def alias_of_the_same_versions(folder):
    factories = {"clrs": ClrsEnvironment, "other": SameVersions}
    schemas = dict.fromkeys(factories, SCHEMAS["clrs"])
    make_data(folder, "aliases", factories, schemas)
    experiment = plan(folder, "second", "clrs", data="aliases")
    return said(experiment) + reported(experiment, folder)


def alias_of_other_versions(folder):
    factories = {"clrs": FewEpisodes, "other": SameEpisodes}
    schemas = dict.fromkeys(factories, SCHEMAS["clrs"])
    make_data(folder, "aliases", factories, schemas)
    return said(plan(folder, "second", "clrs", data="aliases"))


def alias_in_the_backbones_past(folder):
    factories = {"other": SameVersions, "proofwriter": ProofWriterEnvironment}
    make_data(folder, "aliases", factories, {"other": SCHEMAS["clrs"], **SCHEMAS_OF_LOGIC})
    base = backbone_reference(str(folder / "base"))
    train(plan(folder, "hidden", "proofwriter", data="aliases", backbone=base), jobs=1)
    model = exported(folder, "hidden", "trained on other")
    return said(plan(folder, "second", "clrs", backbone=locked(model)))


SCHEMAS_OF_LOGIC = {"proofwriter": SCHEMAS["proofwriter"]}


@dataclass(frozen=True)
class Attack:
    """What is done, whether it is ``refused`` or ``said``, and a part of the words."""

    do: Callable[[Path], str | None]
    ends: str
    words: str

    @property
    def name(self) -> str:
        return self.do.__name__.replace("_", " ")


ATTACKS = (
    Attack(trained_on_the_held_out_one, "said", "WARNING: The backbone model was trained on clrs"),
    Attack(two_generations, "said", "was trained on clrs, which is held out here: by vcrt/proofw"),
    Attack(provenance_deleted, "refused", "the provenance of the model is gone"),
    Attack(provenance_emptied, "refused", "was changed after it was exported"),
    Attack(provenance_of_another_export, "refused", "was changed after it was exported"),
    Attack(provenance_changed_after_the_lock, "refused", "is not the one that was locked"),
    Attack(provenance_taken_out_of_the_plan, "refused", "the backbone was trained otherwise"),
    Attack(provenance_and_its_mark_deleted, "said", "is of unknown training: whether it was tr"),
    Attack(weights_changed_elsewhere, "said", "changed since in a way that is not known"),
    Attack(code_changed_in_silence, "refused", "the code is not the one that was planned"),
    Attack(code_changed_between_two_methods, "said", "WARNING: 1 of 2 runs trained"),
    Attack(plan_edited_to_another_code, "refused", "the plan was changed after it was made"),
    Attack(plan_and_ledger_forged_to_another_code, "refused", "belongs to another run"),
    Attack(run_folder_of_another_plan, "refused", "belongs to another run"),
    Attack(search_forged, "said", "The search is unverified"),
    Attack(search_forged_and_checked, "refused", "a trial of the search came out otherwise"),
    Attack(alias_of_the_same_versions, "said", "WARNING: clrs is held out while other is tra"),
    Attack(alias_of_other_versions, "said", "in common but for the names: they may be one"),
    Attack(alias_in_the_backbones_past, "said", "with the verifier, adapter and canonicalizer of"),
)


def outcome(attack: Attack, place: Path, folder: Path) -> str:
    """``refused`` or ``said`` where that is what the attack must end in, else what came instead."""
    copied = folder / "place"
    shutil.copytree(place, copied)
    for path in copied.glob(f"*/{PLAN_FILE}"):
        value = json.loads(path.read_text())
        # Where the dataset lies is no part of the plan's hash.
        value["plan"]["dataset"] = str(copied / "data")
        for place_of, name in (("folder", "base"), ("lock", "base/vcrt-lock.json")):
            value["plan"]["backbone"][place_of] = str(copied / name)
        path.write_text(json.dumps(value))
    with in_this_process():
        try:
            found, words = "said", attack.do(copied) or ""
        except VcrtError as error:
            found, words = "refused", str(error)
    if found == attack.ends and attack.words in words and "THE PAGE IS NOT MARKED" not in words:
        return found
    return f"{found}, in other words: {words or 'none'}"
