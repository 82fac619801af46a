"""TRL's trainer with samples that are credited with what all orders of their steps would earn."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
import torch
from transformers import TrainerCallback

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from letters import Letters, Lined
from trl_support import (
    LEGAL,
    load_model,
    log_prob,
    options,
    rows,
    save_model,
    snapshot,
    tasks,
    tokenizer,
    train,
)
from vcrt.errors import RunError
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


def asked(tmp_path, **changes):
    return options(tmp_path, **{"scale_rewards": "leave_one_out"} | changes)


def on_samples(saved, config, rollouts, *, kind=OrbitGRPOTrainer, environment=Letters):
    """Train on given samples of tasks of three letters."""
    model = load_model(saved)
    return train(kind, config, model, tasks(), None, environment=environment, rollout_func=rollouts)


def written(prompts, trainer):
    """Of each four: a success, two failures of the same steps, and an answer of other steps."""
    known, texts = tokenizer(), ["a b c", "b a c", "c b a", "c c c"]
    completions = [[*known(texts[i % 4])["input_ids"], 1] for i in range(len(prompts))]
    ids = known(prompts)["input_ids"]
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}


def failing(prompts, trainer):
    """Steps that would solve the task, in orders that do not."""
    known, texts = tokenizer(), ["b a c", "c b a", "b c a", "b a c"]
    completions = [[*known(texts[i % 4])["input_ids"], 1] for i in range(len(prompts))]
    ids = known(prompts)["input_ids"]
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}


def mixed(prompts, trainer):
    """Orders of wanted letters, of others, of two letters alone, single letters, and answers that are cut off."""
    known = tokenizer()
    texts = ["a b c", "c b a", "c a b", "b a", "b", "d a b", "a b d", "c c c", "b c a", "a b"]
    at = 4 * trainer.state.global_step
    ended = [[*known(texts[(at + i) % 10])["input_ids"], 1] for i in range(len(prompts))]
    if at:
        ended[0] = known("c a b a")["input_ids"]
    return {"prompt_ids": known(prompts)["input_ids"], "completion_ids": ended, "logprobs": None}


def text_of(sample):
    return [tokenizer().decode([token]) for token in sample[:-1]]


def solves(letters):
    return "".join(letters) in {text.replace(" ", "") for text in LEGAL}


class Tagged(OrbitGRPOTrainer):
    """Keeps what every loss was computed at and from, with the generation and the place of each of its samples."""

    drawn: dict
    seen: list

    def _generate_and_score_completions(self, inputs):
        behaviour = snapshot(self.model)
        output = super()._generate_and_score_completions(inputs)
        number, size = len(self.drawn), len(output["completion_ids"])
        self.drawn[number] = behaviour, [unpadded(output, k) for k in range(size)]
        self.told[number] = list(self._logs["advantages"])[-size:], self._rewards.tolist()
        output["generation"] = torch.full((size,), number)
        output["place"] = torch.arange(size)
        return output

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        parts = self.current_gradient_accumulation_steps if self.model.training else 1
        where = list(zip(inputs["generation"].tolist(), inputs["place"].tolist(), strict=True))
        self.seen.append((snapshot(self.model), where, parts * loss.item()))
        return loss


def unpadded(output, index):
    """The prompt and the completion of a sample."""
    return tuple(
        tuple(ids[index][mask[index].bool()].tolist())
        for ids, mask in (
            (output[f"{part}_ids"], output[f"{part}_mask"]) for part in ("prompt", "completion")
        )
    )


def masses_of(policy, prompt, sample, temperature):
    """The probability of the orders of a sample's letters that solve the task, and of the others; or of it alone."""
    known = tokenizer()
    ended = sample[-1:] == (1,)
    letters = text_of(sample) if ended else []
    if len(letters) < 2:
        own = log_prob(policy, prompt, sample, temperature) if sample else torch.zeros(())
        return [own, torch.tensor(-torch.inf)][:: 1 if solves(letters) else -1], False
    kinds = [
        {
            (*known(" ".join(order))["input_ids"], 1)
            for order in permutations(letters)
            if solves(order) is kind
        }
        for kind in (True, False)
    ]
    scores = [[log_prob(policy, prompt, text, temperature) for text in some] for some in kinds]
    nothing = torch.tensor(-torch.inf)
    return [torch.stack(some).logsumexp(0) if some else nothing for some in scores], True


