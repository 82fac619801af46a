"""Experiments by the command line: planned, trained, evaluated and reported on a small scale, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from command_line import refused, run
from one_process import in_this_process
from vcrt.cli import main
from vcrt.printable import counted
from vcrt.records.dataset import load_items, open_dataset
from vcrt_train.protocol.experiment import load_sources, open_experiment, planned_dataset
from vcrt_train.protocol.planned_training import _train_job, _TrainJob
from vcrt_train.protocol.scores import openings_of_dataset, read_scores
from vcrt_train.report.gather import gather

SCHEMAS = (
    *("clrs/bellman_ford", "clrs/heapsort"),
    *("proofwriter/attribute_chain", "proofwriter/naf_sweep"),
)
METHODS = ("outcome-grpo", "canonical-grpo", "vcrt")
SMALL_PLAN = ("--runs", "1", "--updates", "4", "--methods", *METHODS)


def heed_interruptions():
    """What a shell starts in the background ignores SIGINT, and so would all that the tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A small experiment, made by the commands alone."""
    folder = tmp_path_factory.mktemp("cli")
    data, experiment = folder / "data", folder / "experiment"
    schemas = ["--schemas", *SCHEMAS]
    main(["certify", "--output", str(data), *schemas, "--episodes", "6", "--jobs", "1"])
    main(["verify", str(data), "--jobs", "1"])
    main(["plan", str(data), "--output", str(experiment), *SMALL_PLAN])
    with in_this_process():
        main(["train", str(experiment), "--jobs", "1"])
        main(["evaluate", str(experiment), "--jobs", "1"])
    main(["report", str(experiment)])
    return folder


def test_the_whole_way_gives_a_report(evaluated):
    page = (evaluated / "experiment" / "report" / "report.html").read_text()
    root_hash = json.loads((evaluated / "data" / "manifest.json").read_text())["root_hash"]
    assert root_hash in page
    for name in ("outcome-grpo", "canonical-grpo", "vcrt"):
        assert name.lower() in page.lower()


def test_each_method_is_compared_with_the_frozen_backbone_in_its_own_view(evaluated):
    experiment = open_experiment(evaluated / "experiment")
    scores, contents = read_scores(experiment), gather(experiment)
    assert set(scores.frozen) == {"pointers, sorted", "tokens, shuffled"}
    for run_report in contents.runs:
        view = "tokens, shuffled" if run_report.method == "outcome-grpo" else "pointers, sorted"
        expected = scores.frozen[view][run_report.held_out].retention
        found = "".join("1" if p else "0" for p in contents.frozen_of(run_report).retention_passes)
        assert found == expected
    assert scores.frozen["pointers, sorted"] != scores.frozen["tokens, shuffled"]


def test_a_report_knows_the_source_of_every_item_that_was_scored(evaluated):
    experiment = open_experiment(evaluated / "experiment")
    contents, plan = gather(experiment), experiment.plan
    dataset = planned_dataset(plan)
    for fold in plan.held_out:
        held_out = [item.source for item in load_items(dataset, fold)]
        assert list(contents.sources[fold]) == held_out
        retention = load_sources(plan, dataset, fold).retention
        assert list(contents.retention_sources[fold]) == [
            f"{item.environment}/{item.source}" for item in retention
        ]
        assert len(held_out) == contents.frozen[fold].held_out_passes.size
        assert len(retention) == contents.frozen[fold].retention_passes.size


def test_a_finished_experiment_is_not_trained_or_opened_again(evaluated, capsys):
    experiment = evaluated / "experiment"
    before = (experiment / "scores.json").read_bytes()
    code, out, _ = run(capsys, "train", experiment)
    assert (code, "6 runs at the last update (6 already were)" in out) == (0, True)
    assert "opened before" in refused(capsys, "evaluate", experiment)
    assert "both --reopen and --reason" in refused(capsys, "evaluate", experiment, "--reopen")
    assert (experiment / "scores.json").read_bytes() == before


@pytest.mark.slow
def test_a_second_opening_is_said_on_the_report(evaluated, capsys, tmp_path):
    experiment = tmp_path / "again"
    shutil.copytree(evaluated / "experiment", experiment)
    reason = "to show what a reader sees"
    with in_this_process():
        code, *_ = run(capsys, "evaluate", experiment, "--reopen", "--reason", reason, "--jobs", 1)
    assert code == 0
    code, *_ = run(capsys, "report", experiment)
    assert code == 0
    assert reason in (experiment / "report" / "report.html").read_text()
    kept = experiment / "scores-of-opening-1.json"
    first = kept.read_bytes()
    # An evaluation that was killed before it recorded its scores goes on, and the first opening's scores stay.
    connection = sqlite3.connect(experiment / "ledger.sqlite")
    connection.execute("DELETE FROM entries WHERE position = (SELECT MAX(position) FROM entries)")
    connection.commit()
    connection.close()
    kept.write_bytes(first + b"\n")
    with in_this_process():
        assert run(capsys, "evaluate", experiment, "--jobs", 1)[0] == 0
    assert kept.read_bytes() == first + b"\n"
    # The same plan, the same checkpoints: the same scores.
    assert (experiment / "scores.json").read_bytes() == (
        evaluated / "experiment" / "scores.json"
    ).read_bytes()


@pytest.mark.slow
def test_openings_of_the_dataset_by_other_plans_are_said(evaluated, capsys, tmp_path):
    other = tmp_path / "other"
    options = ("--methods", "vcrt", "--runs", "1", "--updates", "2", "--held-out", "clrs")
    _, planned, _ = run(capsys, "plan", evaluated / "data", "--output", other, *options)
    assert "runs      1: 1 method x 1 fold x 1 run, 2 updates each\n" in planned
    with in_this_process():
        assert run(capsys, "train", other, "--jobs", "1")[0] == 0
        assert run(capsys, "evaluate", other, "--jobs", "1")[0] == 0
    _, printed, _ = run(capsys, "report", other, "--output", tmp_path / "report")
    # Other tests may have opened it again under the first plan.
    times = len(openings_of_dataset(open_dataset(evaluated / "data")).entries("opening")) - 1
    assert times >= 1
    assert f"opened {counted(times, 'time')} by other plans" in " ".join(printed.split())
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Other plans had opened" in page
    # The first plan's own openings are not another's.
    first = gather(open_experiment(evaluated / "experiment"))
    assert first.opening["by_other_plans"] == 1
    assert gather(open_experiment(other)).opening["by_other_plans"] == times


def test_changed_scores_and_checkpoints_are_refused(evaluated, capsys, tmp_path):
    experiment = tmp_path / "changed"
    shutil.copytree(evaluated / "experiment", experiment)
    scores = json.loads((experiment / "scores.json").read_text())
    name = next(iter(scores["runs"]))
    passes = scores["runs"][name]["held_out"]
    scores["runs"][name]["held_out"] = (
        passes.replace("0", "1", 1) if "0" in passes else "0" + passes[1:]
    )
    (experiment / "scores.json").write_text(json.dumps(scores))
    assert "scores were changed" in refused(capsys, "report", experiment)
    weights = experiment / "runs" / name / "update-000004" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    message = refused(capsys, "evaluate", experiment, "--reopen", "--reason", "test")
    assert "weights.safetensors" in message


def test_unknown_names_suggest_the_near_one(evaluated, capsys, tmp_path):
    data = evaluated / "data"
    new = tmp_path / "new"
    message = refused(capsys, "plan", data, "--output", new, "--methods", "vctr")
    assert "did you mean 'vcrt'" in message
    assert "did you mean" in refused(capsys, "plan", data, "--output", new, "--held-out", "clsr")
    assert not new.exists()


def test_a_dataset_changed_by_one_byte_is_refused_everywhere(evaluated, capsys, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(evaluated / "data", data)
    file = data / "audit" / "clrs.jsonl.gz"
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 1
    file.write_bytes(changed)
    for command in (["verify", data], ["plan", data, "--output", tmp_path / "e"]):
        message = refused(capsys, *command, code=4)
        assert str(file) in message.replace("\n", "")
        assert "expected" in message
        assert "to mend" in message
    assert not (tmp_path / "e").exists()


def test_an_unverified_dataset_is_not_planned_on(evaluated, capsys, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(evaluated / "data", data)
    (data / "agreement.json").unlink()
    assert "vcrt verify" in refused(capsys, "plan", data, "--output", tmp_path / "e", code=4)


def test_training_refuses_another_dataset_than_the_planned_one(evaluated, capsys, tmp_path):
    data, experiment = tmp_path / "data", tmp_path / "experiment"
    shutil.copytree(evaluated / "data", data)
    code, *_ = run(capsys, "plan", data, "--output", experiment, "--runs", "1", "--updates", "2")
    assert code == 0
    (data / "agreement.json").unlink()
    assert "was not verified" in refused(capsys, "train", experiment, code=4)
    shutil.rmtree(data)
    assert "not where it was" in refused(capsys, "train", experiment)


def test_nothing_is_overwritten(evaluated, capsys):
    before = sorted((p, p.stat().st_mtime_ns) for p in evaluated.rglob("*") if p.is_file())
    for command in (
        ["certify", "--output", evaluated / "data"],
        ["plan", evaluated / "data", "--output", evaluated / "experiment"],
        ["pretrain", "--output", evaluated / "data"],
    ):
        assert "not overwritten" in refused(capsys, *command)
    after = sorted((p, p.stat().st_mtime_ns) for p in evaluated.rglob("*") if p.is_file())
    assert after == before


def test_an_interrupted_run_goes_on_by_itself_to_the_same_bits(evaluated, capsys, tmp_path):
    whole, cut = evaluated / "experiment", tmp_path / "cut"
    code, *_ = run(capsys, "plan", evaluated / "data", "--output", cut, *SMALL_PLAN)
    assert code == 0
    begun = cut / "runs" / "vcrt" / "clrs" / "0"
    begun.mkdir(parents=True)
    code, out, _ = run(capsys, "train", cut, "--jobs", 1)
    assert (code, "6 runs at the last update\n" in out) == (0, True)
    # The option of earlier versions changes nothing.
    assert run(capsys, "train", cut, "--resume")[0] == 0
    for weights in sorted(whole.glob("runs/*/*/*/update-*/*")):
        assert (cut / weights.relative_to(whole)).read_bytes() == weights.read_bytes()


def test_evaluation_waits_for_every_run(evaluated, capsys, tmp_path):
    experiment = tmp_path / "early"
    code, *_ = run(
        capsys, "plan", evaluated / "data", "--output", experiment, "--runs", "1", "--updates", "2"
    )
    assert code == 0
    assert "not finished" in refused(capsys, "evaluate", experiment)
    assert "not evaluated" in refused(capsys, "report", experiment)
    assert not (experiment / "scores.json").exists()


def test_training_opens_no_file_of_the_environment_that_it_holds_out(evaluated, capsys, tmp_path):
    """Without the held-out environment's files, training gives the same bits."""
    data, experiment = tmp_path / "data", tmp_path / "experiment"
    shutil.copytree(evaluated / "data", data)
    code, *_ = run(capsys, "plan", data, "--output", experiment, "--held-out", "clrs", *SMALL_PLAN)
    assert code == 0
    for view in ("audit", "policy"):
        (data / view / "clrs.jsonl.gz").unlink()
    plan = open_experiment(experiment).plan
    for run_of_plan in plan.runs:
        _train_job(_TrainJob(experiment, run_of_plan, code=plan.code))
    assert len(list(experiment.glob("runs/*/clrs/0/update-000004"))) == len(METHODS)
    message = refused(capsys, "evaluate", experiment)
    assert "not finished" in message


