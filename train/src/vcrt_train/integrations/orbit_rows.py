"""Expand samples into the rows of their orbits, for a trainer whose loss sees single rows and no groups.

A success with the orbit ``O`` becomes one row for each member ``y``, with the weight ``w(y) = pi_old(y) / Z_old(O)``.
Since ``sum_y w(y) pi(y) / pi_old(y) = Z(O) / Z_old(O)``, the sum of the rows' unclipped terms is the orbit's term, for
every policy. A clip of each row is not the clip of their sum: the rows' clipped loss is never below the orbit's, and
equal to it, with its gradient, if the policy is the old one. Samples of one group with one orbit share its rows.
Not covered: how log-probabilities are computed, and the loss.

Shapes: ``B`` samples, ``N`` rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vcrt.errors import MalformedInputError
from vcrt_train.integrations.orbit_credit import Candidates, TokenIds

#: The tolerance for the sum of an orbit's weights, which is 1: single precision, for orbits of thousands.
WEIGHT_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A sampled completion, and the orbit that it stands for.

    Raises :class:`MalformedInputError` for an orbit that is empty, has a member twice, or lacks the sample.
    """

    #: A value that all samples of one prompt share.
    group: Hashable
    completion: TokenIds
    #: None for a sample that stands for itself, such as a failure.
    orbit: tuple[TokenIds, ...] | None = None

    def __post_init__(self) -> None:
        if self.orbit is None:
            return
        remedy = "let it stand for itself (no orbit, not a success), or mend the orbit"
        if not self.orbit:
            raise MalformedInputError(
                "a success with an empty orbit",
                where=f"group {self.group}",
                expected="at least the sample itself",
                remedy=remedy,
            )
        if Candidates(prompt=(), orbit=self.orbit).member(self.completion) < 0:
            raise MalformedInputError(
                "an orbit that does not hold its sample",
                where=f"group {self.group}",
                found=f"token ids {self.completion}",
                expected=f"one of the orbit's {len(self.orbit)}, the first of which is {self.orbit[0]}",
                remedy=remedy,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class OrbitRows:
    """The rows of a batch; rows of one *event* (an orbit, or a single sample) are adjacent."""

    #: ``[N]``: the first sample of a row's event; the row has its prompt and group.
    sources: tuple[int, ...]
    #: ``[N]``.
    completions: tuple[TokenIds, ...]
    #: ``[N]``: a sample with the same completion, or -1, if the row's log-probability is not known yet.
    drawn: tuple[int, ...]
    #: ``[N]`` and ``[B]``: the event of each row and of each sample.
    events: tuple[int, ...]
    event_of_sample: tuple[int, ...]

    @property
    def num_events(self) -> int:
        """The number of orbits and single samples."""
        return max(self.event_of_sample, default=-1) + 1


def orbit_rows(samples: Sequence[Sample]) -> OrbitRows:
    """Make the rows of the samples; each member of an orbit has one row in its group, however often it was drawn."""
    known: dict[Hashable, int] = {}
    place: dict[tuple[int, TokenIds], int] = {}
    #: The source, the completion and the event of each row.
    rows: list[tuple[int, TokenIds, int]] = []
    drawn: list[int] = []
    event_of_sample: list[int] = []
    for number, sample in enumerate(samples):
        members = (sample.completion,) if sample.orbit is None else sample.orbit
        key = number if sample.orbit is None else (sample.group, frozenset(sample.orbit))
        event = known.setdefault(key, len(known))
        event_of_sample.append(event)
        for member in members:
            if (event, member) not in place:
                place[event, member] = len(rows)
                rows.append((number, member, event))
                drawn.append(-1)
        row = place[event, sample.completion]
        drawn[row] = number if drawn[row] < 0 else drawn[row]
    return OrbitRows(
        sources=tuple(source for source, _, _ in rows),
        completions=tuple(completion for _, completion, _ in rows),
        drawn=tuple(drawn),
        events=tuple(event for _, _, event in rows),
        event_of_sample=tuple(event_of_sample),
    )


def row_weights(rows: OrbitRows, old_log_probs: Tensor) -> Tensor:
    """Return ``[N]``: each row's share of its event's mass, from log-probabilities ``[N]`` of whole completions.

    The weight of a sample that stands for itself is exactly 1.
    """
    _require(
        old_log_probs, len(rows.events), "log-probabilities of completions", "one for each row"
    )
    events = torch.tensor(rows.events, device=old_log_probs.device)
    top = old_log_probs.new_zeros(rows.num_events).scatter_reduce(
        0, events, old_log_probs, "amax", include_self=False
    )
    shares = (old_log_probs - top[events]).exp()
    return shares / shares.new_zeros(rows.num_events).index_add(0, events, shares)[events]


def row_advantages(
    rows: OrbitRows, advantages: Tensor, weights: Tensor, *, num_rows: int | None = None
) -> Tensor:
    """Return ``[N]``: the weight of each row times the sum of the advantages ``[B]`` of the samples that share it.

    A factor ``num_rows / B`` (``N / B`` if None) makes a mean over ``num_rows`` rows the mean over samples. Raises
    :class:`MalformedInputError` for weights ``[N]`` that are negative or do not add up to 1 in each event.
    """
    _require(advantages, len(rows.event_of_sample), "advantages", "one for each sample")
    _require(weights, len(rows.events), "weights", "one for each row")
    events = torch.tensor(rows.events, device=weights.device)
    sums = weights.new_zeros(rows.num_events).index_add(0, events, weights)
    wrong = ((sums - 1).abs() > WEIGHT_TOLERANCE).nonzero().flatten().tolist()
    if wrong or bool((weights < 0).any()):
        where = f"event {wrong[0]}" if wrong else f"row {int(weights.argmin())}"
        raise MalformedInputError(
            "weights that are not the shares of an orbit's members",
            where=where,
            found=f"a sum of {float(sums[wrong[0]]):.6g}"
            if wrong
            else f"{float(weights.min()):.6g}",
            expected="no negative ones, and a sum of 1 in each orbit",
            remedy="take those of row_weights",
        )
    totals = advantages.new_zeros(rows.num_events).index_add(
        0, torch.tensor(rows.event_of_sample, device=advantages.device), advantages
    )
    num_rows = len(rows.events) if num_rows is None else num_rows
    return weights.to(totals) * totals[events] * (num_rows / len(rows.event_of_sample))


def _require(values: Tensor, count: int, what: str, expected: str) -> None:
    """Raise :class:`MalformedInputError` unless ``values`` are ``count`` finite numbers."""
    if values.shape != (count,):
        raise MalformedInputError(
            f"{what} of another shape",
            found=str(tuple(values.shape)),
            expected=f"({count},): {expected}",
        )
    if not bool(values.isfinite().all()):
        raise MalformedInputError(
            f"{what} that are no numbers",
            where=f"place {int((~values.isfinite()).nonzero()[0])}",
            found=str(float(values[~values.isfinite()][0])),
            expected="finite numbers",
        )
