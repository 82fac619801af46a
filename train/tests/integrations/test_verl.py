"""Orbit-GRPO inside verl: found and called by verl itself, equal to the exact orbit loss where it promises to be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: make test-integrations")

from verl.trainer.ppo.core_algos import get_policy_loss_fn

from small_models import make_model
from vcrt.errors import MalformedInputError, RunError
from vcrt_train.integrations.verl import expand, orbit_grpo, sampled_members
from vcrt_train.objective.losses import clipped_loss
from verl_support import (
    ENDED,
    LONGEST,
    ORBIT,
    ORBITS,
    PAD,
    PROMPTS,
    SAMPLES,
    SUCCESSES,
    WIDTH,
    actor_config,
    exact_loss,
    gradient,
    loss_by_verl,
    moved_model,
    sampled_batch,
    scorer,
    texts,
    total,
)

TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture
def batch(model):
    return sampled_batch(model)


@pytest.fixture
def rows(model, batch):
    return expanded(model, batch)


def expanded(model, batch, **changes):
    options = {"score": scorer(model), "padding": PAD, **changes}
    return expand(batch, ORBITS, SUCCESSES, **options)


@pytest.mark.parametrize(
    ("first", "plugins", "is_there"),
    [
        ("verl", "auto", True),
        ("verl", "vcrt", True),
        ("verl", "none", False),
        ("vcrt_train.integrations.verl", "auto", True),
    ],
)
def test_verls_loader_finds_the_loss(first, plugins, is_there):
    code = f"import {first}\nfrom verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY as known"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint('orbit_grpo' in known)"],
        env={**os.environ, "VERL_USE_EXTERNAL_PLUGINS": plugins},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split()[-1] == str(is_there)


def test_verls_registry_gives_the_loss():
    assert get_policy_loss_fn("orbit_grpo") is orbit_grpo


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_first_gradient_is_that_of_whole_orbits(model, rows, micro_batch):
    theirs, metrics = loss_by_verl(model, rows, actor_config(), micro_batch=micro_batch)
    exact = exact_loss(model, model)
    assert theirs.item() == pytest.approx(exact.item(), abs=TOLERANCE)
    ours = gradient(model, theirs)
    expected = gradient(model, exact)
    assert (ours - expected).norm() <= TOLERANCE * expected.norm()
    assert expected.norm() > 0.1
    assert metrics["actor/pg_clipfrac"].values == [0.0]
    # Samples by themselves have another gradient: the orbit does count.
    alone = gradient(model, loss_by_verl(model, sampled_batch(model), actor_config())[0])
    assert (alone - expected).norm() > 0.1 * expected.norm()


def test_unclipped_rows_are_the_orbit_at_every_policy(model, rows):
    other = moved_model(model, 0.05)
    wide = actor_config(clip_ratio=1e9, clip_ratio_low=1e9, clip_ratio_high=1e9)
    theirs, _ = loss_by_verl(other, rows, wide)
    exact = exact_loss(other, model, clip=1e9)
    assert abs((exact - exact_loss(model, model)).item()) > 1e-2
    assert theirs.item() == pytest.approx(exact.item(), rel=TOLERANCE)
    expected = gradient(other, exact)
    assert (gradient(other, theirs) - expected).norm() <= TOLERANCE * expected.norm()


def test_clipped_rows_are_never_below_the_orbit(model, rows):
    gaps = []
    for size in (0.02, 0.05, 0.1):
        for seed in range(3):
            other = moved_model(model, size, seed)
            with torch.no_grad():
                theirs = loss_by_verl(other, rows, actor_config())[0]
                gaps.append((theirs - exact_loss(other, model)).item())
    assert min(gaps) >= -1e-9
    assert max(gaps) > 1e-3


def test_rows_of_one_token_are_those_of_verls_plain_losses(model):
    draw = torch.Generator().manual_seed(0)
    old = -torch.rand(12, 1, generator=draw).double()
    new = (old + torch.randn(12, 1, generator=draw)).requires_grad_()
    advantages = torch.randn(12, 1, generator=draw).double()
    mask = torch.ones(12, 1)
    arguments = (old, new, advantages, mask, "seq-mean-token-mean")
    for name in ("vanilla", "gspo"):
        # Verl's gspo has no second clip; vanilla has the one of its settings.
        config = actor_config(clip_ratio_c=3.0 if name == "vanilla" else 1e9)
        results = []
        for loss in (get_policy_loss_fn(name), orbit_grpo):
            value, metrics = loss(*arguments, config=config)
            results.append((value, torch.autograd.grad(value, new)[0], metrics))
        (theirs, their_gradient, their_metrics), (ours, our_gradient, our_metrics) = results
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
        assert torch.allclose(our_gradient, their_gradient, atol=1e-12)
        assert our_metrics == pytest.approx(their_metrics)
        assert 0 < our_metrics["actor/pg_clipfrac"] < 1


def test_rows_of_several_tokens_have_one_ratio_each(model, batch):
    other = moved_model(model, 0.05)
    theirs, _ = loss_by_verl(other, batch, actor_config())
    log_ratio = torch.stack(
        [
            total(other, PROMPTS[prompt], response) - total(model, PROMPTS[prompt], response)
            for prompt, response, _ in SAMPLES
        ]
    )
    ours = clipped_loss(log_ratio[None], batch.batch["advantages"][None, :, 0], 0.2)
    assert theirs.item() == pytest.approx(ours.item(), abs=TOLERANCE)


def test_members_are_scored_once_and_samples_stay_as_they_are(model, batch):
    asked = []
    rows = expanded(model, batch, score=scorer(model, asked))
    # Three and four orders of the orbits, three of which were drawn, and nine samples beside them.
    assert len(ORBIT) == 3
    assert len(ENDED) == 4
    assert asked == [1 + 3]
    assert len(rows) == 3 + 1 + 4 + 3 + 4
    assert set(rows.batch.keys()) == {
        *("prompts", "responses", "input_ids", "attention_mask", "position_ids"),
        *("response_mask", "old_log_probs", "advantages"),
    }
    found = texts(rows)
    assert [tuple(response) for _, response in found[:4]] == [*ORBIT, SAMPLES[3][1]]
    assert [tuple(response) for _, response in found[4:8]] == list(ENDED)
    assert {tuple(prompt) for prompt, _ in found[:4]} == {PROMPTS[0]}
    assert rows.non_tensor_batch["uid"].tolist() == (
        ["group 0"] * 4 + ["group 1"] * 7 + ["group 2"] * 4
    )
    failures = [i for i, success in enumerate(SUCCESSES) if not success]
    places = [3, 8, 9, 10, 11, 12, 13, 14]
    for name in rows.batch.keys() - {"advantages"}:
        assert torch.equal(rows.batch[name][places], batch.batch[name][failures]), name
    scale = len(rows) / len(batch)
    assert torch.allclose(
        rows.batch["advantages"][places], scale * batch.batch["advantages"][failures]
    )
    # Every old log-probability is that of the row's own text.
    with torch.no_grad():
        expected = torch.stack([total(model, *pair) for pair in found])
    sums = (rows.batch["old_log_probs"] * rows.batch["response_mask"]).sum(-1)
    assert torch.allclose(sums, expected)
    # The first orbit has the advantages of three samples, in shares of its mass.
    shares = expected[:3].softmax(0) * 3 * batch.batch["advantages"][0, 0] * scale
    assert torch.allclose(rows.batch["advantages"][:3, 0], shares)


def test_a_batch_without_credit_is_the_batch(model, batch):
    asked = []
    none = torch.zeros(len(SAMPLES), dtype=torch.bool)
    rows = expand(batch, ORBITS, none, score=scorer(model, asked), padding=PAD)
    assert asked == []
    for name, tensor in rows.batch.items():
        assert torch.equal(tensor, batch.batch[name]), name


def test_a_success_without_an_advantage_is_not_scored(model, batch):
    batch.batch["advantages"][:4] = 0
    asked = []
    rows = expanded(model, batch, score=scorer(model, asked))
    assert asked == [3]
    assert len(rows) == 4 + 4 + 3 + 4


def test_a_batch_is_filled_up_by_rows_that_change_nothing(model, batch, rows):
    batch.meta_info["global_token_num"] = [0]
    asked = []
    filled = expanded(model, batch, score=scorer(model, asked), multiple_of=8)
    assert asked == [8]
    assert (len(rows), len(filled), len(filled.meta_info["global_token_num"])) == (15, 16, 16)
    other = moved_model(model, 0.02)
    losses = [loss_by_verl(other, b, actor_config())[0] for b in (rows, filled)]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-12)
    assert abs(losses[0].item()) > 1e-3


def test_importance_weights_of_sequences_go_into_the_advantages(model, batch, rows):
    weights = 1 + torch.arange(len(SAMPLES)).double()
    batch.batch["rollout_is_weights"] = weights[:, None] * batch.batch["response_mask"]
    weighted = expanded(model, batch)
    assert "rollout_is_weights" not in weighted.batch
    # Those of the samples of the first orbit add up.
    factors = weighted.batch["advantages"][:, 0] / rows.batch["advantages"][:, 0]
    assert factors[:8].tolist() == pytest.approx([2, 2, 2, 4, 5, 5, 5, 5])
    batch.batch["rollout_is_weights"][0, 0] += 1
    with pytest.raises(RunError, match="rollout_is=sequence"):
        expanded(model, batch)


def test_only_exact_members_are_members(batch):
    orbits = [((1, 2, 3), (1, 2)) if orbit is None else orbit for orbit in ORBITS]
    assert sampled_members(batch, ORBITS).tolist() == SUCCESSES.tolist()
    assert sampled_members(batch, orbits).tolist() == SUCCESSES.tolist()


@pytest.mark.parametrize(
    ("orbit", "words"),
    [
        ((), "empty orbit"),
        (((2, 1, 3), (1, 2)), "does not hold its sample"),
        ((ORBIT[0], ORBIT[0]), "occurs twice"),
        ((ORBIT[0], ()), "leave empty ones out"),
        ((ORBIT[0], (1, 2, 3, 4, 5, 6)), "raise data.max_response_length"),
    ],
)
def test_orbits_of_another_form_are_refused(model, batch, orbit, words):
    with pytest.raises(MalformedInputError, match=words):
        expand(batch, [orbit, *ORBITS[1:]], SUCCESSES, score=scorer(model), padding=PAD)


def test_batches_of_another_form_are_refused(model, batch):
    def refused(kind, words, **changes):
        with pytest.raises(kind, match=words):
            expanded(model, batch, **changes)

    refused(MalformedInputError, "multiple_of", multiple_of=0)
    refused(MalformedInputError, r"expected: \(4, 5\)", score=lambda rows: torch.zeros(4, 3))
    refused(MalformedInputError, "no numbers", score=lambda rows: torch.full((4, 5), torch.nan))
    with pytest.raises(MalformedInputError, match="11 orbits"):
        expand(batch, ORBITS[1:], SUCCESSES, score=scorer(model), padding=PAD)
    mask = batch.batch["response_mask"].clone()
    batch.batch["response_mask"][0, 1] = 0
    refused(RunError, "tokens that are not in the loss")
    batch.batch["response_mask"] = mask
    batch.batch["advantages"][0, 1] += 1
    refused(RunError, "adv_estimator=rloo")
    batch.batch["advantages"][0, 1] -= 1
    batch.batch["prompts"][1, -1] += 1
    refused(MalformedInputError, "different prompts")
    batch.batch["prompts"][1, -1] -= 1
    positions = batch.batch["position_ids"]
    batch.batch["position_ids"] = positions[:, None].expand(-1, 3, -1)
    refused(MalformedInputError, "images")
    batch.batch["position_ids"] = positions
    expanded(model, batch)
    batch.pop(batch_keys=["old_log_probs"])
    refused(MalformedInputError, "no old_log_probs")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss_agg_mode": "token-mean"}, "loss_agg_mode=seq-mean-token-sum"),
        ({"loss_agg_mode": "seq-mean-token-sum-norm"}, "loss_agg_mode=seq-mean-token-sum"),
        ({"use_kl_loss": True}, "use_kl_in_reward=True"),
        ({"entropy_coeff": 0.01}, "entropy_coeff=0"),
    ],
)
def test_settings_without_a_meaning_are_refused(model, rows, changes, words):
    with pytest.raises(RunError, match=words):
        loss_by_verl(model, rows, actor_config(**changes))


def test_the_rows_are_as_wide_as_verls(rows):
    assert rows.batch["input_ids"].shape == (15, LONGEST + WIDTH)
    assert torch.equal(
        rows.batch["input_ids"],
        torch.cat([rows.batch["prompts"], rows.batch["responses"]], dim=1),
    )
    assert torch.equal(
        rows.batch["position_ids"], (rows.batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    )