def test_a_ledger_cut_off_at_the_opening_is_found(evaluated, capsys, tmp_path):
    experiment = tmp_path / "experiment"
    shutil.copytree(evaluated / "experiment", experiment)
    connection = sqlite3.connect(experiment / "ledger.sqlite")
    connection.execute("DELETE FROM entries WHERE kind IN ('opening', 'scores')")
    connection.commit()
    connection.close()
    assert "records no opening" in refused(capsys, "evaluate", experiment)


@pytest.mark.slow
def test_the_checkpoint_of_another_run_is_not_taken(evaluated, capsys, tmp_path):
    experiment = tmp_path / "experiment"
    shutil.copytree(evaluated / "experiment", experiment)
    shutil.rmtree(experiment / "runs" / "vcrt" / "clrs" / "0")
    shutil.copytree(
        experiment / "runs" / "canonical-grpo" / "clrs" / "0",
        experiment / "runs" / "vcrt" / "clrs" / "0",
    )
    connection = sqlite3.connect(experiment / "ledger.sqlite")
    connection.execute("DELETE FROM entries WHERE kind != 'plan'")
    connection.commit()
    connection.close()
    assert "belongs to another run" in refused(capsys, "train", experiment, "--jobs", 1)


def test_curves_are_read_from_checked_checkpoints_only(evaluated, capsys, tmp_path):
    experiment = tmp_path / "experiment"
    shutil.copytree(evaluated / "experiment", experiment)
    metrics = experiment / "runs" / "vcrt" / "clrs" / "0" / "update-000004" / "metrics.json"
    metrics.write_text(metrics.read_text().replace("0.", "1.", 1))
    assert "metrics.json" in refused(capsys, "report", experiment)


