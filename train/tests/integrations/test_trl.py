"""Orbit-GRPO inside TRL: equal to TRL where it must be, equal to the paper's formulas where they differ."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import (
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MptConfig,
    MptForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import GRPOConfig, GRPOTrainer

from objective_oracle import orbit_log_ratio
from trl_support import (
    ILLEGAL,
    LEGAL,
    Observed,
    load_model,
    log_prob,
    rows,
    save_model,
    settings,
    tokenizer,
    train,
)
from vcrt.errors import BackboneError, MalformedInputError, RunError, VerifierFailure
from vcrt_train.integrations.orbit_credit import Candidates, credited_log_probs, differing_tokens
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer, certified_reward
from vcrt_train.objective.losses import anti_diamond_loss, clipped_loss, leave_one_out_advantage
from vcrt_train.policy.self_check import padding_check

#: Sums of float32 in another succession: one pass over a tree of tokens in place of a row for each sample.
TOLERANCE = 5e-6
#: An orbit of one completion, which tiny models hit often if they may sample few letters.
SINGLE = ["a"]
FEW = {"suppress_tokens": [0, 2, 5, 6, 7]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def single_reward(completions, orbit, **kwargs):
    """Some variety in the rewards of failures, so that groups without a success have a gradient too."""
    return [
        1.0 if text in members else 0.1 * text.count("a") - 0.5
        for text, members in zip(completions, orbit, strict=True)
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"importance_sampling_level": "sequence"},
        {"importance_sampling_level": "token"},
        {"importance_sampling_level": "sequence", "beta": 0.2},
        {"importance_sampling_level": "token", "beta": 0.2, "scale_rewards": "group"},
        {"importance_sampling_level": "token", "loss_type": "dapo", "temperature": 0.7},
        {"importance_sampling_level": "token", "loss_type": "cispo", "epsilon_high": 2.0},
        {"importance_sampling_level": "token", "loss_type": "vespo", "max_completion_length": 5},
        {
            "importance_sampling_level": "sequence",
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 8,
            "max_completion_length": 5,
            "beta": 0.2,
        },
        {"importance_sampling_level": "token", "mask_truncated_completions": True, "beta": 0.2},
        {"importance_sampling_level": "token", "entropy_coef": 0.5},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_singleton_orbits_give_the_loss_and_the_gradients_of_trl(saved, tmp_path, changes):
    dataset = rows(orbit=SINGLE)
    changes = {"per_device_train_batch_size": 16, **changes}
    # Not Adam, whose first steps are the signs of gradients: it makes much of rounding.
    options = settings(
        tmp_path, generation_kwargs=FEW, optim="sgd", **{"learning_rate": 0.03, **changes}
    )
    _, theirs, their_gradients = train(
        GRPOTrainer, GRPOConfig(**options), load_model(saved), dataset, single_reward
    )
    _, ours, our_gradients = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**options, orbit_alpha=0.0),
        load_model(saved),
        dataset,
        single_reward,
    )
    assert len(ours) == len(theirs) == 4
    assert max(row["orbit/credited"] for row in ours) > 0
    for our, their in zip(ours, theirs, strict=True):
        assert our["loss"] == pytest.approx(their["loss"], abs=TOLERANCE)
        assert our.get("kl", 0) == pytest.approx(their.get("kl", 0), abs=TOLERANCE)
    for our, their in zip(our_gradients, their_gradients, strict=True):
        assert (our - their).norm() <= TOLERANCE * max(1.0, float(their.norm()))
    # Not equal for want of anything to compare: there are gradients, and ratios that are no longer 1.
    assert sum(gradient.norm() > 1e-3 for gradient in their_gradients) >= 3
    assert abs(theirs[1]["loss"]) > 1e-4


def test_a_model_that_no_tree_fits_is_scored_in_rows(saved, tmp_path):
    """MPT counts places in the tensor, whatever positions it is given; its configuration shows nothing of that."""
    config = MptConfig(d_model=16, n_heads=2, n_layers=2, vocab_size=8, max_seq_len=64)
    config.initializer_range, config.eos_token_id, config.pad_token_id = 0.3, 1, 0
    torch.manual_seed(0)
    MptForCausalLM(config).save_pretrained(tmp_path / "mpt")
    level = {"importance_sampling_level": "token"}
    changes = settings(tmp_path, generation_kwargs=FEW, optim="sgd", max_steps=2, **level)
    _, theirs, their_gradients = train(
        GRPOTrainer,
        GRPOConfig(**changes),
        MptForCausalLM.from_pretrained(tmp_path / "mpt", dtype=torch.float32),
        rows(orbit=SINGLE),
        single_reward,
    )
    with pytest.warns(UserWarning, match="MptForCausalLM is scored completion by completion"):
        _, _, our_gradients = train(
            OrbitGRPOTrainer,
            OrbitGRPOConfig(**changes, orbit_alpha=0.0),
            MptForCausalLM.from_pretrained(tmp_path / "mpt", dtype=torch.float32),
            rows(orbit=SINGLE),
            single_reward,
        )
    assert all(gradient.norm() > 1e-3 for gradient in their_gradients)
    for our, their in zip(our_gradients, their_gradients, strict=True):
        assert (our - their).norm() <= TOLERANCE * max(1.0, float(their.norm()))
    assert len(theirs) == 2


def test_a_model_that_reads_padding_as_places_is_refused_in_rows(saved, tmp_path):
    """GPT-Neo counts positions in the tensor, and sees a window that no tree has."""
    config = GPTNeoConfig(
        vocab_size=8,
        hidden_size=16,
        num_layers=2,
        attention_types=[[["global", "local"], 1]],
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        window_size=32,
        initializer_range=0.3,
        bos_token_id=2,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    GPTNeoForCausalLM(config).save_pretrained(tmp_path / "neo")
    neo = GPTNeoForCausalLM.from_pretrained(tmp_path / "neo", dtype=torch.float32)
    given = OrbitGRPOConfig(**settings(tmp_path))
    with pytest.raises(BackboneError, match="padding before a text") as error:
        train(OrbitGRPOTrainer, given, neo, rows(), single_reward)
    assert "rotary" in error.value.remedy
    # Rotary positions: padding changes nothing, though this model's window lets no tree fit it.
    windowed = load_model(save_model(tmp_path / "windowed", window=4))
    assert padding_check(windowed, 0) < 1e-5
    # Its own tokens stand before the padding.
    prompted = get_peft_model(
        load_model(saved), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    )
    with pytest.raises(BackboneError, match="padding before a text") as error:
        train(OrbitGRPOTrainer, given, prompted, rows(), single_reward)
    assert "LoRA" in error.value.remedy


@pytest.mark.parametrize("form", ["autocast", "weights"])
def test_ratios_are_one_before_the_first_step_also_in_bfloat16(tmp_path, form):
    """Old scores of other passes round otherwise: then samples are clipped whose policy has not changed."""
    texts = [" ".join(letters * 10) for letters in ("abcd", "bacd", "cabd", "dabc")]

    def writes(prompts, trainer):
        known = tokenizer()
        return {
            "prompt_ids": known(prompts)["input_ids"],
            "completion_ids": [[*known(texts[i % 4])["input_ids"], 1] for i in range(len(prompts))],
            "logprobs": None,
        }

    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.08}
    model = Qwen3ForCausalLM(
        Qwen3Config(vocab_size=8, eos_token_id=1, pad_token_id=0, **shape, **heads)
    )
    changes = settings(
        tmp_path,
        learning_rate=0.0,
        gradient_accumulation_steps=2,
        steps_per_generation=2,
        max_completion_length=60,
        max_steps=4,
        epsilon=1e-7,
    )
    _, logs, _ = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**{**changes, "bf16": form == "autocast"}, orbit_alpha=0.1),
        model if form == "autocast" else model.to(torch.bfloat16),
        rows(orbit=texts[:2], illegal=texts[2:3], count=32),
        rollout_func=writes,
    )
    assert [row["orbit/credited"] for row in logs] == [0.5] * 4
    assert [row["clip_ratio/region_mean"] for row in logs] == [0.0] * 4


def test_tokens_that_are_inserted_take_credit_as_others_do():
    """Of "a" beside "a a" no token differs, and all carry what the orbit has over it."""
    candidates = Candidates(prompt=(2,), orbit=((3, 1), (3, 3, 1)))
    differing = differing_tokens([candidates] * 2, [(3, 1), (3, 3, 1)], 3)
    assert differing.tolist() == [[True, True, False], [False, True, False]]
    log_probs, mask = torch.tensor([[-1.0, -1.0, 0.0]]), torch.tensor([[1, 1, 0]])
    for level in ("token", "sequence"):
        credited = credited_log_probs(log_probs, mask, torch.tensor([0.5]), level, differing[:1])
        assert (credited * mask).sum() == -1.5


def expected_loss(config, model, behaviour, inputs):
    """The paper's loss, sample by sample, by the objective's own functions on naive scores."""
    log_ratios, margins = [], []
    for index, candidates in enumerate(inputs["orbit_candidates"]):
        mask = inputs["completion_mask"][index].bool()
        sample = tuple(inputs["completion_ids"][index][mask].tolist())
        new, old = (
            torch.stack(
                [
                    log_prob(m, candidates.prompt, completion, config.temperature)
                    for completion in (*candidates.orbit, *candidates.illegal, sample)
                ]
            )[None]
            for m in (model, behaviour)
        )
        size, is_member = len(candidates.orbit), sample in candidates.orbit
        orbit = torch.arange(new.shape[1])[None] < size
        log_ratios.append(
            orbit_log_ratio(
                new,
                old,
                torch.tensor([[new.shape[1] - 1]]),
                successes=torch.tensor([[is_member]]),
                orbit=orbit,
            )[0, 0]
        )
        margins.append(anti_diamond_loss(new[:, :-1], orbit[:, :-1], config.orbit_margin).squeeze())
    policy = clipped_loss(torch.stack(log_ratios)[None], inputs["advantages"][None], config.epsilon)
    return policy + config.orbit_alpha * torch.stack(margins).mean()


@pytest.mark.parametrize("epsilon", [0.2, 5.0])
def test_the_loss_is_the_papers(saved, tmp_path, epsilon):
    """At the narrow clip the ratio of the credited sample is clipped; at the wide one all of it counts."""
    changes = {"scale_rewards": "leave_one_out", "temperature": 0.8, "epsilon": epsilon}
    config = OrbitGRPOConfig(**settings(tmp_path, **changes), orbit_alpha=0.3)
    trainer, logs, _ = train(Observed, config, load_model(saved), rows())
    assert config.importance_sampling_level == "trajectory"
    assert max(row["orbit/credited"] for row in logs) > 0
    assert len(trainer.seen) == 4
    for model, behaviour, inputs, loss in trainer.seen:
        with torch.no_grad():
            expected = expected_loss(config, model, behaviour, inputs)
        assert loss == pytest.approx(float(expected), abs=1e-5)
    # Second passes have ratios that are not 1.
    assert abs(trainer.seen[1][3] - trainer.seen[0][3]) > 1e-3


def token_log_probs(model, prompt, completion, temperature):
    ids = torch.tensor([[*prompt, *completion]])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]


def loss_with_kl(config, model, behaviour, reference, inputs):
    """Clipped and with the KL of each token, which TRL weights by the token's ratio or by the completion's."""
    losses = []
    for index, candidates in enumerate(inputs["orbit_candidates"]):
        mask = inputs["completion_mask"][index].bool()
        sample = tuple(inputs["completion_ids"][index][mask].tolist())
        new, old, ref = (
            token_log_probs(each, candidates.prompt, sample, config.temperature)
            for each in (model, behaviour, reference)
        )
        members = candidates.orbit if sample in candidates.orbit else [sample]
        mass, mass_old = (
            torch.stack(
                [
                    token_log_probs(each, candidates.prompt, m, config.temperature).sum()
                    for m in members
                ]
            ).logsumexp(0)
            for each in (model, behaviour)
        )
        log_ratio = mass - mass_old
        if config.importance_sampling_level == "sequence":
            log_ratio = log_ratio / len(sample)
        elif config.importance_sampling_level == "token":
            surplus = log_ratio - (new - old).sum()
            places = zip(*members, strict=True)
            differs = torch.tensor([float(len(set(tokens)) > 1) for tokens in places])
            log_ratio = new - old + surplus * differs / differs.sum().clamp(min=1)
        ratio, advantage = log_ratio.exp(), inputs["advantages"][index]
        clipped = ratio.clamp(1 - config.epsilon, 1 + config.epsilon)
        kl = (ref - new).exp() - (ref - new) - 1
        if config.importance_sampling_level != "trajectory":
            kl = kl * ratio
        losses.append((config.beta * kl - torch.min(ratio * advantage, clipped * advantage)).mean())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("level", ["trajectory", "sequence", "token"])
def test_the_kl_of_tokens_is_of_the_same_size_at_every_level(saved, tmp_path, level):
    """Steps are large: a trajectory's ratio is far from 1, and must not multiply the KL of each token."""
    changes = {"beta": 0.2, "learning_rate": 0.03, "generation_kwargs": FEW}
    config = OrbitGRPOConfig(
        **settings(tmp_path, importance_sampling_level=level, **changes), orbit_alpha=0.0
    )
    dataset = rows(orbit=["a", "b"])
    trainer, logs, _ = train(Observed, config, load_model(saved), dataset)
    assert max(row["orbit/credited"] for row in logs) > 0
    assert max(row["kl"] for row in logs) > 0.01
    for model, behaviour, inputs, loss in trainer.seen:
        with torch.no_grad():
            expected = loss_with_kl(config, model, behaviour, load_model(saved), inputs)
        assert loss == pytest.approx(float(expected), abs=1e-5)


