"""Make one online update: the paper's Algorithm 1, which :func:`update` follows line by line.

An update changes only its :class:`TrainerState`; equal states, items and settings give equal bits. The model stays in
evaluation mode, in which its own dropout is off, so the ratio of the first epoch is 1. One mask for each update drops
inputs of adapters (:mod:`vcrt_train.policy.adapters`). This module does not choose an update's items or the prefixes
that are scored (:mod:`vcrt_train.training.batch_trees`), does not define the terms (:mod:`vcrt_train.objective.terms`),
and writes no checkpoints or logs.

Shapes: ``B`` prompts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from vcrt.errors import DivergedError
from vcrt.hashing import Json
from vcrt.randomness import derive_seed
from vcrt_train.config import ResolvedConfig
from vcrt_train.objective.terms import constrained
from vcrt_train.objective.total import next_duals, objective, read
from vcrt_train.policy.adapters import SharedDropout, shared_dropouts, thinned
from vcrt_train.policy.captured import Graphs
from vcrt_train.policy.causal_model import CausalModel, unwrapped
from vcrt_train.training.batch_scores import score_batch
from vcrt_train.training.batch_trees import draw_trees, freeze
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.methods import Method
from vcrt_train.training.process_group import ALONE, ProcessGroup, whole


@dataclass(kw_only=True, slots=True)
class TrainerState:
    """The state that changes during training, which a checkpoint holds, and the run's fixed seed and dropout."""

    model: CausalModel
    optimizer: torch.optim.AdamW
    #: The multiplier of each constraint, by name; all 0 for methods without constraints.
    duals: dict[str, float]
    #: It is on the CPU, so that samples do not depend on the device.
    generator: torch.Generator
    #: The number of updates made.
    update_index: int
    #: The seed of each update's dropout; it belongs to the run, so no checkpoint holds it.
    seed: int = 0
    #: The dropout of the model's adapters, if it has any.
    dropouts: tuple[SharedDropout, ...] = ()
    #: The graphs of ``captured`` scoring; they belong to this process, so no checkpoint holds them.
    graphs: Graphs | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateMetrics:
    """The metrics of one update, by name; each value is an attribute too.

    The following are of the behaviour policy, which drew the samples, before the first step: ``mean_reward``,
    ``zero_advantage_share`` and the values of :meth:`vcrt_train.objective.total.Objective.masses`, such as
    ``orbit_mass``. The following are of the last epoch, before its step but after the earlier steps on the same
    prompts: ``loss``, every term of :data:`vcrt_train.objective.terms.TERMS`, ``penalty_`` and ``dual_`` (after the
    dual step) of each constraint, the rest of :meth:`vcrt_train.objective.total.Objective.metrics`,
    ``orbit_mass_last_epoch`` and ``gradient_norm`` (before clipping). ``start_log_ratio`` is the largest absolute
    log-ratio in the first epoch, between scores of the same policy: 0 unless scoring is noisy.
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
        """Return the metrics by name."""
        return {"update": self.update, **self.values}


def trainable_parameters(model: CausalModel) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def new_state(model: CausalModel, config: ResolvedConfig, *, seed: int) -> TrainerState:
    """Return the state before the first update: new AdamW on the trainable parameters, duals 0, a named generator."""
    model.eval()
    return TrainerState(
        model=model,
        optimizer=torch.optim.AdamW(
            trainable_parameters(model).values(),
            lr=config.optimiser.learning_rate,
            betas=config.optimiser.betas,
            eps=config.optimiser.eps,
            weight_decay=config.optimiser.weight_decay,
            fused=True,
        ),
        duals=dict.fromkeys(constrained(), 0.0),
        generator=torch.Generator().manual_seed(derive_seed(seed, "samples")),
        update_index=0,
        seed=seed,
        dropouts=shared_dropouts(model),
        graphs=Graphs(model) if config.model.scoring == "captured" else None,
    )


def learning_rate_at(update_index: int, config: ResolvedConfig) -> float:
    """Return the learning rate of an update, counted from 0: warmed up, then decayed as the schedule says."""
    schedule = config.schedule
    if update_index < schedule.warmup_updates:
        return config.optimiser.learning_rate * (update_index + 1) / schedule.warmup_updates
    done = (update_index - schedule.warmup_updates) / max(
        schedule.updates - schedule.warmup_updates, 1
    )
    factors = {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": (1.0 + math.cos(math.pi * done)) / 2,
    }
    return config.optimiser.learning_rate * factors[schedule.decay]


def update(
    state: TrainerState,
    items: Sequence[EncodedItem],
    frozen_log_mass: Tensor,
    *,
    method: Method,
    config: ResolvedConfig,
    group: ProcessGroup = ALONE,
) -> UpdateMetrics:
    """Make one update on ``items``, in place, and return its metrics.

    ``items`` must be encoded for ``method``; those with all orders listed must have the same number of operations.
    ``frozen_log_mass [B]`` is their orbit log-mass under the frozen backbone
    (:func:`vcrt_train.training.orbit_masses.orbit_log_masses`). Raises :class:`vcrt.errors.DivergedError`, before the
    step, if the loss or its gradient is not finite. A dual step uses the values of an epoch before the epoch's step, so
    with a single epoch the action KL is 0. Source: the paper's Algorithm 1.
    """
    if state.model.training:
        state.model.eval()
    seed = derive_seed(state.seed, "update", state.update_index)
    backend, part_size = config.model.scoring, config.memory.prompts_at_a_time
    num_samples, num_epochs = config.sampling.samples_per_prompt, config.schedule.epochs_per_update
    used = state.graphs.used() if state.graphs else nullcontext()
    with thinned(state.dropouts, seed, unwrapped(state.model).device), used:
        # These trees hold the prefixes that are scored: of all orders, or of orders drawn from the policy.
        trees = draw_trees(
            state.model,
            items,
            method=method,
            num_samples=num_samples,
            config=config.estimator,
            backend=backend,
            generator=state.generator,
            prompts_at_a_time=part_size,
        )
        score = partial(trees.score, state.model, items, backend=backend)
        scores = score_batch(len(items), score, group, part_size=part_size)
        # Freeze the behaviour policy, which is the policy of the first epoch: it is scored once for both. Sample if
        # orders are listed; otherwise the trees hold the samples. Replay each sample by looking its order up among the
        # certified ones, whose replays are the verdicts (research/decisions.md).
        choices, malformed = _choices(leaf.detach() for leaf in scores.leaves)
        batch = freeze(
            trees,
            items,
            choices,
            malformed,
            frozen_log_mass,
            method=method,
            num_samples=num_samples,
            generator=state.generator,
        )
        gap_at_start, behaviour = 0.0, dict[str, Tensor]()
        for epoch in range(num_epochs):
            if epoch > 0:
                scores = score_batch(len(items), score, group, part_size=part_size)
            choices, malformed = _choices(scores.leaves)
            found = objective(
                choices,
                malformed,
                batch,
                config=config.objective,
                terms=method.terms,
                duals=state.duals,
            )
            parameters = _clear_gradients(state.optimizer)
            found.loss.backward()  # type: ignore[no-untyped-call]
            gap = scores.pull_back(score, group)
            group.add_gradients(parameters)
            gradient_norm = _step(state, found.loss, parameters, config)
            if epoch == 0:
                gap_at_start, behaviour = gap, found.masses()
                behaviour["start_log_ratio"] = found.max_log_ratio
            if config.schedule.dual_steps == "epoch" or epoch == num_epochs - 1:
                state.duals = next_duals(found.values, state.duals, config.objective, method.terms)
    state.update_index += 1
    last = found.metrics()
    values = read({**last, **behaviour, "orbit_mass_last_epoch": last["orbit_mass"]})
    start_log_ratio = values.pop("start_log_ratio")
    return UpdateMetrics(
        update=state.update_index,
        values={
            **values,
            **{f"dual_{name}": dual for name, dual in state.duals.items()},
            "gradient_norm": gradient_norm,
            "start_log_ratio": max(start_log_ratio, gap_at_start),
        },
    )


def _choices(leaves: Iterable[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the scores of choices, and of malformed answers if there can be any."""
    choices, *malformed = leaves
    return choices, malformed[0] if malformed else None


def _clear_gradients(optimizer: torch.optim.AdamW) -> list[torch.nn.Parameter]:
    """Delete the gradients of an earlier step; return the optimiser's parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = None
    return parameters


def _step(
    state: TrainerState,
    loss: Tensor,
    parameters: Sequence[torch.nn.Parameter],
    config: ResolvedConfig,
) -> float:
    """Make one AdamW step on the clipped gradient of ``loss``; return the gradient's norm before clipping."""
    largest = config.optimiser.max_gradient_norm
    total = get_total_norm([p.grad for p in parameters if p.grad is not None])
    # The step must not be made if these are not finite: the device is waited for.
    found = read({"loss": loss, "norm": whole(total)})
    if not all(map(math.isfinite, found.values())):
        raise DivergedError(
            "the loss or the gradient is no longer a finite number",
            where=f"update {state.update_index + 1}",
            found=f"loss {found['loss']}, gradient norm {found['norm']}",
            remedy="lower the learning rate, or train in a wider number format",
        )
    if found["norm"] > largest:
        clip_grads_with_norm_(parameters, largest, total)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate_at(state.update_index, config)
    state.optimizer.step()
    return found["norm"]
