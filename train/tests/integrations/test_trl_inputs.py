"""What users of TRL bring along: processors, datasets to evaluate on, reward models, ways of sampling, adapters."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from datasets import DatasetDict
from transformers import (
    ProcessorMixin,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from language_models import byte_level_tokenizer
from language_models import save_model as save_language_model
from letters import Letters
from trl_support import (
    Observed,
    load_model,
    log_prob,
    rows,
    save_model,
    settings,
    tasks,
    tokenizer,
    train,
)
from vcrt.errors import MalformedInputError, RunError, VcrtError
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer, certified_reward


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (rows().remove_columns(["orbit", "illegal"]), "lacks a column"),
        (rows().remove_columns("illegal"), "orbit_alpha=0"),
        ({"own": rows(), "other": rows().remove_columns("orbit")}, "eval_dataset\\['other'\\]"),
        (rows().add_column("image", [None] * 8), "images are not supported"),
        (rows(orbit=None).add_column("partial_order", [[[0, 1]]] * 8), "8 of 8 records"),
    ],
)
def test_a_dataset_to_evaluate_on_is_looked_at_as_well(saved, tmp_path, dataset, words):
    config = OrbitGRPOConfig(**settings(tmp_path, eval_strategy="steps", eval_steps=1))
    with pytest.raises(VcrtError, match=words):
        train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            rows(),
            certified_reward,
            eval_dataset=dataset,
        )


def test_orbits_of_a_stream_that_are_not_listed_are_refused_when_they_come(saved, tmp_path):
    unlisted = rows(orbit=None).add_column("partial_order", [[[0, 1]]] * 8).to_iterable_dataset()
    config = OrbitGRPOConfig(**settings(tmp_path))
    with pytest.raises(RunError, match="1 of 1 record"):
        train(OrbitGRPOTrainer, config, load_model(saved), unlisted, certified_reward)


def test_the_splits_of_a_dataset_are_evaluated_on_by_their_names(saved, tmp_path):
    options = settings(tmp_path, max_steps=1, eval_strategy="steps", per_device_eval_batch_size=8)
    trainer, _, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**options),
        load_model(saved),
        rows(),
        certified_reward,
        eval_dataset=DatasetDict(test=rows(), other=rows()),
    )
    logged = {name for row in trainer.state.log_history for name in row}
    assert {"eval_test_loss", "eval_other_loss", "eval_orbit/mass"} <= logged


def test_a_dataset_that_comes_later_is_looked_at_as_well(saved, tmp_path):
    config = OrbitGRPOConfig(**settings(tmp_path, max_steps=1, per_device_eval_batch_size=8))
    trainer, _, _ = train(OrbitGRPOTrainer, config, load_model(saved), rows(), certified_reward)
    lacking = rows().remove_columns("illegal")
    with pytest.raises(MalformedInputError, match="eval_dataset"):
        trainer.evaluate(lacking)
    with pytest.raises(MalformedInputError, match="eval_dataset\\['some'\\]"):
        trainer.evaluate(eval_dataset={"some": lacking})
    with pytest.raises(MalformedInputError, match="test_dataset"):
        trainer.predict(lacking)
    assert "eval_orbit/mass" in trainer.evaluate(rows())


class Reader(ProcessorMixin):
    """A processor of texts and images, whose images need a package that is not here."""

    def __init__(self, template=None):
        self.tokenizer, self.chat_template = tokenizer(), template


def test_a_processor_is_its_tokenizer_where_there_are_no_images(saved, tmp_path):
    config = OrbitGRPOConfig(**settings(tmp_path, max_steps=1))
    trainer = OrbitGRPOTrainer(
        load_model(saved),
        certified_reward,
        config,
        rows(),
        processing_class=Reader(),
    )
    trainer.train()
    assert trainer.processing_class.eos_token == "<end>"


def test_a_processor_writes_prompts_by_its_own_template(saved, tmp_path):
    reader = Reader("{% for m in messages %}{{ m['content'] }} {% endfor %}a")
    reader.tokenizer.chat_template = "{% for m in messages %}e e e e {% endfor %}"
    prompts = [[{"role": "user", "content": "<go> b c"}]] * 8
    trainer = Observed(
        load_model(saved),
        certified_reward,
        OrbitGRPOConfig(**settings(tmp_path, max_steps=1)),
        rows().remove_columns("prompt").add_column("prompt", prompts),
        processing_class=reader,
    )
    trainer.train()
    (_, _, inputs, _), *_ = trainer.seen
    assert inputs["prompt_ids"][0].tolist() == tokenizer()("<go> b c a")["input_ids"]
    assert reader.tokenizer.chat_template.endswith("e e e e {% endfor %}")


def test_a_model_of_texts_and_images_is_trained_on_texts(saved, tmp_path):
    """As Qwen3.5's are published: their processor needs torchvision, which is not asked for."""
    folder = save_language_model(
        tmp_path / "model", "qwen3_5_multimodal", tokenizer=byte_level_tokenizer(chat=True)
    )
    prompts = [[{"role": "user", "content": f"in which order? {i}"}] for i in range(8)]
    dataset = rows(orbit=["ab", "ba"], illegal=["aa"]).remove_columns("prompt")
    config = OrbitGRPOConfig(**settings(tmp_path, max_steps=1, generation_kwargs=None))
    trainer = OrbitGRPOTrainer(
        str(folder), certified_reward, config, dataset.add_column("prompt", prompts)
    )
    trainer.train()
    assert type(trainer.model).__name__ == "Qwen3_5ForConditionalGeneration"
    assert "orbit/mass" in trainer.state.log_history[0]
    # Processes would wait for gradients of the part that sees images.
    assert config.ddp_find_unused_parameters
    plain = OrbitGRPOConfig(**settings(tmp_path, max_steps=1))
    for given in (load_model(saved), saved):
        OrbitGRPOTrainer(given, certified_reward, plain, rows(), processing_class=tokenizer())
        assert not plain.ddp_find_unused_parameters