def test_advantages_leave_one_out(saved, tmp_path):
    collected = []

    def noted(completions, orbit, **kwargs):
        collected.append(single_reward(completions, orbit))
        return collected[-1]

    config = OrbitGRPOConfig(
        **settings(
            tmp_path,
            scale_rewards="leave_one_out",
            num_iterations=1,
            max_steps=1,
            gradient_accumulation_steps=2,
            shuffle_dataset=False,
        ),
        orbit_alpha=0.0,
    )
    trainer, _, _ = train(Observed, config, load_model(saved), rows(), noted)
    expected = leave_one_out_advantage(torch.tensor(collected).view(-1, 4)).flatten()
    found = torch.cat([inputs["advantages"] for _, _, inputs, _ in trainer.seen])
    # TRL shuffles the samples of a generation batch.
    assert torch.allclose(found.sort().values, expected.sort().values)
    assert expected.abs().max() > 0
    # What a table of completions shows.
    assert list(trainer._logs["advantages"]) == pytest.approx(expected.tolist())


def test_orbits_of_several_completions_change_the_gradient(saved, tmp_path):
    """The counterpart of the equality test: with more than one completion, credit does differ from TRL's."""
    options = settings(tmp_path, generation_kwargs=FEW, importance_sampling_level="sequence")
    dataset = rows(orbit=["a", "b", "a a", "b b"])
    _, _, theirs = train(GRPOTrainer, GRPOConfig(**options), load_model(saved), dataset)
    _, _, ours = train(
        OrbitGRPOTrainer, OrbitGRPOConfig(**options, orbit_alpha=0.0), load_model(saved), dataset
    )
    assert (ours[0] - theirs[0]).norm() > 1e-2


