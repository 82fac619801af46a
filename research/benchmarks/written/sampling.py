"""Sample answers quickly where no inference engine can be had: on a processor, from a small adapted model.

A prompt is read once for all of its answers, adapters are added to a copy of the weights once for all tokens, keys and
values are not repeated for the heads that share them, and an answer that has ended leaves the batch. transformers'
``generate``, which does none of these, takes several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    StaticCache,
)
from transformers.masking_utils import eager_mask

#: The name of :func:`attention` among transformers' interfaces.
NAME = "grouped rows"


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """``[B, T, H, d]``: query heads that share a key head are rows of one product."""
    batch, heads, length, width = query.shape
    groups = key.shape[1]
    products = query.reshape(batch, groups, -1, width) @ key.mT
    scores = products.view(batch, heads, length, -1).float() * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1).to(query.dtype).view(batch, groups, -1, key.shape[2])
    return (weights @ value).view(query.shape).transpose(1, 2), None


class Sampler:
    """Samples from a model with adapters, through a copy of the model that has none."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device) -> None:
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, eager_mask)
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=NAME
        )
        self.model.to(device).eval()

    @torch.no_grad()
    def follow(self, adapted: Any) -> None:
        """Take over what a model with adapters computes now."""
        own = dict(self.model.named_modules())
        for name, module in adapted.get_base_model().named_modules():
            if isinstance(module, LoraLayer):
                (adapter,) = module.active_adapters
                weight = module.get_base_layer().weight
                own[name].weight.copy_(weight.float() + module.get_delta_weight(adapter).float())

    @torch.inference_mode()
    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        each: int,
        most: int,
        ends: Sequence[int],
        draw: torch.Generator | None = None,
    ) -> list[list[int]]:
        """``each`` answers to every prompt, one prompt's after another's: tokens, with the one that ends it.

        Of at most ``most`` tokens; drawn at temperature 1, or without ``draw`` the most probable token each time.
        """
        device, longest = self.model.device, max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long, device=device)
        mask = torch.ones(len(prompts), longest + most, dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, : longest - len(prompt)] = 0
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = StaticCache(self.model.config, max_cache_len=longest + most)
        logits = self._logits(ids, mask, places[:, :longest], cache)
        rows = torch.arange(len(prompts), device=device).repeat_interleave(each)
        logits, mask, places = _rows(rows, cache, logits, mask, places)
        answers: list[list[int]] = [[] for _ in rows]
        # The answers that go on, a row each.
        alive = list(range(len(rows)))
        for place in range(longest, longest + most):
            tokens = (
                logits.argmax(-1)
                if draw is None
                else torch.multinomial(logits.softmax(-1), 1, generator=draw)[:, 0]
            )
            written = tokens.tolist()
            for answer, token in zip(alive, written, strict=True):
                answers[answer].append(token)
            kept = [row for row, token in enumerate(written) if token not in ends]
            if not kept or place == longest + most - 1:
                break
            alive = [alive[row] for row in kept]
            rows = torch.tensor(kept, device=device)
            tokens, mask, places = _rows(rows, cache, tokens, mask, places)
            logits = self._logits(tokens[:, None], mask, places[:, [place]], cache)
        return answers

    def _logits(self, ids: Tensor, mask: Tensor, places: Tensor, cache: StaticCache) -> Tensor:
        """``[rows, vocabulary]`` behind the last of these tokens."""
        found: Tensor = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=places,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return found.float()


def _rows(rows: Tensor, cache: StaticCache, *others: Tensor) -> list[Tensor]:
    """Let these be the rows of a cache, and of others."""
    if len(rows) == len(others[0]) and torch.equal(rows, torch.arange(len(rows)).to(rows)):
        return list(others)
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[rows], layer.values[rows]
    return [other[rows] for other in others]
