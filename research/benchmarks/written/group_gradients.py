"""Losses whose gradients are those of a group of samples, by what is credited, and how such gradients spread.

Pure. Legend: ``N`` texts, ``G`` groups, ``P`` parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: GRPO first, beside which the others are set.
ESTIMATORS = ("grpo", "orbit", "expected")
#: Draws of a bootstrap.
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample: which text it is, whether it solves its task, and the texts of its steps in every order.

    Those of ``legal`` solve the task, those of ``illegal`` do not; both are empty where it stands for itself.
    """

    text: int
    solved: bool
    legal: tuple[int, ...] = ()
    illegal: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A group's samples, and the tokens of each text that they name."""

    texts: tuple[tuple[int, ...], ...]
    samples: tuple[Sample, ...]


def surrogates(log_probs: Tensor, samples: Sequence[Sample]) -> dict[str, Tensor]:
    """By estimator, what has the gradient of a group's loss where ratios are 1; rewards are 1 and 0, one left out.

    Takes the log-probabilities ``[N]`` of the texts that the samples name.
    """
    found = {}
    for name in ESTIMATORS:
        parts = [_parts(name, log_probs, sample) for sample in samples]
        total = sum(chance for chance, _, _ in parts)
        loss = 0.0 * log_probs.sum()
        for chance, solving, failing in parts:
            others = (total - chance) / (len(samples) - 1)
            loss = loss - chance * (1 - others) * solving + (1 - chance) * others * failing
        found[name] = loss / len(samples)
    return found


def _parts(name: str, log_probs: Tensor, sample: Sample) -> tuple[float, Tensor, Tensor]:
    """The reward of a sample, and the log-masses that are credited for so much of success and of failure."""
    own, nothing = log_probs[sample.text], log_probs.new_zeros(())
    legal, illegal = (
        log_probs[list(some)].logsumexp(0) if some else None
        for some in (sample.legal, sample.illegal)
    )
    if name == "expected" and not (legal is None and illegal is None):
        if illegal is None:
            return 1.0, legal, nothing
        if legal is None:
            return 0.0, nothing, illegal
        return float(torch.sigmoid((legal - illegal).detach())), legal, illegal
    if not sample.solved:
        return 0.0, nothing, own
    return 1.0, own if name == "grpo" or legal is None else legal, nothing


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one task and by estimator: the mean square of a group's gradient, and the mean product of two groups'.

    ``solved`` is how many samples of all groups solved the task.
    """

    square: dict[str, float]
    product: dict[str, float]
    solved: int

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Spread:
        """What :meth:`to_json` gave."""
        return Spread(**value)


def spread_of(gradients: Mapping[str, Tensor], solved: int) -> Spread:
    """The spread of a task's gradients ``[G, P]``, by estimator."""
    square, product = {}, {}
    for name, rows in gradients.items():
        gram = (rows @ rows.T).double()
        squares, count = gram.diagonal().sum(), len(rows)
        square[name] = float(squares / count)
        product[name] = float((gram.sum() - squares) / (count * (count - 1)))
    return Spread(square, product, solved)


def worth(tasks: Sequence[Spread], *, intervals: bool = False) -> dict[str, Any]:
    """By estimator beside GRPO, how many groups of GRPO one of its groups is worth: the ratio of their variances.

    Variances are means over tasks of a gradient's square minus that of its mean, which the products of all estimators
    estimate together, as they share it. With ``intervals``, also the ends of a 95% bootstrap interval over tasks.
    """
    squares = np.array([[one.square[name] for name in ESTIMATORS] for one in tasks])
    means = np.array([np.mean([one.product[name] for name in ESTIMATORS]) for one in tasks])
    variances = squares - means[:, None]

    def ratios(some: np.ndarray) -> np.ndarray:
        return some[..., :1] / some[..., 1:]

    found = ratios(variances.mean(0))
    if not intervals:
        return dict(zip(ESTIMATORS[1:], found.round(3).tolist(), strict=True))
    draws = np.random.default_rng(0).integers(len(tasks), size=(RESAMPLES, len(tasks)))
    low, high = np.quantile(ratios(variances[draws].mean(1)), (0.025, 0.975), axis=0)
    return dict(zip(ESTIMATORS[1:], zip(found, low, high, strict=True), strict=True))
