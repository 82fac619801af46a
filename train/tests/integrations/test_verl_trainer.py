"""The steps of verl's own trainer on a real TransferQueue, with workers that stand in for those on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: make test-integrations")
pytest.importorskip("transfer_queue", reason="verl's TransferQueue is not installed")
pytest.importorskip("verl.trainer.ppo.v1.trainer_sync", reason="verl's trainers do not import")

import ray
import transfer_queue
from hydra import compose, initialize_config_module
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import (
    assign_non_tensor,
    list_of_dict_to_tensordict,
    make_iterator,
)
from verl.workers.utils.losses import ppo_loss

from documentation import ROOT, blocks
from small_models import make_model
from vcrt.errors import MalformedInputError, RunError
from vcrt_train.integrations.verl.trainer import OrbitTrainer
from verl_support import (
    END,
    PAD,
    PROMPTS,
    SAMPLES,
    SUCCESSES,
    exact_loss,
    gradient,
    log_probs,
    rewards,
)

WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7}


def settings(*overrides):
    """verl's configuration as its command makes it, with those of the page and no second clip."""
    (given,) = blocks((ROOT / "docs/verl.md").read_text(encoding="utf-8"), "text")
    chosen = [line.strip(" \\") for line in given.splitlines() if line.strip(" \\")]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            [
                *chosen,
                "actor_rollout_ref.rollout.n=4",
                "actor_rollout_ref.actor.ppo_mini_batch_size=3",
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
                "actor_rollout_ref.actor.clip_ratio_c=1e9",
                "data.train_batch_size=3",
                "data.max_response_length=5",
                *overrides,
            ],
        )


def test_verls_configuration_takes_the_settings_of_the_page():
    config = settings()
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.policy_loss.loss_mode == "orbit_grpo"
    assert actor.loss_agg_mode == "seq-mean-token-sum"
    assert get_trainer_cls(config.trainer.v1.trainer_mode) is OrbitTrainer


