"""One online update (the paper's Algorithm 1): freeze, sample, then two optimiser epochs and a dual step.

An update changes its :class:`TrainerState` and nothing else; given equal states, items and settings it gives equal
bits. The model stays in evaluation mode, where dropout of its own is off: the ratio of the first epoch is 1. Adapters'
inputs are dropped by one mask an update (:mod:`vcrt.policy.shared_dropout`). Not covered: which items an update gets,
checkpoints, logs.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``E`` events (all orders; in the tokens interface the malformed event
last).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import DivergedError, RunError
from vcrt.hashing import Json
from vcrt.limits import MAX_ENUMERATED
from vcrt.objective.advantage import leave_one_out_advantage
from vcrt.objective.augmented_lagrangian import dual_step
from vcrt.objective.sampled import SampledTerms, sampled_objective
from vcrt.objective.total import (
    CONSTRAINT_NAMES,
    FrozenBatch,
    ObjectiveConfig,
    ObjectiveTerms,
    objective,
)
from vcrt.policy.interface import tree_depth
from vcrt.policy.order_tree import order_tree
from vcrt.policy.prompts import unwrapped
from vcrt.policy.scoring import Backend, CausalModel, score_orders, score_prefixes
from vcrt.policy.shared_dropout import SharedDropout, shared_dropouts, thinned
from vcrt.printable import counted
from vcrt.randomness import derive_seed
from vcrt.training.batch_scores import Scorer, event_log_probs, score_batch
from vcrt.training.group import ALONE, Group, whole
from vcrt.training.items import EncodedItem
from vcrt.training.methods import Method
from vcrt.training.poset_items import PosetItem
from vcrt.training.sampled_update import EstimateConfig, draw_batch, freeze_sampled


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateConfig:
    """The settings of an update that all methods share."""

    #: Orders sampled for each prompt.
    num_samples: int = 8
    #: Optimiser steps on the same samples.
    num_epochs: int = 2
    #: Gradients are scaled down to this norm.
    max_gradient_norm: float = 1.0
    #: How orders are scored, see :func:`vcrt.policy.scoring.score_orders`.
    backend: Backend = "auto"
    #: How orbit masses are read where orders are too many to enumerate.
    estimate: EstimateConfig = field(default_factory=EstimateConfig)
    #: At most this many prompts are scored at a time by a process, which bounds memory; None for all of its share.
    prompts_at_a_time: int | None = None

    def __post_init__(self) -> None:
        if self.num_samples < 2:
            raise ValueError(f"num_samples must be at least 2, got {self.num_samples}")
        if self.num_epochs < 1:
            raise ValueError(f"num_epochs must be at least 1, got {self.num_epochs}")
        if self.prompts_at_a_time is not None and self.prompts_at_a_time < 1:
            raise ValueError(f"prompts_at_a_time must be at least 1, got {self.prompts_at_a_time}")


@dataclass(kw_only=True, slots=True)
class TrainerState:
    """Everything that changes during training, and that a checkpoint holds."""

    model: CausalModel
    optimizer: torch.optim.AdamW
    #: The multiplier of each constraint, by name; all 0 for methods without constraints.
    duals: dict[str, float]
    #: On the CPU, so that samples do not depend on the device.
    generator: torch.Generator
    #: How many updates have been made.
    update_index: int
    #: What each update's dropout is drawn from; the run's own, so no checkpoint holds it.
    seed: int = 0
    #: The dropout of the model's adapters, if it has any.
    dropouts: tuple[SharedDropout, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateMetrics:
    """What one update did. Terms of the objective are those of its last epoch, before that epoch's step."""

    #: 1 for the first update.
    update: int
    loss: float
    policy_loss: float
    anti_diamond_loss: float
    contrastive_loss: float
    commutation: float
    retention: float
    action_kl: float
    penalty_commutation: float
    penalty_retention: float
    penalty_action_kl: float
    #: The multipliers after the update's dual step.
    dual_commutation: float
    dual_retention: float
    dual_action_kl: float
    #: Mean probability of the certified orbit, of the other orders, and of answers that are no orders.
    orbit_mass: float
    illegal_mass: float
    malformed_mass: float
    clip_fraction: float
    #: Share of prompts whose samples all got the same reward.
    zero_advantage_share: float
    #: Mean reward of the sampled orders.
    mean_reward: float
    #: Norm of the last epoch's gradient before it was scaled down.
    gradient_norm: float
    #: Largest absolute log-ratio in the first epoch, of scores of the same policy: 0 unless scoring is noisy.
    start_log_ratio: float

    def to_json(self) -> dict[str, Json]:
        """The metrics by name."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledMetrics(UpdateMetrics):
    """What an update did where orders are too many to score."""

    #: Mean standard error of the log-mass of the certified orbit, in nats; 0 where it is exact.
    orbit_log_mass_error: float
    #: Share of the masked paths that are effective in the posterior weights of its gradient; 0 where it is exact.
    effective_path_share: float


def trainable_parameters(model: CausalModel) -> dict[str, torch.nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def new_state(
    model: CausalModel, *, seed: int, learning_rate: float, weight_decay: float = 0.0
) -> TrainerState:
    """The state before the first update: fresh AdamW over the trainable parameters, duals 0, named generator."""
    model.eval()
    return TrainerState(
        model=model,
        optimizer=torch.optim.AdamW(
            trainable_parameters(model).values(),
            lr=learning_rate,
            weight_decay=weight_decay,
            fused=True,
        ),
        duals=dict.fromkeys(CONSTRAINT_NAMES, 0.0),
        generator=torch.Generator().manual_seed(derive_seed(seed, "samples")),
        update_index=0,
        seed=seed,
        dropouts=shared_dropouts(model),
    )


def update(
    state: TrainerState,
    items: Sequence[EncodedItem | PosetItem],
    frozen_log_mass: Tensor,
    *,
    method: Method,
    objective_config: ObjectiveConfig,
    config: UpdateConfig,
    group: Group = ALONE,
) -> UpdateMetrics:
    """Make one update on ``items``, in place, and say what it did.

    ``items`` must have been encoded for ``method``; those with all orders listed share a number of operations.
    ``frozen_log_mass [B]`` is their
    orbit log-mass under the frozen backbone (:func:`vcrt.training.items.orbit_log_masses`). Raises
    :class:`vcrt.errors.DivergedError`, before the step, if the loss or its gradient is not finite.
    The dual step is on the values of the last epoch, before its step: with a single epoch the action KL is 0.
    Source: the paper's Algorithm 1, which moves the duals in each epoch; here they move once.
    """
    if state.model.training:
        state.model.eval()
    seed = derive_seed(state.seed, "update", state.update_index)
    with thinned(state.dropouts, seed, unwrapped(state.model).device):
        return _update(
            state,
            items,
            frozen_log_mass,
            method=method,
            objective_config=objective_config,
            config=config,
            group=group,
        )


def _update(
    state: TrainerState,
    items: Sequence[EncodedItem | PosetItem],
    frozen_log_mass: Tensor,
    *,
    method: Method,
    objective_config: ObjectiveConfig,
    config: UpdateConfig,
    group: Group,
) -> UpdateMetrics:
    score, freeze = _parts(state, items, frozen_log_mass, method, config)
    scores = score_batch(len(items), score, group, part_size=config.prompts_at_a_time)
    # The policy of the first epoch is the behaviour policy: it is scored once for both.
    terms_of = freeze(*(leaf.detach() for leaf in scores.leaves))
    start_log_ratio = gradient_norm = 0.0
    for epoch in range(config.num_epochs):
        if epoch > 0:
            scores = score_batch(len(items), score, group, part_size=config.prompts_at_a_time)
        terms = terms_of(
            *scores.leaves,
            config=objective_config,
            duals=state.duals if method.constraints else None,
            policy_term=method.policy_term,
            contrast=method.contrast,
        )
        parameters = _clear_gradients(state.optimizer)
        terms.loss.backward()  # type: ignore[no-untyped-call]
        gap = scores.pull_back(score, group)
        group.add_gradients(parameters)
        gradient_norm = _step(state, terms.loss, parameters, config.max_gradient_norm)
        if epoch == 0:
            start_log_ratio = max(float(terms.max_log_ratio), gap)
    values = {name: float(value) for name, value in terms.values.items()}
    if method.constraints:
        state.duals = next_duals(values, state.duals, objective_config)
    state.update_index += 1
    return _metrics(state, terms, values, gradient_norm, start_log_ratio)


#: Takes the leaves of a batch's scores and the objective's settings.
_TermsOf: TypeAlias = Callable[..., ObjectiveTerms | SampledTerms]
#: How a batch is scored, and what is fixed before the first step, given the behaviour policy's scores.
_Parts: TypeAlias = tuple[Scorer, Callable[..., _TermsOf]]


def _parts(
    state: TrainerState,
    items: Sequence[EncodedItem | PosetItem],
    frozen_log_mass: Tensor,
    method: Method,
    config: UpdateConfig,
) -> _Parts:
    listed = [item for item in items if isinstance(item, EncodedItem)]
    if len(listed) == len(items):
        return _enumerated(state, listed, frozen_log_mass, method, config)
    posets = [item for item in items if isinstance(item, PosetItem)]
    return _sampled(state, posets, frozen_log_mass, method, config)


def _enumerated(
    state: TrainerState,
    items: Sequence[EncodedItem],
    frozen_log_mass: Tensor,
    method: Method,
    config: UpdateConfig,
) -> _Parts:
    """All orders of every prompt are scored."""
    prompts = [item.prompt for item in items]

    def score(numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        scores = score_orders(
            state.model,
            [prompts[number] for number in numbers],
            interface=method.interface,
            backend=config.backend,
        )
        return event_log_probs(scores), scores.choice_log_probs

    def freeze(events: Tensor, _: Tensor) -> _TermsOf:
        batch = _freeze(state.generator, items, events, frozen_log_mass, method, config)
        return partial(objective, batch=batch)

    return score, freeze


def _sampled(
    state: TrainerState,
    items: Sequence[PosetItem],
    frozen_log_mass: Tensor,
    method: Method,
    config: UpdateConfig,
) -> _Parts:
    """Some prefixes of every prompt's orders are scored, which are drawn first."""
    if method.interface != "pointers":
        raise RunError(
            "the method cannot be trained on records of so many operations",
            where=method.name,
            found=f"{counted(max(item.prompt.num_operations for item in items), 'operation')} and answers in tokens",
            expected=f"at most {MAX_ENUMERATED} operations, or a method that answers through pointers",
        )
    drawn = draw_batch(
        state.model,
        items,
        method=method,
        num_samples=config.num_samples,
        config=config.estimate,
        backend=config.backend,
        generator=state.generator,
        prompts_at_a_time=config.prompts_at_a_time,
    )
    prompts = [item.prompt for item in items]
    used = drawn.used.to(unwrapped(state.model).device)

    def score(numbers: Sequence[int]) -> tuple[Tensor]:
        scores = score_prefixes(
            state.model,
            [prompts[number] for number in numbers],
            [drawn.trees[number] for number in numbers],
            interface=method.interface,
            backend=config.backend,
        )
        rows, slots = (used.shape[dim] - scores.used.shape[dim] for dim in (1, 2))
        # Slots that none of these prompts has are never chosen; rows that none has are never read.
        found = pad(scores.choice_log_probs, (0, slots), value=-torch.inf)
        return (pad(found, (0, 0, 0, rows)),)

    def freeze(choices: Tensor) -> _TermsOf:
        batch = freeze_sampled(drawn, items, choices, used, frozen_log_mass, method)
        return partial(sampled_objective, batch=batch)

    return score, freeze