def written(prompts, trainer):
    """Samples as some engines make them: the model is left in training, and they ask what it thinks of them."""
    known = tokenizer()
    ids = known(prompts)["input_ids"]
    answers = [
        known(("a b c", "b a c", "c a b", "c c c")[i % 4])["input_ids"] for i in range(len(ids))
    ]
    longest = max(map(len, ids))
    padded = torch.tensor(
        [
            [0] * (longest - len(own)) + own + answer
            for own, answer in zip(ids, answers, strict=True)
        ]
    )
    trainer.model.eval()
    with torch.no_grad():
        found, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, padded, (padded != 0).long(), 3
        )
    expected = [log_prob(trainer.model, *both, 1.0) for both in zip(ids, answers, strict=True)]
    torch.testing.assert_close(found.sum(-1), torch.stack(expected).detach(), atol=1e-5, rtol=0)
    trainer.model.train()
    return {"prompt_ids": ids, "completion_ids": answers, "logprobs": None}


def test_ways_of_sampling_may_ask_for_scores_and_leave_the_model_in_training(saved, tmp_path):
    evaluated = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    config = OrbitGRPOConfig(**settings(tmp_path, max_steps=2, **evaluated))
    trainer, logs, _ = train(
        OrbitGRPOTrainer,
        config,
        load_model(saved),
        rows(),
        certified_reward,
        rollout_func=written,
        eval_dataset=rows(),
    )
    assert all(abs(row["loss"]) > 0 for row in logs)
    evaluations = [row for row in trainer.state.log_history if "eval_loss" in row]
    assert len(evaluations) == 2
    assert all(row["eval_reward"] == 0.5 for row in evaluations)


def test_samples_with_tokens_that_the_model_did_not_write_are_refused(saved, tmp_path):
    def mixed(prompts, trainer):
        made = written(prompts, trainer)
        return {**made, "env_mask": [[1, 0, 1] for _ in made["completion_ids"]]}

    config = OrbitGRPOConfig(**settings(tmp_path, max_steps=1))
    with pytest.raises(RunError, match="did not write"):
        train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            rows(),
            certified_reward,
            rollout_func=mixed,
        )


def test_a_reference_of_another_build_than_the_policy_is_scored(saved, tmp_path):
    """The policy sees few tokens back and is scored in rows; its reference, from the folder, by trees."""
    model = Qwen3ForCausalLM.from_pretrained(
        saved,
        dtype=torch.float32,
        use_sliding_window=True,
        sliding_window=12,
        layer_types=["sliding_attention"] * 2,
    )
    config = OrbitGRPOConfig(**settings(tmp_path, beta=0.1, max_completion_length=12, max_steps=2))
    trainer, logs, _ = train(OrbitGRPOTrainer, config, model, rows(), certified_reward)
    assert all(row["kl"] >= 0 for row in logs)
    assert all(weights.isfinite().all() for weights in trainer.model.parameters())


def test_one_reward_model_stands_behind_the_environment(saved, tmp_path):
    judge = Qwen3ForSequenceClassification(
        Qwen3Config(
            vocab_size=8,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            num_labels=1,
            pad_token_id=0,
        )
    )
    judge.config._name_or_path = "some/judge"
    trainer = OrbitGRPOTrainer(
        load_model(saved),
        judge,
        OrbitGRPOConfig(**settings(tmp_path, max_steps=1)),
        tasks(),
        processing_class=tokenizer(),
        reward_processing_classes=tokenizer(),
        environment=Letters,
    )
    trainer.train()
    (row, *_) = trainer.state.log_history
    assert {"rewards/solved/mean", "rewards/judge/mean"} <= row.keys()


def test_a_tracker_has_the_values_of_orbits(saved, tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    options = settings(tmp_path, max_steps=2, report_to="tensorboard")
    train(OrbitGRPOTrainer, OrbitGRPOConfig(**options), load_model(saved), rows(), certified_reward)
    (written,) = {found.parent for found in tmp_path.rglob("events.*")}
    found = accumulators.EventAccumulator(str(written)).Reload()
    assert {"train/orbit/credited", "train/orbit/mass"} <= set(found.Tags()["scalars"])
    assert [event.step for event in found.Scalars("train/orbit/mass")] == [1, 2]
