"""A norm in few passes, beside the class's own result and finite differences."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from vcrt_train.policy.kernels.fused_norm import RootMeanSquareNorm, fuse_norms
from vcrt_train.policy.kernels.switch import plain_kernels


def norm(kind, dtype=torch.bfloat16):
    layer = kind(24, 1e-5)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(24, generator=torch.Generator().manual_seed(0)))
    return layer.to(dtype).requires_grad_(False)


def outcome(layer, x):
    x = x.clone().requires_grad_()
    result = layer(x)
    (gradient,) = torch.autograd.grad((result.double() * torch.arange(24)).sum(), x)
    return result.detach(), gradient


def test_it_is_what_the_class_computes():
    own = norm(LlamaRMSNorm)
    fused = copy.deepcopy(own)
    assert fuse_norms(fused) == 1
    assert isinstance(fused, LlamaRMSNorm)
    assert fused.state_dict().keys() == own.state_dict().keys()
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = [one.float() for one in outcome(copy.deepcopy(own).double(), x.double())]
    for ours, theirs, wanted in zip(outcome(fused, x), outcome(own, x), exact, strict=True):
        assert ours.dtype == theirs.dtype == torch.bfloat16
        errors = [float((one.float() - wanted).norm()) for one in (ours, theirs)]
        assert errors[0] <= 1.2 * errors[1] <= 0.02 * float(wanted.norm())
    assert fuse_norms(fused) == 0
    for again in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert type(again) is type(fused)
        assert torch.equal(again(x), fused(x))
    with plain_kernels():
        assert torch.equal(fused(x), own(x))


def test_its_gradient_is_that_of_finite_differences():
    draw = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(shape, generator=draw, dtype=torch.float64) for shape in ((3, 6), (6,))
    )
    assert torch.autograd.gradcheck(
        lambda x: RootMeanSquareNorm.apply(x, weight, 1e-5), (x.requires_grad_(),)
    )


@pytest.mark.parametrize(
    "layer",
    [
        norm(GemmaRMSNorm),
        norm(Olmo2RMSNorm),
        norm(LlamaRMSNorm, torch.float32),
        torch.nn.LayerNorm(24),
    ],
    ids=["another formula", "rounded once", "another format", "another norm"],
)
def test_other_layers_are_left_as_they_are(layer):
    kind = type(layer)
    assert fuse_norms(layer) == 0
    assert type(layer) is kind


def test_a_weight_that_is_trained_keeps_its_gradient():
    layer = norm(LlamaRMSNorm).requires_grad_(True)
    assert fuse_norms(layer) == 1
    x = torch.randn(2, 24).bfloat16()
    layer(x).sum().backward()
    assert layer.weight.grad is not None