def test_a_reward_of_zero_leaves_the_margin_alone(saved, tmp_path):
    """As the page on TRL says."""
    _, logs, gradients = train(
        OrbitGRPOTrainer,
        OrbitGRPOConfig(**settings(tmp_path), orbit_alpha=0.5),
        load_model(saved),
        rows(),
        lambda completions, **_: [0.0] * len(completions),
    )
    for row, gradient in zip(logs, gradients, strict=True):
        assert float(row["loss"]) == pytest.approx(0.5 * float(row["orbit/margin_loss"]), abs=1e-6)
        assert row["orbit/credited"] == 0
        assert bool(gradient.norm() > 0) is (float(row["loss"]) > 0)
    assert gradients[0].norm() > 0


def test_only_the_adapter_of_a_peft_model_is_trained(saved, tmp_path):
    config = OrbitGRPOConfig(**settings(tmp_path, beta=0.1, gradient_checkpointing=True))
    adapter = LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer, logs, gradients = train(
        OrbitGRPOTrainer, config, load_model(saved), rows(), peft_config=adapter
    )
    assert gradients[0].norm() > 1e-4
    assert all("lora" in n for n, p in trainer.model.named_parameters() if p.requires_grad)
    # Dropout is off: before the first step no ratio differs from 1, and TRL's loss is the mean advantage, 0.
    first = logs[0]
    assert first["loss"] == pytest.approx(0.1 * first["orbit/margin_loss"], abs=1e-5)
    assert first["kl"] == pytest.approx(0, abs=1e-6)