def check(trainer, *, alpha=0.0, beta=0.0, worth=1.0, high=0.2, group=4, reference=None):
    """Compare all losses and logged advantages with those of whole sets of orders; return the kinds of samples."""
    kinds, of = set(), {}
    for number, (behaviour, samples) in trainer.drawn.items():
        chances = []
        for prompt, sample in samples:
            masses, _ = masses_of(behaviour, prompt, sample, 2.0)
            chances.append(float((masses[0] - masses[1]).sigmoid()))
        told, rewards = trainer.told[number]
        for place, (chance, reward) in enumerate(zip(chances, rewards, strict=True)):
            first = place // group * group
            others = worth * (sum(chances[first : first + group]) - chance) / (group - 1)
            of[number, place] = chance, others
            assert told[place] == pytest.approx(reward - others, abs=1e-4)
    for model, where, loss in trainer.seen:
        total = torch.zeros(())
        for number, place in where:
            behaviour, samples = trainer.drawn[number]
            (prompt, sample), (chance, others) = samples[place], of[number, place]
            new, is_class = masses_of(model, prompt, sample, 2.0)
            old, _ = masses_of(behaviour, prompt, sample, 2.0)
            kinds.add((is_class, 0 < chance < 1))
            weights = chance * (worth - others), -(1 - chance) * others
            if not sample:
                weights = 0.0, 0.0
            for weight, after, before in zip(weights, new, old, strict=True):
                ratio = (after - before).exp() if before.isfinite() else torch.ones(())
                total -= min(weight * ratio, weight * ratio.clamp(0.8, 1 + high))
            if is_class and 0 < chance < 1:
                total += alpha * 0.5 * (2.0 - (new[0] - new[1])).clamp(min=0).square()
            if beta and sample:
                ids = torch.tensor([[*prompt, *sample]])
                own, other = (
                    (policy(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / 2.0)
                    .log_softmax(-1)
                    .gather(-1, torch.tensor(sample)[:, None])
                    for policy in (model, reference)
                )
                total += beta * ((other - own).exp() - (other - own) - 1).mean()
        assert loss == pytest.approx(float(total) / len(where), abs=3e-5)
    return kinds


def trained(saved, tmp_path, **changes):
    Tagged.drawn, Tagged.told, Tagged.seen = {}, {}, []
    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, **{"max_steps": 6, "orbit_alpha": 0.0} | changes),
        orbit_all_orders=True,
    )
    return on_samples(saved, config, mixed, kind=Tagged)


@pytest.mark.parametrize("window", [None, 4], ids=["trees", "rows"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_loss_is_that_of_all_orders_by_the_policy(tmp_path, window, alpha):
    """Against the probabilities of all orders of each sample's letters, each scored by itself."""
    saved = save_model(tmp_path / "model", window=window)
    trainer, logs, _ = trained(saved, tmp_path, orbit_alpha=alpha)
    assert check(trainer, alpha=alpha) == {(True, True), (True, False), (False, False)}
    assert {row["orbit/credited"] for row in logs} == {0.875, 0.75}
    assert all(0 < row["orbit/expected_reward"] < 1 for row in logs[::2])


def test_it_is_so_for_weighted_rewards_another_clip_and_split_batches(saved, tmp_path):
    """Samples of a generation are shuffled over its steps, groups with them."""
    trainer, _, _ = trained(
        saved,
        tmp_path,
        reward_weights=[2.5],
        epsilon_high=0.4,
        learning_rate=5e-2,
        steps_per_generation=4,
        gradient_accumulation_steps=2,
        max_steps=8,
    )
    assert len(trainer.seen) == 16
    check(trainer, worth=2.5, high=0.4)


def test_it_is_so_with_a_reference_and_masked_completions(saved, tmp_path):
    trainer, _, _ = trained(
        saved, tmp_path, beta=0.2, mask_truncated_completions=True, use_bias_correction_kl=False
    )
    assert any(not sample for _, samples in trainer.drawn.values() for _, sample in samples)
    check(trainer, beta=0.2, reference=load_model(saved))


def test_it_is_so_in_an_evaluation_with_groups_of_another_size(saved, tmp_path):
    Tagged.drawn, Tagged.told, Tagged.seen = {}, {}, []
    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, per_device_eval_batch_size=6, num_generations_eval=3),
        orbit_all_orders=True,
        orbit_alpha=0.0,
    )
    trainer = Tagged(
        load_model(saved),
        args=config,
        train_dataset=tasks(),
        eval_dataset=tasks(count=4),
        processing_class=tokenizer(),
        environment=Letters,
        rollout_func=mixed,
    )
    found = trainer.evaluate()
    assert len(trainer.seen) == 2
    check(trainer, group=3)
    assert 0 < found["eval_orbit/expected_reward"] < 1


