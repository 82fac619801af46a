"""The fused product of a layer and its adapter, beside PEFT's own forward pass and autograd's gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from peft.tuners.lora import Linear

from small_models import make_model
from vcrt_train.policy.adapters import shared_dropouts, thinned, with_adapters
from vcrt_train.policy.kernels.adapted_linear import (
    AdaptedLinear,
    AdaptedProducts,
    Frozen,
    OrderedWeight,
    has_ordered_products,
)

CPU = torch.device("cpu")


def layers_of(dtype, *, bias=False, dropout=0.0):
    """The adapted layers of a small model whose adapters are not zero."""
    base = make_model(dtype=dtype, attention_bias=bias)
    model = with_adapters(base, rank=4, scale=1.5, seed=0, dropout=dropout)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=draw))
    return model, [m for m in model.modules() if isinstance(m, AdaptedLinear)]


def outcome(layer, forward, x):
    """The result and the gradients of the input and of both parts of the adapter."""
    x = x.detach().requires_grad_()
    parts = [layer.lora_A["default"].weight, layer.lora_B["default"].weight]
    result = forward(layer, x)
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape)
    gradients = torch.autograd.grad((result.double() * weights).sum(), [x, *parts])
    return [result.detach(), *gradients]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_it_is_what_the_library_computes(bias, dropout):
    model, layers = layers_of(torch.float64, bias=bias, dropout=dropout)
    assert len(layers) == 14
    assert any(layer.get_base_layer().bias is not None for layer in layers) == bias
    x = torch.Generator().manual_seed(2)
    with thinned(shared_dropouts(model), 3, CPU):
        for layer in layers:
            some = torch.randn(2, 5, layer.in_features, generator=x, dtype=torch.float64)
            ours = outcome(layer, AdaptedLinear.forward, some)
            theirs = outcome(layer, Linear.forward, some)
            for one, other in zip(ours, theirs, strict=True):
                assert one.dtype == other.dtype
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_its_gradients_are_those_of_finite_differences():
    draw = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (5, 4), (5,), (2, 4), (5, 2))
    x, weight, bias, a, b = (
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes
    )
    for tensor in (x, a, b):
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, a, b: AdaptedProducts.apply(x, [Frozen(weight, bias, 0.5)], a, b), (x, a, b)
    )


def test_in_bfloat16_adapters_and_their_gradients_are_in_float32():
    _, layers = layers_of(torch.bfloat16)
    for layer in layers:
        same = copy.deepcopy(layer).double()
        x = torch.randn(2, 3, layer.in_features, generator=torch.Generator().manual_seed(4))
        found = outcome(layer, AdaptedLinear.forward, x.bfloat16())
        wanted = outcome(same, AdaptedLinear.forward, x.bfloat16().double())
        assert [one.dtype for one in found] == [torch.bfloat16] * 2 + [torch.float32] * 2
        for one, other in zip(found, wanted, strict=True):
            # 8 bits, and sums of roundings.
            assert (one.double() - other).norm() < 0.02 * other.norm()


def test_an_adapter_that_is_switched_off_or_merged_is_the_library_s():
    model, (layer, *_) = layers_of(torch.float64)
    x = torch.randn(
        2, 3, layer.in_features, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    adapted = layer(x)
    with model.disable_adapter():
        torch.testing.assert_close(layer(x), layer.get_base_layer()(x), rtol=0, atol=0)
    copied = copy.deepcopy(layer)
    copied.merge()
    torch.testing.assert_close(copied(x), adapted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer(x), adapted, rtol=0, atol=0)


@pytest.mark.skipif(not has_ordered_products(), reason="the processor has no such products")
@pytest.mark.parametrize("bias", [False, True])
def test_an_ordered_weight_gives_the_same_products_until_it_changes(bias):
    _, layers = layers_of(torch.bfloat16, bias=bias)
    for layer in layers:
        draw = torch.Generator().manual_seed(5)
        x = torch.randn(2, 3, layer.in_features, generator=draw).bfloat16()

        def both(layer=layer, x=x):
            layer.ordered = layer.ordered or OrderedWeight()
            found = outcome(layer, AdaptedLinear.forward, x)
            kept, layer.ordered = layer.ordered, None
            expected = outcome(layer, AdaptedLinear.forward, x)
            layer.ordered = kept
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=2**-7, atol=2**-7)
            return found[0]

        before = both()
        with torch.no_grad():
            layer.get_base_layer().weight.mul_(2)
        assert not torch.equal(both(), before)
        layer.merge()
        layer.unmerge()
        both()
        # What a copy reads is its own weight's.
        again = copy.deepcopy(layer)
        with torch.no_grad():
            again.get_base_layer().weight.zero_()
        assert not torch.equal(again(x), layer(x))
        pickle.loads(pickle.dumps(layer.ordered))


def test_weights_in_other_formats_are_read_as_they_are():
    _, (layer, *_) = layers_of(torch.float32)
    assert layer.ordered is None or layer.ordered.of(layer.get_base_layer().weight) is None
