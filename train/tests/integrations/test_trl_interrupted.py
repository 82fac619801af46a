"""Runs in TRL whose environment breaks: they stop, lose nothing, and go on as if nothing had been."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from transformers import TrainerCallback

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")


from letters import Dying, Interrupted, Letters, Misreading, SlowToBegin
from trl_support import (
    load_model,
    options,
    reward,
    rows,
    save_model,
    tasks,
    tokenizer,
    train,
)
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.processes.watching import WORKERS_MARK
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def test_an_environment_that_dies_stops_the_run_and_gives_no_reward(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0))
    with pytest.raises(VerifierFailure, match="died twice"):
        train(OrbitGRPOTrainer, config, load_model(saved), tasks(), None, environment=Dying)


class Breaking(TrainerCallback):
    """Lets the environment die after so many steps, and so many batches of the one behind them."""

    def __init__(self, steps=3, batches=0):
        self.steps, self.batches, self.seen = steps, batches, 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.on_step_end(args, state, control)

    def on_step_end(self, args, state, control, **kwargs):
        if (state.global_step, self.batches) == (self.steps, 0):
            Path(os.environ["VCRT_TESTS_DIES"]).touch()

    def on_substep_end(self, args, state, control, **kwargs):
        self.seen += state.global_step == self.steps
        if 0 < self.seen == self.batches:
            Path(os.environ["VCRT_TESTS_DIES"]).touch()


class Stopping(TrainerCallback):
    """Ends the run after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.steps


@pytest.fixture
def interrupted(saved, tmp_path, monkeypatch):
    """Trainers whose environment dies while a file is there, and that file."""
    flag = tmp_path / "dies"
    monkeypatch.setenv("VCRT_TESTS_DIES", str(flag))

    def made(*callbacks, count=96, **changes):
        environment = changes.pop("environment", Interrupted)
        common = {"max_steps": 6, "num_iterations": 1, "save_strategy": "steps", "save_steps": 100}
        return OrbitGRPOTrainer(
            load_model(saved),
            args=OrbitGRPOConfig(**options(tmp_path, temperature=9.0, **common | changes)),
            train_dataset=tasks(count=count),
            eval_dataset=tasks(count=8),
            processing_class=tokenizer(),
            environment=environment,
            callbacks=list(callbacks),
        )

    return made, flag


def has_workers():
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, be it as a zombie of another test
            if WORKERS_MARK in each.environ():
                return True
    return False


@pytest.mark.parametrize(
    ("batches", "changes"),
    [
        (0, {}),
        # It dies over the second batch of samples that a step is made of.
        (1, {"gradient_accumulation_steps": 2, "steps_per_generation": 1}),
        (0, {"gradient_accumulation_steps": 2, "steps_per_generation": 4}),
    ],
    ids=["step by step", "within a step", "two steps a generation"],
)
def test_a_run_that_an_environment_stopped_goes_on_as_if_nothing_had_been(
    interrupted, tmp_path, batches, changes
):
    made, flag = interrupted
    step = 4 if changes.get("steps_per_generation") == 4 else 3
    whole = made(**changes)
    whole.train()
    assert sum(row["orbit/credited"] for row in whole.state.log_history[:-1]) > 0
    with pytest.raises(VerifierFailure, match="died twice") as failure:
        made(Breaking(step, batches), **changes).train()
    assert f"checkpoint-{step}" in failure.value.__notes__[0]
    flag.unlink()
    again = made(**changes)
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    for name, weights in whole.model.named_parameters():
        assert torch.equal(weights, again.model.get_parameter(name)), name


def test_what_an_environment_says_amiss_costs_no_step_that_was_made(interrupted, tmp_path):
    made, flag = interrupted
    with pytest.raises(MalformedInputError, match="do not follow each other") as failure:
        made(Breaking(), environment=Misreading).train()
    assert "checkpoint-3" in failure.value.__notes__[0]
    flag.unlink()
    again = made(environment=Misreading)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert again.state.global_step == 6


