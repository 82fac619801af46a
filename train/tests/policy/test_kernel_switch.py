"""The self-check refuses the library's own kernels where they are wrong, which both of its backends use."""

from __future__ import annotations

import pytest
import torch

from tiny_models import tiny_model, tiny_prompts
from vcrt.errors import BackboneError
from vcrt_train.policy.adapters import drop_ordered_weights, with_adapters
from vcrt_train.policy.kernels import adapted_linear
from vcrt_train.policy.kernels.adapted_linear import has_ordered_products
from vcrt_train.policy.kernels.fused_norm import RootMeanSquareNorm, fuse_norms
from vcrt_train.policy.kernels.switch import own_kernels_are_used, plain_kernels
from vcrt_train.policy.self_check import self_check

ordered = pytest.mark.skipif(
    not has_ordered_products(), reason="the processor has no ordered products"
)


@pytest.fixture
def model():
    base = tiny_model("llama", dtype=torch.bfloat16)
    assert fuse_norms(base) > 0
    adapted = with_adapters(base, rank=4, scale=1.0, seed=0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    return adapted


def checked(model):
    return self_check(model, tiny_prompts(4, (7, 12)), interface="pointers", backend="tree")


def test_right_kernels_pass(model):
    found = checked(model)
    assert found.own_format_difference <= 5 * max(found.own_format_error, 0.002)


@ordered
def test_a_wrong_product_is_refused(model, monkeypatch):
    own = adapted_linear._product
    monkeypatch.setattr(adapted_linear, "_product", lambda *args: own(*args).zero_())
    with pytest.raises(BackboneError, match="does not agree"):
        checked(model)
    drop_ordered_weights(model)
    checked(model)


@ordered
def test_a_stale_weight_is_refused_and_read_anew_once_it_is_forgotten(model):
    checked(model)
    for module in model.modules():
        if isinstance(module, adapted_linear.AdaptedLinear):
            module.get_base_layer().weight.data.mul_(-1)
    with pytest.raises(BackboneError, match="does not agree"):
        checked(model)
    adapted_linear.forget_orders(model)
    checked(model)


def test_a_wrong_gradient_is_refused(model, monkeypatch):
    own = RootMeanSquareNorm.backward

    def wrong(ctx, gradient):
        first, *others = own(ctx, gradient)
        return -first, *others

    monkeypatch.setattr(RootMeanSquareNorm, "backward", staticmethod(wrong))
    with pytest.raises(BackboneError, match="PyTorch's own kernels"):
        checked(model)


def test_kernels_are_switched_off_for_a_while_only():
    assert own_kernels_are_used()
    with plain_kernels():
        assert not own_kernels_are_used()
    assert own_kernels_are_used()
