"""Score predictions of which steps depend on one another against what was certified, pair by pair.

A pair of steps is an *edge* if certificates say that one must or should stand before the other (``precedes``,
``conflicts``, ``observes``). A missed edge breaks something when steps are reordered; a superfluous one only costs
speed, so the two are counted apart. Pairs without a certified relation of their own, because others imply their order,
are left out and counted. Not covered: how predictions are made (:mod:`vcrt_research.relation_predictors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from vcrt.certificates.certificates import RelationType
from vcrt.environments.contract import Episode
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import Dataset, read_audit
from vcrt_train.randomness import generator

NUM_RESAMPLES = 1_000
LEVEL = 0.95
#: Bins of equal width for the calibration error.
NUM_BINS = 10
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPair:
    """Two operations of an episode and their certified relation.

    Which of them is ``first`` follows from the slots of the record, which are drawn, and says nothing. ``forward``: of
    an edge, whether the first stands before the second; None for a pair that commutes.
    """

    episode_id: str
    source: str
    first: int
    second: int
    kind: RelationType
    forward: bool | None

    @property
    def is_edge(self) -> bool:
        """Whether the order of the two matters."""
        return self.forward is not None


@dataclass(frozen=True, slots=True)
class Labelled:
    """The episodes of one environment and the pairs of their operations; ``implied`` pairs have no own relation."""

    episodes: tuple[Episode, ...]
    slots: Mapping[str, tuple[int, ...]]
    pairs: tuple[LabelledPair, ...]
    implied: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """How strongly a pair is taken for an edge, and for one whose first operation stands before the second (0 to 1).

    ``forward`` is 0.5 where nothing is said about the direction.
    """

    edge: float
    forward: float = 0.5


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measurement with its interval over sources; without one where it is not defined in all resamples."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RelationScores:
    """How good predictions are on some pairs.

    ``missed`` edges are taken for commuting pairs, ``superfluous`` are commuting pairs taken for edges. ``auroc`` is
    None where all pairs are of one kind. ``turned``: of the edges that were found with a direction, how many have the
    wrong one. ``calibration`` is the expected calibration error, None of predictions that are no probabilities.
    """

    pairs: int
    edges: int
    missed: int
    superfluous: int
    directed: int
    turned: int
    f1: Estimate
    auroc: Estimate | None
    calibration: float | None
    threshold: float


def labelled(
    dataset: Dataset, environment: str, number: int | None = None, seed: int = 0
) -> Labelled:
    """Every pair of operations of an environment's episodes, or of a ``number`` of them, by their certificates."""
    manifest = dataset.manifest
    episodes, slots, pairs, implied = [], {}, [], 0
    rows = read_audit(dataset, environment)
    drawn = generator(seed, "relations", "episodes", environment).permutation(len(rows))[:number]
    for row in (rows[place] for place in sorted(drawn)):
        certified = certified_from_row(row, manifest.preset)
        made = anonymise(certified, manifest.seed, manifest.record_form)
        episode, slot_of = certified.episode, made.slot_of_operation
        episodes.append(episode)
        slots[episode.episode_id] = slot_of
        known = {frozenset((r.first, r.second)): r for r in certified.relations}
        implied += comb(episode.num_operations, 2) - len(known)
        for one, other in combinations(sorted(range(len(slot_of)), key=slot_of.__getitem__), 2):
            relation = known.get(frozenset((one, other)))
            if relation is not None:
                commutes = relation.kind == "commutes"
                pairs.append(
                    LabelledPair(
                        episode_id=episode.episode_id,
                        source=episode.provenance.source,
                        first=one,
                        second=other,
                        kind=relation.kind,
                        forward=None if commutes else relation.first == one,
                    )
                )
    return Labelled(tuple(episodes), slots, tuple(pairs), implied)