def rollouts(emptied, steps):
    """Samples as a ``rollout_func`` gives them, of which so many of a kind are empty behind so many steps."""

    def written(prompts, trainer):
        ids = tokenizer()(prompts)["input_ids"]
        answers = tokenizer()(["a b c <end>", "c c c <end>"] * (len(prompts) // 2))["input_ids"]
        output = {"prompt_ids": ids, "completion_ids": answers, "logprobs": None}
        if trainer.state.global_step == steps:
            for kind, count in emptied.items():
                output[kind][:count] = [[]] * count
        return output

    return written


@pytest.mark.parametrize(
    ("environment", "emptied", "found"),
    [
        (Letters, {"completion_ids": 1}, "1 of 8 completions, such as number 1"),
        (Letters, {"prompt_ids": 1}, "1 of 8 prompts"),
        # All of a group, and all of a batch.
        (None, {"completion_ids": 4}, "4 of 8 completions"),
        (None, {"completion_ids": 8}, "8 of 8 completions"),
    ],
)
def test_what_has_no_token_is_named_and_costs_no_step_that_was_made(
    saved, tmp_path, environment, emptied, found
):
    changes = {"max_steps": 4, "num_iterations": 1, "save_strategy": "steps", "save_steps": 100}
    given = {} if environment is None else {"environment": environment}
    with pytest.raises(MalformedInputError, match="without a token") as failure:
        train(
            OrbitGRPOTrainer,
            OrbitGRPOConfig(**options(tmp_path, **changes)),
            load_model(saved),
            rows() if environment is None else tasks(),
            reward if environment is None else None,
            rollout_func=rollouts(emptied, 2),
            **given,
        )
    assert found in failure.value.found
    assert failure.value.where == "rollout_func"
    assert "checkpoint-2" in failure.value.__notes__[0]


def test_a_prompt_without_a_token_is_named(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, max_steps=1))
    dataset = tasks().map(lambda row: {"prompt": ""})
    with pytest.raises(MalformedInputError, match="a prompt without a token"):
        train(OrbitGRPOTrainer, config, load_model(saved), dataset, None, environment=Letters)


def test_a_batch_that_is_wholly_masked_changes_nothing(saved, tmp_path):
    """As TRL masks what was cut off."""
    config = OrbitGRPOConfig(
        **options(tmp_path, max_steps=2, num_iterations=1, mask_truncated_completions=True)
    )

    def cut(prompts, trainer):
        ids = tokenizer()(prompts)["input_ids"]
        return {"prompt_ids": ids, "completion_ids": [[3, 4, 5]] * len(ids), "logprobs": None}

    _, logs, gradients = train(
        OrbitGRPOTrainer,
        config,
        load_model(saved),
        tasks(),
        None,
        environment=Letters,
        rollout_func=cut,
    )
    assert [row["loss"] for row in logs] == [0.0, 0.0]
    assert all(gradient.abs().max() == 0 for gradient in gradients)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        (0, {}),
        (3, {"eval_strategy": "steps", "eval_steps": 3, "per_device_eval_batch_size": 8}),
        (3, {"save_only_model": True}),
    ],
    ids=["before the first step", "in an evaluation", "without the optimizer"],
)
def test_nothing_is_saved_from_which_a_run_would_go_on_otherwise(
    interrupted, tmp_path, steps, changes
):
    made, _ = interrupted
    with pytest.raises(VerifierFailure, match="died twice") as failure:
        made(Breaking(steps), **changes).train()
    assert not getattr(failure.value, "__notes__", [])
    assert not list(tmp_path.glob("checkpoint-*"))


def test_an_evaluation_after_a_run_that_failed_leaves_no_worker(interrupted):
    made, flag = interrupted
    trainer = made(Breaking(), save_strategy="no", per_device_eval_batch_size=8)
    with pytest.raises(VerifierFailure):
        trainer.train()
    flag.unlink()
    trainer.evaluate()
    assert not has_workers()


def test_an_environment_that_hangs_when_it_is_made_is_ended_at_its_own_limit(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, max_steps=1))
    with pytest.raises(VerifierFailure, match="when it is made") as failure:
        train(OrbitGRPOTrainer, config, load_model(saved), tasks(), None, environment=SlowToBegin)
    assert "after 0.25 s" in str(failure.value)


def test_nothing_is_left_running_after_training_or_evaluation(saved, tmp_path):
    config = OrbitGRPOConfig(**options(tmp_path, temperature=2.0, max_steps=1))
    trainer, _, _ = train(
        OrbitGRPOTrainer,
        config,
        load_model(saved),
        tasks("a"),
        None,
        environment=Letters,
        eval_dataset=tasks("a"),
    )
    for used in (lambda: None, trainer.evaluate, lambda: trainer.predict(tasks("a"))):
        used()
        assert not has_workers()


def test_it_goes_on_where_the_last_step_of_an_epoch_was_shorter(interrupted, tmp_path):
    """Of an epoch's six batches a step takes four, then two: later steps do not begin at multiples of four."""
    made, flag = interrupted
    changes = {
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 1,
        "num_train_epochs": 3,
        "max_steps": -1,
    }
    with pytest.raises(VerifierFailure, match="died twice") as failure:
        made(Breaking(3), count=12, **changes).train()
    assert "checkpoint-3" in failure.value.__notes__[0]
    states = torch.load(tmp_path / "checkpoint-3" / "rng_state.pth", weights_only=False)
    flag.unlink()
    made(Stopping(3), count=12, **changes | {"save_steps": 3}).train()
    again = torch.load(tmp_path / "checkpoint-3" / "rng_state.pth", weights_only=False)
    assert torch.equal(states["cpu"], again["cpu"])


def test_who_goes_on_with_the_same_trainer_logs_nothing_twice(interrupted, tmp_path):
    made, flag = interrupted
    changes = {"gradient_accumulation_steps": 2, "steps_per_generation": 1}
    whole = made(**changes)
    whole.train()
    trainer = made(Breaking(3, 1), **changes)
    with pytest.raises(VerifierFailure):
        trainer.train()
    flag.unlink()
    trainer.remove_callback(Breaking)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    logs, others = (
        {row["step"]: row for row in each.state.log_history if "loss" in row}
        for each in (whole, trainer)
    )
    assert list(logs) == list(others) == [1, 2, 3, 4, 5, 6]
    for step, row in logs.items():
        for name in ("reward", "entropy", "orbit/credited", "orbit/mass"):
            assert row.get(name) == others[step].get(name), (step, name)
