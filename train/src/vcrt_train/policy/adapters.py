"""Put low-rank adapters (LoRA, through PEFT) on a backbone's attention and MLP projections.

Which projections a model has is found by the names of its linear layers, at the ends of their paths:

- attention: ``q_proj``, ``k_proj``, ``v_proj``, ``o_proj`` and their fused forms;
- MLP: ``gate_proj``, ``up_proj``, ``down_proj`` and their fused forms, Granite's ``input_linear`` and ``output_linear``
  among them;
- recurrent, only if asked for: what gated DeltaNet (``linear_attn``) and Mamba (``mamba``) layers project with.

Recurrent projections are left out by default. The paper names attention and MLP projections, and every layer of the
hybrids has an MLP that is adapted; ``in_proj_a`` and ``in_proj_b`` set decays whose error grows along the sequence; and
Mamba's fused kernels read ``out_proj.weight`` past any adapter, so that one is never adapted.

Adapters begin as zero, so that the adapted model is the backbone until its first update. Not covered: saving (a
checkpoint holds every trainable parameter).

Inputs of adapters are dropped so that an update's policy stays a fixed distribution over orders. Dropout that draws
again at every call would make the ratio of an update's first epoch differ from 1, would let the ways of scoring (tree,
fork, complete sequences) disagree, and would make results depend on how prompts are split. Here the features of an
adapter's input are dropped once an update: all tokens, prompts, epochs and processes of an update meet the same thinned
adapter, from which its orders are sampled too. Outside an update nothing is dropped. The mean over updates is that of
usual dropout; the noise within one update is shared, as in variational dropout (Gal and Ghahramani, 2016), where a mask
is shared by all tokens. The paper names the rate and no scheme.
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
#: By the name of the layer that they are in, the prefixes of recurrent projections.
RECURRENT = {"linear_attn": ("in_proj", "out_proj"), "mamba": ("in_proj",)}
#: How many names an error lists.
_SHOWN = 40


def find_targets(model: CausalModel, *, recurrent: bool = False) -> tuple[str, ...]:
    """The full names of the linear layers to adapt, in the model's order.

    Raises :class:`BackboneError`, with the names of the linear layers that there are, if no attention or no MLP
    projection is among them, or if recurrent ones are asked for and there are none.
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
    """The model with its own weights frozen and adapters of ``rank``, whose product is multiplied by ``scale``.

    On a model in bfloat16 the adapters are in float32: steps of a small learning rate would be lost otherwise. Products
    with them are in the model's format (:mod:`vcrt_train.policy.kernels.adapted_linear`). Draws come from ``seed``
    alone. ``dropout`` is the share of an adapter's input features that an update drops
    (:mod:`vcrt_train.policy.adapters`). Raises as :func:`find_targets`.
    """
    # Slow to import, and needed for adapters alone.
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import LoraLayer

    from vcrt_train.policy.kernels.adapted_linear import AdaptedLinear, order_weights

    targets = find_targets(model, recurrent=recurrent)
    # The library asks for an integer here, and computes lora_alpha / r with whatever it gets.
    alpha: Any = scale * rank
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), bias="none")
    # What the library builds in place of each linear layer that is named.
    config._register_custom_module({torch.nn.Linear: AdaptedLinear})
    # The library initialises from the global generator: leave that as it was, and draw again from our own.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # It asks transformers by a name that is about to change.
        warnings.filterwarnings(
            "ignore", message=".*is_gradient_checkpointing", category=FutureWarning
        )
        adapted = get_peft_model(model, config)
    draw = torch.Generator().manual_seed(derive_seed(seed, "adapters") % 2**63)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name:
                # As the library does: uniform, of variance 1 / (3 * inputs).
                bound = 1 / math.sqrt(parameter.shape[1])
                # The generator is of the CPU, so that adapters are the same on every device.
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
    """Keep no weight in a further order from now on (:mod:`vcrt_train.policy.kernels.adapted_linear`)."""
    root: Any = model
    for module in root.modules():
        if getattr(module, "ordered", None) is not None:
            module.ordered = None


class SharedDropout(torch.nn.Module):
    """Multiplies ``[..., features]`` by a mask that :func:`thinned` sets, and else does nothing."""

    def __init__(self, rate: float, features: int) -> None:
        super().__init__()
        self.rate = rate
        self.features = features
        self.mask: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The inputs ``[..., features]`` with an update's features dropped and the others scaled up."""
        return inputs if self.mask is None else inputs * self.mask.to(inputs.dtype)

    def extra_repr(self) -> str:
        """What a printed model shows."""
        return f"rate={self.rate}"


def shared_dropouts(model: CausalModel) -> tuple[SharedDropout, ...]:
    """The model's adapters' dropout, in the model's order."""
    return tuple(module for module in model.modules() if isinstance(module, SharedDropout))


@contextmanager
def thinned(dropouts: Sequence[SharedDropout], seed: int, device: torch.device) -> Iterator[None]:
    """Within it, each of ``dropouts`` drops the features that ``seed`` and its place determine.

    Backward passes that compute activations again belong inside.
    """
    if not dropouts:
        yield
        return
    draw = torch.Generator().manual_seed(derive_seed(seed, "dropout") % 2**63)
    for dropout in dropouts:
        kept = torch.rand(dropout.features, generator=draw) >= dropout.rate
        dropout.mask = (kept / (1 - dropout.rate)).to(device)
    try:
        yield
    finally:
        for dropout in dropouts:
            dropout.mask = None