def sample_events(log_probs: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
    """Independent draws ``[B, G]`` from the distributions ``log_probs [B, E]``, on the CPU in float64.

    Each draw inverts the cumulative distribution at one uniform number, so events of probability 0 are never drawn.
    """
    cumulative = log_probs.detach().cpu().double().exp().cumsum(-1)
    uniform = torch.rand(len(cumulative), num_samples, generator=generator, dtype=torch.float64)
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)


def next_duals(
    values: Mapping[str, float], duals: Mapping[str, float], config: ObjectiveConfig
) -> dict[str, float]:
    """The multipliers after one dual step on the constraint values."""
    return {
        constraint.name: dual_step(
            constraint, values[constraint.name], duals[constraint.name], config.mu
        )
        for constraint in config.constraints
    }


def _freeze(
    generator: torch.Generator,
    items: Sequence[EncodedItem],
    behaviour: Tensor,
    frozen_log_mass: Tensor,
    method: Method,
    config: UpdateConfig,
) -> FrozenBatch:
    """Sample from the behaviour policy, and judge the samples by membership in the certified orbit."""
    device, num_operations = behaviour.device, items[0].prompt.num_operations
    tree = order_tree(num_operations, tree_depth(num_operations, method.interface))
    samples = sample_events(behaviour, config.num_samples, generator)
    legal = torch.stack([item.legal for item in items])
    credit = _stacked_credit(items, method, device)
    on_device = legal.to(device)
    malformed = legal.new_zeros(len(items), behaviour.shape[1] - legal.shape[1])
    rewards = torch.cat([legal, malformed], dim=1).gather(1, samples).to(behaviour.dtype)
    return FrozenBatch(
        samples=samples.to(device),
        rewards=rewards.to(device),
        advantages=leave_one_out_advantage(rewards).to(device),
        behaviour=behaviour,
        frozen_log_mass=frozen_log_mass.to(device),
        legal=on_device,
        credit=credit,
        margin_set={None: None, "native": on_device, "shuffled": credit}[method.margin],
        histories=torch.cat(
            [
                torch.nn.functional.pad(item.histories, (1, 0), value=index)
                for index, item in enumerate(items)
            ]
        ).to(device),
        used=torch.tensor(tree.used, device=device),
        num_choices=tree.num_choices,
    )


