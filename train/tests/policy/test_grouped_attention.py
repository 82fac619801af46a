"""Attention without repeated keys, beside the class's own eager function, finite differences and whole models."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GPTNeoXConfig, GptOssConfig
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

from tiny_models import tiny_model, tiny_prompts
from vcrt.errors import BackboneError
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.kernels import grouped_attention as grouped
from vcrt_train.policy.kernels.grouped_attention import GROUPED, GroupedAttention, group_attention
from vcrt_train.policy.kernels.switch import plain_kernels
from vcrt_train.policy.self_check import self_check

SCALING = 0.3
LAYER = SimpleNamespace(num_key_value_groups=3, training=False)


def inputs(dtype=torch.bfloat16, *, queries=5, keys=7):
    """Queries of six heads, keys and values of two, as projections give them, and a mask."""
    draw = torch.Generator().manual_seed(0)
    heads = ((queries, 6), (keys, 2), (keys, 2))
    tensors = [torch.randn(2, *shape, 8, generator=draw).to(dtype) for shape in heads]
    allowed = torch.rand(2, 1, queries, keys, generator=draw) < 0.7
    allowed[..., 0] = True
    return tensors, torch.zeros(allowed.shape).masked_fill(~allowed, -1e30).to(dtype)


def outcome(attention, tensors, mask):
    """The result, and the gradients of queries, keys and values."""
    tensors = [tensor.clone().requires_grad_() for tensor in tensors]
    result = attention(*(tensor.transpose(1, 2) for tensor in tensors), mask)
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape)
    return [result.detach(), *torch.autograd.grad((result.double() * weights).sum(), tensors)]


def eager(query, key, value, mask):
    return modeling_llama.eager_attention_forward(LAYER, query, key, value, mask, SCALING)[0]


def ours(query, key, value, mask):
    return GroupedAttention.apply(query, key, value, mask, SCALING)


@pytest.mark.parametrize("masked", [True, False])
def test_it_is_what_the_class_computes(masked):
    tensors, mask = inputs(torch.float64)
    mask = mask if masked else None
    for one, other in zip(outcome(ours, tensors, mask), outcome(eager, tensors, mask), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_in_bfloat16_it_is_no_further_from_exact_than_the_class():
    tensors, mask = inputs(torch.bfloat16, queries=40, keys=40)
    exact = outcome(eager, [tensor.double() for tensor in tensors], mask.double())
    found, own = outcome(ours, tensors, mask), outcome(eager, tensors, mask)
    for one, other, wanted in zip(found, own, exact, strict=True):
        assert one.dtype == other.dtype == torch.bfloat16
        errors = [float((each.double() - wanted).norm()) for each in (one, other)]
        assert errors[0] <= 1.2 * errors[1] <= 0.02 * float(wanted.norm())


def test_its_gradients_are_those_of_finite_differences():
    tensors, mask = inputs(torch.float64, queries=3, keys=4)
    tensors = [tensor.transpose(1, 2).requires_grad_() for tensor in tensors]
    assert torch.autograd.gradcheck(lambda *three: ours(*three, mask), tensors)


def eager_model(name="llama", dtype=torch.bfloat16):
    model = tiny_model(name, dtype=dtype)
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize("name", ["llama", "qwen3", "granite"])
def test_models_that_repeat_keys_compute_without(name, monkeypatch):
    model = eager_model(name)
    tokens = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
    expected = model(tokens).logits
    assert group_attention(model)
    assert not group_attention(model)
    assert choose_backend(model, "auto", longest=20) == "tree"
    calls = []
    own = GroupedAttention.forward
    monkeypatch.setattr(
        GroupedAttention, "forward", staticmethod(lambda *args: calls.append(1) or own(*args))
    )
    for same in (model, copy.deepcopy(model)):
        calls.clear()
        assert (same(tokens).logits - expected).norm() < 0.02 * expected.norm()
        assert len(calls) == 2
    calls.clear()
    with plain_kernels():
        assert torch.equal(model(tokens).logits, expected)
    model.float()(tokens)
    assert not calls
    self_check(model.bfloat16(), tiny_prompts(4, (7, 12)), interface="pointers", backend="tree")


def other_model(config):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.bfloat16
        )


SIZES = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}


@pytest.mark.parametrize(
    "model",
    [
        lambda: other_model(
            GptOssConfig(
                **SIZES,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=4,
                num_local_experts=2,
                num_experts_per_tok=1,
            )
        ),
        lambda: other_model(GPTNeoXConfig(**SIZES, num_attention_heads=4)),
        lambda: eager_model(dtype=torch.float32),
        lambda: tiny_model("llama", dtype=torch.bfloat16),
    ],
    ids=["sinks", "without groups", "another format", "another attention"],
)
def test_other_models_are_left_as_they_are(model):
    model = model()
    kind = model.config._attn_implementation
    assert not group_attention(model)
    assert model.config._attn_implementation == kind != GROUPED


def test_a_cap_on_scores_is_the_class_s_own():
    config = Gemma2Config(
        **SIZES,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        attn_logit_softcapping=0.1,
    )
    model = other_model(config)
    tokens = torch.arange(8)[None]
    expected = model(tokens).logits
    group_attention(model)
    assert torch.equal(model(tokens).logits, expected)


def test_another_formula_of_the_same_name_is_not_alike(monkeypatch):
    layer = eager_model().model.layers[0].self_attn
    assert grouped._is_alike(layer)
    own = modeling_llama.eager_attention_forward
    for other in (
        lambda *args, **kwargs: own(*args[:4], None, **kwargs),
        modeling_gpt_oss.eager_attention_forward,
        None,
    ):
        monkeypatch.setattr(modeling_llama, "eager_attention_forward", other)
        assert not grouped._is_alike(layer)


def test_a_wrong_gradient_is_refused(monkeypatch):
    base = eager_model()
    assert group_attention(base)
    model = with_adapters(base, rank=4, scale=1.0, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    prompts = tiny_prompts(4, (7, 12))
    self_check(model, prompts, interface="pointers", backend="tree")
    own = GroupedAttention.backward

    def wrong(ctx, gradient):
        of_query, of_key, of_value, *others = own(ctx, gradient)
        return of_query, of_key, -of_value, *others

    monkeypatch.setattr(GroupedAttention, "backward", staticmethod(wrong))
    with pytest.raises(BackboneError, match="PyTorch's own kernels"):
        self_check(model, prompts, interface="pointers", backend="tree")