def test_a_report_does_not_write_into_what_is_there(evaluated, capsys, tmp_path):
    for taken in (evaluated / "data", tmp_path):
        before = sorted(taken.rglob("*"))
        message = refused(capsys, "report", evaluated / "experiment", "--output", taken)
        assert "not overwritten" in message
        assert sorted(taken.rglob("*")) == before


def test_one_table_is_printed_in_each_form_and_nothing_is_written(evaluated, capsys):
    experiment = evaluated / "experiment"
    before = {path: path.stat().st_mtime_ns for path in experiment.rglob("*")}
    for form, suffix in (("csv", "csv"), ("latex", "tex")):
        code, out, _ = run(capsys, "report", experiment, "--table", "main", "--form", form)
        written = (experiment / "report" / f"main.{suffix}").read_bytes().decode()
        assert (code, out) == (0, written)
    code, out, _ = run(capsys, "report", experiment, "--table", "main", "--form", "text")
    assert code == 0
    assert out in (experiment / "report" / "tables.txt").read_text()
    assert "Held-out pass rate" in run(capsys, "report", experiment, "--table", "main")[1]
    message = refused(capsys, "report", experiment, "--table", "mian")
    assert "main" in message
    assert "--table" in refused(capsys, "report", experiment, "--form", "csv")
    both = ("--table", "main", "--output", evaluated / "new")
    assert "one of them" in refused(capsys, "report", experiment, *both)
    assert {path: path.stat().st_mtime_ns for path in experiment.rglob("*")} == before


