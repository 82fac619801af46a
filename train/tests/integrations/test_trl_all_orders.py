"""TRL's trainer with samples that are credited with what all orders of their steps would earn."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from letters import Letters, Lined
from trl_support import (
    LEGAL,
    Observed,
    load_model,
    log_prob,
    options,
    rows,
    save_model,
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


@pytest.mark.parametrize("window", [None, 4], ids=["trees", "rows"])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_the_loss_is_that_of_all_orders_by_the_policy(tmp_path, window, alpha):
    """Against the probabilities of all orders of each sample's letters, each scored by itself."""
    saved = save_model(tmp_path / "model", window=window)
    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, max_steps=6), orbit_all_orders=True, orbit_alpha=alpha
    )
    trainer, logs, _ = train(
        Observed,
        config,
        load_model(saved),
        tasks(),
        None,
        environment=Letters,
        rollout_func=mixed,
    )
    known = tokenizer()
    kinds = set()
    for model, behaviour, inputs, loss in trainer.seen:
        samples, chances = [], []
        for index in range(len(inputs["completion_ids"])):
            mask = inputs["completion_mask"][index].bool()
            prompt_mask = inputs["prompt_mask"][index].bool()
            prompt = tuple(inputs["prompt_ids"][index][prompt_mask].tolist())
            sample = tuple(inputs["completion_ids"][index][mask].tolist())
            letters = text_of(sample) if sample[-1] == 1 else []
            orders = {order: solves(order) for order in permutations(letters)}
            if len(letters) < 2:
                orders = {}

            def mass(policy, some, prompt=prompt):
                texts = [(*known(" ".join(each))["input_ids"], 1) for each in some]
                scores = [log_prob(policy, prompt, text, 2.0) for text in texts]
                return torch.stack(scores).logsumexp(0) if scores else torch.tensor(-torch.inf)

            kinds_of_orders = [
                [order for order, solved in orders.items() if solved is kind]
                for kind in (True, False)
            ]
            masses = [(mass(model, some), mass(behaviour, some)) for some in kinds_of_orders]
            chance = float((masses[0][1] - masses[1][1]).sigmoid())
            if not orders:
                own = [log_prob(policy, prompt, sample, 2.0) for policy in (model, behaviour)]
                chance = float(solves(letters))
                masses = [tuple(own), (torch.tensor(-torch.inf),) * 2][:: 1 if chance else -1]
            kinds.add((bool(orders), chance > 0))
            samples.append((masses, bool(orders)))
            chances.append(chance)
        total, margins = 0.0, 0.0
        prompts = [tuple(row.tolist()) for row in inputs["prompt_ids"]]
        for place, ((masses, is_class), chance) in enumerate(zip(samples, chances, strict=True)):
            group = [k for k, other in enumerate(prompts) if other == prompts[place]]
            # Samples are shuffled over the steps of a generation: of whole groups alone can this be seen.
            assert len(group) == 4
            others = sum(chances[k] for k in group if k != place) / 3
            for weight, (new, old) in zip(
                (chance * (1 - others), -(1 - chance) * others), masses, strict=True
            ):
                ratio = (new - old).exp() if old.isfinite() else torch.ones(())
                total -= min(weight * ratio, weight * ratio.clamp(0.8, 1.2))
            if is_class and 0 < chance < 1:
                margins += 0.5 * (2.0 - (masses[0][0] - masses[1][0])).clamp(min=0).square()
        expected = float(total + alpha * margins) / len(samples)
        assert loss == pytest.approx(expected, abs=2e-5)
    assert kinds == {(True, True), (True, False), (False, False)}
    assert {row["orbit/credited"] for row in logs} == {0.875, 0.75}
    assert all(0 < row["orbit/expected_reward"] < 1 for row in logs[::2])


def test_failures_teach_which_order_would_have_been_right(saved, tmp_path):
    """In GRPO, a group that fails as a whole has no gradient."""
    found = {}
    for every in (False, True):
        config = OrbitGRPOConfig(
            **asked(tmp_path, temperature=2.0, max_steps=1, num_iterations=1),
            orbit_alpha=0.0,
            orbit_all_orders=every,
        )
        _, logs, gradients = train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            tasks(),
            None,
            environment=Letters,
            rollout_func=failing,
        )
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
        _, logs, found = train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            tasks(),
            None,
            environment=Letters,
            rollout_func=written,
        )
        assert logs[0]["orbit/credited"] == 1
        gradients.append(found[0])
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()


def test_where_each_order_stands_alone_it_is_the_leave_one_out_of_samples(saved, tmp_path):
    """Blocks of one order: nothing but the form of the loss differs from that of GRPO."""
    gradients = []
    for changes in ({"orbit_credit": False}, {"orbit_all_orders": True, "orbit_max_members": 1}):
        config = OrbitGRPOConfig(**asked(tmp_path, temperature=2.0), orbit_alpha=0.0, **changes)
        _, _, found = train(
            OrbitGRPOTrainer,
            config,
            load_model(saved),
            tasks(),
            None,
            environment=Letters,
            rollout_func=written,
        )
        gradients.append(torch.stack(found))
    assert gradients[0].norm() > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=1e-4)


def test_resumed_is_as_uninterrupted(saved, tmp_path):
    given = tasks(count=96)
    changes = asked(tmp_path, temperature=9.0, max_steps=12, num_iterations=1)
    changes |= {"save_strategy": "steps", "save_steps": 6, "per_device_train_batch_size": 32}
    config = OrbitGRPOConfig(**changes, orbit_all_orders=True, orbit_max_members=2)
    whole, logs, _ = train(
        OrbitGRPOTrainer, config, load_model(saved), given, None, environment=Letters
    )
    assert max(row["orbit/partial"] for row in logs[6:]) > 0
    again = OrbitGRPOTrainer(
        load_model(saved),
        args=config,
        train_dataset=given,
        processing_class=tokenizer(),
        environment=Letters,
    )
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    for name, weights in whole.model.named_parameters():
        assert torch.equal(weights, again.model.get_parameter(name)), name


def test_an_evaluation_has_the_same_loss_as_its_samples(saved, tmp_path):
    config = OrbitGRPOConfig(**asked(tmp_path, per_device_eval_batch_size=8), orbit_all_orders=True)
    trainer = OrbitGRPOTrainer(
        load_model(saved),
        args=config,
        train_dataset=tasks(),
        eval_dataset=tasks(count=4),
        processing_class=tokenizer(),
        environment=Letters,
        rollout_func=written,
    )
    found = trainer.evaluate()
    assert found["eval_reward"] == 0.25
    assert 0 < found["eval_orbit/expected_reward"] < 1


def test_orders_that_end_otherwise_earn_what_they_earn(saved, tmp_path):
    """Each order of the letters solves the task, so there is nothing to learn from their order."""
    config = OrbitGRPOConfig(
        **asked(tmp_path, temperature=2.0, max_steps=1, num_iterations=1),
        orbit_alpha=0.0,
        orbit_all_orders=True,
    )
    _, logs, _ = train(
        OrbitGRPOTrainer,
        config,
        load_model(saved),
        tasks(),
        None,
        environment=Lined,
        rollout_func=failing,
    )
    assert logs[0]["reward"] == logs[0]["orbit/expected_reward"] == 1


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"importance_sampling_level": "token"}, "importance_sampling_level='token'"),
        ({"scale_rewards": "none"}, "scale_rewards='none'"),
        ({"orbit_credit": False}, "orbit_credit=False"),
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
