"""A run's directory: what is kept between scheduled checkpoints, and what must not be missing."""

from __future__ import annotations

import shutil
from unittest.mock import patch

import pytest

import vcrt_train.training.run as module
from configs import resolved as config
from training_fixtures import supervised_records
from vcrt.errors import RunError
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.training.methods import method
from vcrt_train.training.run import train_run
from vcrt_train.training.run_directory import checkpoint_path, latest_checkpoint, updates_kept

CONFIG = config(updates=8, checkpoints=(3, 8))


def run(directory, settings=CONFIG, **options):
    return train_run(
        settings,
        method("vcrt"),
        load_backbone("embedded"),
        supervised_records(6),
        directory,
        seed=1,
        encode_seed=0,
        **options,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("run") / "whole")


class Killed(BaseException):
    """The moment at which the process ends."""


@pytest.mark.parametrize("at", [1, 2, 5, 7])
def test_a_killed_run_loses_no_more_than_was_not_kept(tmp_path, whole, at):
    original = module.update

    def until(state, *args, **options):
        if state.update_index == at:
            raise Killed
        return original(state, *args, **options)

    directory = tmp_path / "run"
    with (
        patch.object(module, "KEPT_EVERY_S", -1.0),
        patch.object(module, "update", until),
        pytest.raises(Killed),
    ):
        run(directory)
    latest = latest_checkpoint(directory)
    assert updates_kept(latest) == at
    # One at a time, beside the scheduled ones.
    kept = sorted(path.name for path in directory.glob("*-*"))
    assert kept == sorted({latest.name, *(["update-000003"] if at >= 3 else [])})
    seen = []
    resumed = run(directory, on_update=lambda metrics, _: seen.append(metrics.update))
    assert seen == list(range(at + 1, 9))
    assert (resumed.digests, resumed.metrics) == (whole.digests, whole.metrics)
    assert sorted(path.name for path in directory.glob("*-*")) == ["update-000003", "update-000008"]


def test_a_run_goes_on_in_the_midst_of_its_schedule(tmp_path, whole):
    scheduled = config(updates=8, checkpoints=(3, 8), warmup_updates=5, decay="cosine")
    expected = run(tmp_path / "whole", scheduled)
    assert expected.digests != whole.digests
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint_path(tmp_path / "cut", 8))
    for directory in (tmp_path / "cut", tmp_path / "whole"):
        resumed = run(directory, scheduled)
        assert (resumed.digests, resumed.metrics) == (expected.digests, expected.metrics)


def test_what_was_kept_goes_when_the_run_is_finished(tmp_path, whole):
    copy = tmp_path / "copy"
    shutil.copytree(whole.directory, copy)
    shutil.copytree(checkpoint_path(copy, 8), copy / "latest-000007")
    assert run(copy).digests == whole.digests
    assert not (copy / "latest-000007").exists()


def test_a_scheduled_checkpoint_that_is_gone_is_missed_before_training(tmp_path, whole):
    copy = tmp_path / "copy"
    shutil.copytree(whole.directory, copy)
    shutil.rmtree(checkpoint_path(copy, 3))
    with pytest.raises(RunError, match="checkpoint of the run is missing") as error:
        run(copy)
    assert error.value.where == str(checkpoint_path(copy, 3))


def test_the_model_that_is_trained_is_checked_first(tmp_path):
    class Refused(Exception):
        """What a check may raise."""

    def refuse(model):
        assert any("lora_" in name for name, _ in model.named_parameters())
        raise Refused

    with patch.object(module, "update", None), pytest.raises(Refused):
        train_run(
            config(updates=2, rank=2),
            method("vcrt"),
            load_backbone("embedded"),
            supervised_records(4),
            tmp_path / "run",
            seed=0,
            encode_seed=0,
            check=refuse,
        )
    assert not (tmp_path / "run").exists()
