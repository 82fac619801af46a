"""Compute the credit of an orbit, for a trainer that works on the token log-probabilities of completions.

A completion ``y`` of an orbit ``O`` stands for all of ``O`` if its token log-probabilities sum to ``log Z(O)`` instead
of ``log pi(y)``. So each of the tokens in which the orbit's completions differ gets an equal share of the *surplus*
``log Z(O) - log pi(y)``; for an orbit of one completion the surplus is exactly 0, and nothing changes. Not covered:
how the log-probabilities are computed, and the loss.

Shapes: ``B`` samples, ``T`` tokens of a completion, ``U`` prompts, ``M`` candidates of a prompt, ``N`` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import MalformedInputError
from vcrt.printable import counted
from vcrt_train.objective.losses import MAX_LOG_RATIO, anti_diamond_loss
from vcrt_train.objective.orbit_mass import orbit_log_mass

TokenIds: TypeAlias = tuple[int, ...]
#: The level of a ratio: each token, the mean over the tokens of a completion, or the completion (their sum).
Level: TypeAlias = Literal["token", "sequence", "trajectory"]


def _num_equal(one: TokenIds, other: TokenIds) -> int:
    """Return the number of tokens in the common beginning of two completions."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """The completions of one prompt whose probability a loss needs: its certified orbit, and the illegal ones.

    Raises :class:`MalformedInputError` if a completion occurs twice.
    """

    prompt: TokenIds
    orbit: tuple[TokenIds, ...] = ()
    illegal: tuple[TokenIds, ...] = ()

    def __post_init__(self) -> None:
        completions = self.completions
        if len(set(completions)) < len(completions):
            raise MalformedInputError(
                "a completion occurs twice among a prompt's orbit and illegal completions",
                found=f"token ids {next(c for c in completions if completions.count(c) > 1)}",
                expected="each completion once",
                remedy="remove the repetition, or give the tokenizer texts that it can tell apart",
            )

    @property
    def completions(self) -> tuple[TokenIds, ...]:
        """The orbit's completions, then the illegal ones."""
        return self.orbit + self.illegal

    def member(self, completion: TokenIds) -> int:
        """Return the index of a completion in the orbit, or -1."""
        return self.orbit.index(completion) if completion in self.orbit else -1

    @cached_property
    def shared(self) -> tuple[int, int]:
        """The number of tokens in the common beginning of the orbit's completions, and in the common end after it."""
        first, last = min(self.orbit, default=()), max(self.orbit, default=())
        begin = _num_equal(first, last)
        turned = [completion[begin:][::-1] for completion in self.orbit]
        return begin, _num_equal(min(turned, default=()), max(turned, default=()))


