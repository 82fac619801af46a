"""Split TRL's batches, and score pairs of a prompt and a completion, each different pair once.

All pairs are scored by one call over trees of their tokens, or in rows like TRL's samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from vcrt.errors import MalformedInputError
from vcrt.printable import counted
from vcrt_train.integrations.orbit_credit import (
    Candidates,
    CandidateScores,
    Rows,
    TokenIds,
    encode_completions,
    padded_rows,
    unpadded,
)
from vcrt_train.integrations.trl.orbit_grpo_config import (
    ILLEGAL,
    ORBIT,
    OrbitGRPOConfig,
    require_listed,
)
from vcrt_train.policy.text_scoring import TextScores, score_texts


def batch_of(input_ids: Tensor, attention_mask: Tensor, length: int) -> dict[str, Tensor]:
    """Return the parts of a batch of prompts and completions; completions have ``length`` positions."""
    return {
        "prompt_ids": input_ids[:, :-length],
        "prompt_mask": attention_mask[:, :-length],
        "completion_ids": input_ids[:, -length:],
        "completion_mask": attention_mask[:, -length:],
    }


def require_tokens(where: str, what: str, texts: Sequence[Sequence[int]]) -> None:
    """Raise :class:`MalformedInputError` if one of ``texts`` has no tokens; it states their kind and origin."""
    empty = [place for place, ids in enumerate(texts) if len(ids) == 0]
    if empty:
        raise MalformedInputError(
            f"a {what} without a token",
            where=where,
            found=f"{len(empty)} of {counted(len(texts), what)}, such as number {empty[0] + 1}",
            expected="at least one token; the token that ends a text is enough",
            remedy=f"leave the row of an empty {what} out, or give its end token",
        )


def samples_of(inputs: Mapping[str, Any]) -> list[tuple[TokenIds, TokenIds]]:
    """Return the prompt and the completion of each sample."""
    prompts, completions = (
        unpadded(inputs[f"{part}_ids"], inputs[f"{part}_mask"]) for part in ("prompt", "completion")
    )
    return list(zip(prompts, completions, strict=True))


def listed_candidates(
    inputs: Sequence[Mapping[str, Any]],
    prompts: Sequence[TokenIds],
    args: OrbitGRPOConfig,
    tokenizer: Any,
    max_length: int,
) -> list[Candidates]:
    """Make the candidates of each sample from the dataset's columns; samples of one prompt and orbit share theirs."""

    def encoded(row: Mapping[str, Any], column: str) -> tuple[TokenIds, ...]:
        return encode_completions(
            row.get(column),
            column=column,
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            end=tokenizer.eos_token_id,
            max_length=max_length,
        )

    columns = (ORBIT, ILLEGAL) if args.orbit_alpha else (ORBIT,)
    known: dict[tuple[object, ...], Candidates] = {}
    result = []
    for prompt, row in zip(prompts, inputs, strict=True):
        require_listed([row], "a row")
        key = (prompt, *(repr(row.get(column)) for column in columns))
        if key not in known:
            sets = {column: encoded(row, column) for column in columns}
            known[key] = Candidates(prompt=prompt, **sets)
        result.append(known[key])
    return result


