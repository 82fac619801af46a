"""Memory that runs out: a named error that says what needs less, and a run that goes on from its last checkpoint."""

from __future__ import annotations

import errno
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

import vcrt_train
import vcrt_train.training.run
from command_line import refused
from two_toys import TWO_TOYS, trained
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import BackboneError, OutOfMemory
from vcrt.memory import (
    available_memory,
    is_out_of_memory,
    naming_out_of_memory,
    out_of_memory,
)
from vcrt.replay.config import sampled
from vcrt_train.config import MemoryConfig
from vcrt_train.protocol import evaluation
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.protocol.planned_training import _train_job, _TrainJob, train
from vcrt_train.training.run import checkpoint_gradients

#: More bytes than any machine has.
TOO_MUCH = 1 << 60


#: The files of both versions of control groups: limit, what is used, what of that are cached files.
SECOND = ("memory.max", "memory.current", "memory.stat", "active_file 70\ninactive_file 200\n")
FIRST = (
    *("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    "inactive_file 9\ntotal_active_file 70\ntotal_inactive_file 200\n",
)


@pytest.mark.parametrize("files", [FIRST, SECOND])
def test_the_limit_of_a_container_counts_where_it_leaves_less(tmp_path, files):
    with patch("psutil.virtual_memory") as machine:
        machine.return_value.available = 4000
        assert available_memory(tmp_path) == 4000
        limit, used, stat, cached = files
        (tmp_path / "memory").mkdir()
        for found, expected in {
            ("1000\n", "600\n", None): 400,
            ("1000\n", "600\n", cached): 670,
            ("1000\n", "600\n", "no statistics\n\n"): 400,
            ("1000\n", "1300\n", None): 0,
            ("9000\n", "600\n", None): 4000,
            ("max\n", "600\n", cached): 4000,
            ("1000\n", None, cached): 4000,
            ("1000\n", "", cached): 4000,
            (None, "600\n", cached): 4000,
        }.items():
            for name, text in zip((limit, used, stat), found, strict=True):
                (tmp_path / name).unlink(missing_ok=True)
                if text is not None:
                    (tmp_path / name).write_text(text)
            assert available_memory(tmp_path) == expected, found


def test_the_limit_of_a_process_counts():
    """As ``ulimit -v`` sets it: libraries that meet it within may not come back to Python."""
    code = (
        "import resource; from vcrt.memory import available_memory; import psutil; "
        "limit = psutil.Process().memory_info().vms + 10**8; "
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit)); print(available_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 <= int(done.stdout) <= 10**8


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's for GPUs, which cannot be made to raise here."""


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: torch.empty(TOO_MUCH, dtype=torch.uint8),
        lambda: np.empty(TOO_MUCH, dtype=np.uint8),
        lambda: bytearray(TOO_MUCH),
    ],
    ids=["torch", "numpy", "python"],
)
def test_real_exhaustion_is_known(allocate):
    with (
        pytest.raises(OutOfMemory, match="memory ran out") as raised,
        naming_out_of_memory("here", "use less"),
    ):
        allocate()
    assert raised.value.where == "here"
    assert raised.value.remedy == "use less"
    assert is_out_of_memory(raised.value.__cause__)