def encode_completions(
    values: object,
    *,
    column: str,
    encode: Callable[[str], list[int]],
    end: int,
    max_length: int,
) -> tuple[TokenIds, ...]:
    """Return the token ids of one row of a dataset's column, as a trainer would generate them.

    A text is tokenized by itself, without special tokens, and gets the token ``end`` unless it fills all ``max_length``
    tokens. A list of token ids is taken as it is. None is an empty list. Raises :class:`MalformedInputError` for
    anything else, and for completions that are empty or too long.
    """
    expected = "a list of texts or of lists of token ids"
    if values is None:
        return ()
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise MalformedInputError(
            f"not a set of completions: column {column!r}",
            found=type(values).__name__,
            expected=expected,
        )
    encoded = []
    for value in values:
        if isinstance(value, str):
            ids = tuple(encode(value))
            ids = (*ids, end) if 0 < len(ids) < max_length else ids
        elif isinstance(value, Sequence) and all(isinstance(token, int) for token in value):
            ids = tuple(value)
        else:
            raise MalformedInputError(
                f"not a completion: column {column!r}", found=repr(value), expected=expected
            )
        if not 0 < len(ids) <= max_length:
            raise MalformedInputError(
                f"a completion that the trainer cannot generate: column {column!r}",
                found=f"{counted(len(ids), 'token')}: {value!r}",
                expected=f"1 to {max_length} tokens",
                remedy="raise max_completion_length" if ids else "leave empty completions out",
            )
        encoded.append(ids)
    return tuple(encoded)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A batch of prompts with completions: prompts are padded on the left, completions on the right."""

    #: ``[N, P + T]``.
    input_ids: Tensor
    #: ``[N, P + T]``: 1 for tokens, 0 for padding.
    attention_mask: Tensor
    #: ``[N, T]``: 1 for a completion's tokens.
    completion_mask: Tensor


def padded_rows(
    pairs: Sequence[tuple[TokenIds, TokenIds]], *, padding: int, device: torch.device
) -> Rows:
    """Make one row for each (prompt, completion)."""
    longest_prompt = max(len(prompt) for prompt, _ in pairs)
    longest = max(len(completion) for _, completion in pairs)
    ids, mask = [], []
    for prompt, completion in pairs:
        left, right = longest_prompt - len(prompt), longest - len(completion)
        ids.append([padding] * left + [*prompt, *completion] + [padding] * right)
        mask.append([0] * left + [1] * (len(prompt) + len(completion)) + [0] * right)
    attention_mask = torch.tensor(mask, device=device)
    return Rows(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=attention_mask,
        completion_mask=attention_mask[:, longest_prompt:],
    )


def padded_tokens(rows: Sequence[Tensor], length: int, padding: int = 0) -> Tensor:
    """Return ``[B, length]``: the values ``[T]`` of each row, with the ``padding`` after them."""
    return torch.stack([pad(row, (0, length - len(row)), value=padding) for row in rows])


def unpadded(ids: Tensor, mask: Tensor) -> list[TokenIds]:
    """Return the tokens of each row of ``ids [B, T]`` where ``mask [B, T]`` is 1."""
    return [
        tuple(token for token, is_kept in zip(row, kept, strict=True) if is_kept)
        for row, kept in zip(ids.tolist(), mask.tolist(), strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class CandidateScores:
    """The probabilities of the candidates of some prompts."""

    #: ``[U, M]``: log-probability of each completion; ``-inf`` beyond a prompt's completions.
    log_probs: Tensor
    #: ``[U, M]`` bool: whether the completion is in the orbit.
    in_orbit: Tensor
    #: ``[U]`` bool: whether a prompt has an orbit and illegal completions.
    has_both: Tensor

    @property
    def log_masses(self) -> Tensor:
        """``[U, 2]``: log of the probability of a prompt's orbit, and of its illegal completions; ``-inf`` of none."""
        masses = [orbit_log_mass(self.log_probs, some) for some in (self.in_orbit, ~self.in_orbit)]
        return torch.stack(masses, -1)

    @property
    def orbit_log_masses(self) -> Tensor:
        """``[U]``: ``log Z(O)``, ``-inf`` for an empty orbit."""
        return orbit_log_mass(self.log_probs, self.in_orbit)

    def surplus(self, prompts: Tensor, members: Tensor) -> Tensor:
        """Return ``[B]``: ``log Z(O) - log pi(y)`` of samples that are orbit members, and 0 for the others.

        ``prompts [B]`` holds the row of each sample's prompt, ``members [B]`` its index in the orbit, or -1.
        """
        credited = (members >= 0).nonzero().squeeze(-1)
        rows, columns = prompts[credited], members[credited]
        values = self.orbit_log_masses[rows] - self.log_probs[rows, columns]
        return values.new_zeros(members.shape).index_put((credited,), values)

    def margin_losses(self, margin: float) -> Tensor:
        """Return ``[U]``: the anti-diamond loss of each prompt, 0 for prompts without both kinds of completions."""
        some = self.has_both.nonzero().squeeze(-1)
        losses = anti_diamond_loss(self.log_probs[some], self.in_orbit[some], margin)
        return self.log_probs.new_zeros(len(self.log_probs)).index_put((some,), losses)

    def augmentation_losses(self) -> Tensor:
        """Return ``[U]``: the mean negative log-likelihood of each prompt's orbit in nats, 0 without an orbit."""
        total = self.log_probs.masked_fill(~self.in_orbit, 0.0).sum(-1)
        return -total / self.in_orbit.sum(-1).clamp(min=1)


