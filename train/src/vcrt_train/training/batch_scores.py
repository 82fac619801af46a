"""Score a whole batch, whose prompts are shared among processes and scored a few at a time in each process.

The objective couples the prompts of a batch (a penalty is a function of the batch's mean), so a loss for each share
would be another loss. Here every process has the scores of all prompts as leaves of a small graph, computes the
gradient of the whole objective there, and backpropagates its own rows through the model. This is exact for any
objective and any numbers of processes and parts. With several parts, a prompt is scored twice, once without gradient,
and memory grows with the part instead of the batch. Source: gradient caching (Gao et al., arXiv:2101.06983).

Shapes: ``B`` prompts; the scores of a prompt are one or several tensors, as the objective needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from vcrt_train.training.process_group import ProcessGroup

#: Scores the prompts of these numbers under the current policy, with gradient unless it is switched off: tensors
#: ``[len(numbers), ...]``, whose number and further shapes are always the same.
Scorer: TypeAlias = Callable[[Sequence[int]], tuple[Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class BatchScores:
    """The scores of all prompts as leaves, and what this process needs for the backward pass."""

    #: The scores that the objective uses, ``[B, ...]`` each.
    leaves: tuple[Tensor, ...]
    #: This process's rows of the batch, in parts; rows beyond the batch are padding and have no gradient.
    parts: tuple[tuple[int, ...], ...]
    #: The only part's scores with their graph; None if parts are scored again in the backward pass.
    kept: tuple[Tensor, ...] | None

    def pull_back(self, score: Scorer, group: ProcessGroup) -> float:
        """Backpropagate the gradient of the leaves through this process's rows into the model's parameters.

        Returns the largest difference, over all processes, between a score of the first leaf and its repeated score: 0
        unless parts are scored again and scoring is noisy.
        """
        gap = self.leaves[0].new_zeros(1)
        cotangents = tuple(
            torch.zeros_like(leaf) if leaf.grad is None else leaf.grad * group.gradient_factor
            for leaf in self.leaves
        )
        for part in self.parts:
            scored = self.kept or _score(part, len(self.leaves[0]), score)
            torch.autograd.backward(scored, [_rows(each, part) for each in cotangents])
            if self.kept is None:
                gap = torch.maximum(gap, _largest_gap(scored[0], self.leaves[0], part))
        return 0.0 if self.kept else float(group.gather(gap).max())


def score_batch(
    num_prompts: int, score: Scorer, group: ProcessGroup, *, part_size: int | None
) -> BatchScores:
    """Score every prompt of a batch once, shared among the processes of ``group``.

    With ``part_size``, at most that many prompts are scored at a time, and no graph is kept beyond one part.
    """
    parts = shares(num_prompts, group.size, part_size)[group.rank]
    kept = None
    if len(parts) == 1:
        kept = _score(parts[0], num_prompts, score)
        mine = tuple(tensor.detach() for tensor in kept)
    else:
        with torch.no_grad():
            found = [_score(part, num_prompts, score) for part in parts]
        mine = tuple(torch.cat(tensors) for tensors in zip(*found, strict=True))
    leaves = tuple(group.gather(tensor)[:num_prompts].clone().requires_grad_() for tensor in mine)
    return BatchScores(leaves=leaves, parts=parts, kept=kept)


def shares(
    num_prompts: int, num_processes: int, part_size: int | None
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the rows that each process scores, in parts.

    All processes have equally many rows and parts, because they must meet after each; padding rows count from
    ``num_prompts`` on.
    """
    each = -(-num_prompts // num_processes)
    size = min(part_size or each, each)
    return tuple(
        tuple(
            tuple(range(start, min(start + size, first + each)))
            for start in range(first, first + each, size)
        )
        for first in range(0, each * num_processes, each)
    )


def _score(part: Sequence[int], num_prompts: int, score: Scorer) -> tuple[Tensor, ...]:
    return score([min(row, num_prompts - 1) for row in part])


def _largest_gap(scored: Tensor, leaf: Tensor, part: Sequence[int]) -> Tensor:
    """Return the largest difference between a part's rows and the batch's; probabilities of 0 in both are equal."""
    rows = [row for row in part if row < len(leaf)]
    again, first = scored.detach()[: len(rows)], leaf.detach()[rows]
    gaps = torch.where(again == first, 0, (again - first).abs())
    return gaps.max() if gaps.numel() else gaps.new_zeros(())


def _rows(cotangent: Tensor, part: Sequence[int]) -> Tensor:
    """Return the gradient of a part's rows; 0 for rows beyond the batch."""
    rows = [row for row in part if row < len(cotangent)]
    missing = cotangent.new_zeros(len(part) - len(rows), *cotangent.shape[1:])
    return torch.cat([cotangent[rows], missing])
