"""Every run of a plan is trained and scored by one code, or the ledger and every report say which was not."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import toy_environment as toy
from configs import config
from protocol_attacks import in_this_process
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import RunError, UnavailableError
from vcrt.plugins import ENVIRONMENTS, plugins
from vcrt.replay.config import sampled
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.protocol import planned_training, same_code
from vcrt_train.protocol.evaluation import evaluate
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.plan import PLAN_FILE, read_plan
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.same_code import code_now, code_of, package_hash
from vcrt_train.protocol.scores import openings
from vcrt_train.report.gather import gather

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
OTHER = "f" * 64


PACKAGES = ("vcrt", "vcrt_train", "vcrt_lean", "vcrt_clrs")


@pytest.fixture
def copies(tmp_path):
    """Copies of packages, elsewhere."""
    found = {}
    for name in PACKAGES:
        source = Path(import_module(name).__file__).parent
        found[name] = tmp_path / "elsewhere" / name
        shutil.copytree(source, found[name], ignore=shutil.ignore_patterns("__pycache__"))
    return found


def test_the_hash_of_the_code_is_that_of_its_text_wherever_it_lies(copies):
    for name, copy in copies.items():
        assert package_hash(name, copy) == package_hash(name)
    train = copies["vcrt_train"]
    (train / "objective" / "__pycache__").mkdir()
    (train / "objective" / "__pycache__" / "total.cpython-311.pyc").write_bytes(b"compiled")
    for path in (train / "objective" / "total.py", copies["vcrt_lean"] / "prelude.lean"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for path in (train / "report" / "summary.py", copies["vcrt"] / "cli" / "main.py"):
        path.write_text("# decides nothing\n")
    package_hash.cache_clear()
    for name, copy in copies.items():
        assert package_hash(name, copy) == package_hash(name)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("vcrt_train", "objective/total.py"),
        ("vcrt_train", "training/update.py"),
        ("vcrt_train", "policy/scoring.py"),
        ("vcrt_train", "protocol/evaluation.py"),
        ("vcrt", "records/anonymise.py"),
        ("vcrt", "replay/replay.py"),
        ("vcrt", "datasets/verdicts.py"),
        ("vcrt", "orders.py"),
        ("vcrt", "randomness.py"),
        ("vcrt", "limits.py"),
        ("vcrt_lean", "prelude.lean"),
        ("vcrt_clrs", "environment.py"),
    ],
)
def test_whatever_decides_a_result_changes_the_hash_of_its_package_alone(copies, name, file):
    path = copies[name] / file
    path.write_text(path.read_text() + "\n# other\n")
    for other, copy in copies.items():
        assert (package_hash(other, copy) != package_hash(other)) is (other == name)
    path.unlink()
    if file not in ("limits.py", "orders.py", "randomness.py"):
        package_hash.cache_clear()
        assert package_hash(name, copies[name]) != package_hash(name)


def test_an_experiment_depends_on_the_packages_of_its_environments_alone():
    assert set(code_of(["clrs", "somebodys"])) == {"vcrt", "vcrt_train", "vcrt_clrs"}
    assert set(code_of(["bfcl", "agentdojo"])) == {"vcrt", "vcrt_train", "vcrt_toolbench"}


def test_environments_of_others_are_left_to_the_versions_of_the_dataset(monkeypatch):
    own = EntryPoint("bank", "bank:Bank", ENVIRONMENTS)
    monkeypatch.setattr(same_code, "plugins", lambda group: {"bank": own, **plugins(group)})
    assert set(code_of(["bank", "clrs"])) == {"vcrt", "vcrt_train", "vcrt_clrs"}


def test_a_package_of_the_plan_that_is_not_installed_is_named():
    with pytest.raises(UnavailableError, match="not installed") as error:
        code_now({"vcrt_nowhere": OTHER})
    assert "vcrt_nowhere" in error.value.found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    asked = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 4)
    dataset = make_dataset(asked, folder / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(dataset, jobs=1, factories=TWO_TOYS)
    made = make_plan(
        dataset,
        backbone=EMBEDDED,
        backbone_digest=load_backbone("embedded").digest,
        methods=("canonical-grpo", "vcrt"),
        seeds=(0,),
        held_out=("toy-b",),
        config=EMBEDDED.resolved(config(updates=1, retention_share=0.3)),
    )
    create_experiment(made, folder / "planned")
    return folder


@pytest.fixture
def experiment(whole, tmp_path):
    shutil.copytree(whole / "planned", tmp_path / "experiment")
    with in_this_process():
        yield open_experiment(tmp_path / "experiment")


def under(patch, digest):
    """As if each package had other files."""
    patch.setattr(same_code, "package_hash", lambda name: digest)


def marks(experiment):
    # The toys are one environment under two names, which the plan says too.
    return [line for line in gather(experiment).warnings if "toy-a" not in line]


def test_one_code_from_plan_to_report_leaves_no_mark(experiment):
    train(experiment, jobs=1)
    evaluate(experiment, jobs=1, other_code="not needed")
    assert marks(experiment) == []
    assert experiment.ledger.entries("other-code") == []


def test_other_code_neither_trains_nor_scores_unless_a_reason_is_given(experiment, monkeypatch):
    with monkeypatch.context() as patch:
        under(patch, OTHER)
        with pytest.raises(RunError, match="not the one that was planned") as error:
            train(experiment, jobs=1)
        assert error.value.where == "source files of vcrt, vcrt_train"
        assert "--other-code" in error.value.remedy
        assert not (experiment.path / "runs").exists()
        train(experiment, jobs=1, other_code="a comment was mended")
    evaluate(experiment, jobs=1)
    (mark,) = marks(experiment)
    assert mark.startswith("2 of 2 runs trained, in whole or in part, by other code")
    assert "a comment was mended" in mark


def test_scores_and_reports_of_other_code_are_marked(experiment, monkeypatch):
    train(experiment, jobs=1)
    with monkeypatch.context() as patch:
        under(patch, OTHER)
        with pytest.raises(RunError, match="not the one that was planned"):
            evaluate(experiment, jobs=1)
        assert openings(experiment) == []
        evaluate(experiment, jobs=1, other_code="another machine")
        (scored,) = marks(experiment)
        assert gather(experiment).remarks[-1].startswith("This report was made by other code")
    assert marks(experiment) == [scored]
    assert gather(experiment).remarks == ()
    assert scored.startswith("The runs were scored by other code")
    assert "another machine" in scored


def test_a_run_that_other_code_began_is_marked_though_the_planned_code_ends_it(
    experiment, monkeypatch
):
    with monkeypatch.context() as patch:
        under(patch, OTHER)
        patch.setattr(planned_training, "in_fresh_processes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(experiment, jobs=1, other_code="a try")
    train(experiment, jobs=1)
    evaluate(experiment, jobs=1)
    (mark,) = marks(experiment)
    assert "vcrt/toy-b/0" in mark
    assert "a try" in mark


def interrupted(work, arguments, **options):
    raise KeyboardInterrupt


def test_a_worker_with_other_code_than_its_parent_stops(experiment, monkeypatch):
    monkeypatch.setattr(planned_training, "code_now", lambda code: dict.fromkeys(code, OTHER))
    with pytest.raises(RunError, match="the code changed while it ran"):
        train(experiment, jobs=1)


@pytest.mark.parametrize("older", ["vcrt-plan/3", "vcrt-plan/1", None, 4])
def test_a_plan_of_another_format_is_named(experiment, older):
    path = experiment.path / PLAN_FILE
    value = json.loads(path.read_text())
    value["plan"]["format"] = older
    path.write_text(json.dumps(value))
    with pytest.raises(RunError, match="a plan of another format") as error:
        read_plan(path)
    assert "the version of vcrt that made it" in error.value.remedy
