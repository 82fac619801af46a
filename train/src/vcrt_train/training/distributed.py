"""Join the processes of a launcher that share every update: replicas of the model, or one model in shards (FSDP2).

Through accelerate, so that `accelerate launch` and `torchrun` start them alike. Replicas
add their gradients themselves after the last part, in one piece: with adapters that is little, and no wrapper stands
between the model and its scoring. Not covered: several processes for a single prompt.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcrt.errors import UnavailableError
from vcrt.workers import end_with
from vcrt_train.policy.prompts import unwrapped
from vcrt_train.policy.scoring import CausalModel
from vcrt_train.training.process_group import ALONE, ProcessGroup

#: The variables by which `accelerate launch --use_fsdp --fsdp_version 2` asks for shards.
SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}


def is_launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@dataclass(frozen=True, slots=True)
class LaunchedGroup:
    """The processes of a launcher. ``accelerator`` is an :class:`accelerate.Accelerator`."""

    accelerator: Any

    @property
    def rank(self) -> int:
        """The place of this process in the group."""
        return int(self.accelerator.process_index)

    @property
    def size(self) -> int:
        """How many processes there are."""
        return int(self.accelerator.num_processes)

    @property
    def is_sharded(self) -> bool:
        """Whether the processes hold one model in shards."""
        return str(self.accelerator.distributed_type).endswith("FSDP")

    @property
    def gradient_factor(self) -> float:
        """FSDP2 takes the mean over processes where the sum is wanted."""
        return float(self.size) if self.is_sharded else 1.0

    def gather(self, tensor: Tensor) -> Tensor:
        """``[size * rows, ...]``: every process's ``tensor [rows, ...]`` in the order of ranks, without gradient."""
        mine = tensor.detach().contiguous()
        found = [torch.empty_like(mine) for _ in range(self.size)]
        torch.distributed.all_gather(found, mine)
        return torch.cat(found)

    def agree(self, flag: bool, model: CausalModel) -> bool:
        """The first process's ``flag``, for all."""
        mine = torch.tensor([flag], dtype=torch.int32, device=unwrapped(model).device)
        return bool(self.gather(mine)[0])

    def add_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replace each parameter's gradient by its sum over the processes; shards have it already."""
        if self.is_sharded:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        together = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(together)
        parts = torch.split(together, [gradient.numel() for gradient in gradients])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def place(self, model: CausalModel) -> CausalModel:
        """The model on this process's device, in shards if that is how the processes were launched."""
        if not self.is_sharded:
            return model.to(self.accelerator.device)
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model

        return fsdp2_prepare_model(self.accelerator, model)

    def wait(self) -> None:
        """Wait until every process is here."""
        self.accelerator.wait_for_everyone()


def launched_group() -> ProcessGroup:
    """The group that a launcher made this process a part of; :data:`.process_group.ALONE` without one.

    A process of `torchrun` or `accelerate launch` ends soon after its launcher from then on. Raises
    :class:`UnavailableError` for more processes on this machine than it has GPUs, if it has any.
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
    # Not for each parent: who starts ranks by hand may leave before them.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        end_with(os.getppid())
    from accelerate import Accelerator

    return LaunchedGroup(Accelerator(cpu=not torch.cuda.is_available()))
