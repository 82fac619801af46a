"""Score texts behind a prompt exactly, in one pass over the tree of their tokens; shared prefixes are scored once.

Texts are scored by their given tokens, whatever a tokenizer would make of them, over the whole vocabulary, with the
backends that score orders (:mod:`vcrt_train.policy.backends`). The model stays in its mode. This module does not choose
texts and does not make tokens of them.

Legend: ``U`` prompts, ``R`` rows of the largest tree, ``V`` vocabulary, ``T`` tokens of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vcrt.errors import MalformedInputError
from vcrt_train.config import Backend
from vcrt_train.policy.backends import LOGITS, choose_backend
from vcrt_train.policy.causal_model import CausalModel, Prompt
from vcrt_train.policy.prefix_tree import TokenTree, token_tree

#: The number of rows whose logits are widened at a time, and again for their gradient.
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class TextScores:
    """The scores of one text: log-probabilities ``[T]`` of its tokens, and, if asked for, entropies ``[T]`` (nats)."""

    log_probs: Tensor
    entropies: Tensor | None = None

    def first(self, count: int) -> TextScores:
        """Return the scores of the first tokens."""
        entropies = None if self.entropies is None else self.entropies[:count]
        return TextScores(self.log_probs[:count], entropies)


def score_texts(
    model: CausalModel,
    prompts: Sequence[Sequence[int]],
    texts: Sequence[Sequence[Sequence[int]]],
    *,
    backend: Backend = "auto",
    temperature: float = 1.0,
    entropies: bool = False,
    entropy_gradients: bool = False,
) -> list[list[TextScores]]:
    """Return the scores of each prompt's texts, all given as token ids; log-probabilities carry a gradient.

    With the ``tree`` backend this is one call of the model, whatever the prompts and texts. ``temperature`` divides the
    logits. Entropies, of the distribution at each token, carry a gradient with ``entropy_gradients``. Raises
    :class:`vcrt.errors.BackboneError` if ``backend`` would be wrong for this model, and :class:`MalformedInputError`
    for an empty prompt or text.
    """
    if not prompts or not all(prompts) or not all(text for some in texts for text in some):
        raise MalformedInputError("an empty prompt or text", expected="one token at least")
    trees = [token_tree(some) for some in texts]
    wrapped = [Prompt(token_ids=tuple(ids), pointer_ids=tuple(ids[-1:])) for ids in prompts]
    longest = max(len(ids) for ids in prompts) + max(tree.depth for tree in trees)
    exact = choose_backend(model, backend, longest=longest)
    logits = LOGITS[exact](model, wrapped, trees)
    return [
        _of_one_prompt(own, tree, some, temperature, entropies, entropy_gradients)
        for own, tree, some in zip(logits, trees, texts, strict=True)
    ]


def _of_one_prompt(
    logits: Tensor,
    tree: TokenTree,
    texts: Sequence[Sequence[int]],
    temperature: float,
    entropies: bool,
    entropy_gradients: bool,
) -> list[TextScores]:
    """Return the scores of a prompt's texts from the logits ``[R, V]`` of its tree."""
    logits = logits[: tree.num_rows]
    normalisers = _by_parts(_normaliser, logits, temperature)
    # Each continuation of a row counts once, however many texts take it.
    edges: dict[tuple[int, int], int] = {}
    places = [
        [edges.setdefault(edge, len(edges)) for edge in zip(rows.tolist(), text, strict=True)]
        for rows, text in zip(tree.rows, texts, strict=True)
    ]
    rows, tokens = torch.tensor(list(edges), device=logits.device).unbind(-1)
    found = _wide(logits[rows, tokens]) / temperature - normalisers[rows]
    spread = None
    if entropies:
        of = logits if entropy_gradients else logits.detach()
        spread = _by_parts(_entropy, of, temperature)
    return [
        TextScores(
            found[torch.tensor(some, device=logits.device)],
            None if spread is None else spread[torch.tensor(np.array(way), device=logits.device)],
        )
        for some, way in zip(places, tree.rows, strict=True)
    ]


def _by_parts(
    function: Callable[[Tensor, float], Tensor], logits: Tensor, temperature: float
) -> Tensor:
    """Return ``[R]``: a function of each row, whose wide logits are not kept for the gradient."""

    def of_part(part: Tensor) -> Tensor:
        if not part.requires_grad:
            return function(part, temperature)
        found: Tensor = checkpoint(function, part, temperature, use_reentrant=False)
        return found

    return torch.cat([of_part(part) for part in torch.split(logits, _ROWS_AT_ONCE)])


def _normaliser(logits: Tensor, temperature: float) -> Tensor:
    return (_wide(logits) / temperature).logsumexp(-1)


def _entropy(logits: Tensor, temperature: float) -> Tensor:
    log_probs = (_wide(logits) / temperature).log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()