def tokens_of_trees(pairs: Iterable[tuple[TokenIds, TokenIds]]) -> int:
    """Return how many tokens a pass over trees reads: prompts, and common beginnings of completions, once."""
    total = 0
    prompt: TokenIds = ()
    before: TokenIds = ()
    # In sorted order, a text shares most with the one before it. Its last token is not read: nothing follows it.
    for own, completion in sorted(pairs):
        if own != prompt:
            total, prompt, before = total + len(own), own, ()
        text = completion[:-1]
        same = takewhile(lambda both: both[0] == both[1], zip(text, before, strict=False))
        total, before = total + len(text) - sum(1 for _ in same), text
    return total


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """Return ``[B]``: factors that turn a reward minus its group's mean into the reward minus the others' mean."""
    known = (~rewards.isnan()).view(-1, group_size).sum(1)
    factors = known / (known - 1).clamp(min=1)
    return factors.repeat_interleave(group_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The scores that a batch's samples need."""

    #: None if no sample needs one.
    scores: CandidateScores | None
    #: ``[B]``: the row of each sample's prompt in ``scores``, or -1.
    prompts: Tensor
    #: ``[B]``: see :meth:`CandidateScores.surplus`.
    surplus: Tensor
    #: ``[B, 2]``: see :attr:`CandidateScores.log_masses`; ``-inf`` of samples that need none.
    log_masses: Tensor
    #: The samples' own scores, if one pass gives all; None if TRL's own pass gives them.
    samples: Sequence[TextScores] | None
    #: The mean number of tokens that the model read for a sample.
    tokens: float
    #: A 0 that connects added rows to the loss.
    unused: Tensor

    def margin_loss(self, margin: float) -> Tensor:
        """Return the mean over samples of their prompt's margin loss."""
        return self._mean(None if self.scores is None else self.scores.margin_losses(margin))

    def augmentation_loss(self) -> Tensor:
        """Return the mean over samples of their orbit's negative log-likelihood."""
        return self._mean(None if self.scores is None else self.scores.augmentation_losses())

    def _mean(self, losses: Tensor | None) -> Tensor:
        if losses is None:
            return self.surplus.new_zeros(())
        # The last element is the loss of prompts that were not scored, whose row is -1.
        return torch.cat([losses, losses.new_zeros(1)])[self.prompts].mean()

    @property
    def mean_mass(self) -> Tensor:
        """The mean probability of the orbits that were scored; NaN if none was."""
        if self.scores is None:
            return self.surplus.new_tensor(torch.nan)
        return self.scores.orbit_log_masses.detach().exp().mean()


def log_masses_of(scores: CandidateScores | None, prompts: Tensor) -> Tensor:
    """Return ``[B, 2]``: the log-masses of each sample's candidates; ``prompts [B]`` has their rows, or -1."""
    nothing = torch.full((1, 2), -torch.inf, device=prompts.device)
    if scores is None:
        return nothing[prompts]
    # The last row is that of samples without candidates, whose row is -1.
    return torch.cat([scores.log_masses, nothing])[prompts]


def needed_candidates(
    candidates: Iterable[Candidates], members: Iterable[int], args: OrbitGRPOConfig
) -> tuple[list[Candidates], list[int]]:
    """Return the different candidates whose scores a loss needs, and each sample's index among them, or -1.

    ``members`` holds the samples' indices in their orbits, -1 for samples that are not credited.
    """
    with_illegal = args.orbit_alpha > 0 or args.orbit_all_orders
    with_orbits = args.orbit_augmentation > 0
    rows: dict[Candidates, int] = {}
    places = []
    for own, member in zip(candidates, members, strict=True):
        wanted = own if with_illegal else Candidates(prompt=own.prompt, orbit=own.orbit)
        needs_margin = with_illegal and bool(own.orbit and own.illegal)
        needs_all = args.orbit_all_orders and bool(own.completions)
        is_needed = member >= 0 or needs_margin or needs_all or (with_orbits and bool(own.orbit))
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
    """Score pairs by one call of the model: a tree of tokens after each prompt."""
    trees: dict[TokenIds, dict[TokenIds, int]] = {}
    # A completion that TRL has masked is empty; a token replaces it, so that the loss still depends on the model.
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
    """Return ``[N]`` log-probabilities of pairs, scored in rows, and a 0 that connects added rows to the loss.

    ``score`` gives rows' ``[N, T]`` log-probabilities of tokens. Processes must call the model equally often, or they
    wait for each other forever: those with fewer rows score their first again, or the ``spare`` pair.
    """
    device = accelerator.device
    # Two prompts' candidates can have the same orbit and different illegal completions.
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
