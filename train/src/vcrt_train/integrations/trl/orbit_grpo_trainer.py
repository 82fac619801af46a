"""Extend TRL's GRPOTrainer by the orbit ratio and the anti-diamond margin, through TRL's own hooks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing

from vcrt.errors import RunError, VcrtError
from vcrt.printable import counted
from vcrt_train.integrations.orbit_credit import (
    Rows,
    TokenIds,
    credited_log_probs,
    differing_tokens,
    expected_losses,
    expected_rewards,
    expected_weights,
    padded_tokens,
    tabulate,
)
from vcrt_train.integrations.trl.candidate_scoring import (
    Scored,
    batch_of,
    leave_one_out,
    listed_candidates,
    log_masses_of,
    needed_candidates,
    require_tokens,
    samples_of,
    score_by_rows,
    score_by_tree,
    tokens_of_trees,
)
from vcrt_train.integrations.trl.model_checks import (
    StepBegins,
    find_exact_trees,
    leaves_parts_unused,
    random_states,
    set_random_states,
    text_tokenizer,
)
from vcrt_train.integrations.trl.online import OnlineOrbits, Written
from vcrt_train.integrations.trl.orbit_grpo_config import (
    OrbitGRPOConfig,
    named_datasets,
    require_datasets,
    require_own_reward,
    require_supported,
    require_weights,
)
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.text_scoring import TextScores


class OrbitGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPOTrainer with the orbit ratio and the anti-diamond margin; arguments are TRL's, and ``environment``.

    ``args`` is an :class:`OrbitGRPOConfig`. An ``environment``, which is a class of :class:`vcrt.WrittenSteps` (such as
    a :class:`vcrt.WrittenEnvironment`) or the name of a registered one, judges, rewards and certifies completions when
    they are sampled. Its reward, 1 for a completion that solves its task, comes before those of ``reward_funcs``, which
    may be left out. The task is a row's column ``task``, or else all its columns except ``prompt``. With a mapping of
    several environments, a row's column ``environment`` names its environment.

    Raises :class:`RunError` for arguments that do not fit the orbit, and :class:`MalformedInputError` for columns of
    another form; during training, :class:`vcrt.errors.VerifierFailure` for an environment that breaks twice on the same
    completion.
    """

    _tag_names = ("trl", "grpo", "orbit-grpo")
    rollout_func: Any

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: OrbitGRPOConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        *further: Any,
        environment: Written | None = None,
        **kwargs: Any,
    ) -> None:
        args = OrbitGRPOConfig("Orbit-GRPO") if args is None else args
        datasets = {
            **named_datasets("train_dataset", train_dataset),
            **named_datasets("eval_dataset", eval_dataset),
        }
        require_supported(args, datasets, kwargs, online=environment is not None)
        # TRL knows neither of these values; below, it gets values on which the hooks build.
        self._level: Any = args.importance_sampling_level
        self._leaves_one_out = args.scale_rewards == "leave_one_out"
        #: During the computation of a loss: the scores of its batch, and the loss's own copy of the batch.
        self._credit: tuple[Scored, dict[str, Any]] | None = None
        self._leaves_old_out = False
        self._online: OnlineOrbits | None = None
        if environment is not None:
            self._online = OnlineOrbits(environment, args)
            own = reward_funcs if isinstance(reward_funcs, list) else [reward_funcs]
            reward_funcs = [self._online.reward, *(each for each in own if each is not None)]
            if reward_processing_classes is not None:
                several = isinstance(reward_processing_classes, list)
                given = reward_processing_classes if several else [reward_processing_classes]
                reward_processing_classes = [None, *given]
            require_weights(args, reward_funcs)
            require_own_reward(args, reward_funcs)
        # TRL does the same for a processor; reentrant checkpointing fails with it.
        reentrant = (args.gradient_checkpointing_kwargs or {}).get("use_reentrant")
        if args.ddp_find_unused_parameters is None and not reentrant:
            args.ddp_find_unused_parameters = (
                leaves_parts_unused(model, processing_class, args) or None
            )
        super().__init__(
            model,
            reward_funcs,
            args,
            train_dataset,
            eval_dataset,
            text_tokenizer(model, processing_class, args),
            reward_processing_classes,
            *further,
            **kwargs,
        )
        if self.rollout_func is not None:
            self.rollout_func = partial(_with_tokens, self.rollout_func)
        #: The number of optimizer steps, and the random states, before the last step that drew samples at its start.
        self._drawn_from: tuple[int, tuple[Any, ...]] = (0, ())
        self._begins = StepBegins(self)
        self.add_callback(self._begins)
        self._has_exact_trees = find_exact_trees(
            self.model, self.accelerator, self._tokenizer.pad_token_id
        )
        if self._level == "trajectory":
            self.importance_sampling_level = "token"
        if self._leaves_one_out:
            self.scale_rewards = "none"

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as in TRL, and end the environment's workers at the end.

        If an environment breaks or an input is refused in a single process that saves checkpoints, it saves one before
        it raises the error; from this checkpoint, the run continues as without the error.
        """
        try:
            return super().train(*args, **kwargs)
        except VcrtError as failure:
            saves = self.args.save_strategy != "no" and not self.args.save_only_model
            step, states = self._drawn_from
            # Before the first step there is nothing to save; after an evaluation, a resumed run would not repeat it.
            is_known = 0 < step == self.state.global_step
            if saves and is_known and self.accelerator.num_processes == 1:
                set_random_states(states)
                self._save_checkpoint(self.model, None)
                failure.add_note(
                    f"checkpoint-{step} in {self.args.output_dir} has the {counted(step, 'step')} before: go on with "
                    "train(resume_from_checkpoint=True)"
                )
            raise
        finally:
            self.is_in_train = False
            # These metrics belong to a step that was not finished.
            self._metrics["train"].clear()
            if self._online is not None:
                self._online.end()

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate as in TRL; outside of training, end the environment's workers after it."""
        self._require_columns_of("eval_dataset", *args, **kwargs)
        with self._ending_workers():
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predict as in TRL; outside of training, end the environment's workers after it."""
        self._require_columns_of("test_dataset", *args, **kwargs)
        with self._ending_workers():
            return super().predict(*args, **kwargs)

    @contextmanager
    def _ending_workers(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._online is not None and not self.is_in_train:
                self._online.end()

    def _require_columns_of(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Check a dataset that is given now; a name means a dataset that was given before."""
        given = args[0] if args else kwargs.get(name)
        if not isinstance(given, str):
            require_datasets(
                self.args, named_datasets(name, given), online=self._online is not None
            )

    def _calculate_rewards(self, *args: Any) -> Tensor:
        per_function: Tensor = super()._calculate_rewards(*args)
        weighted = (per_function * self.reward_weights.to(per_function.device)).nansum(1)
        # The rewards of all processes; a sample has no reward if every function returns None.
        self._rewards = weighted.masked_fill(per_function.isnan().all(1), torch.nan)
        return per_function

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        require_tokens("the dataset", "prompt", prompt_ids)
        generated = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        require_tokens("what was sampled", "completion", generated[0])
        return generated

    def _generate(self, prompts: list[Any]) -> Any:
        # Some ways of sampling leave the model in training mode, even for an evaluation.
        is_training = self.model.training
        generated = super()._generate(prompts)
        if self.model.training != is_training:
            self.model.train(is_training)
        steps, every = self.args.gradient_accumulation_steps, self.args.steps_per_generation
        # In this case, the first scores that TRL computes after this are the old ones, which it only stores.
        self._leaves_old_out = steps % (every * self.num_iterations) != 0 and not self.use_vllm
        if self._online is not None:
            # The environment works while other policies score the samples.
            self._online.begin(
                generated[1], self._tokenizer, self.eos_token_ids, update=self.state.global_step
            )
        return generated

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return TRL's batch, with each sample's candidates and its index in the orbit."""
        if self._online is not None:
            self._online.rows = inputs
        # A step that is not finished is repeated from its start.
        if self.model.training and self._step == self._begins.first:
            self._drawn_from = self.state.global_step, random_states()
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        self._leaves_old_out = False
        if "tool_mask" in output:
            raise RunError(
                "completions with tokens that the model did not write have no orbit",
                found="env_mask",
                remedy="use a rollout_func without env_mask",
            )
        first = self.accelerator.process_index * len(inputs)
        own = slice(first, first + len(inputs))
        if self._leaves_one_out and not self.args.orbit_all_orders:
            group = self.num_generations if self.model.training else self.num_generations_eval
            factors = leave_one_out(self._rewards, group)
            output["advantages"] = output["advantages"] * factors[own]
            # The table of completions shows the advantages of the loss.
            logged = self._logs["advantages"]
            for place in range(1, min(len(factors), len(logged)) + 1):
                logged[-place] *= factors[-place].item()
        prompts, samples = zip(*samples_of(output), strict=True)
        if self._online is None:
            candidates = listed_candidates(
                inputs, prompts, self.args, self._tokenizer, self.max_completion_length
            )
            succeeded = self._rewards[own] > self.args.orbit_success
        else:
            candidates = self._online.candidates(
                prompts,
                samples,
                self._tokenizer,
                self.eos_token_ids,
                update=self.state.global_step,
            )
            succeeded = torch.tensor(self._online.succeeded, device=self._rewards.device)
            self._log_online(self._online)
        device = output["completion_ids"].device
        members = torch.tensor(
            [c.member(sample) for c, sample in zip(candidates, samples, strict=True)], device=device
        )
        output["orbit_missed"] = (succeeded & (members < 0)).float()
        is_credited = succeeded & (members >= 0) & self.args.orbit_credit
        if self.args.orbit_all_orders:
            is_credited = torch.tensor([bool(c.completions) for c in candidates], device=device)
            members = torch.full_like(members, -1)
        output["orbit_credited"] = is_credited
        output["orbit_members"] = members.masked_fill(~is_credited, -1)
        output["orbit_candidates"] = candidates
        if self.args.orbit_all_orders:
            self._expect(output, own)
        return output

    def _expect(self, output: dict[str, Any], own: slice) -> None:
        """Give each sample the advantages of all orders of its steps; samples that stand for themselves have theirs."""
        is_training, size = self.model.training, len(output["orbit_candidates"])
        args = self.args
        step = args.per_device_train_batch_size if is_training else args.per_device_eval_batch_size
        masses = []
        with torch.no_grad(), self._without_checkpoints():
            for begin in range(0, size, step):
                part = {
                    name: output[name][begin : begin + step]
                    for name in (
                        *("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"),
                        *("orbit_members", "orbit_candidates"),
                    )
                }
                masses.append(self._score(self.model, part).log_masses)
        is_credited = output["orbit_credited"]
        chances, worth = expected_rewards(torch.cat(masses)), float(self.reward_weights[0])
        expected = torch.where(is_credited, worth * chances, self._rewards[own])
        every = self.accelerator.gather(expected)
        group = self.num_generations if is_training else self.num_generations_eval
        others = every.view(-1, group).sum(1).repeat_interleave(group) - every
        others = others / max(group - 1, 1)
        alone = self._rewards - others
        output["advantages"] = alone[own].masked_fill(is_credited, 0.0)
        output["orbit_weights"] = expected_weights(chances, others[own], worth).masked_fill(
            ~is_credited[:, None], 0.0
        )
        # The table of completions shows what each sample would have had by itself.
        logged = self._logs["advantages"]
        for place in range(1, min(len(alone), len(logged)) + 1):
            logged[-place] = alone[-place].item()
        self._own_metrics["orbit/expected_reward"].append(every.mean().item())

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """Return TRL's batch, with old scores from passes like those of the loss: a ratio is 1 before the first step.

        In half precision, a pass over other samples or fewer orders has other rounding errors, of tenths of a nat.
        """
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if not self.model.training:
            self._score_old(inputs)
        elif self._buffered_inputs is not before:
            for batch in self._buffered_inputs:
                self._score_old(batch)
        return inputs

    def _score_old(self, inputs: dict[str, Any]) -> None:
        """Score a batch by the policy that drew it, unless the next forward pass has the same policy."""
        if "old_per_token_logps" not in inputs:
            return
        with torch.no_grad(), self._without_checkpoints():
            scored = self._score(self.model, inputs)
        inputs["orbit_old_surplus"] = scored.surplus
        inputs["orbit_old_masses"] = scored.log_masses
        if scored.samples is not None:
            found = [scores.log_probs for scores in scored.samples]
            inputs["old_per_token_logps"] = padded_tokens(found, inputs["completion_ids"].shape[1])

    def _without_checkpoints(self) -> AbstractContextManager[None]:
        """Keep activations that need no gradient from being computed again; walk the model's modules only for that."""
        if not self.args.gradient_checkpointing:
            return nullcontext()
        found: AbstractContextManager[None] = disable_gradient_checkpointing(
            self.model, self.args.gradient_checkpointing_kwargs
        )
        return found

    def _score(self, model: Any, inputs: Mapping[str, Any]) -> Scored:
        """Score the samples of a batch and the candidates that they need, each different pair once."""
        members: Tensor = inputs["orbit_members"]
        own = samples_of(inputs)
        batch, places = needed_candidates(inputs["orbit_candidates"], members.tolist(), self.args)
        pairs = [(c.prompt, completion) for c in batch for completion in c.completions]
        samples, unused = None, members.new_zeros((), dtype=torch.float32)
        if self._scores_trees(model, inputs):
            found = self._by_tree(model, [*own, *pairs], entropies=True)
            samples = found[: len(own)]
            log_probs = [scores.log_probs.sum() for scores in found[len(own) :]]
            totals = torch.stack(log_probs) if log_probs else unused.new_zeros(0)
            tokens = tokens_of_trees([*own, *pairs])
        else:
            totals, unused = score_by_rows(
                partial(self._score_rows, model),
                pairs,
                own[0],
                accelerator=self.accelerator,
                padding=self._tokenizer.pad_token_id,
            )
            # The samples' own tokens, with padding, and then those of the rows.
            tokens = inputs["prompt_ids"].numel() + inputs["completion_ids"].numel()
            tokens += sum(len(prompt) + len(completion) for prompt, completion in set(pairs))
        place = torch.tensor(places, device=members.device)
        scores = tabulate(batch, totals) if batch else None
        nothing = members.new_zeros(members.shape, dtype=torch.float32)
        return Scored(
            scores=scores,
            prompts=place,
            surplus=nothing if scores is None else scores.surplus(place, members),
            log_masses=log_masses_of(scores, place),
            samples=samples,
            tokens=tokens / len(members),
            unused=unused,
        )

    def _scores_trees(self, model: Any, inputs: Mapping[str, Any]) -> bool:
        """Return whether one pass over trees of tokens is exact for this model, and can replace TRL's own pass."""
        if not self._has_exact_trees or self.aux_loss_enabled:
            return False
        # Use the widest prompt of all processes: they must choose alike, or they wait for each other forever.
        width = torch.tensor([inputs["prompt_ids"].shape[1]], device=inputs["prompt_ids"].device)
        longest = int(self.accelerator.gather(width).max()) + self.max_completion_length
        return choose_backend(model, "auto", longest=longest) == "tree"

    def _by_tree(
        self, model: Any, pairs: Sequence[tuple[TokenIds, TokenIds]], *, entropies: bool
    ) -> list[TextScores]:
        return score_by_tree(
            model,
            pairs,
            accelerator=self.accelerator,
            temperature=self.temperature,
            entropies=entropies,
            entropy_gradients=entropies and self._entropy_bonus_enabled,
        )

    def _score_rows(self, model: Any, rows: Rows) -> Tensor:
        """Return ``[N, T]``: the log-probabilities of rows' tokens, computed by TRL."""
        log_probs: Tensor = super()._get_per_token_logps_and_entropies(
            model,
            rows.input_ids,
            rows.attention_mask,
            rows.completion_mask.shape[1],
            batch_size=self.args.orbit_batch_size or self.args.per_device_train_batch_size,
        )[0]
        return log_probs

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """Compute TRL's loss on credited log-probabilities, plus the weighted losses of margin and augmentation."""
        scored = self._score(model, inputs)
        inputs = dict(inputs)
        if "old_per_token_logps" in inputs:
            inputs["old_per_token_logps"] = self._credited(
                inputs["old_per_token_logps"], inputs["orbit_old_surplus"], inputs
            )
        self._credit = scored, inputs
        try:
            loss: Tensor = super()._compute_loss(model, inputs)
        finally:
            self._credit = None
        terms = {"margin": (self.args.orbit_alpha, scored.margin_loss(self.args.orbit_margin))}
        if "orbit_weights" in inputs:
            terms["orders"] = (1.0, self._loss_of_orders(scored, inputs))
        if self.args.orbit_augmentation:
            terms["augmentation"] = (self.args.orbit_augmentation, scored.augmentation_loss())
        # Means over samples: every prompt of a generation batch has the same number, for any split into steps.
        accumulation = self.current_gradient_accumulation_steps if self.model.training else 1
        self._log_orbits(
            inputs,
            {"mass": scored.mean_mass, "tokens": scored.surplus.new_tensor(scored.tokens)}
            | {f"{name}_loss": value.detach() for name, (_, value) in terms.items()},
        )
        further = torch.stack([weight * value for weight, value in terms.values()]).sum()
        total: Tensor = loss + (further + scored.unused) / accumulation
        return total

    def _loss_of_orders(self, scored: Scored, inputs: Mapping[str, Any]) -> Tensor:
        masses = scored.log_masses
        return expected_losses(
            masses,
            inputs.get("orbit_old_masses", masses.detach()),
            inputs["orbit_weights"],
            low=self.epsilon_low,
            high=self.epsilon_high,
        ).mean()

    def _credited(self, log_probs: Tensor, surplus: Tensor, inputs: Mapping[str, Any]) -> Tensor:
        mask: Tensor = inputs["completion_mask"]
        samples = [completion for _, completion in samples_of(inputs)]
        differing = differing_tokens(inputs["orbit_candidates"], samples, mask.shape[1])
        return credited_log_probs(log_probs, mask, surplus, self._level, differing.to(mask.device))

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compute TRL's scores, by one pass over trees if that is exact; within a loss, credit log-probabilities."""
        batch = batch_of(input_ids, attention_mask, logits_to_keep)
        leaves_out, self._leaves_old_out = self._leaves_old_out, False
        known = None if self._credit is None else self._credit[0].samples
        if known is not None:
            found = known
        elif self._credit is None and self._scores_trees(model, batch):
            if leaves_out:
                nothing = attention_mask.new_full(
                    (len(input_ids), logits_to_keep), torch.nan, dtype=torch.float32
                )
                return nothing, None, None  # until _score_old
            samples = samples_of(batch)
            step = batch_size or len(samples)
            parts = [samples[begin : begin + step] for begin in range(0, len(samples), step)]
            found = [one for part in parts for one in self._by_tree(model, part, entropies=False)]
        else:
            return self._with_credit(
                super()._get_per_token_logps_and_entropies(
                    model, input_ids, attention_mask, logits_to_keep, batch_size, **kwargs
                )
            )
        log_probs = padded_tokens([scores.log_probs for scores in found], logits_to_keep)
        spread = [scores.entropies for scores in found if scores.entropies is not None]
        entropies = padded_tokens(spread, logits_to_keep) if spread else None
        return self._with_credit((log_probs, entropies, None))

    def _with_credit(self, found: tuple[Tensor, Any, Any]) -> tuple[Tensor, Any, Any]:
        if self._credit is None:
            return found
        log_probs, (scored, inputs) = found[0], self._credit
        credited = self._credited(log_probs, scored.surplus, inputs)
        if "orbit_weights" in inputs and "old_per_token_logps" in inputs:
            # The loss of orders takes the place of TRL's, whose ratio must not overflow beside an advantage of 0.
            own = inputs["old_per_token_logps"] + (credited - credited.detach())
            credited = torch.where(inputs["orbit_credited"][:, None], own, credited)
        if "ref_per_token_logps" in inputs:
            # The KL is on the sampled tokens: the reference gets the same change, so that differences do not change.
            inputs["ref_per_token_logps"] = inputs["ref_per_token_logps"] + (credited - log_probs)
        return credited, *found[1:]

    def _log_orbits(self, inputs: Mapping[str, Any], values: Mapping[str, Tensor]) -> None:
        shares = {
            "credited": inputs["orbit_credited"].float().mean(),
            "missed": inputs["orbit_missed"].mean(),
        }
        for name, value in {**shares, **values}.items():
            mean = self.accelerator.gather(value.float()).nanmean().item()
            if not math.isnan(mean):  # no orbit was scored
                self._own_metrics[f"orbit/{name}"].append(mean)

    def _log_online(self, online: OnlineOrbits) -> None:
        """Log the counts of the samples, divided by the number of samples, over all processes."""
        every: list[Mapping[str, float]] = gather_object([online.counts])
        metrics = self._own_metrics
        samples = sum(one["samples"] for one in every)
        # TRL averages the values since its last log, so a reason that did not occur is logged as 0.
        so_far = len(metrics["orbit/members"])
        names = {name for one in every for name in one if name != "samples"}
        names |= {name.removeprefix("orbit/") for name in metrics if "/missed/" in name}
        for name in sorted(names):
            values = metrics[f"orbit/{name}"]
            values += [0.0] * (so_far - len(values))
            values.append(sum(one.get(name, 0.0) for one in every) / samples)

    @property
    def _own_metrics(self) -> dict[str, list[float]]:
        metrics: dict[str, list[float]] = self._metrics["train" if self.model.training else "eval"]
        return metrics


def _with_tokens(rollout_func: Any, prompts: list[Any], trainer: Any) -> Any:
    """Call ``rollout_func``, and raise an error unless each prompt and completion of its result has a token."""
    output = rollout_func(prompts, trainer)
    for key, what in (("prompt_ids", "prompt"), ("completion_ids", "completion")):
        # TRL itself reports missing keys.
        require_tokens("rollout_func", what, output.get(key, ()))
    return output
