"""Extend TRL's GRPOTrainer by the orbit ratio and the anti-diamond margin, built on TRL's own hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcrt.errors import RunError
from vcrt.integrations.orbit_credit import (
    Candidates,
    CandidateScores,
    TokenIds,
    credited_log_probs,
    encode_completions,
    padded_rows,
    tabulate,
    unpadded,
)
from vcrt.integrations.trl.config import ILLEGAL, ORBIT, OrbitGRPOConfig, require_supported
from vcrt.integrations.trl.library import GRPOTrainer, disable_gradient_checkpointing


@dataclass(frozen=True, slots=True)
class _Credit:
    """What the hook needs while a loss is computed; ``inputs`` is that loss's own copy."""

    surplus: Tensor
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Scored:
    """The scores that a batch's samples need."""

    #: None if no sample needs one.
    scores: CandidateScores | None
    #: ``[B]``: the row of each sample's prompt in ``scores``, or -1.
    prompts: Tensor
    #: ``[B]``: see :meth:`CandidateScores.surplus`.
    surplus: Tensor
    #: A 0 with a gradient of 0.
    unused: Tensor

    def margin_loss(self, margin: float) -> Tensor:
        """Mean over samples of their prompt's margin loss."""
        if self.scores is None:
            return self.surplus.new_zeros(())
        losses = self.scores.margin_losses(margin)
        # The last one is that of the prompts that were not scored, row -1.
        return torch.cat([losses, losses.new_zeros(1)])[self.prompts].mean()

    @property
    def mean_mass(self) -> Tensor:
        """Mean probability of the orbits that were scored; NaN if none was."""
        if self.scores is None:
            return self.surplus.new_tensor(torch.nan)
        return self.scores.orbit_log_masses.detach().exp().mean()


class OrbitGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer with the orbit ratio and the anti-diamond margin; arguments are TRL's.

    ``args`` is an :class:`OrbitGRPOConfig`. Raises :class:`RunError` for what the orbit cannot be combined with, and
    :class:`MalformedInputError` for columns of another form.
    """

    _tag_names = ("trl", "grpo", "orbit-grpo")

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: OrbitGRPOConfig | None = None,
        train_dataset: Any = None,
        **kwargs: Any,
    ) -> None:
        args = OrbitGRPOConfig("Orbit-GRPO") if args is None else args
        require_supported(args, train_dataset, kwargs)
        # TRL knows neither word: it is given what the hooks below build on.
        self._level: Any = args.importance_sampling_level
        self._leaves_one_out = args.scale_rewards == "leave_one_out"
        self._credit: _Credit | None = None
        super().__init__(model, reward_funcs, args=args, train_dataset=train_dataset, **kwargs)
        if self._is_vlm:
            raise RunError(
                "orbits of completions to images are not supported",
                found=type(self.processing_class).__name__,
                expected="a tokenizer as processing_class",
            )
        if self._level == "trajectory":
            self.importance_sampling_level = "token"
        if self._leaves_one_out:
            self.scale_rewards = "none"

    def _calculate_rewards(self, *args: Any) -> Tensor:
        per_function: Tensor = super()._calculate_rewards(*args)
        weighted = (per_function * self.reward_weights.to(per_function.device)).nansum(1)
        # Of all processes; None from every function is a sample without a reward.
        self._rewards = weighted.masked_fill(per_function.isnan().all(1), torch.nan)
        return per_function

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's batch, with each sample's candidates, its place in the orbit and its old surplus."""
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if "tool_mask" in output:
            raise RunError(
                "completions with tokens that the model did not write have no orbit",
                found="env_mask",
                remedy="use a rollout_func without env_mask",
            )
        is_training = self.model.training
        own = slice(
            self.accelerator.process_index * len(inputs),
            (self.accelerator.process_index + 1) * len(inputs),
        )
        if self._leaves_one_out:
            group = self.num_generations if is_training else self.num_generations_eval
            output["advantages"] = output["advantages"] * _leave_one_out(self._rewards, group)[own]
        candidates = self._candidates(inputs, output)
        samples = unpadded(output["completion_ids"], output["completion_mask"])
        members = torch.tensor(
            [c.member(sample) for c, sample in zip(candidates, samples, strict=True)],
            device=output["completion_ids"].device,
        )
        succeeded = self._rewards[own] > self.args.orbit_success
        output["orbit_members"] = members.masked_fill(~succeeded, -1)
        output["orbit_candidates"] = candidates
        output["orbit_missed"] = (succeeded & (members < 0)).float()
        # TRL leaves the old log-probabilities out where they are those of the next forward pass.
        if "old_per_token_logps" in output:
            with (
                torch.no_grad(),
                disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
            ):
                scored = self._score(self.model, output, with_illegal=False)
            output["orbit_old_surplus"] = scored.surplus
        return output

    def _candidates(
        self, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any]
    ) -> list[Candidates]:
        """The candidates of each sample; samples of one prompt share theirs."""
        prompts = unpadded(output["prompt_ids"], output["prompt_mask"])
        known: dict[tuple[object, ...], Candidates] = {}
        result = []
        for prompt, row in zip(prompts, inputs, strict=True):
            columns = (ORBIT, ILLEGAL) if self.args.orbit_alpha else (ORBIT,)
            key = (prompt, *(repr(row.get(column)) for column in columns))
            if key not in known:
                sets = {column: self._encoded(row.get(column), column) for column in columns}
                known[key] = Candidates(prompt=prompt, **sets)
            result.append(known[key])
        return result

    def _encoded(self, values: object, column: str) -> tuple[TokenIds, ...]:
        tokenizer = self._tokenizer
        return encode_completions(
            values,
            column=column,
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            end=tokenizer.eos_token_id,
            max_length=self.max_completion_length,
        )

    def _score(self, model: Any, inputs: Mapping[str, Any], *, with_illegal: bool) -> _Scored:
        """Score the candidates that this batch's samples need, in as few rows as there are different ones."""
        members: Tensor = inputs["orbit_members"]
        rows: dict[Candidates, int] = {}
        prompts = []
        for candidates, member in zip(inputs["orbit_candidates"], members.tolist(), strict=True):
            wanted = candidates
            if not with_illegal:
                wanted = Candidates(prompt=candidates.prompt, orbit=candidates.orbit)
            needs_margin = with_illegal and bool(candidates.orbit and candidates.illegal)
            is_needed = member >= 0 or needs_margin
            prompts.append(rows.setdefault(wanted, len(rows)) if is_needed else -1)
        batch = list(rows)
        pairs = [(c.prompt, completion) for c in batch for completion in c.completions]
        log_probs, unused = self._sequence_log_probs(model, pairs, inputs)
        place = torch.tensor(prompts, device=members.device)
        if not batch:
            return _Scored(
                None, place, members.new_zeros(members.shape, dtype=torch.float32), unused
            )
        scores = tabulate(batch, log_probs)
        return _Scored(scores, place, scores.surplus(place, members), unused)

    def _sequence_log_probs(
        self,
        model: Any,
        pairs: Sequence[tuple[TokenIds, TokenIds]],
        inputs: Mapping[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """``[N]`` log-probabilities of completions, and a 0 that ties rows to the loss which were added.

        Processes must call the model equally often, or they wait for each other for ever: those with fewer rows
        score their first again.
        """
        device = inputs["prompt_ids"].device
        count = torch.tensor([len(pairs)], device=device)
        most = int(self.accelerator.gather(count).max())
        if most == 0:
            return torch.zeros(0, device=device), torch.zeros((), device=device)
        spare = pairs[0] if pairs else self._first_sample(inputs)
        rows = padded_rows(
            [*pairs, *[spare] * (most - len(pairs))],
            padding=self._tokenizer.pad_token_id,
            device=device,
        )
        token_log_probs, _, _ = super()._get_per_token_logps_and_entropies(
            model,
            rows.input_ids,
            rows.attention_mask,
            rows.completion_mask.shape[1],
            batch_size=self.args.orbit_batch_size or self.args.per_device_train_batch_size,
        )
        log_probs = (token_log_probs * rows.completion_mask).sum(-1)
        return log_probs[: len(pairs)], 0.0 * log_probs[len(pairs) :].sum()

    def _first_sample(self, inputs: Mapping[str, Any]) -> tuple[TokenIds, TokenIds]:
        (prompt,) = unpadded(inputs["prompt_ids"][:1], inputs["prompt_mask"][:1])
        completion = inputs["completion_ids"][0].tolist()
        return prompt, tuple(completion)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's loss on credited log-probabilities, plus the weighted margin loss."""
        alpha = self.args.orbit_alpha
        scored = self._score(model, inputs, with_illegal=alpha > 0)
        inputs = dict(inputs)
        if "old_per_token_logps" in inputs:
            inputs["old_per_token_logps"] = credited_log_probs(
                inputs["old_per_token_logps"],
                inputs["completion_mask"],
                inputs["orbit_old_surplus"],
                self._level,
            )
        self._credit = _Credit(scored.surplus, inputs)
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._credit = None
        margin_loss = scored.margin_loss(self.args.orbit_margin)
        # A mean over samples: every prompt of a generation batch has as many, however they are split into steps.
        accumulation = self.current_gradient_accumulation_steps if self.model.training else 1
        self._log_orbits(scored, inputs, margin_loss)
        total: Tensor = loss + (alpha * margin_loss + scored.unused) / accumulation
        return total

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, and within a loss the credited log-probabilities in their place."""
        log_probs, entropies, aux_loss = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._credit is None:
            return log_probs, entropies, aux_loss
        inputs = self._credit.inputs
        credited = credited_log_probs(
            log_probs, inputs["completion_mask"], self._credit.surplus, self._level
        )
        if "ref_per_token_logps" in inputs:
            # The KL is about the sampled tokens: the reference moves along, so that differences stay what they are.
            inputs["ref_per_token_logps"] = inputs["ref_per_token_logps"] + (credited - log_probs)
        return credited, entropies, aux_loss

    def _log_orbits(self, scored: _Scored, inputs: Mapping[str, Any], margin_loss: Tensor) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        values = {
            "orbit/credited": (inputs["orbit_members"] >= 0).float().mean(),
            "orbit/missed": inputs["orbit_missed"].mean(),
            "orbit/mass": scored.mean_mass,
            "orbit/margin_loss": margin_loss.detach(),
        }
        for name, value in values.items():
            metrics[name].append(self.accelerator.gather(value).nanmean().item())


def _leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """``[B]``: what turns a reward minus its group's mean into the reward minus the mean of the others."""
    known = (~rewards.isnan()).view(-1, group_size).sum(1)
    factors = known / (known - 1).clamp(min=1)
    return factors.repeat_interleave(group_size)