def test_other_errors_pass():
    for error in (RuntimeError("shapes differ"), ValueError("out of memory"), KeyError("memory")):
        assert not is_out_of_memory(error)
        with pytest.raises(type(error)), naming_out_of_memory("here", "use less"):
            raise error
    assert is_out_of_memory(OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"))
    assert is_out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not is_out_of_memory(OSError(errno.ENOSPC, "No space left on device"))
    handle = "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    assert is_out_of_memory(RuntimeError(f"CUDA error: {handle}"))
    assert "fewer --jobs" in str(out_of_memory(MemoryError()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(frozen, jobs=1, factories=TWO_TOYS)
    return path


def planned(folder, name, *options):
    experiment = folder / name
    main(
        [
            *("plan", str(folder / "data"), "--output", str(experiment), "--runs", "1"),
            *("--held-out", "toy-b", "--methods", "vcrt", "--updates", "3"),
            *("--checkpoints", "1", "2", "3"),
            *options,
        ]
    )
    return open_experiment(experiment)


def test_a_run_out_of_memory_goes_on_from_its_last_checkpoint(folder):
    whole, cut = planned(folder, "whole"), planned(folder, "cut")
    (run,) = whole.plan.runs
    expected = _train_job(_TrainJob(whole.path, run, code=whole.plan.code))
    original = vcrt_train.training.run.update

    def hungry(state, *args, **options):
        if state.update_index == 2:
            torch.empty(TOO_MUCH, dtype=torch.uint8)
        return original(state, *args, **options)

    with (
        patch.object(vcrt_train.training.run, "update", hungry),
        pytest.raises(OutOfMemory, match=r"` and one or more of") as raised,
    ):
        _train_job(_TrainJob(cut.path, run, code=cut.plan.code))
    assert "vcrt/toy-b/0" in raised.value.where
    for way in ("--prompts-at-a-time 1", "--gradient-checkpointing", "torchrun"):
        assert way in raised.value.remedy
    assert sorted(p.name for p in cut.run_directory(run).glob("update-*")) == [
        "update-000001",
        "update-000002",
    ]
    resumed = _train_job(_TrainJob(cut.path, run, code=cut.plan.code))
    assert resumed["checkpoints"] == expected["checkpoints"]


@pytest.mark.slow
def test_the_command_trains_with_less_memory_and_says_so(folder, capsys):
    plain, frugal = planned(folder, "plain"), planned(folder, "frugal")
    mixed = planned(folder, "mixed", "--memory.prompts-at-a-time", "1")
    main(["train", str(plain.path), "--jobs", "1"])
    options = ("--prompts-at-a-time", "1", "--gradient-checkpointing")
    main(["train", str(frugal.path), "--jobs", "1", *options])
    (one, lines), (other, others) = trained(plain.path), trained(frugal.path)
    for line, same in zip(lines, others, strict=True):
        assert same["loss"] == pytest.approx(line["loss"], rel=1e-5, abs=1e-6)
    assert max(float((one[n] - other[n]).abs().max()) for n in one) < 1e-4
    (entry,) = frugal.ledger.entries("run")
    assert entry.body["prompts_at_a_time"] == 1
    assert entry.body["gradient_checkpointing"] is True
    (entry,) = plain.ledger.entries("run")
    assert not {"prompts_at_a_time", "gradient_checkpointing"} & set(entry.body)
    main(["train", str(mixed.path), "--jobs", "1", "--gradient-checkpointing"])
    (entry,) = mixed.ledger.entries("run")
    assert entry.body["prompts_at_a_time"] == 1, (
        "what the plan says stays where nothing else is given"
    )
    assert entry.body["gradient_checkpointing"] is True
    wrong = planned(folder, "wrong")
    assert "1 or more" in refused(capsys, "train", wrong.path, "--prompts-at-a-time", "0")


@pytest.mark.slow
def test_an_evaluation_out_of_memory_goes_on_with_fewer_prompts(folder):
    experiment = planned(folder, "evaluated")
    (run,) = experiment.plan.runs
    train(experiment, jobs=1)
    job = evaluation._ScoreJob(
        experiment.path, run.held_out, run.method, run, code=experiment.plan.code
    )
    asked = []
    original = evaluation.greedy_orders

    def hungry(*args, batch_size, **options):
        asked.append(batch_size)
        if batch_size > 16:
            torch.empty(TOO_MUCH, dtype=torch.uint8)
        return original(*args, batch_size=batch_size, **options)

    with patch.object(evaluation, "greedy_orders", hungry):
        with pytest.raises(OutOfMemory, match="under the same opening") as raised:
            evaluation._score_job(job)
        assert "--prompts-at-a-time 16" in raised.value.remedy
        assert raised.value.where == run.name
        fewer = evaluation._score_job(replace(job, prompts_at_a_time=3))
    assert set(asked) == {64, 3}
    assert fewer == evaluation._score_job(job)


def test_any_command_out_of_memory_ends_with_a_message(capsys, monkeypatch):
    def hungry() -> None:
        torch.empty(TOO_MUCH, dtype=torch.uint8)

    monkeypatch.setattr(vcrt_train, "methods", hungry, raising=False)
    assert "memory ran out" in refused(capsys, "methods", code=5)


def test_a_model_without_checkpointing_is_refused():
    class Plain:
        def gradient_checkpointing_enable(self, settings):
            raise ValueError("Plain does not support gradient checkpointing.")

    checkpoint_gradients(Plain(), MemoryConfig())
    with pytest.raises(BackboneError, match="leave --gradient-checkpointing out"):
        checkpoint_gradients(Plain(), MemoryConfig(gradient_checkpointing=True))
