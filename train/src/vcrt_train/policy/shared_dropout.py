"""Drop inputs of adapters so that an update's policy stays a fixed distribution over orders.

Dropout that draws again at every call would make the ratio of an update's first epoch differ from 1, would let the
ways of scoring (tree, fork, complete sequences) disagree, and would make results depend on how prompts are split. Here
the features of an adapter's input are dropped once an update: all tokens, prompts, epochs and processes of an update
meet the same thinned adapter, from which its orders are sampled too. Outside an update nothing is dropped.

The mean over updates is that of usual dropout; the noise within one update is shared, as in variational dropout (Gal
and Ghahramani, 2016), where a mask is shared by all tokens. The paper names the rate and no scheme.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from vcrt.randomness import derive_seed
from vcrt_train.policy.prompts import CausalModel


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