def test_the_number_of_members_at_a_time_does_not_matter(saved, tmp_path):
    runs = []
    for size in (1, 5, 64):
        config = OrbitGRPOConfig(**settings(tmp_path, max_steps=2), orbit_batch_size=size)
        runs.append(train(OrbitGRPOTrainer, config, load_model(saved), rows())[1:])
    (first, gradients), *others = runs
    for logs, other_gradients in others:
        for row, other in zip(first, logs, strict=True):
            assert row["loss"] == pytest.approx(other["loss"], abs=1e-6)
        for one, other in zip(gradients, other_gradients, strict=True):
            assert (one - other).norm() <= 1e-5 * one.norm()


def test_steps_of_a_generation_add_up_to_one_step(saved, tmp_path):
    """Groups spread over accumulation steps give the gradient of the whole batch, margin included."""
    gradients = []
    for size, accumulation in ((16, 1), (2, 8)):
        config = OrbitGRPOConfig(
            **settings(
                tmp_path,
                max_steps=1,
                num_iterations=1,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=accumulation,
            )
        )
        gradients.append(train(OrbitGRPOTrainer, config, load_model(saved), rows())[2][0])
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()


def test_rows_without_an_orbit_are_ordinary_rows(saved, tmp_path):
    dataset = rows(orbit=[], illegal=None)
    rewards = partial(letters, "a")
    options = settings(tmp_path, max_steps=2, importance_sampling_level="token")
    _, theirs, _ = train(GRPOTrainer, GRPOConfig(**options), load_model(saved), dataset, rewards)
    _, ours, _ = train(
        OrbitGRPOTrainer, OrbitGRPOConfig(**options), load_model(saved), dataset, rewards
    )
    assert [row["loss"] for row in ours] == pytest.approx([row["loss"] for row in theirs], abs=1e-6)
    assert {row["orbit/credited"] for row in ours} == {0}