def _stacked_credit(
    items: Sequence[EncodedItem], method: Method, device: torch.device
) -> Tensor | None:
    credits = [item.credit for item in items if item.credit is not None]
    if len(credits) != (0 if method.ratio == "trajectory" else len(items)):
        raise ValueError(f"the items were not encoded for the method {method.name!r}")
    return torch.stack(credits).to(device) if credits else None


def _clear_gradients(optimizer: torch.optim.AdamW) -> list[torch.nn.Parameter]:
    """Forget the gradients of an earlier step; returns the parameters that have them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = None
    return parameters


def _step(
    state: TrainerState,
    loss: Tensor,
    parameters: Sequence[torch.nn.Parameter],
    max_norm: float,
) -> float:
    """One AdamW step on the gradient of ``loss``, scaled down to ``max_norm``; returns its norm before that."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    norm = whole(norm)
    if not (torch.isfinite(loss) and torch.isfinite(norm)):
        raise DivergedError(
            "training left the finite numbers",
            where=f"update {state.update_index + 1}",
            found=f"loss {loss.item()}, gradient norm {norm.item()}",
            remedy="lower the learning rate, or train in a wider number format",
        )
    state.optimizer.step()
    return float(norm)


def _metrics(
    state: TrainerState,
    terms: ObjectiveTerms | SampledTerms,
    values: Mapping[str, float],
    gradient_norm: float,
    start_log_ratio: float,
) -> UpdateMetrics:
    kind: type[UpdateMetrics] = UpdateMetrics
    more: dict[str, float] = {}
    if isinstance(terms, SampledTerms):
        kind = SampledMetrics
        more = {
            "orbit_log_mass_error": float(terms.orbit_log_mass_error),
            "effective_path_share": float(terms.effective_path_share),
        }
    return kind(
        update=state.update_index,
        loss=terms.loss.item(),
        policy_loss=float(terms.policy_loss),
        anti_diamond_loss=float(terms.anti_diamond_loss),
        contrastive_loss=float(terms.contrastive_loss),
        commutation=values["commutation"],
        retention=values["retention"],
        action_kl=values["action_kl"],
        penalty_commutation=float(terms.penalties["commutation"]),
        penalty_retention=float(terms.penalties["retention"]),
        penalty_action_kl=float(terms.penalties["action_kl"]),
        dual_commutation=state.duals["commutation"],
        dual_retention=state.duals["retention"],
        dual_action_kl=state.duals["action_kl"],
        orbit_mass=float(terms.orbit_mass),
        illegal_mass=float(terms.illegal_mass),
        malformed_mass=float(terms.malformed_mass),
        clip_fraction=float(terms.clip_fraction),
        zero_advantage_share=float(terms.zero_advantage_share),
        mean_reward=float(terms.mean_reward),
        gradient_norm=gradient_norm,
        start_log_ratio=start_log_ratio,
        **more,
    )
