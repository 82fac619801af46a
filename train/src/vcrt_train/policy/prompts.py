"""Hold what is scored: the prompt of a record, and the language model that reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from vcrt.errors import MalformedInputError
from vcrt.printable import counted

#: A causal language model of transformers, or a PEFT wrapper of one: neither library gives them one static type.
CausalModel: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered record: the tokens up to the answer, and what each slot is written as."""

    token_ids: tuple[int, ...]
    #: ``pointer_ids[slot]`` is the vocabulary id of that slot's pointer.
    pointer_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.token_ids or not self.pointer_ids:
            raise MalformedInputError(
                "a prompt needs tokens and pointers",
                found=f"{counted(len(self.token_ids), 'token')} and {counted(len(self.pointer_ids), 'pointer')}",
            )
        if len(set(self.pointer_ids)) != len(self.pointer_ids):
            raise MalformedInputError(
                "two slots of a prompt have the same pointer token",
                found=str(self.pointer_ids),
                remedy="give each slot a pointer of its own",
            )

    @property
    def num_operations(self) -> int:
        """How many slots an order of this prompt has."""
        return len(self.pointer_ids)


#: What a model may be wrapped in: classes of PyTorch, and of DeepSpeed, whose own ``config`` is another.
_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
}


def unwrapped(model: CausalModel) -> CausalModel:
    """The model that knows its configuration, device and dtype, inside the wrappers of a parallel run if there are."""
    while _WRAPPERS.intersection(kind.__name__ for kind in type(model).__mro__):
        model = model.module
    return model