def letters(letter, completions, **kwargs):
    return [float(text.count(letter)) for text in completions]


def test_token_ids_are_as_good_as_texts(saved, tmp_path):
    known = tokenizer()
    as_ids = rows(
        orbit=[known(text)["input_ids"] for text in LEGAL],
        illegal=[known(text)["input_ids"] for text in ILLEGAL],
    )
    losses = []
    for dataset in (rows(), as_ids):
        config = OrbitGRPOConfig(**settings(tmp_path, max_steps=2))
        _, logs, _ = train(
            OrbitGRPOTrainer, config, load_model(saved), dataset, partial(letters, "b")
        )
        losses.append([row["loss"] for row in logs])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"importance_sampling_level": "sentence"}, "token, sequence, trajectory"),
        ({"loss_type": "dapo"}, "loss_type='grpo'"),
        ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold=None"),
        ({"beta": 0.1, "use_bias_correction_kl": True}, "use_bias_correction_kl=False"),
        ({"orbit_alpha": -1.0}, "orbit_alpha of 0 or more"),
        ({"remove_unused_columns": True}, "remove_unused_columns=False"),
        (
            {
                "multi_objective_aggregation": "normalize_then_sum",
                "scale_rewards": "leave_one_out",
            },
            "sum_then_normalize",
        ),
    ],
)
def test_settings_without_a_meaning_are_refused(tmp_path, changes, words):
    with pytest.raises(RunError, match=words):
        OrbitGRPOConfig(**settings(tmp_path, **changes))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (rows().remove_columns("orbit"), "lacks a column"),
        (rows().remove_columns("illegal"), "orbit_alpha=0"),
        (rows(orbit=["a b", "a  b"]), "occurs twice"),
        (rows(orbit=["a b"], illegal=["a b"]), "occurs twice"),
        (rows(orbit=["a b c a"]), "raise max_completion_length"),
        (rows(orbit=[""]), "leave empty completions out"),
        (rows(orbit=[[1.5]]), "not a completion"),
        (rows(orbit="a b"), "not a set of completions"),
    ],
)
def test_columns_of_another_form_are_refused(saved, tmp_path, dataset, words):
    config = OrbitGRPOConfig(**settings(tmp_path))
    with pytest.raises(MalformedInputError, match=words):
        train(OrbitGRPOTrainer, config, load_model(saved), dataset, partial(letters, "a"))