def test_a_sample_that_has_become_much_more_probable_overflows_nothing(saved, tmp_path):
    """TRL's own ratio of a credited sample takes no part, however large it is."""

    class Turned(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            with torch.no_grad():
                model.lm_head.weight.mul_(-1)

    ratios = []

    class Seen(OrbitGRPOTrainer):
        def _with_credit(self, found):
            inputs = self._credit and self._credit[1]
            if inputs and "old_per_token_logps" in inputs:
                mask = inputs["completion_mask"]
                own = (found[0] * mask).sum(-1) - inputs["old_per_token_logps"][:, 0]
                ratios.extend(own[inputs["orbit_credited"]].tolist())
            return super()._with_credit(found)

    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, max_steps=2), orbit_all_orders=True, orbit_alpha=0.0
    )
    sharp = load_model(saved)
    with torch.no_grad():
        sharp.lm_head.weight.mul_(300)
    trainer = Seen(
        sharp,
        args=config,
        train_dataset=tasks(),
        processing_class=tokenizer(),
        environment=Letters,
        rollout_func=mixed,
        callbacks=[Turned()],
    )
    trainer.train()
    assert max(ratios) > 100
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert all(math.isfinite(float(loss)) for loss in losses)
    for parameter in trainer.model.parameters():
        assert parameter.isfinite().all()


def test_failures_teach_which_order_would_have_been_right(saved, tmp_path):
    """In GRPO, a group that fails as a whole has no gradient."""
    found = {}
    for every in (False, True):
        config = OrbitGRPOConfig(
            **asked(tmp_path, temperature=2.0, max_steps=1, num_iterations=1),
            orbit_alpha=0.0,
            orbit_all_orders=every,
        )
        _, logs, gradients = on_samples(saved, config, failing)
        found[every] = logs[0], float(gradients[0].norm())
    assert found[False][0]["reward"] == found[True][0]["reward"] == 0
    assert found[False][1] == 0
    assert found[True][1] > 1e-3
    assert 0 < found[True][0]["orbit/expected_reward"] < 1
    assert found[True][0]["orbit/judged"] == 6


def test_steps_of_a_generation_add_up_to_one_step(saved, tmp_path):
    gradients = []
    for size, accumulation in ((32, 1), (8, 4)):
        changes = asked(
            tmp_path,
            temperature=2.0,
            max_steps=1,
            num_iterations=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
        )
        config = OrbitGRPOConfig(**changes, orbit_all_orders=True)
        _, logs, found = on_samples(saved, config, written)
        assert logs[0]["orbit/credited"] == 1
        gradients.append(found[0])
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()


def test_where_each_order_stands_alone_it_is_the_leave_one_out_of_samples(saved, tmp_path):
    """Blocks of one order: nothing but the form of the loss differs from that of GRPO."""
    gradients = []
    for changes in ({"orbit_credit": False}, {"orbit_all_orders": True, "orbit_max_members": 1}):
        config = OrbitGRPOConfig(**asked(tmp_path, temperature=2.0), orbit_alpha=0.0, **changes)
        _, _, found = on_samples(saved, config, written)
        gradients.append(torch.stack(found))
    assert gradients[0].norm() > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=1e-4)


def test_orders_that_end_otherwise_earn_what_they_earn(saved, tmp_path):
    """Each order of the letters solves the task, so there is nothing to learn from their order."""
    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, max_steps=1, num_iterations=1),
        orbit_alpha=0.0,
        orbit_all_orders=True,
    )
    _, logs, _ = on_samples(saved, config, failing, environment=Lined)
    assert logs[0]["reward"] == logs[0]["orbit/expected_reward"] == 1


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"importance_sampling_level": "token"}, "importance_sampling_level='token'"),
        ({"scale_rewards": "none"}, "scale_rewards='none'"),
        ({"orbit_credit": False}, "orbit_credit=False"),
        ({"orbit_augmentation": 0.1}, "orbit_augmentation=0.1"),
        ({"delta": 2.0}, "delta=2.0"),
        ({"use_vllm": True}, "use_vllm=True"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, changes, found):
    with pytest.raises(RunError, match=found) as refused:
        OrbitGRPOConfig(**asked(tmp_path) | changes, orbit_all_orders=True)
    assert "orbit_all_orders" in str(refused.value)


def test_it_needs_an_environment_and_its_reward_alone(saved, tmp_path):
    config = OrbitGRPOConfig(**asked(tmp_path), orbit_all_orders=True)
    with pytest.raises(RunError, match="without an environment"):
        train(OrbitGRPOTrainer, config, load_model(saved), rows(), lambda **_: [0.0])
    with pytest.raises(RunError, match="1 further reward in reward_funcs"):
        train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            tasks(),
            lambda completions, **_: [0.0] * len(completions),
            environment=Letters,
        )
