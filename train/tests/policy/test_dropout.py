"""Dropout of adapters: one mask an update, so that ratios start at 1 and every way of scoring sees the same policy."""

from __future__ import annotations

import pytest
import torch
from peft.tuners.lora import Linear

from configs import resolved as config
from language_models import locked_model
from training_fixtures import supervised_records
from vcrt_train.policy.adapters import SharedDropout, shared_dropouts, thinned, with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.kernels.adapted_linear import AdaptedLinear
from vcrt_train.policy.scoring import score_orders
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.run import train_run
from vcrt_train.training.run_directory import checkpoint_path
from vcrt_train.training.update import new_state, update

RATE = 0.25
CPU = torch.device("cpu")
KINDS = ["llama", "qwen3_5", "granite_hybrid"]
#: Mamba layers are slow without their kernels.
SOME_SLOW = [*KINDS[:2], pytest.param(KINDS[2], marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dropout")
    return {kind: locked_model(folder / kind, kind) for kind in KINDS}


def adapted(reference, *, dropout=RATE):
    """A backbone whose adapters matter, as after some training."""
    backbone = load_backbone(reference)
    model = with_adapters(backbone.model, rank=4, scale=2.0, seed=1, dropout=dropout)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.3, generator=draw)
    return backbone, model


def prepared(reference, name="vcrt", **options):
    backbone, model = adapted(reference, **options)
    chosen = method(name)
    items = encode_items(supervised_records(3), chosen, seed=0, encode=backbone.encode)
    frozen = orbit_log_masses(model, items, interface=chosen.interface)
    return model, chosen, items, frozen


def updated(prepared, *, updates=2, seed=0, **settings):
    model, chosen, items, frozen = prepared
    state = new_state(model, config(learning_rate=1e-3), seed=seed)
    return state, [
        update(
            state,
            items,
            frozen,
            method=chosen,
            config=config(**settings),
        )
        for _ in range(updates)
    ]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("qwen3_5", "vcrt"),
        ("llama", "outcome-grpo"),
        *(
            pytest.param(
                kind, name, marks=pytest.mark.nightly if kind == KINDS[2] else pytest.mark.slow
            )
            for kind, name in (
                ("qwen3_5", "outcome-grpo"),
                ("llama", "vcrt"),
                ("granite_hybrid", "vcrt"),
                ("granite_hybrid", "outcome-grpo"),
            )
        ),
    ],
)
def test_ratios_start_at_one_and_dropout_acts(references, kind, name):
    dropped = updated(prepared(references[kind], name))[1]
    (whole,) = updated(prepared(references[kind], name, dropout=0.0), updates=1)[1]
    assert [metrics.start_log_ratio for metrics in dropped] == [0.0] * 2
    assert dropped[0].orbit_mass != whole.orbit_mass
    assert dropped == updated(prepared(references[kind], name))[1]
    assert dropped[:1] != updated(prepared(references[kind], name), updates=1, seed=1)[1]


@pytest.mark.parametrize("kind", SOME_SLOW)
def test_every_way_of_scoring_sees_the_thinned_policy(references, kind):
    model, chosen, items, _ = prepared(references[kind])
    prompts = [item.prompt for item in items]

    def scores(backend):
        return score_orders(
            model, prompts, interface=chosen.interface, backend=backend
        ).order_log_probs

    mean = scores("auto")
    with thinned(shared_dropouts(model), 7, CPU):
        torch.testing.assert_close(scores("auto"), scores("naive"), atol=1e-5, rtol=1e-5)
        assert (scores("auto") - mean).abs().max() > 1e-3
        assert scores("auto").exp().sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    assert torch.equal(scores("auto"), mean)


@pytest.mark.parametrize("kind", SOME_SLOW)
def test_parts_and_checkpointing_change_nothing(references, kind):
    expected = updated(prepared(references[kind]))[1]
    in_parts = updated(prepared(references[kind]), prompts_at_a_time=1)[1]
    # Each part was scored twice, and its gradient taken the second time.
    assert max(metrics.start_log_ratio for metrics in in_parts) < 1e-6
    checkpointing = prepared(references[kind])
    checkpointing[0].gradient_checkpointing_enable({"use_reentrant": False})
    for other in (in_parts, updated(checkpointing)[1]):
        for one, two in zip(expected, other, strict=True):
            assert two.to_json() == pytest.approx(one.to_json(), rel=1e-4, abs=1e-5)


def test_scores_that_are_not_repeated_are_told(references, monkeypatch):
    monkeypatch.setattr(SharedDropout, "forward", lambda self, x: torch.dropout(x, RATE, True))
    monkeypatch.setattr(AdaptedLinear, "forward", Linear.forward)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert updated(prepared(references["llama"]), updates=1)[1][0].start_log_ratio == 0.0
        noisy = updated(prepared(references["llama"]), updates=1, prompts_at_a_time=2)[1][0]
    assert noisy.start_log_ratio > 1e-3


def test_masks_keep_their_share_and_the_mean(references):
    dropout = SharedDropout(RATE, 200_000)
    inputs = torch.ones(2, 200_000)
    assert dropout(inputs) is inputs
    with thinned([dropout], 0, CPU):
        outputs = dropout(inputs)
        # The same features for every token, scaled up to keep the mean.
        assert torch.equal(outputs[0], outputs[1])
        assert outputs.unique().tolist() == pytest.approx([0, 1 / (1 - RATE)])
        assert float(outputs.mean()) == pytest.approx(1, abs=0.01)
        assert dropout(inputs.bfloat16()).dtype == torch.bfloat16
    with thinned([dropout], 1, CPU):
        assert not torch.equal(dropout(inputs), outputs)
    assert dropout(inputs) is inputs


def test_an_update_that_fails_leaves_nothing_dropped():
    dropout = SharedDropout(RATE, 8)
    with pytest.raises(RuntimeError, match="broken"), thinned([dropout], 1, CPU):
        raise RuntimeError("broken")
    assert dropout.mask is None


def test_adapters_of_a_model_draw_apart(references):
    _, model = adapted(references["llama"])
    dropouts = shared_dropouts(model)
    # Seven projections in each of two layers.
    assert len(dropouts) == 14
    with thinned(dropouts, 0, CPU):
        masks = {tuple(dropout.mask.tolist()) for dropout in dropouts}
    assert len(masks) == 14
    assert not shared_dropouts(adapted(references["llama"], dropout=0.0)[1])


def test_a_run_with_dropout_resumes_to_the_same_bits(tmp_path, references):
    asked = config(updates=4, checkpoints=(2, 4), rank=4, dropout=RATE, learning_rate=3e-3)

    def run(directory):
        return train_run(
            asked,
            method("vcrt"),
            load_backbone(references["qwen3_5"]),
            supervised_records(6),
            directory,
            seed=2,
            encode_seed=0,
        )

    whole = run(tmp_path / "whole")
    run(tmp_path / "cut")
    last = checkpoint_path(tmp_path / "cut", 4)
    for path in last.iterdir():
        path.unlink()
    last.rmdir()
    assert run(tmp_path / "cut").digests == whole.digests
