"""Define the prompt of a record, and prepare the causal language model that reads it for scoring.

While scores are computed, and again while the backward pass repeats a checkpointed layer, every module is in evaluation
mode: with dropout the ratio of an update's first epoch would not be 1. The library checkpoints activations only in
training mode, where it also turns dropout on and takes the cache away from the layers that it checkpoints. So
:func:`evaluation_mode` itself checkpoints the layers for which checkpointing was switched on. Models of the library
without its checkpointing layers score the same, but save no memory.

For the pointer interface, the output layer is computed only at the pointers' columns: with a vocabulary of 250,000
words, logits would cost more memory than the model's activations. In half precision these few columns are computed in
float32, so that logits are not rounded to 8 bits. Output layers that are not plain linear layers (adapted, quantised),
and small vocabularies in float32, keep the model's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.utils.checkpoint import checkpoint

from vcrt.errors import MalformedInputError
from vcrt.printable import counted

#: A causal language model of transformers, or a PEFT wrapper of one; the two libraries have no common static type.
CausalModel: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered record: the tokens up to the answer, and the pointer token of each slot."""

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
        """The number of slots in an order of this prompt."""
        return len(self.pointer_ids)


#: The classes that may wrap a model: those of PyTorch, and DeepSpeed's, which has another ``config``.
_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "DeepSpeedEngine",
}


def unwrapped(model: CausalModel) -> CausalModel:
    """Return the model, with its configuration, device and dtype, from inside any wrappers of a parallel run."""
    while _WRAPPERS.intersection(kind.__name__ for kind in type(model).__mro__):
        model = model.module
    return model


@contextmanager
def evaluation_mode(model: CausalModel) -> Iterator[None]:
    """Put every module of ``model`` into evaluation mode, and restore each module's mode at the end.

    Layers with ``gradient_checkpointing`` switched on store only their inputs; the backward pass may come after the
    context has ended.
    """
    modules = _modules_of(model)
    with ExitStack() as stack:
        stack.enter_context(_evaluating(modules))
        if torch.is_grad_enabled():
            kind = _checkpointing_layer()
            for layer in modules:
                # The class is checked first, because a look-up of an attribute that is missing is slow.
                if isinstance(layer, kind) and layer.gradient_checkpointing:
                    stack.enter_context(_checkpointing(layer))
        yield


@cache
def _checkpointing_layer() -> Any:
    # Its module takes seconds to import, and commands that train nothing import the present module.
    from transformers.modeling_layers import GradientCheckpointingLayer

    return GradientCheckpointingLayer


def _modules_of(module: Module) -> list[Module]:
    # This is ``modules()`` without names, which are slow: every score of a small model pays for this.
    found = {id(module): module}
    waiting = [module]
    for parent in waiting:
        for child in parent._modules.values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                waiting.append(child)
    return waiting


@contextmanager
def _evaluating(modules: list[Module]) -> Iterator[None]:
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _checkpointing(layer: Module) -> Iterator[None]:
    forward, own = layer.forward, layer.__dict__.get("forward")
    # The dictionary hides the class's method and does not replace it.
    layer.__dict__["forward"] = partial(_checkpointed, _modules_of(layer), forward)
    try:
        yield
    finally:
        del layer.__dict__["forward"]
        if own is not None:
            layer.__dict__["forward"] = own


def _checkpointed(
    modules: list[Module], forward: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    def run(*inputs: Any) -> Any:
        # The backward pass runs this again, and by then the model may be in another mode.
        with _evaluating(modules):
            return forward(*inputs, **kwargs)

    # Reentrant checkpoints would cut off the gradient of states that leave the layer through a cache. Nothing is drawn.
    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False)


HALF = frozenset({torch.bfloat16, torch.float16})
#: The least vocabulary for which it is worth avoiding logits of all words.
WIDE_VOCABULARY = 4096


@contextmanager
def at_pointers(
    model: CausalModel, pointer_ids: Tensor, *, repeated: bool = False
) -> Iterator[Tensor]:
    """Make ``model`` give logits ``[..., K]`` of only the ``K`` different tokens among ``pointer_ids [B, n]``.

    If ``repeated``, ``K`` is ``B * n``, however many of them are equal. Yields the place of each pointer's logit,
    ``[B, n]``: ``pointer_ids`` themselves if nothing changed.
    """
    head = _plain_head(model)
    if head is None:
        yield pointer_ids
        return
    if repeated:
        columns, places = pointer_ids.flatten(), torch.arange(pointer_ids.numel())
    else:
        # On the device itself this would wait for it.
        columns, places = torch.unique(pointer_ids.cpu(), return_inverse=True)
    with at_columns(head, columns.to(head.weight.device)):
        yield places.view_as(pointer_ids)


@contextmanager
def at_columns(head: Linear, columns: Tensor) -> Iterator[None]:
    """Make an output layer give the logits of the tokens ``columns [K]`` alone."""
    outer = head.__dict__.get("forward")
    # The dictionary hides the class's method and does not replace it.
    head.__dict__["forward"] = partial(_narrow, head, columns)
    try:
        yield
    finally:
        del head.__dict__["forward"]
        if outer is not None:
            head.__dict__["forward"] = outer


def few_logits(model: CausalModel) -> tuple[Linear, Tensor] | None:
    """Return the output layer and the tokens ``[K]`` whose logits it gives, inside :func:`at_pointers`; else None."""
    head: Any = getattr(unwrapped(model), "get_output_embeddings", lambda: None)()
    forward: Any = None if head is None else head.__dict__.get("forward")
    if isinstance(forward, partial) and forward.func is _narrow:
        return head, forward.args[1]
    return None


def _plain_head(model: CausalModel) -> Linear | None:
    """Return the output layer if it should be narrowed, else None."""
    head = getattr(unwrapped(model), "get_output_embeddings", lambda: None)()
    # If another library replaced this layer or its forward pass, that is left alone.
    if type(head) is not Linear or "forward" in head.__dict__:
        return None
    wide = head.out_features >= WIDE_VOCABULARY
    return head if wide or head.weight.dtype in HALF else None


def _narrow(head: Linear, columns: Tensor, hidden: Tensor) -> Tensor:
    weight, bias = head.weight[columns], None if head.bias is None else head.bias[columns]
    if weight.dtype in HALF:
        hidden, weight = hidden.float(), weight.float()
        bias = None if bias is None else bias.float()
    return torch.nn.functional.linear(hidden, weight, bias)
