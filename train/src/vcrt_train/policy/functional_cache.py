"""Record a prompt once in a cache that never changes in place, and read it from many rows, with gradients.

The library's own cache overwrites recurrent and convolutional states, which breaks the backward pass, and grows when a
checkpointed layer is run again. Here a prompt is *recorded* into a cache that always reads as empty, and continued from
a *forked* cache that is only read, so a layer that is run twice gives the same result twice. This module does not
support caches with an indexer (sparse attention), and offloaded, quantised or static caches.

Legend: ``B`` prompts, ``K`` rows for each prompt.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

#: The layers whose states this module knows; a layer of any other class is not forked.
FORKABLE_LAYERS = frozenset(
    {
        DynamicLayer,
        DynamicSlidingWindowLayer,
        LinearAttentionLayer,
        LinearAttentionAndFullAttentionLayer,
        LinearAttentionAndSlidingWindowAttentionLayer,
        DummyLayer,
    }
)


@dataclass(kw_only=True, slots=True)
class LayerStates:
    """The states of one layer after the prompts: ``[B, heads, tokens, width]``, and other states by number."""

    keys: Tensor | None = None
    values: Tensor | None = None
    convolution: dict[int, Tensor] = field(default_factory=dict)
    recurrent: dict[int, Tensor] = field(default_factory=dict)


class RecordedCache(Cache):
    """Record the states of a forward pass over whole prompts, until :meth:`close`; always read as empty."""

    def __init__(self, config: Any) -> None:
        super().__init__(layers=DynamicCache(config=config).layers)
        self.config = config
        self.states = [LayerStates() for _ in self.layers]
        self._closed = False

    def close(self) -> None:
        """Keep the recorded states: layers that are run again for their gradients change nothing from now on."""
        self._closed = True

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Record keys and values, and return them."""
        if not self._closed:
            states = self.states[layer_idx]
            states.keys, states.values = key_states, value_states
        return key_states, value_states

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Record the last inputs of a convolution, and return all of its inputs."""
        if not self._closed:
            size = kwargs.get("conv_kernel_size") or conv_states.shape[-1]
            # This is a copy, because a view would keep the inputs of the whole prompt.
            self.states[layer_idx].convolution[state_idx] = conv_states[..., -size:].clone()
        return conv_states

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Record a recurrent state, and return it."""
        if not self._closed:
            self.states[layer_idx].recurrent[state_idx] = recurrent_states
        return recurrent_states


class ForkedCache(Cache):
    """The recorded prompts, each for ``rows`` consecutive rows; reads do not change it."""

    def __init__(self, recorded: RecordedCache, *, rows: int) -> None:
        super().__init__(layers=DynamicCache(config=recorded.config).layers)
        self._rows = rows
        for layer, states in zip(self.layers, recorded.states, strict=True):
            _load(layer, states)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the prompts' keys and values followed by these."""
        layer = self._layer(layer_idx)
        keys = self._behind(layer.keys, key_states, -2)
        return keys, self._behind(layer.values, value_states, -2)

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return the last inputs of a convolution, ``[B * K, channels, at most the kernel's size]``."""
        return self._forked(self._layer(layer_idx).conv_states[state_idx])

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Return the prompts' last inputs of a convolution followed by these."""
        return self._behind(self._layer(layer_idx).conv_states[state_idx], conv_states, -1)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Return the recurrent state after the prompts, ``[B * K, ...]``."""
        return self._forked(self._layer(layer_idx).recurrent_states[state_idx])

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: Any
    ) -> Tensor:
        """Return the given state; nothing reads it later."""
        return recurrent_states

    def _layer(self, layer_idx: int) -> Any:
        # The library's type is a union whose members do not share their states' names.
        return self.layers[layer_idx]

    def _forked(self, state: Tensor | None) -> Tensor | None:
        return None if state is None else state.repeat_interleave(self._rows, dim=0)

    def _behind(self, state: Tensor | None, new: Tensor, axis: int) -> Tensor:
        forked = self._forked(state)
        return new if forked is None else torch.cat([forked, new], dim=axis)


def _load(layer: Any, states: LayerStates) -> None:
    """Put recorded states into an empty layer of the library, so that it reports their length and mask size."""
    if states.keys is not None and states.values is not None:
        layer.dtype, layer.device, layer.is_initialized = (
            states.keys.dtype,
            states.keys.device,
            True,
        )
        layer.keys, layer.values = states.keys, states.values
        if isinstance(layer, DynamicSlidingWindowLayer):
            layer.cumulative_length = states.keys.shape[-2]
            # Keep as many as the library does, because the size of its mask depends on this.
            seen = max(layer.cumulative_length - layer.sliding_window + 1, 0)
            layer.keys, layer.values = layer.keys[..., seen:, :], layer.values[..., seen:, :]
    if isinstance(layer, LinearAttentionCacheLayerMixin):
        # With this flag, models use their functional convolution; without it, a fused one that writes in place.
        layer.record_past = True
        for state_idx, state in states.convolution.items():
            layer.conv_states[state_idx] = state
            layer.is_conv_states_initialized[state_idx] = True
            layer.has_previous_state[state_idx] = True
        for state_idx, state in states.recurrent.items():
            layer.recurrent_states[state_idx] = state
            layer.is_recurrent_states_initialized[state_idx] = True
            layer.has_previous_state[state_idx] = True