def test_a_verifier_that_fails_in_a_reward_function_is_the_error(saved, tmp_path):
    def failing(completions, **kwargs):
        raise VerifierFailure("the verifier of a reward function broke", where="mine")

    config = OrbitGRPOConfig(**settings(tmp_path, save_strategy="steps", save_steps=5))
    with pytest.raises(VerifierFailure, match="a reward function broke"):
        train(OrbitGRPOTrainer, config, load_model(saved), rows(), failing)
    assert not list(tmp_path.glob("checkpoint-*"))


def test_tools_and_plain_configurations_are_refused(saved, tmp_path):
    with pytest.raises(RunError, match="an OrbitGRPOConfig"):
        train(OrbitGRPOTrainer, GRPOConfig(**settings(tmp_path)), load_model(saved), rows())
    config = OrbitGRPOConfig(**settings(tmp_path))
    with pytest.raises(RunError, match="leave tools out"):
        train(OrbitGRPOTrainer, config, load_model(saved), rows(), tools=[len])
    with pytest.raises(RunError, match="leave environment_factory out"):
        train(OrbitGRPOTrainer, config, load_model(saved), rows(), environment_factory=object)


def test_evaluation_gives_the_papers_loss_and_orbits(saved, tmp_path):
    """Over two batches, by naive scores of each prompt's completions; steps of training are nothing to it."""
    config = OrbitGRPOConfig(
        **settings(tmp_path, max_steps=1, gradient_accumulation_steps=2, generation_kwargs=FEW),
        num_generations_eval=2,
        orbit_alpha=0.3,
        orbit_margin=6.0,
    )
    short = {"orbit": ["a", "b", "a a", "b b"], "illegal": ["a b", "b a"]}
    trainer, _, _ = train(
        Observed,
        config,
        load_model(saved),
        rows(**short),
        eval_dataset=rows(**short, count=8),
    )
    trainer.seen = []
    found = trainer.evaluate()
    assert [len(inputs["orbit_candidates"]) for _, _, inputs, _ in trainer.seen] == [8, 8]
    expected = {"loss": [], "orbit/mass": [], "orbit/margin_loss": [], "orbit/credited": []}
    for model, behaviour, inputs, loss in trainer.seen:
        with torch.no_grad():
            scored = expected_orbits(config, model, inputs)
            scored["loss"] = float(expected_loss(config, model, behaviour, inputs))
        assert loss == pytest.approx(scored["loss"], abs=TOLERANCE)
        for name, value in scored.items():
            expected[name].append(value)
    for name, values in expected.items():
        assert found[f"eval_{name}"] == pytest.approx(sum(values) / 2, abs=TOLERANCE), name
    assert found["eval_orbit/missed"] == 0
    # The batches are not alike, so that a mean over them is neither.
    for name in ("loss", "orbit/mass", "orbit/margin_loss"):
        assert abs(expected[name][0] - expected[name][1]) > 1e-3
    assert found["eval_orbit/credited"] > 0


def expected_orbits(config, model, inputs):
    """What a batch says of its orbits: mass a prompt; margin loss and membership a sample."""
    masses, margins, members = {}, [], []
    for index, candidates in enumerate(inputs["orbit_candidates"]):
        scores = [
            log_prob(model, candidates.prompt, completion, config.temperature)
            for completion in (*candidates.orbit, *candidates.illegal)
        ]
        orbit, illegal = (
            sum(float(score.exp()) for score in part)
            for part in (scores[: len(candidates.orbit)], scores[len(candidates.orbit) :])
        )
        masses[candidates.prompt] = orbit
        margins.append(max(0.0, config.orbit_margin - math.log(orbit / illegal)) ** 2 / 2)
        mask = inputs["completion_mask"][index].bool()
        members.append(tuple(inputs["completion_ids"][index][mask].tolist()) in candidates.orbit)
    return {
        "orbit/mass": sum(masses.values()) / len(masses),
        "orbit/margin_loss": sum(margins) / len(margins),
        "orbit/credited": sum(members) / len(members),
    }


def test_the_reward_is_for_certified_texts_alone():
    chat = [{"role": "assistant", "content": "b  a\n"}]
    orbit = [["a b", "b a"]] * 4 + [None]
    texts = ["a b", "b a c", "", "ab", "a b"]
    assert certified_reward(completions=texts, orbit=orbit, prompts=[]) == [1, 0, 0, 0, 0]
    assert certified_reward([chat], [["b a"]]) == [1]
    with pytest.raises(MalformedInputError, match="token ids"):
        certified_reward(["a b"], [[[3, 4]]])
