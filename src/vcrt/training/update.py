"""Make one online update: the paper's Algorithm 1, which :func:`update` spells out line by line.

An update changes its :class:`TrainerState` and nothing else; given equal states, items and settings it gives equal
bits. The model stays in evaluation mode, where dropout of its own is off: the ratio of the first epoch is 1. Adapters'
inputs are dropped by one mask an update (:mod:`vcrt.policy.shared_dropout`). Not covered: which items an update gets,
checkpoints, logs; which prefixes are scored (:mod:`vcrt.training.batch_trees`), the terms
(:mod:`vcrt.objective.terms`).

Shapes: ``B`` prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from vcrt.errors import DivergedError
from vcrt.hashing import Json
from vcrt.objective.config import ObjectiveConfig
from vcrt.objective.terms import constrained
from vcrt.objective.total import next_duals, objective
from vcrt.policy.prompts import unwrapped
from vcrt.policy.scoring import Backend, CausalModel
from vcrt.policy.shared_dropout import SharedDropout, shared_dropouts, thinned
from vcrt.randomness import derive_seed
from vcrt.training.batch_scores import score_batch
from vcrt.training.batch_trees import EstimateConfig, draw_trees, freeze, score_trees
from vcrt.training.items import EncodedItem
from vcrt.training.methods import Method
from vcrt.training.process_group import ALONE, ProcessGroup, whole

#: When multipliers move: once an update, after its last epoch, or after each epoch as in the paper's listing.
DualSteps: TypeAlias = Literal["update", "epoch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateConfig:
    """The settings of an update that all methods share."""

    #: Orders sampled for each prompt.
    num_samples: int = 8
    #: Optimiser steps on the same samples.
    num_epochs: int = 2
    #: When the multipliers of the constraints move.
    dual_steps: DualSteps = "update"
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
        if self.dual_steps not in ("update", "epoch"):
            raise ValueError(f"dual_steps must be 'update' or 'epoch', got {self.dual_steps!r}")
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
    """What one update did, by name; terms of the objective are those of its last epoch, before that epoch's step.

    Each value is an attribute too: ``loss``, every term of :data:`vcrt.objective.terms.TERMS`, ``penalty_`` and
    ``dual_`` (after the dual step) of each constraint, what :meth:`vcrt.objective.total.Objective.metrics` lists,
    ``gradient_norm`` (before it was scaled down) and ``start_log_ratio``: the largest absolute log-ratio in the first
    epoch, of scores of the same policy: 0 unless scoring is noisy.
    """

    #: 1 for the first update.
    update: int
    values: Mapping[str, float]

    def __getattr__(self, name: str) -> float:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_json(self) -> dict[str, Json]:
        """The metrics by name."""
        return {"update": self.update, **self.values}


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
        duals=dict.fromkeys(constrained(), 0.0),
        generator=torch.Generator().manual_seed(derive_seed(seed, "samples")),
        update_index=0,
        seed=seed,
        dropouts=shared_dropouts(model),
    )


def update(
    state: TrainerState,
    items: Sequence[EncodedItem],
    frozen_log_mass: Tensor,
    *,
    method: Method,
    objective_config: ObjectiveConfig,
    config: UpdateConfig,
    group: ProcessGroup = ALONE,
) -> UpdateMetrics:
    """Make one update on ``items``, in place, and say what it did.

    ``items`` must have been encoded for ``method``; those with all orders listed share a number of operations.
    ``frozen_log_mass [B]`` is their orbit log-mass under the frozen backbone
    (:func:`vcrt.training.orbit_masses.orbit_log_masses`). Raises :class:`vcrt.errors.DivergedError`, before the step,
    if the loss or its gradient is not finite. A dual step is on the values of an epoch, before its step: with a single
    epoch the action KL is 0. Source: the paper's Algorithm 1.
    """
    state.model.eval()
    seed = derive_seed(state.seed, "update", state.update_index)
    with thinned(state.dropouts, seed, unwrapped(state.model).device):
        # Which prefixes of each prompt are scored: of all orders, or of orders drawn from the policy.
        trees = draw_trees(
            state.model,
            items,
            method=method,
            num_samples=config.num_samples,
            config=config.estimate,
            backend=config.backend,
            generator=state.generator,
            prompts_at_a_time=config.prompts_at_a_time,
        )
        score = partial(score_trees, state.model, items, trees, backend=config.backend)
        part_size = config.prompts_at_a_time
        scores = score_batch(len(items), score, group, part_size=part_size)
        # Freeze the behaviour policy, which is the first epoch's: it is scored once for both. Sample, and judge.
        choices, malformed = _choices(leaf.detach() for leaf in scores.leaves)
        batch = freeze(
            trees,
            items,
            choices,
            malformed,
            frozen_log_mass,
            method=method,
            num_samples=config.num_samples,
            generator=state.generator,
        )
        start_log_ratio = 0.0
        for epoch in range(config.num_epochs):
            if epoch > 0:
                scores = score_batch(len(items), score, group, part_size=part_size)
            choices, malformed = _choices(scores.leaves)
            found = objective(
                choices,
                malformed,
                batch,
                config=objective_config,
                terms=method.terms,
                duals=state.duals,
            )
            parameters = _clear_gradients(state.optimizer)
            found.loss.backward()  # type: ignore[no-untyped-call]
            gap = scores.pull_back(score, group)
            group.add_gradients(parameters)
            gradient_norm = _step(state, found.loss, parameters, config.max_gradient_norm)
            if epoch == 0:
                start_log_ratio = max(float(found.max_log_ratio), gap)
            if config.dual_steps == "epoch" or epoch == config.num_epochs - 1:
                state.duals = next_duals(found.values, state.duals, objective_config, method.terms)
    state.update_index += 1
    return UpdateMetrics(
        update=state.update_index,
        values={
            **found.metrics(),
            **{f"dual_{name}": dual for name, dual in state.duals.items()},
            "gradient_norm": gradient_norm,
            "start_log_ratio": start_log_ratio,
        },
    )


def _choices(leaves: Iterable[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The scores of choices, and of malformed answers if there can be any."""
    choices, *malformed = leaves
    return choices, malformed[0] if malformed else None


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
