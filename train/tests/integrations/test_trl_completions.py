"""What a model may write while it trains: reasoning before the answer, answers twice, many steps, long ones, none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")


from letters import Answered, Bag, Hanging
from trl_support import Observed, load_model, log_prob, rows, save_model, settings, tokenizer, train
from vcrt.errors import VerifierFailure
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.objective.losses import clipped_loss


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def tasks():
    dataset = rows(count=8).remove_columns(["orbit", "illegal"])
    return dataset.add_column("letters", ["abc"] * 8)


def config(tmp_path, *, alpha=0.0, **changes):
    changes = {"temperature": 2.0, "max_steps": 2, "max_completion_length": 8, **changes}
    return OrbitGRPOConfig(**settings(tmp_path, **changes), orbit_alpha=alpha)


def writes(*texts):
    """Rollouts that are these texts in turn, each with its end."""

    def rollouts(prompts, trainer):
        known = tokenizer()
        made = [[*known(texts[i % len(texts)])["input_ids"], 1] for i in range(len(prompts))]
        return {
            "prompt_ids": known(prompts)["input_ids"],
            "completion_ids": made,
            "logprobs": None,
        }

    return rollouts


def test_reasoning_before_the_answer_is_a_part_of_each_order_and_never_moved(saved, tmp_path):
    thoughts = "e c e d"
    found = config(tmp_path, alpha=0.3)
    trainer, logs, _ = train(
        Observed,
        found,
        load_model(saved),
        tasks(),
        None,
        environment=Answered,
        rollout_func=writes(f"{thoughts} a b c", "e d b a c", f"{thoughts} c a b", "a b c"),
    )
    known = tokenizer()
    encode = lambda text: (*known(text)["input_ids"], 1)  # noqa: E731
    legal, illegal = (
        {encode(f"{thoughts} {order}") for order in orders}
        for orders in (("a b c", "a c b", "c a b"), ("b a c", "b c a", "c b a"))
    )
    credited = 0
    for model, behaviour, inputs, loss in trainer.seen:
        ratios, margins = [], []
        for index, candidates in enumerate(inputs["orbit_candidates"]):
            mask = inputs["completion_mask"][index].bool()
            sample = tuple(inputs["completion_ids"][index][mask].tolist())

            def total(model, texts, prompt=candidates.prompt):
                each = [log_prob(model, prompt, text, found.temperature) for text in texts]
                return torch.stack(each).logsumexp(0)

            assert bool(candidates.orbit) == (sample in legal)
            own, margin = [sample], torch.zeros(())
            if candidates.orbit:
                credited += 1
                assert (set(candidates.orbit), set(candidates.illegal)) == (legal, illegal)
                own = legal
                margin = found.orbit_margin - total(model, legal) + total(model, illegal)
            margins.append(0.5 * margin.clamp(min=0).square())
            ratios.append(total(model, own) - total(behaviour, own))
        expected = clipped_loss(
            torch.stack(ratios)[None], inputs["advantages"][None], found.epsilon
        )
        expected += 0.3 * torch.stack(margins).mean()
        assert loss == pytest.approx(expected.item(), abs=1e-5)
    assert credited > 0
    assert logs[0]["reward"] == logs[0]["orbit/credited"] == 0.5


def test_an_answer_that_is_missing_or_twice_there_is_a_failure_that_stands_for_itself(
    saved, tmp_path
):
    trainer, logs, _ = train(
        Observed,
        config(tmp_path),
        load_model(saved),
        tasks(),
        None,
        environment=Answered,
        rollout_func=writes("d a b c", "a b c", "d a d b c", "e e e e"),
    )
    assert logs[0]["reward"] == logs[0]["orbit/credited"] == 0.25
    assert logs[0]["orbit/unreadable"] == 0.75
    own = [
        candidates.orbit
        for _, _, inputs, _ in trainer.seen
        for candidates in inputs["orbit_candidates"]
    ]
    assert sum(map(bool, own)) * 4 == len(own)


def test_sixty_four_steps_train_as_the_trajectory_that_they_are(saved, tmp_path):
    trainer, logs, gradients = train(
        Observed,
        config(tmp_path, max_completion_length=80, max_steps=1),
        load_model(saved),
        tasks(),
        None,
        environment=Bag,
        rollout_func=writes(" ".join("abcd" * 16), "a a a"),
    )
    assert logs[0]["reward"] == logs[0]["orbit/missed/too_many_steps"] == 0.5
    assert logs[0]["orbit/credited"] == 0
    assert not any(c.orbit for _, _, inputs, _ in trainer.seen for c in inputs["orbit_candidates"])
    assert gradients[0].norm() > 0


def test_a_step_of_five_hundred_tokens_moves_whole(saved, tmp_path):
    long = "e " * 500 + "a"
    trainer, logs, _ = train(
        Observed,
        config(tmp_path, max_completion_length=520, max_steps=1, orbit_max_tokens=65536),
        load_model(saved),
        tasks(),
        None,
        environment=Bag,
        rollout_func=writes(f"{long} b c", "b b"),
    )
    assert logs[0]["reward"] == logs[0]["orbit/credited"] == 0.5
    known = tokenizer()
    orders = {
        (*known(" ".join(order))["input_ids"], 1)
        for order in ([long, "b", "c"], [long, "c", "b"], ["b", long, "c"])
    }
    (found, *_) = (c for _, _, inputs, _ in trainer.seen for c in inputs["orbit_candidates"])
    assert orders < set(found.orbit)
    assert len(found.orbit) == 6


class Stopping(TrainerCallback):
    """Lets the environment hang from the third step on."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            Path(os.environ["VCRT_TESTS_HANGS"]).touch()


@pytest.mark.processes
def test_an_environment_that_hangs_in_the_middle_stops_the_run_where_it_goes_on(
    saved, tmp_path, monkeypatch
):
    flag = tmp_path / "hangs"
    monkeypatch.setenv("VCRT_TESTS_HANGS", str(flag))
    found = config(
        tmp_path, max_steps=4, num_iterations=1, save_strategy="steps", save_steps=100, seed=3
    )

    def made(*callbacks):
        return OrbitGRPOTrainer(
            load_model(saved),
            args=found,
            train_dataset=tasks(),
            processing_class=tokenizer(),
            environment=Hanging,
            callbacks=list(callbacks),
            rollout_func=writes("a b c", "b a c", "c a b", "c c c"),
        )

    whole = made()
    whole.train()
    with pytest.raises(VerifierFailure, match="ran over its time limit") as failure:
        made(Stopping()).train()
    assert "after 1 s" in str(failure.value)
    flag.unlink()
    again = made()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for name, weights in whole.model.named_parameters():
        assert torch.equal(weights, again.model.get_parameter(name)), name
