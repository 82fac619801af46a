"""Score pairs of a prompt and a completion: all by one call over trees of their tokens, or in rows as TRL's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from vcrt_train.integrations.orbit_credit import Candidates, Rows, TokenIds, padded_rows
from vcrt_train.integrations.trl.orbit_grpo_config import OrbitGRPOConfig
from vcrt_train.policy.text_scoring import TextScores, score_texts


def needed_candidates(
    candidates: Iterable[Candidates], members: Iterable[int], args: OrbitGRPOConfig
) -> tuple[list[Candidates], list[int]]:
    """The different candidates whose scores a loss needs, and the place of each sample's among them, or -1.

    ``members`` are the places of the samples in their orbits, -1 for those that are not credited.
    """
    with_illegal = args.orbit_alpha > 0
    with_orbits = args.orbit_augmentation > 0
    rows: dict[Candidates, int] = {}
    places = []
    for own, member in zip(candidates, members, strict=True):
        wanted = own if with_illegal else Candidates(prompt=own.prompt, orbit=own.orbit)
        needs_margin = with_illegal and bool(own.orbit and own.illegal)
        is_needed = member >= 0 or needs_margin or (with_orbits and bool(own.orbit))
        places.append(rows.setdefault(wanted, len(rows)) if is_needed else -1)
    return list(rows), places


def score_by_tree(
    model: Any,
    pairs: Sequence[tuple[TokenIds, TokenIds]],
    *,
    accelerator: Any,
    temperature: float,
    entropies: bool,
    entropy_gradients: bool,
) -> list[TextScores]:
    """The scores of pairs by one call of the model: a tree of tokens behind each prompt."""
    trees: dict[TokenIds, dict[TokenIds, int]] = {}
    # A completion that TRL has masked is empty: a token stands in, so that the loss reaches the model all the same.
    texts = [completion or prompt[:1] for prompt, completion in pairs]
    for (prompt, _), text in zip(pairs, texts, strict=True):
        of_prompt = trees.setdefault(prompt, {})
        of_prompt.setdefault(text, len(of_prompt))
    with accelerator.autocast():
        scores = score_texts(
            model,
            list(trees),
            [list(some) for some in trees.values()],
            backend="tree",
            temperature=temperature,
            entropies=entropies,
            entropy_gradients=entropy_gradients,
        )
    of = dict(zip(trees, scores, strict=True))
    return [
        of[prompt][trees[prompt][text]].first(len(completion))
        for (prompt, completion), text in zip(pairs, texts, strict=True)
    ]


def score_by_rows(
    score: Callable[[Rows], Tensor],
    pairs: Sequence[tuple[TokenIds, TokenIds]],
    spare: tuple[TokenIds, TokenIds],
    *,
    accelerator: Any,
    padding: int,
) -> tuple[Tensor, Tensor]:
    """``[N]`` log-probabilities of pairs, a row each, and a 0 that ties rows to the loss which were added.

    ``score`` gives rows' ``[N, T]`` log-probabilities of tokens. Processes must call the model equally often, or they
    wait for each other for ever: those with fewer rows score their first again, or the ``spare`` pair.
    """
    device = accelerator.device
    # Orbits may be alike whose illegal completions are not.
    different = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
    most = int(accelerator.gather(torch.tensor([len(different)], device=device)).max())
    if most == 0:
        return torch.zeros(0, device=device), torch.zeros((), device=device)
    prompt, completion = pairs[0] if pairs else spare
    added = [(prompt, completion or prompt[:1])] * (most - len(different))
    rows = padded_rows([*different, *added], padding=padding, device=device)
    log_probs = (score(rows) * rows.completion_mask).sum(-1)
    places = torch.tensor([different[pair] for pair in pairs], dtype=torch.long, device=device)
    return log_probs[places], 0.0 * log_probs[len(different) :].sum()
