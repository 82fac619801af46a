"""Put low-rank adapters (LoRA, through PEFT) on a backbone's attention and MLP projections.

A model's projections are found by the names of its linear layers, at the ends of their paths:

- attention: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj`` and their fused forms;
- MLP: ``gate_proj``, ``up_proj``, ``down_proj`` and their fused forms, including Granite's ``input_linear`` and
  ``output_linear``;
- recurrent, only on request: the projections of gated DeltaNet (``linear_attn``) and Mamba (``mamba``) layers.

By default, recurrent projections get no adapters. The paper names attention and MLP projections, and every layer of the
hybrids has an MLP with adapters; ``in_proj_a`` and ``in_proj_b`` set decays whose error grows along the sequence; and
Mamba's fused kernels read ``out_proj.weight`` without any adapter, so that one never gets an adapter.

Adapters start as zero, so the adapted model is the backbone until its first update. This module does not save adapters
(a checkpoint holds every trainable parameter).

Dropout on the inputs of adapters keeps an update's policy a fixed distribution over orders. If every call drew a new
mask, the ratio of an update's first epoch would differ from 1, the ways of scoring (tree, fork, complete sequences)
would disagree, and results would depend on how prompts are split. Here each update draws one mask over the features of
an adapter's input: all tokens, prompts, epochs and processes of the update use the same thinned adapter, and its orders
are sampled from it. Outside an update nothing is dropped. The mean over updates is that of usual dropout; the noise
within one update is shared, as in variational dropout (Gal and Ghahramani, 2016), in which all tokens share a mask. The
paper gives the rate but no scheme.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vcrt.errors import BackboneError
from vcrt.randomness import derive_seed
from vcrt_train.policy.causal_model import CausalModel

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "query_key_value")
MLP = (
    *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "input_linear", "output_linear"),
    *("fc1", "fc2", "dense_h_to_4h", "dense_4h_to_h"),
)
#: The paper's targets: "attention and MLP projection".
TARGETS = (*ATTENTION[:4], *MLP[:3])
#: The prefixes of recurrent projections, by the name of their layer.
RECURRENT = {"linear_attn": ("in_proj", "out_proj"), "mamba": ("in_proj",)}
#: The most names that an error lists.
_SHOWN = 40


def find_targets(model: CausalModel, *, recurrent: bool = False) -> tuple[str, ...]:
    """Return the full names of the linear layers to adapt, in the model's order.

    Raises :class:`BackboneError`, with the names of the model's linear layers, if it has no attention or no MLP
    projection, or if recurrent projections are requested and it has none.
    """
    linear = [n for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    kinds = {name: _kind(name) for name in linear}
    wanted = ("attention", "MLP", "recurrent") if recurrent else ("attention", "MLP")
    absent = [kind for kind in wanted if kind not in kinds.values()]
    if absent:
        names = sorted({".".join(name.split(".")[-2:]) for name in linear})
        shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
        raise BackboneError(
            f"there is nothing to adapt: no {absent[0]} projection of a known name",
            where=type(model).__name__,
            found=f"linear layers {shown}" if linear else "no linear layer",
            expected={
                "attention": f"modules named {', '.join(ATTENTION)}",
                "MLP": f"modules named {', '.join(MLP)}",
                "recurrent": f"in_proj* in {' or '.join(RECURRENT)}",
            }[absent[0]],
            remedy="leave --lora-recurrent out"
            if absent[0] == "recurrent"
            else "train all parameters (rank 0)",
        )
    return tuple(name for name in linear if kinds[name] in wanted)


def _kind(name: str) -> str | None:
    *path, last = name.split(".")
    layer = path[-1] if path else ""
    if layer in RECURRENT:
        return "recurrent" if last.startswith(RECURRENT[layer]) else None
    return "attention" if last in ATTENTION else "MLP" if last in MLP else None


def with_adapters(
    model: CausalModel,
    *,
    rank: int,
    scale: float,
    seed: int,
    dropout: float = 0.0,
    recurrent: bool = False,
) -> CausalModel:
    """Freeze the model's weights and add adapters of ``rank``, whose product is multiplied by ``scale``.

    On a model in bfloat16 the adapters are in float32, because steps of a small learning rate would be lost otherwise.
    Products with them are in the model's format (:mod:`vcrt_train.policy.kernels.adapted_linear`). Draws come only from
    ``seed``. ``dropout`` is the share of an adapter's input features that an update drops. Raises as
    :func:`find_targets`.
    """
    # These imports are slow, and only adapters need them.
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import LoraLayer

    from vcrt_train.policy.kernels.adapted_linear import AdaptedLinear, order_weights

    targets = find_targets(model, recurrent=recurrent)
    # PEFT declares an integer here, but computes lora_alpha / r with any number.
    alpha: Any = scale * rank
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), bias="none")
    # PEFT builds this class in place of each named linear layer.
    config._register_custom_module({torch.nn.Linear: AdaptedLinear})
    # PEFT draws from the global generator: restore its state, and draw again from an own generator.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT calls transformers by a name that is about to change.
        warnings.filterwarnings(
            "ignore", message=".*is_gradient_checkpointing", category=FutureWarning
        )
        adapted = get_peft_model(model, config)
    draw = torch.Generator().manual_seed(derive_seed(seed, "adapters") % 2**63)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name:
                # This is uniform, of variance 1 / (3 * inputs), as in PEFT.
                bound = 1 / math.sqrt(parameter.shape[1])
                # The generator is on the CPU, so that adapters are the same on every device.
                parameter.copy_(
                    torch.empty(parameter.shape).uniform_(-bound, bound, generator=draw)
                )
    if dropout:
        layers: list[Any] = [m for m in adapted.modules() if isinstance(m, LoraLayer)]
        for layer in layers:
            for name in layer.lora_A:
                layer.lora_dropout[name] = SharedDropout(dropout, layer.in_features)
    order_weights(adapted)
    return adapted.eval()


def drop_ordered_weights(model: CausalModel) -> None:
    """Delete the copies of weights in a further order (:mod:`vcrt_train.policy.kernels.adapted_linear`)."""
    root: Any = model
    for module in root.modules():
        if getattr(module, "ordered", None) is not None:
            module.ordered = None


class SharedDropout(torch.nn.Module):
    """Multiply ``[..., features]`` by the mask that :func:`thinned` sets; without a mask, change nothing."""

    def __init__(self, rate: float, features: int) -> None:
        super().__init__()
        self.rate = rate
        self.features = features
        self.mask: Tensor | None = None
        #: The memory of all masks of an update, kept by the first of its modules: graphs read it there.
        self.kept: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the inputs ``[..., features]`` with an update's features dropped and the others scaled up."""
        return inputs if self.mask is None else inputs * self.mask.to(inputs.dtype)

    def extra_repr(self) -> str:
        """Return the text that a printed model shows."""
        return f"rate={self.rate}"


