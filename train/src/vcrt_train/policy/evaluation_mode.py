"""Score without dropout, whatever mode a model is in, and checkpoint gradients so that it stays so.

With dropout the ratio of an update's first epoch would not be 1. The library checkpoints activations only in training
mode, where it also turns dropout on and takes the cache away from the layers it checkpoints. Here every module is in
evaluation mode while scores are computed and again while a checkpointed layer is run a second time by the backward
pass; layers for which checkpointing was switched on are checkpointed by us. Not covered: models of the library whose
layers are not its checkpointing layers; they score the same, without the saving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch.nn import Module
from torch.utils.checkpoint import checkpoint

from vcrt_train.policy.prompts import CausalModel


@contextmanager
def evaluation_mode(model: CausalModel) -> Iterator[None]:
    """Every module of ``model`` in evaluation mode; restores each module's mode.

    Layers with ``gradient_checkpointing`` switched on store their inputs alone; the backward pass may come after the
    context has ended.
    """
    modules = _modules_of(model)
    with ExitStack() as stack:
        stack.enter_context(_evaluating(modules))
        if torch.is_grad_enabled():
            kind = _checkpointing_layer()
            for layer in modules:
                # Asking the others for what they do not have would take them long.
                if isinstance(layer, kind) and layer.gradient_checkpointing:
                    stack.enter_context(_checkpointing(layer))
        yield


@cache
def _checkpointing_layer() -> Any:
    # Its module takes seconds to import, and commands that train nothing import this one.
    from transformers.modeling_layers import GradientCheckpointingLayer

    return GradientCheckpointingLayer


def _modules_of(module: Module) -> list[Module]:
    # As ``modules()``, without the names that make it slow: every score of a small model pays for this.
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
    # Through the dictionary, as the class's method is only hidden, not replaced.
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
        # The backward pass runs this again, in whatever mode the model is by then.
        with _evaluating(modules):
            return forward(*inputs, **kwargs)

    # Reentrant checkpoints would cut off the gradient of states that leave the layer through a cache. Nothing is drawn.
    return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False)
