"""Join the processes that share every update.

Every process of a group holds the same model, state and batch; it scores its share of the prompts and receives the
scores of the others. Processes of a launcher find each other through accelerate, so `accelerate launch` and `torchrun`
both work. Replicas sum their gradients themselves after the last part, in one tensor: with adapters it is small, and no
wrapper comes between the model and its scoring. This module does not share a single prompt among processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vcrt.errors import UnavailableError
from vcrt.processes.workers import end_with
from vcrt_train.policy.causal_model import CausalModel, unwrapped

if TYPE_CHECKING:
    from accelerate import Accelerator

#: The variables with which `accelerate launch --use_fsdp --fsdp_version 2` asks for shards.
SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}


def is_launched() -> bool:
    """Return whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


class ProcessGroup:
    """The processes that share an update: this one alone. All processes of a group call each method together."""

    #: The number of this process in the group, from 0, and the number of processes.
    rank, size = 0, 1
    #: Whether the processes hold one model in shards, instead of a whole model each.
    is_sharded = False
    #: The factor of a share's gradient before :meth:`add_gradients`, which makes the sum right.
    gradient_factor = 1.0

    def gather(self, tensor: Tensor) -> Tensor:
        """Return ``[size * rows, ...]``: every process's ``tensor [rows, ...]``, by rank and without gradient."""
        return tensor.detach()

    def agree(self, flag: bool, model: CausalModel) -> bool:
        """Return the first process's ``flag`` to all processes; they communicate on the device of ``model``."""
        del model
        return flag

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each parameter's gradient by its sum over the processes."""

    def place(self, model: CausalModel) -> CausalModel:
        """Return the model where this process trains it, before its optimiser is made."""
        return model

    def wait(self) -> None:
        """Wait until every process is here."""


ALONE = ProcessGroup()


class LaunchedGroup(ProcessGroup):
    """The processes of a launcher: replicas of the model, or one model in shards (FSDP2)."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.rank, self.size = accelerator.process_index, accelerator.num_processes
        self.is_sharded = str(accelerator.distributed_type).endswith("FSDP")
        # FSDP2 takes the mean over processes, but the sum is needed.
        self.gradient_factor = float(self.size) if self.is_sharded else 1.0

    def gather(self, tensor: Tensor) -> Tensor:
        """Return ``[size * rows, ...]``, from every process."""
        mine = tensor.detach().contiguous()
        found = [torch.empty_like(mine) for _ in range(self.size)]
        torch.distributed.all_gather(found, mine)
        return torch.cat(found)

    def agree(self, flag: bool, model: CausalModel) -> bool:
        """Return the first process's ``flag``."""
        mine = torch.tensor([flag], dtype=torch.int32, device=unwrapped(model).device)
        return bool(self.gather(mine)[0])

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum each parameter's gradient over the processes; for a model in shards, FSDP2 has already done so."""
        if self.is_sharded:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(together)
        parts = torch.split(together, [gradient.numel() for gradient in gradients])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def place(self, model: CausalModel) -> CausalModel:
        """Return the model on this process's device, in shards if the processes were launched for that."""
        if not self.is_sharded:
            return model.to(self._accelerator.device)
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model

        return fsdp2_prepare_model(self._accelerator, model)

    def wait(self) -> None:
        """Wait until every process is here."""
        self._accelerator.wait_for_everyone()


def launched_group() -> ProcessGroup:
    """Return the group of this process's launcher; :data:`ALONE` without a launcher.

    From then on, a process of `torchrun` or `accelerate launch` ends soon after its launcher. Raises
    :class:`UnavailableError` if there are GPUs, but fewer than this machine has processes of the group.
    """
    if not is_launched():
        return ALONE
    gpus, here = torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and here > gpus:
        raise UnavailableError(
            "each process needs a GPU of its own",
            found=f"{here} processes, {gpus} GPUs",
            expected=f"at most {gpus}",
            remedy="use fewer processes, or CUDA_VISIBLE_DEVICES= to train on the processor",
        )
    # Other parents do not count: a user who starts ranks by hand may leave before they end.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with(os.getppid())
    from accelerate import Accelerator

    return LaunchedGroup(Accelerator(cpu=not torch.cuda.is_available()))


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be in shards, without gradient; all processes must call this."""
    from torch.distributed.tensor import DTensor

    detached = tensor.detach()
    return detached.full_tensor() if isinstance(detached, DTensor) else detached


def in_shards_of(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a whole ``tensor`` in the layout of ``like``."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(like, DTensor) or tensor.ndim == 0:
        return tensor
    placed = tensor.to(like.device)
    return distribute_tensor(placed, like.device_mesh, like.placements)