def test_sharing_and_trackers_are_checked_before_anything_is_trained(evaluated, capsys, tmp_path):
    experiment = tmp_path / "untrained"
    main(["plan", str(evaluated / "data"), "--output", str(experiment), *SMALL_PLAN])
    for options, number, others in (
        (["--sharded"], 2, " --sharded"),
        (["--num-processes", "4"], 4, ""),
        (["--num-processes=4", "--trackers", "a b"], 4, " --trackers 'a b'"),
    ):
        message = refused(capsys, "train", experiment, *options)
        start = f"torchrun --standalone --nproc-per-node {number} -m vcrt train"
        assert f"`{start} {experiment}{others}`\n" in message
    message = refused(capsys, "train", experiment, "--trackers", "tensorbord")
    assert "did you mean 'tensorboard'" in message
    message = refused(capsys, "train", experiment, "--trackers", "comet_ml", code=3)
    assert "pip install comet_ml" in message
    assert not (experiment / "runs").exists()


def test_an_experiment_has_one_writer(evaluated, capsys):
    experiment = open_experiment(evaluated / "experiment")
    with experiment.sole_writer():
        for command in ("train", "evaluate"):
            assert "another process" in refused(capsys, command, experiment.path)


@pytest.fixture(scope="module")
def uninterrupted(evaluated):
    """A trained experiment of one run that is kept three times, and the same again as it was planned."""
    options = ["--runs", "1", "--updates", "60", "--methods", "vcrt", "--held-out", "clrs"]
    options += ["--checkpoints", "5", "20", "60"]
    whole, planned = evaluated / "whole", evaluated / "planned"
    main(["plan", str(evaluated / "data"), "--output", str(planned), *options])
    shutil.copytree(planned, whole)
    main(["train", str(whole), "--jobs", "1"])
    return whole, planned


