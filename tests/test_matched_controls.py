"""Every run of a plan is trained and scored by one code, or the ledger and every report say which was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import toy_environment as toy
import vcrt
from protocol_attacks import in_this_process
from vcrt.certification.config import sampled
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import RunError
from vcrt.policy.backbone import load_backbone
from vcrt.policy.reference import EMBEDDED
from vcrt.protocol import evaluation, plan, planned_training, same_code
from vcrt.protocol.evaluation import evaluate
from vcrt.protocol.experiment import create_experiment, open_experiment
from vcrt.protocol.openings import openings
from vcrt.protocol.plan import PLAN_FILE, make_plan, read_plan
from vcrt.protocol.planned_training import train
from vcrt.protocol.source_code import code_hash
from vcrt.report.gather import gather
from vcrt.training.run import RunConfig

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
OTHER = "f" * 64


@pytest.fixture
def package(tmp_path):
    source = Path(vcrt.__file__).parent
    copy = tmp_path / "elsewhere" / "vcrt"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_the_hash_of_the_code_is_that_of_its_text_wherever_it_lies(package):
    assert code_hash(package) == code_hash()
    (package / "objective" / "__pycache__").mkdir()
    (package / "objective" / "__pycache__" / "total.cpython-311.pyc").write_bytes(b"compiled")
    for name in ("objective/total.py", "environments/lean/prelude.lean"):
        path = package / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for name in ("report/summary.py", "cli/main.py"):
        (package / name).write_text("# decides nothing\n")
    code_hash.cache_clear()
    assert code_hash(package) == code_hash()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "objective/total.py",
            "training/update.py",
            "policy/scoring.py",
            "protocol/evaluation.py",
        ),
        *("records/anonymise.py", "certification/replay.py", "environments/lean/prelude.lean"),
        *("environments/clrs/environment.py", "orders.py", "randomness.py"),
    ],
)
def test_whatever_decides_a_result_changes_the_hash(package, name):
    (package / name).write_text((package / name).read_text() + "\n# other\n")
    assert code_hash(package) != code_hash()
    (package / name).unlink()
    if name not in ("orders.py", "randomness.py"):
        code_hash.cache_clear()
        assert code_hash(package) != code_hash()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("controls")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 4)
    dataset = make_dataset(config, folder / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(dataset, jobs=1, factories=TWO_TOYS)
    made = make_plan(
        dataset,
        backbone=EMBEDDED,
        backbone_digest=load_backbone("embedded").digest,
        methods=("canonical-grpo", "vcrt"),
        seeds=(0,),
        held_out=("toy-b",),
        run=RunConfig(num_updates=1),
        retention_share=0.3,
    )
    create_experiment(made, folder / "planned")
    return folder


@pytest.fixture
def experiment(whole, tmp_path):
    shutil.copytree(whole / "planned", tmp_path / "experiment")
    with in_this_process():
        yield open_experiment(tmp_path / "experiment")


def under(patch, digest):
    for module in (plan, same_code, planned_training, evaluation):
        patch.setattr(module, "code_hash", lambda: digest)


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
        assert error.value.where == "source files of vcrt"
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
    monkeypatch.setattr(planned_training, "code_hash", lambda: OTHER)
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