def test_verl_imports_the_trainer_that_the_page_names(tmp_path):
    text = (ROOT / "docs/verl.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("export "))
    name, _, value = line.removeprefix("export ").partition("=")
    code = (
        "import verl\nfrom verl.trainer.ppo.v1 import get_trainer_cls\n"
        "print(get_trainer_cls('orbit_sync').__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, name: value},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split()[-1] == "OrbitTrainer"


class Words:
    """A tokenizer of a few words."""

    pad_token_id, eos_token_id = PAD, END

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [WORDS[word] for word in text.split()]}


class Workers:
    """What the trainer calls on its workers, in this process: a tiny model, verl's loss, its mini-batches."""

    def __init__(self, model, config):
        # Two processes, as far as the trainer can see.
        self._dispatch_info = {"actor": [0, 1]}
        self.model, self.actor = model, omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        self.scored, self.gradients, self.losses = [], [], []

    def _query_dispatch_info(self, role):
        return self._dispatch_info[role]

    def _log_probs(self, data):
        values = []
        for row in data["input_ids"].unbind():
            logits = self.model(input_ids=row[None], use_cache=False).logits[0, :-1]
            chosen = logits.log_softmax(-1).gather(-1, row[1:, None])[:, 0]
            values.append(torch.cat([chosen, chosen.new_zeros(1)]))
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    def compute_log_prob(self, meta):
        data = transfer_queue.kv_batch_get(keys=meta.keys, partition_id=meta.partition_id)
        self.scored.append(len(data))
        with torch.no_grad():
            found = self._log_probs(data)
        fields = list_of_dict_to_tensordict(
            [{"log_probs": row, "entropy": torch.zeros_like(row)} for row in found.unbind()]
        )
        return transfer_queue.kv_batch_put(
            keys=meta.keys, partition_id=meta.partition_id, fields=fields
        )

    def update_actor(self, meta):
        data = transfer_queue.kv_batch_get(keys=meta.keys, partition_id=meta.partition_id)
        size = meta.extra_info["mini_batch_size"]
        assert len(data) % size == 0
        for part in make_iterator(data, mini_batch_size=size, epochs=1, seed=0):
            assign_non_tensor(part, dp_size=1, batch_num_tokens=None, global_batch_size=size)
            loss, _ = ppo_loss(self.actor, {"log_probs": self._log_probs(part)}, part)
            self.losses.append(loss.item())
            self.gradients.append(gradient(self.model, loss))
        return {"metrics": {"mfu": [0.0]}}


@pytest.fixture(scope="module")
def queue():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    config = settings().transfer_queue
    config.enable = True
    config.backend.SimpleStorage.num_data_storage_units = 1
    transfer_queue.init(config)
    yield
    transfer_queue.close()
    ray.shutdown()


def stored(model, samples=SAMPLES):
    """Samples in the TransferQueue as verl's agent loops put them."""
    keys, fields, tags = [], [], []
    for number, (prompt, response, _) in enumerate(samples):
        first = torch.tensor(PROMPTS[prompt])
        second = torch.tensor(response)
        ids = torch.cat([first, second])
        with torch.no_grad():
            drawn = log_probs(model, PROMPTS[prompt], response)
        scores = torch.zeros_like(drawn)
        scores[-1] = rewards()[number]
        orbits = {p: o for p, _, o in samples if o}
        extra = {"index": number}
        if prompt in orbits:
            extra["orbit"] = [[*member] for member in orbits[prompt]]
        fields.append(
            {
                "prompts": first,
                "responses": second,
                "input_ids": ids,
                "position_ids": torch.arange(len(ids)),
                "response_mask": torch.ones_like(second),
                "loss_mask": torch.ones_like(second),
                "rm_scores": scores,
                "rollout_log_probs": drawn,
                "multi_modal_inputs": {},
                "uid": f"group {prompt}",
                "extra_info": extra,
            }
        )
        keys.append(f"group {prompt}_{number}_0")
        tags.append({"seq_len": len(ids), "prompt_len": len(first), "response_len": len(second)})
    transfer_queue.kv_batch_put(
        keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags
    )
    return KVBatchMeta(keys=keys, tags=tags, partition_id="train", extra_info={"temperature": 1.0})


def trainer_of(model, config):
    """A trainer without the parts of its start that need GPUs."""
    trainer = OrbitTrainer.__new__(OrbitTrainer)
    trainer.config, trainer.tokenizer = config, Words()
    trainer.actor_rollout_wg = Workers(model, config)
    trainer.use_critic, trainer.global_steps = False, 1
    return trainer


def steps(trainer, batch):
    """The steps of verl's ``_step_once`` from sampled batches on."""
    metrics = {}
    batch = trainer._balance_batch(batch, metrics=metrics)
    batch = trainer._compute_old_log_prob(batch, metrics=metrics)
    batch = trainer._compute_advantage(batch, metrics=metrics)
    return trainer._update_actor(batch, metrics=metrics), metrics


@pytest.fixture
def clean(queue):
    yield
    for partition, keys in transfer_queue.kv_list().items():
        transfer_queue.kv_clear(keys=list(keys), partition_id=partition)


@pytest.mark.usefixtures("clean")
def test_an_update_is_that_of_whole_orbits():
    model, config = make_model(), settings()
    trainer = trainer_of(model, config)
    batch, metrics = steps(trainer, stored(model))
    expected = gradient(model, exact_loss(model, model))
    (found,) = trainer.actor_rollout_wg.gradients
    assert (found - expected).norm() <= 1e-6 * expected.norm()
    # Twelve samples, then the members that were not drawn, as many times two processes of two rows.
    assert trainer.actor_rollout_wg.scored == [12, 4]
    assert metrics["orbit/credited"] == pytest.approx(float(SUCCESSES.float().mean()))
    assert metrics["orbit/missed"] == 0
    # What remains are the samples, and the settings are as they were given.
    assert len(batch.keys) == 12
    assert set(transfer_queue.kv_list("train")["train"]) == set(batch.keys)
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size == 3


@pytest.mark.usefixtures("clean")
def test_an_update_takes_as_many_steps_as_the_samples_would():
    model, config = make_model(), settings("actor_rollout_ref.actor.ppo_mini_batch_size=1")
    trainer = trainer_of(model, config)
    steps(trainer, stored(model))
    gradients = trainer.actor_rollout_wg.gradients
    expected = gradient(model, exact_loss(model, model))
    assert len(gradients) == 3
    assert (sum(gradients) / 3 - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.usefixtures("clean")
def test_a_batch_that_verl_has_filled_up_is_a_mean_over_samples():
    model, config = make_model(), settings("actor_rollout_ref.actor.ppo_mini_batch_size=2")
    trainer = trainer_of(model, config)
    batch, _ = steps(trainer, stored(model))
    assert len(batch.keys) == 16
    gradients = trainer.actor_rollout_wg.gradients
    expected = gradient(model, exact_loss(model, model))
    assert (sum(gradients) / len(gradients) - expected).norm() <= 1e-6 * expected.norm()


def test_orbits_are_texts_or_token_ids():
    trainer = SimpleNamespace(tokenizer=Words(), config=settings())
    read = OrbitTrainer._encoded
    assert read(trainer, {"orbit": ["one two", [3, 4]]}) == ((1, 2, END), (3, 4))
    assert read(trainer, {}) == ()
    with pytest.raises(MalformedInputError, match=r"extra_info\.orbit"):
        read(trainer, {"orbit": ["one two three four five six"]})


def test_old_log_probabilities_of_the_rollout_are_refused():
    config = settings("algorithm.rollout_correction.bypass_mode=True")
    with pytest.raises(RunError, match="bypass_mode=False"):
        OrbitTrainer._expanded(SimpleNamespace(config=config), None, {}, 1)


def test_log_probs_of_the_stand_in_are_those_of_the_model(queue):
    model, config = make_model(), settings()
    batch = stored(model)
    workers = Workers(model, config)
    workers.compute_log_prob(batch)
    data = transfer_queue.kv_batch_get(keys=batch.keys, partition_id="train")
    prompt, response, _ = SAMPLES[4]
    found = data["log_probs"].unbind()[4][len(PROMPTS[prompt]) - 1 : -1]
    with torch.no_grad():
        assert torch.allclose(found, log_probs(model, PROMPTS[prompt], response))
    transfer_queue.kv_clear(keys=batch.keys, partition_id="train")