def best_threshold(pairs: Sequence[LabelledPair], predictions: Sequence[Prediction]) -> float:
    """From which score on a pair is taken for an edge so that F1 is largest, the lowest of several; 0.5 of no edges."""
    edges = np.array([pair.is_edge for pair in pairs], dtype=float)
    scores = np.array([prediction.edge for prediction in predictions])
    if not edges.any():
        return 0.5
    candidates, rank = np.unique(scores, return_inverse=True)
    found, right = (
        np.bincount(rank, weights)[::-1].cumsum()[::-1] for weights in (np.ones_like(edges), edges)
    )
    return float(candidates[(2 * right / (found + edges.sum())).argmax()])


def relation_scores(
    pairs: Sequence[LabelledPair],
    predictions: Sequence[Prediction],
    *,
    threshold: float,
    probabilities: bool,
    seed: int = 0,
) -> RelationScores:
    """The scores of some predictions; sources are resampled for the intervals (percentiles)."""
    edges = np.array([pair.is_edge for pair in pairs], dtype=float)
    scores = np.array([prediction.edge for prediction in predictions])
    found = scores >= threshold
    sources = {source: i for i, source in enumerate(sorted({pair.source for pair in pairs}))}
    number = np.array([sources[pair.source] for pair in pairs])
    draw = generator(seed, "relations", "resamples")
    counts = draw.multinomial(
        len(sources), np.full(len(sources), 1 / len(sources)), size=NUM_RESAMPLES
    )

    def weights() -> Iterator[Floats]:
        """Of each resample, how often each pair is in it; one at a time, as pairs may be many."""
        return (each[number].astype(np.float64) for each in counts)

    directions = [
        (pair.forward, prediction.forward)
        for pair, prediction, taken in zip(pairs, predictions, found, strict=True)
        if taken and pair.forward is not None and prediction.forward != 0.5
    ]
    return RelationScores(
        pairs=len(pairs),
        edges=int(edges.sum()),
        missed=int((edges * ~found).sum()),
        superfluous=int(((1 - edges) * found).sum()),
        directed=len(directions),
        turned=sum(forward != (said > 0.5) for forward, said in directions),
        f1=_estimate(
            _f1(edges, found, np.ones_like(edges)), [_f1(edges, found, w) for w in weights()]
        ),
        auroc=_auroc(edges, scores, weights()),
        calibration=_calibration_error(edges, scores) if probabilities else None,
        threshold=threshold,
    )


def _f1(edges: Floats, found: npt.NDArray[np.bool_], weights: Floats) -> float:
    """2 TP / (2 TP + FP + FN); 1 where there is no edge and none was said."""
    wrong = float((weights * (edges != found)).sum())
    right = float((weights * edges * found).sum())
    return 2 * right / (2 * right + wrong) if right or wrong else 1.0


def _auroc(edges: Floats, scores: Floats, weights: Iterator[Floats]) -> Estimate | None:
    if edges.all() or not edges.any():
        return None
    _, rank = np.unique(scores, return_inverse=True)
    usable = (w for w in weights if (w * edges).any() and (w * (1 - edges)).any())
    replicates = [weighted_auroc(edges, rank, w) for w in usable]
    return _estimate(weighted_auroc(edges, rank, np.ones_like(edges)), replicates)


def weighted_auroc(edges: Floats, rank: npt.NDArray[np.int64], weights: Floats) -> float:
    """The share of pairs of an edge and another in which the edge has the higher rank; an equal one counts half."""
    positive = np.bincount(rank, weights * edges)
    negative = np.bincount(rank, weights * (1 - edges))
    below = np.cumsum(negative) - negative / 2
    return float((positive * below).sum() / (positive.sum() * negative.sum()))


def _estimate(value: float, replicates: Sequence[float]) -> Estimate:
    low, high = np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))


def _calibration_error(edges: Floats, scores: Floats) -> float:
    """The mean distance of said and found shares of edges, over bins of the said ones (Naeini et al., 2015)."""
    bins = np.minimum((scores * NUM_BINS).astype(int), NUM_BINS - 1)
    gaps = [
        abs(edges[bins == b].mean() - scores[bins == b].mean()) * (bins == b).mean()
        for b in range(NUM_BINS)
        if (bins == b).any()
    ]
    return float(sum(gaps))