def shared_dropouts(model: CausalModel) -> tuple[SharedDropout, ...]:
    """Return the dropout modules of the model's adapters, in the model's order."""
    return tuple(module for module in model.modules() if isinstance(module, SharedDropout))


@contextmanager
def thinned(dropouts: Sequence[SharedDropout], seed: int, device: torch.device) -> Iterator[None]:
    """Make each of ``dropouts`` drop the features that ``seed`` and its place determine, inside the context.

    Backward passes that compute activations again must run inside it.
    """
    if not dropouts:
        yield
        return
    draw = torch.Generator().manual_seed(derive_seed(seed, "dropout") % 2**63)
    features = [dropout.features for dropout in dropouts]
    rates = torch.tensor([dropout.rate for dropout in dropouts], dtype=torch.float64)
    rates = rates.repeat_interleave(torch.tensor(features)).float()
    # All masks move to the device together: each move would wait for it.
    drawn = ((torch.rand(sum(features), generator=draw) >= rates) / (1 - rates)).to(device)
    masks = dropouts[0].kept
    if masks is None or masks.device != drawn.device or masks.shape != drawn.shape:
        with torch.inference_mode(mode=False):
            masks = dropouts[0].kept = drawn.clone()
    masks.copy_(drawn)
    for dropout, mask in zip(dropouts, masks.split_with_sizes(features), strict=True):
        dropout.mask = mask
    try:
        yield
    finally:
        for dropout in dropouts:
            dropout.mask = None
