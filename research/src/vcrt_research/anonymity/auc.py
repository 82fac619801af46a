"""Cross-validated AUC of a linear probe, its interval, and its permutation check, as functions on arrays.

The probe is ridge regression on the class indicators (:class:`sklearn.linear_model.Ridge`; on one class it is
scikit-learn's ``RidgeClassifier``). It is chosen because one factorisation serves any number of label vectors, so that
the check refits the whole cross-validation under every permutation.

AUC is taken within each cell, that is within one stratum of one fold, one class against the others, and averaged. What
a stratum or a fold as a whole gives away therefore never counts.

The interval is normal, and its standard error the larger of two. DeLong's holds the fitted probes fixed; but every
record also trains the probes that score the others, and each pair of records counts twice, which under chance makes the
true error up to the square root of 2 larger. The standard deviation under permutation has that in it.

Legend: ``n`` records, ``d`` features, ``K`` classes, ``P`` permutations. Not covered: where features come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]
Scores: TypeAlias = npt.NDArray[np.float32]

#: Deviations below this are rounding.
CONSTANT = 1e-9
#: Permutations refitted at a time; bounds the memory.
BLOCK = 100
#: With so many permuted AUCs at least as large as the observed one, more would not change the conclusion.
ENOUGH_EXCEEDANCES = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """What is guessed: ``labels [n]`` in ``0..K-1``, and the ``strata [n]`` and ``folds [n]`` of the records.

    In each cell the classes have equally many records, at least two.
    """

    labels: IndexArray
    strata: IndexArray
    folds: IndexArray

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return int(self.labels.max()) + 1

    def cells(self) -> list[IndexArray]:
        """The records of each stratum in each fold."""
        keys = np.stack([self.strata, self.folds])
        return [
            np.flatnonzero((keys == cell[:, None]).all(axis=0))
            for cell in np.unique(keys, axis=1).T
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Auc:
    """An AUC with its standard error and the share of permutations that give at least as much."""

    value: float
    standard_error: float
    p_value: float
    num_permutations: int

    def interval(self, level: float) -> tuple[float, float]:
        """The two-sided interval at ``level``, within 0 and 1."""
        margin = float(ndtri(0.5 + level / 2.0)) * self.standard_error
        return max(0.0, self.value - margin), min(1.0, self.value + margin)


def cross_validated_auc(
    features: npt.ArrayLike,
    design: Design,
    generator: np.random.Generator,
    *,
    penalty: float,
    num_permutations: int,
) -> Auc:
    """The AUC of the probe on ``features [n, d]`` under ``design``; ``generator`` draws the permutations.

    ``penalty`` is ridge regression's, for features of equal variances that sum to 1. Labels are permuted within each
    cell, which keeps every count. The check stops early once ``ENOUGH_EXCEEDANCES`` permutations reach the observed
    AUC.
    """
    scaled = _scaled(np.asarray(features, dtype=np.float64))
    cells = design.cells()
    observed = _scores(scaled, design.labels[:, None], design, penalty)
    value = float(_mean_auc(observed, design.labels[:, None], cells)[0])
    delong = _delong_error(observed, design.labels, cells)
    permuted: list[float] = []
    while len(permuted) < num_permutations:
        count = min(BLOCK, num_permutations - len(permuted))
        labels = _permuted(design.labels, cells, generator, count)
        permuted += _mean_auc(_scores(scaled, labels, design, penalty), labels, cells).tolist()
        if sum(one >= value for one in permuted) >= ENOUGH_EXCEEDANCES:
            break
    exceeding = sum(one >= value for one in permuted)
    return Auc(
        value=value,
        standard_error=max(delong, float(np.std(permuted, ddof=1))),
        p_value=(1 + exceeding) / (1 + len(permuted)),
        num_permutations=len(permuted),
    )


def _scaled(features: FloatArray) -> Scores:
    """Centred features of equal variances that sum to 1, without constant columns. Labels play no part."""
    deviations = features.std(axis=0)
    varying = deviations > CONSTANT
    if not varying.any():
        return np.zeros((len(features), 0), dtype=np.float32)
    centred = (features - features.mean(axis=0))[:, varying]
    scaled: Scores = (centred / deviations[varying] / np.sqrt(varying.sum())).astype(np.float32)
    return scaled


def _scores(features: Scores, labels: IndexArray, design: Design, penalty: float) -> Scores:
    """Out-of-fold scores ``[n, P, K]`` for ``labels [n, P]``."""
    from sklearn.linear_model import Ridge

    num_records, num_permutations = labels.shape
    classes = np.arange(design.num_classes)
    indicators = (labels[:, :, None] == classes).astype(np.float32).reshape(num_records, -1)
    scores: Scores = np.empty_like(indicators)
    if not features.shape[1]:
        scores[:] = 0
        return scores.reshape(num_records, num_permutations, len(classes))
    for fold in np.unique(design.folds):
        held_out = design.folds == fold
        ridge = Ridge(alpha=penalty, solver="cholesky")
        ridge.fit(features[~held_out], indicators[~held_out])
        scores[held_out] = ridge.predict(features[held_out]).reshape(held_out.sum(), -1)
    return scores.reshape(num_records, num_permutations, len(classes))


def _permuted(
    labels: IndexArray, cells: list[IndexArray], generator: np.random.Generator, count: int
) -> IndexArray:
    """``[n, count]``: labels permuted within each cell."""
    permuted = np.repeat(labels[:, None], count, axis=1)
    for cell in cells:
        permuted[cell] = generator.permuted(permuted[cell], axis=0)
    return permuted


def _mean_auc(scores: Scores, labels: IndexArray, cells: list[IndexArray]) -> FloatArray:
    """``[P]``: the mean AUC of ``scores [n, P, K]`` over cells, each class against the others of its cell.

    Equal scores are ranked in the order of the rows, for every class alike, and so count as half on average over the
    classes.
    """
    total = np.zeros(labels.shape[1])
    for cell in cells:
        present = np.unique(labels[cell])
        ranked = np.argsort(scores[cell][:, :, present], axis=0, kind="stable")
        positive = labels[cell][:, :, None] == present
        places = np.arange(1, len(cell) + 1, dtype=np.float64)
        rank_sums = np.einsum("r,rpk->pk", places, np.take_along_axis(positive, ranked, axis=0))
        count = positive.sum(axis=0)
        aucs = (rank_sums - count * (count + 1) / 2) / (count * (len(cell) - count))
        total += len(cell) * aucs.mean(axis=1)
    return total / sum(len(cell) for cell in cells)


def _delong_error(scores: Scores, labels: IndexArray, cells: list[IndexArray]) -> float:
    """The standard error of the mean AUC with the scores ``[n, 1, K]`` held fixed.

    DeLong, DeLong and Clarke-Pearson 1988: each record's placement among the others, summed over the comparisons that
    it takes part in.
    """
    num_records = sum(len(cell) for cell in cells)
    variance = 0.0
    for cell in cells:
        present = np.unique(labels[cell])
        influence = np.zeros(len(cell))
        for k in present:
            order = np.argsort(scores[cell, 0, k], kind="stable")
            positive = (labels[cell] == k)[order]
            below_positive = np.cumsum(~positive)[positive] / (~positive).sum()
            above_negative = 1 - np.cumsum(positive)[~positive] / positive.sum()
            for rows, placements in ((positive, below_positive), (~positive, above_negative)):
                count = len(placements)
                deviations = placements - placements.mean()
                influence[order[rows]] += deviations / np.sqrt(count * (count - 1))
        weight = len(cell) / num_records / len(present)
        variance += float(((weight * influence) ** 2).sum())
    return float(np.sqrt(variance))
