"""Register the policy loss ``orbit_grpo`` with verl: one ratio for each row, not normalised by its length.

verl loads this module through the entry point ``vcrt`` of the group ``verl.plugins``. The loss is verl's own clipped
loss (``vanilla``) on rows of one token, which stands for the whole completion; its settings are verl's, including the
second clip ``clip_ratio_c``. A row's advantage includes its weight
(:mod:`vcrt_train.integrations.verl.orbit_batch`).
Not covered: entropy bonus and KL as a loss, whose means would be over an orbit's rows instead of samples.

Shapes: ``N`` rows, ``T`` tokens of a response.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcrt.errors import RunError, UnavailableError

try:
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, register_policy_loss
except ImportError as error:
    raise UnavailableError(
        "verl is not installed, or what it imports is not",
        found=str(error),
        expected="verl 0.9.1",
        remedy="install verl as its own documentation says",
    ) from error

#: The value of ``actor_rollout_ref.actor.policy_loss.loss_mode`` for this loss.
NAME = "orbit_grpo"
#: Means over rows, which are equal for a loss with one value a row.
AGGREGATIONS = ("seq-mean-token-sum", "seq-mean-token-mean")


@register_policy_loss(NAME)  # type: ignore[untyped-decorator]
def orbit_grpo(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = AGGREGATIONS[0],
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Compute the clipped loss on the ratios of whole rows, and verl's metrics.

    All tensors are ``[N, T]``; ``advantages`` and ``rollout_is_weights`` are the same for all tokens of a row. Raises
    :class:`RunError` for settings, advantages or weights that apply to single tokens.
    """
    _require_settings(loss_agg_mode, config)
    mask = response_mask.to(log_prob.dtype)
    weights = rollout_is_weights
    if weights is not None:
        weights = row_values(weights, response_mask, "rollout_is_weights", _SEQUENCE)[:, None]
    result: tuple[Tensor, dict[str, Any]] = compute_policy_loss_vanilla(
        old_log_prob=(old_log_prob * mask).sum(-1, keepdim=True),
        log_prob=(log_prob * mask).sum(-1, keepdim=True),
        advantages=row_values(advantages, response_mask, "advantages", _OUTCOME)[:, None],
        # Rows without a token have no advantage; they count in the mean, as in verl's workers.
        response_mask=torch.ones_like(response_mask[:, :1]),
        loss_agg_mode=AGGREGATIONS[0],
        config=config,
        rollout_is_weights=weights,
    )
    return result


_OUTCOME = "an estimator that gives a response one advantage: algorithm.adv_estimator=rloo or grpo"
_SEQUENCE = "algorithm.rollout_correction.rollout_is=sequence"


def row_values(values: Tensor, mask: Tensor, name: str, remedy: str) -> Tensor:
    """Return ``[N]``: the common value of a row's tokens, 0 for rows without tokens; arguments are ``[N, T]``."""
    kept = mask.to(torch.bool)
    most = values.masked_fill(~kept, -torch.inf).amax(-1)
    least = values.masked_fill(~kept, torch.inf).amin(-1)
    some = kept.any(-1)
    # verl's own sums and means may differ in the last digits.
    if not bool(torch.isclose(most, least)[some].all()):
        raise RunError(
            f"{name} that differ among the tokens of a response: a loss on trajectories has one",
            found=f"{float(least[some].min()):.6g} to {float(most[some].max()):.6g}",
            expected="the same for every token of a response",
            remedy=remedy,
        )
    return torch.where(some, most, 0)


def _require_settings(loss_agg_mode: str, config: Any) -> None:
    """Raise :class:`RunError` for settings of verl that make no sense for rows of an orbit."""
    place = "actor_rollout_ref.actor"
    refusals = [
        (
            loss_agg_mode not in AGGREGATIONS,
            "a mean that would count a trajectory's ratio once for each of its tokens",
            f"{place}.loss_agg_mode={loss_agg_mode}",
            f"{place}.loss_agg_mode={AGGREGATIONS[0]}",
        ),
        (
            bool(config.use_kl_loss),
            "a KL term over the rows of orbits, which are no samples of the policy",
            f"{place}.use_kl_loss=True",
            f"{place}.use_kl_loss=False; algorithm.use_kl_in_reward=True has a KL of the samples",
        ),
        (
            config.entropy_coeff != 0,
            "an entropy bonus over the rows of orbits, which are no samples of the policy",
            f"{place}.entropy_coeff={config.entropy_coeff}",
            f"{place}.entropy_coeff=0",
        ),
    ]
    for is_wrong, what, found, remedy in refusals:
        if is_wrong:
            raise RunError(what, where=f"loss_mode={NAME}", found=found, remedy=remedy)
