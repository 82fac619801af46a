"""Say which processes share an update: what a process group must offer, and the group of one process.

Every process of a group holds the same model, state and batch; it scores its share of the prompts, and all learn what
the others found. Not covered: how processes find each other (:mod:`vcrt_train.training.distributed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from vcrt_train.policy.scoring import CausalModel


class ProcessGroup(Protocol):
    """The processes that share an update. Ranks count from 0; every method is called by all of them together."""

    @property
    def rank(self) -> int:
        """The place of this process in the group."""

    @property
    def size(self) -> int:
        """How many processes there are."""

    @property
    def is_sharded(self) -> bool:
        """Whether the processes hold one model in shards, not each a whole one."""

    @property
    def gradient_factor(self) -> float:
        """What a share's gradient is multiplied by before :meth:`add_gradients`, so that the sum comes out right."""

    def gather(self, tensor: Tensor) -> Tensor:
        """``[size * rows, ...]``: every process's ``tensor [rows, ...]`` in the order of ranks, without gradient."""

    def agree(self, flag: bool, model: CausalModel) -> bool:
        """The first process's ``flag``, for all; ``model`` says on which device to talk."""

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each parameter's gradient by its sum over the processes."""

    def place(self, model: CausalModel) -> CausalModel:
        """The model where this process trains it, before its optimiser is made."""

    def wait(self) -> None:
        """Wait until every process is here."""


class _Alone:
    """The group of this process alone."""

    rank, size, is_sharded, gradient_factor = 0, 1, False, 1.0

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor.detach()

    def agree(self, flag: bool, model: CausalModel) -> bool:
        del model
        return flag

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        del parameters

    def place(self, model: CausalModel) -> CausalModel:
        return model

    def wait(self) -> None:
        return None


ALONE: ProcessGroup = _Alone()


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may lie in shards, without gradient; every process of the group must ask."""
    from torch.distributed.tensor import DTensor

    detached = tensor.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def in_shards_of(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole ``tensor``, laid out as ``like`` is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or tensor.ndim == 0:
        return tensor
    placed = tensor.to(like.device)
    return distribute_tensor(placed, like.device_mesh, like.placements)
