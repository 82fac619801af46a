"""Products of layers that read one input, beside each layer's own and finite differences."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from tiny_models import tiny_model
from vcrt_train.policy.adapters import drop_ordered_weights, shared_dropouts, thinned, with_adapters
from vcrt_train.policy.kernels.adapted_linear import (
    AdaptedLinear,
    AdaptedProducts,
    Frozen,
    OrderedWeight,
)
from vcrt_train.policy.kernels.adapted_linear import has_ordered_products as has_them
from vcrt_train.policy.kernels.switch import plain_kernels

ordered = pytest.mark.skipif(not has_them(), reason="the processor has no ordered products")


def parts_of():
    """Three layers of different sizes and ranks, the second with a bias, their adapters and their input."""
    draw = torch.Generator().manual_seed(0)

    def some(*shape):
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    sizes = ((5, 2), (3, 1), (4, 3))
    layers = [Frozen(some(out, 6), some(out) if rank == 1 else None, 0.5) for out, rank in sizes]
    adapters = [*(some(rank, 6) for _, rank in sizes), *(some(*size) for size in sizes)]
    return some(2, 4, 6).requires_grad_(), layers, [each.requires_grad_() for each in adapters]


def test_each_is_the_product_of_its_layer():
    x, layers, adapters = parts_of()
    linear = torch.nn.functional.linear
    found = AdaptedProducts.apply(x, layers, *adapters)
    expected = [
        linear(x, layer.weight, layer.bias) + 0.5 * linear(linear(x, a), b)
        for layer, a, b in zip(layers, adapters[:3], adapters[3:], strict=True)
    ]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    gradients = [
        torch.autograd.grad(sum((one**3).sum() for one in some), [x, *adapters])
        for some in (found, expected)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    x, layers, adapters = parts_of()
    assert torch.autograd.gradcheck(
        lambda x, *adapters: AdaptedProducts.apply(x, layers, *adapters), (x, *adapters)
    )


def test_callers_may_write_to_each():
    x, layers, adapters = parts_of()
    first, *_ = AdaptedProducts.apply(x, layers, *adapters)
    (expected,) = torch.autograd.grad((2 * first).sum(), x, retain_graph=True)
    (found,) = torch.autograd.grad(first.mul_(2).sum(), x)
    assert torch.equal(found, expected)


def adapted(dropout=0.0):
    model = with_adapters(
        tiny_model("llama", dtype=torch.bfloat16), rank=4, scale=1.5, seed=0, dropout=dropout
    )
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    return model


def outcome(model):
    """Logits and gradients."""
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(2))
    logits = model(tokens).logits
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [logits.detach(), *torch.autograd.grad(logits.float().pow(2).mean(), trained)]


def calls_of(monkeypatch):
    """How many layers each call computed."""
    found, own = [], AdaptedProducts.forward
    monkeypatch.setattr(
        AdaptedProducts,
        "forward",
        staticmethod(
            lambda ctx, x, layers, *more: found.append(len(layers)) or own(ctx, x, layers, *more)
        ),
    )
    return found


@ordered
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_model_computes_them_together(dropout, monkeypatch):
    model, calls = adapted(dropout), calls_of(monkeypatch)
    with thinned(shared_dropouts(model), 3, torch.device("cpu")):
        found = outcome(model)
        assert calls == [3, 1, 2, 1] * 2
        for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            calls.clear()
            again = outcome(same)
            assert calls == [3, 1, 2, 1] * 2
            assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
        calls.clear()
        drop_ordered_weights(model)
        alone = outcome(model)
        assert calls == [1] * 14
    for one, other in zip(found, alone, strict=True):
        assert (one.float() - other.float()).norm() < 0.03 * other.float().norm()


@ordered
def test_gradients_of_layers_that_are_run_twice_are_the_same():
    model = adapted()
    found = outcome(model)
    model.get_base_model().gradient_checkpointing_enable()
    again = outcome(model.train())
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one, other)


@ordered
def test_nothing_is_shared_outside_their_module_nor_kept_when_it_fails(monkeypatch):
    model, calls = adapted(), calls_of(monkeypatch)
    attention = model.get_base_model().model.layers[0].self_attn
    shared, x = attention.q_proj.siblings, torch.randn(2, 3, 32).bfloat16()
    attention.k_proj(x), attention.q_proj(x)
    assert calls == [1, 1]
    with pytest.raises(TypeError):
        attention(x, position_embeddings=None)
    assert calls == [1, 1, 3]
    assert not shared._results
    assert shared._input is None


@ordered
def test_another_tensor_and_one_that_was_changed_are_read_anew():
    attention = adapted().get_base_model().model.layers[0].self_attn
    shared, x = attention.q_proj.siblings, torch.randn(2, 3, 32).bfloat16()

    def keys(x):
        return attention.k_proj(x)

    shared._open()
    attention.q_proj(x)
    changed = keys(x.mul_(2))
    attention.q_proj(x)
    other = keys(-x)
    shared._close()
    assert torch.equal(changed, keys(x))
    assert torch.equal(other, keys(-x))


@ordered
def test_switched_off_adapters_and_plain_kernels_compute_alone(monkeypatch):
    model, calls = adapted(), calls_of(monkeypatch)
    with model.disable_adapter():
        model(torch.ones(1, 3, dtype=torch.long))
    with plain_kernels():
        model(torch.ones(1, 3, dtype=torch.long))
    assert calls == [1] * 14


@ordered
def test_a_product_beside_another_is_their_sum():
    draw = torch.Generator().manual_seed(0)
    weight, above, beside = (torch.randn(32, 32, generator=draw).bfloat16() for _ in range(3))
    kept = OrderedWeight().of(weight)
    expected = beside.float() + above.float() @ weight.float()
    assert (kept.backward(above, beside) - expected).norm() < 0.01 * expected.norm()


def test_models_in_float32_compute_alone():
    model = with_adapters(tiny_model("llama"), rank=4, scale=1.5, seed=0)
    tokens = torch.ones(1, 3, dtype=torch.long)
    found = model(tokens).logits
    for module in model.modules():
        if isinstance(module, AdaptedLinear):
            module.siblings = None
    assert torch.equal(found, model(tokens).logits)
