"""Expand a batch of verl: successes become the rows of their orbits, and the rows' advantages include their weights.

A trainer expands a batch when it has old log-probabilities and advantages, before it updates the actor. A row has its
sample's prompt, group (``uid``) and other columns. Of the tensors, only ``ROW_TENSORS`` are kept: everything else about
a response (rewards, values, reference log-probabilities) belongs to the sample and is wrong for other members. Not
covered: responses with tokens that the model did not write, images, and the trainer itself.

Shapes: ``B`` samples, ``N`` rows, ``P`` tokens of a prompt (padded on the left), ``T`` of a response (on the right).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from verl.protocol import DataProto
from verl.utils.model import compute_position_id_with_mask

from vcrt.errors import MalformedInputError, RunError
from vcrt.printable import counted
from vcrt_train.integrations.orbit_credit import TokenIds, unpadded
from vcrt_train.integrations.orbit_rows import (
    OrbitRows,
    Sample,
    orbit_rows,
    row_advantages,
    row_weights,
)
from vcrt_train.integrations.verl.loss import row_values

GROUP = "uid"
#: The tensors of an expanded batch: ``[N, P]``, ``[N, T]``, ``[N, P + T]`` three times, and ``[N, T]`` three times.
ROW_TENSORS = (
    *("prompts", "responses", "input_ids", "attention_mask", "position_ids"),
    *("response_mask", "old_log_probs", "advantages"),
)
#: Computes old log-probabilities ``[N, T]`` of rows, with the policy of verl's old log-probabilities.
Scorer: TypeAlias = Callable[[Any], Tensor]


def expand(
    batch: Any,
    orbits: Sequence[Sequence[TokenIds] | None],
    successes: Tensor,
    *,
    score: Scorer,
    padding: int,
    multiple_of: int = 1,
) -> Any:
    """Return the rows of a ``DataProto`` with ``ROW_TENSORS`` and ``uid``, as another ``DataProto``.

    ``orbits`` has the token ids of each sample's certified responses; ``successes [B]`` says which samples stand for
    their orbits; the others, and samples without an advantage, stay as they are. ``score`` is called once for all
    members that were not drawn, and not at all if there are none. ``padding`` is the token that pads a response. Rows
    outside the loss pad the batch to a multiple of ``multiple_of``; copies of the last row pad the scored rows. The
    advantages include ``rollout_is_weights``, if there are any.

    A mean of ``orbit_grpo`` over all rows is its mean over samples. Raises :class:`MalformedInputError` or
    :class:`RunError` for arguments of another form.
    """
    _require_batch(batch, orbits, successes, multiple_of)
    advantages = _advantages(batch)
    # Without an advantage, there is nothing to distribute and no row to score.
    rows = orbit_rows(_samples(batch, orbits, successes.cpu() & (advantages != 0).cpu()))
    num_rows = -(-len(rows.events) // multiple_of) * multiple_of
    expanded = _row_batch(batch, rows, padding)
    old_log_probs = _old_log_probs(batch, rows, expanded, score, multiple_of)
    mask = expanded.batch["response_mask"]
    weights = row_weights(rows, (old_log_probs * mask).sum(-1))
    values = row_advantages(rows, advantages, weights, num_rows=num_rows)
    expanded.batch["old_log_probs"] = old_log_probs
    expanded.batch["advantages"] = values[:, None] * mask
    expanded = _filled_up(expanded, num_rows)
    if "global_token_num" in expanded.meta_info:
        expanded.meta_info["global_token_num"] = expanded.batch["attention_mask"].sum(-1).tolist()
    return expanded


def sampled_members(batch: Any, orbits: Sequence[Sequence[TokenIds] | None]) -> Tensor:
    """Return ``[B]`` bool: which samples are, token for token, members of their orbits."""
    responses = _responses(batch)
    return torch.tensor(
        [
            orbit is not None and response in {tuple(member) for member in orbit}
            for response, orbit in zip(responses, orbits, strict=True)
        ],
        device=batch.batch["responses"].device,
    )


def _responses(batch: Any) -> list[TokenIds]:
    """Return the tokens of each response, even if a rejection excluded it from the loss."""
    responses: Tensor = batch.batch["responses"]
    return unpadded(responses, batch.batch["attention_mask"][:, -responses.shape[1] :])


def _samples(
    batch: Any, orbits: Sequence[Sequence[TokenIds] | None], successes: Tensor
) -> list[Sample]:
    groups = batch.non_tensor_batch[GROUP].tolist()
    prompts: dict[object, list[int]] = {}
    samples = []
    for number, (completion, orbit) in enumerate(zip(_responses(batch), orbits, strict=True)):
        prompt = batch.batch["prompts"][number].tolist()
        if prompts.setdefault(groups[number], prompt) != prompt:
            raise MalformedInputError(
                "samples of one group with different prompts",
                where=f"sample {number}, {GROUP} {groups[number]}",
                expected=f"another {GROUP} for another prompt",
            )
        members = None
        if bool(successes[number]):
            members = tuple(tuple(member) for member in orbit or ())
            _require_lengths(members, batch.batch["responses"].shape[1], number)
            _require_own_tokens(batch, number)
        samples.append(Sample(group=groups[number], completion=completion, orbit=members))
    return samples


def _advantages(batch: Any) -> Tensor:
    """Return ``[B]``: each sample's advantage, times its sequence's importance weight if there is one."""
    mask = batch.batch["response_mask"]
    advantages = row_values(
        batch.batch["advantages"], mask, "advantages", "algorithm.adv_estimator=rloo or grpo"
    )
    if "rollout_is_weights" in batch.batch:
        advantages = advantages * row_values(
            batch.batch["rollout_is_weights"],
            mask,
            "rollout_is_weights",
            "algorithm.rollout_correction.rollout_is=sequence",
        )
    return advantages


def _row_batch(batch: Any, rows: OrbitRows, padding: int) -> Any:
    """Make the parts of the rows that are known before the scoring; drawn samples keep their own tensors."""
    tensors = batch.batch
    device, width = tensors["responses"].device, tensors["responses"].shape[1]
    sources = torch.tensor(rows.sources, device=device)
    made = {name: tensors[name][sources] for name in ROW_TENSORS[:6]}
    for row, completion in enumerate(rows.completions):
        if rows.drawn[row] < 0:
            made["responses"][row] = padding
            made["responses"][row, : len(completion)] = torch.tensor(completion, device=device)
            for name in ("response_mask", "attention_mask"):
                made[name][row, -width:] = 0
                made[name][row, made[name].shape[1] - width :][: len(completion)] = 1
        else:
            for name in made:
                made[name][row] = tensors[name][rows.drawn[row]]
    new = torch.tensor(rows.drawn, device=device) < 0
    made["input_ids"][new, -width:] = made["responses"][new]
    positions = compute_position_id_with_mask(made["attention_mask"][new])
    made["position_ids"][new] = positions.to(made["position_ids"])
    return DataProto.from_dict(
        tensors=made,
        non_tensors={
            name: values[np.array(rows.sources)] for name, values in batch.non_tensor_batch.items()
        },
        meta_info=dict(batch.meta_info),
    )


def _old_log_probs(
    batch: Any, rows: OrbitRows, expanded: Any, score: Scorer, multiple_of: int
) -> Tensor:
    """Return ``[N, T]``: the batch's log-probabilities for rows that were drawn, and the scorer's for the others."""
    drawn = torch.tensor(rows.drawn)
    known: Tensor = batch.batch["old_log_probs"]
    result = known[drawn.clamp(min=0).to(known.device)].clone()
    missing = (drawn < 0).nonzero().flatten()
    if len(missing):
        asked = -(-len(missing) // multiple_of) * multiple_of
        # Copies of the last row pad the scored rows.
        places = missing[torch.arange(asked).clamp(max=len(missing) - 1)]
        found = score(expanded.select_idxs(places))
        if found.shape != (asked, known.shape[1]):
            raise MalformedInputError(
                "old log-probabilities of another shape",
                where="what score returned",
                found=str(tuple(found.shape)),
                expected=f"({asked}, {known.shape[1]}): one for each token of each row",
            )
        result[missing.to(result.device)] = found[: len(missing)].to(result)
    return result


def _filled_up(expanded: Any, num_rows: int) -> Any:
    """Pad the batch with copies of the first row that have no token in the loss and no advantage."""
    count = len(expanded)
    if count == num_rows:
        return expanded
    places = torch.arange(num_rows)
    filled = expanded.select_idxs(torch.where(places < count, places, 0))
    for name in ("response_mask", "advantages"):
        filled.batch[name][count:] = 0
    return filled


def _require_batch(
    batch: Any, orbits: Sequence[object], successes: Tensor, multiple_of: int
) -> None:
    """Raise an error unless the batch has all tensors, and as many orbits and successes as samples."""
    missing = [name for name in ROW_TENSORS if name not in batch.batch]
    missing += [GROUP] if GROUP not in batch.non_tensor_batch else []
    if missing:
        raise MalformedInputError(
            "a batch that lacks what its rows are made of",
            found=f"no {', '.join(missing)}",
            expected=", ".join((*ROW_TENSORS, GROUP)),
            remedy="expand it after old log-probabilities and advantages have been computed",
        )
    size = len(batch)
    width, total = (batch.batch[name].shape[-1] for name in ("responses", "input_ids"))
    widths = dict.fromkeys(("input_ids", "attention_mask", "position_ids"), total)
    widths["prompts"] = total - width
    for name in ROW_TENSORS:
        shape, expected = tuple(batch.batch[name].shape), (size, widths.get(name, width))
        if shape != expected:
            raise MalformedInputError(
                "tensors of a batch that do not fit together",
                where=name,
                found=str(shape),
                expected=str(expected),
                remedy="text alone: positions in several dimensions, as images need, have no orbit"
                if name == "position_ids"
                else None,
            )
    if len(orbits) != size or successes.shape != (size,):
        raise MalformedInputError(
            "not one orbit and one success for each sample",
            found=f"{counted(len(orbits), 'orbit')}, successes {tuple(successes.shape)}",
            expected=f"{size} of each",
        )
    if multiple_of < 1:
        raise MalformedInputError(
            "a number of rows that there cannot be",
            where="multiple_of",
            found=str(multiple_of),
            expected="1 or more",
        )


def _require_lengths(members: Sequence[TokenIds], width: int, number: int) -> None:
    """Raise :class:`MalformedInputError` for members that verl cannot generate."""
    for member in members:
        if not 0 < len(member) <= width:
            raise MalformedInputError(
                "a member of an orbit that does not fit a row",
                where=f"sample {number}",
                found=counted(len(member), "token"),
                expected=f"1 to {width}",
                remedy="raise data.max_response_length" if member else "leave empty ones out",
            )


def _require_own_tokens(batch: Any, number: int) -> None:
    """Raise :class:`RunError` for a response of which only a part is in the loss."""
    width = batch.batch["responses"].shape[1]
    mask = batch.batch["response_mask"][number].bool()
    if not bool((mask == batch.batch["attention_mask"][number, -width:].bool()).all()):
        raise RunError(
            "a success with tokens that are not in the loss has no orbit",
            where=f"sample {number}",
            found=f"{counted(int(mask.sum()), 'token')} in response_mask",
            expected="all of the response: no tools, no token or sequence left out by a rejection",
            remedy="leave it out of successes: it then stands for itself",
        )