def tabulate(batch: Sequence[Candidates], log_probs: Tensor) -> CandidateScores:
    """Make the scores of ``batch`` from the log-probabilities ``[N]`` of all its completions in their order."""
    counts = [len(candidates.completions) for candidates in batch]
    places = torch.tensor(
        [(row, column) for row, count in enumerate(counts) for column in range(count)],
        device=log_probs.device,
    )
    in_orbit = torch.zeros(len(batch), max(counts), dtype=torch.bool)
    for row, candidates in enumerate(batch):
        in_orbit[row, : len(candidates.orbit)] = True
    table = log_probs.new_full(in_orbit.shape, -torch.inf)
    return CandidateScores(
        log_probs=table.index_put(tuple(places.unbind(-1)), log_probs),
        in_orbit=in_orbit.to(log_probs.device),
        has_both=torch.tensor(
            [bool(candidates.orbit and candidates.illegal) for candidates in batch],
            device=log_probs.device,
        ),
    )


def expected_rewards(log_masses: Tensor) -> Tensor:
    """Return ``[B]``: the probability that orders of a sample's steps solve the task, by ``log_masses [B, 2]``.

    It is that of the completions that solve it (first column), among these and those that do not; NaN of none at all.
    """
    return (log_masses[:, 0] - log_masses[:, 1]).sigmoid()


def expected_weights(expected: Tensor, others: Tensor, reward: float = 1.0) -> Tensor:
    """Return ``[B, 2]``: the advantages of success and of failure, each weighted by its probability.

    ``expected [B]`` is the probability that orders of a sample's steps solve the task, ``others [B]`` the mean reward
    that is expected of the other samples, ``reward`` that of a success; a failure has none.
    """
    return torch.stack([expected * (reward - others), -(1 - expected) * others], -1)


def expected_losses(
    log_masses: Tensor, old: Tensor, weights: Tensor, *, low: float, high: float
) -> Tensor:
    r"""Return ``[B]``: the loss of samples credited with what all orders of their steps would earn.

    Write :math:`C` for the completions with a sample's steps, and :math:`r_S`, :math:`r_F` for the ratios of the
    probability of those that solve the task, and of the others, to that when they were drawn. The loss is
    :math:`-\sum_c \min(w_c r_c, w_c \mathrm{clip}(r_c, 1 - low, 1 + high))` over both, with ``weights [B, 2]`` of
    :func:`expected_weights`. Where the ratios are 1, its gradient is the mean, over :math:`C` by the policy, of the
    gradients of the single completions' losses: the conditional expectation given the steps (Rao-Blackwell). So its
    expectation is theirs, and its variance at most theirs.

    Takes ``log_masses [B, 2]`` of the policy and ``old [B, 2]`` of the one that drew, ``-inf`` of none.
    """
    exists = old.isfinite()
    ratios = torch.where(exists, log_masses - torch.where(exists, old, 0.0), 0.0)
    ratios = ratios.clamp(max=MAX_LOG_RATIO).exp()
    clipped = ratios.clamp(1 - low, 1 + high)
    return -torch.minimum(ratios * weights, clipped * weights).sum(-1)


def differing_tokens(
    candidates: Sequence[Candidates], samples: Sequence[TokenIds], length: int
) -> Tensor:
    """Return ``[B, length]`` bool: the tokens of each sample in which its orbit's completions differ; all if none do.

    No token of a sample differs if another completion is the sample with tokens inserted.
    """
    found = torch.zeros(len(samples), length, dtype=torch.bool)
    for row, (own, sample) in enumerate(zip(candidates, samples, strict=True)):
        begin, end = own.shared if len(own.orbit) > 1 else (0, 0)
        if begin >= len(sample) - end:
            begin, end = 0, 0
        found[row, begin : len(sample) - end] = True
    return found


def credited_log_probs(
    log_probs: Tensor, mask: Tensor, surplus: Tensor, level: Level, differing: Tensor
) -> Tensor:
    """Distribute each sample's surplus ``[B]`` over the log-probabilities ``[B, T]`` of its ``differing`` tokens.

    At the level ``trajectory``, every token has the whole completion's log-probability, surplus included: a ratio of
    such tokens is the ratio of trajectories, and a mean over tokens is one value for each completion. ``mask [B, T]``
    is 1 for the tokens that count; ``differing [B, T]`` comes from :func:`differing_tokens`.
    """
    if level == "trajectory":
        total = (log_probs * mask).sum(-1) + surplus
        return total[:, None].expand_as(log_probs)
    shares = differing.to(log_probs.dtype)
    return log_probs + surplus[:, None] * shares / shares.sum(-1, keepdim=True).clamp(min=1)