@pytest.mark.parametrize(
    "sent",
    # A termination is an interruption from the first line of a command on.
    [
        signal.SIGKILL,
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in (signal.SIGINT, signal.SIGTERM)
        ),
    ],
)
@pytest.mark.slow
def test_killed_training_leaves_no_worker_and_resumes_to_the_same_bits(
    uninterrupted, tmp_path, sent
):
    (whole, planned), cut = uninterrupted, tmp_path / "cut"
    shutil.copytree(planned, cut)
    process = subprocess.Popen(
        [sys.executable, "-m", "vcrt", "train", str(cut)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interruptions,
    )
    log = cut / "runs" / "vcrt" / "clrs" / "0" / "progress.jsonl"
    deadline = time.monotonic() + 300
    while not (log.is_file() and log.read_bytes().count(b"\n") >= 23):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(sent)
    process.wait(timeout=60)
    time.sleep(2.5)
    length = log.stat().st_size
    time.sleep(0.7)
    assert log.stat().st_size == length, "a worker is still writing"
    if sent != signal.SIGKILL:
        assert process.returncode == 130
        assert "Traceback" not in process.stderr.read()
    main(["train", str(cut), "--jobs", "1"])
    paths = sorted(whole.glob("runs/*/*/*/update-*/*"))
    assert len(paths) == 3 * 4
    for path in paths:
        assert (cut / path.relative_to(whole)).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--updates", 0, "from 1 to 999999"),
        ("--learning-rate", "nan", "finite number"),
        ("--learning-rate", -1, "finite number"),
        ("--runs", 0, "at least two environments"),
    ],
)
def test_a_plan_with_bad_numbers_is_refused(evaluated, capsys, tmp_path, option, value, expected):
    message = refused(capsys, "plan", evaluated / "data", "--output", tmp_path / "e", option, value)
    assert expected in message
    assert not (tmp_path / "e").exists()


def test_names_given_twice_are_refused(evaluated, capsys, tmp_path):
    for options in (("--methods", "vcrt", "vcrt"), ("--held-out", "clrs", "clrs")):
        message = refused(capsys, "plan", evaluated / "data", "--output", tmp_path / "e", *options)
        assert "twice" in message


@pytest.mark.slow
def test_too_few_items_to_plan_on(capsys, tmp_path):
    data = tmp_path / "data"
    schemas = ("clrs/bellman_ford", "proofwriter/attribute_chain")
    code, *_ = run(
        capsys, "certify", "--output", data, "--schemas", *schemas, "--episodes", 1, "--jobs", 1
    )
    assert code == 0
    assert run(capsys, "verify", data, "--jobs", 1)[0] == 0
    assert "too few source items" in refused(capsys, "plan", data, "--output", tmp_path / "e")


@pytest.mark.slow
def test_experiments_load_nothing_of_a_search_or_of_sharded_models():
    """What trains or reports on one processor has no use for it, and would wait for it."""
    code = (
        "import sys, vcrt_train.api.experimenting, vcrt_train.report.page; "
        "print(sorted({'scipy.stats', 'torch.distributed.tensor'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
