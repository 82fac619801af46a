"""Train one run: a method on the source items of one fold with one seed, from the backbone to its last update.

A run is a function of its configuration, the backbone and its items: repeated, or interrupted at any point and resumed,
it gives the same bits. Its directory holds a checkpoint for every scheduled update and, until the run is finished, one
more that is at most a minute and an update old. No run depends on ``progress.jsonl``, a log for people.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from vcrt.errors import BackboneError, RunError
from vcrt.hashing import Json, file_digest
from vcrt.storage import alone_in, make_directory, remove_partial, write_file
from vcrt_train.config import MemoryConfig, ResolvedConfig, ScheduleConfig
from vcrt_train.policy.adapters import drop_ordered_weights, with_adapters
from vcrt_train.policy.backbone import Backbone, load_backbone
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.randomness import generator
from vcrt_train.training.checkpoint import HEAD, load_checkpoint, save_checkpoint
from vcrt_train.training.items import EncodedItem, Records, encode_items
from vcrt_train.training.methods import Method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.process_group import ALONE, ProcessGroup
from vcrt_train.training.run_directory import (
    PROGRESS_LOG,
    checkpoint_path,
    kept_path,
    latest_checkpoint,
    remove_kept,
    updates_kept,
)
from vcrt_train.training.update import (
    TrainerState,
    UpdateMetrics,
    new_state,
    trainable_parameters,
    update,
)

#: Receives an update's metrics and the number of tokens that it scored.
OnUpdate: TypeAlias = Callable[[UpdateMetrics, int], None]


class Validation(Protocol):
    """Measurements of a run during training; all processes of the run's group call the methods together."""

    def begin(self, model: CausalModel) -> None:
        """Measure the frozen backbone, which ``model`` still is."""

    def measure(
        self, model: CausalModel, log: Sequence[Mapping[str, Json]], update: int
    ) -> Mapping[str, float]:
        """Return the values to log, by name, of the model after ``update``; ``log`` has the updates before."""


#: The number of prompts that the frozen backbone scores at a time, unless fewer are asked for.
FROZEN_BATCH = 64
#: Between scheduled checkpoints, the state is saved whenever this many seconds have passed.
KEPT_EVERY_S = 60.0
#: Number formats whose spacing is wider than a step at the usual learning rates.
_NARROW = {"torch.bfloat16", "torch.float16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A run after its last update: its checkpoints' digests by update, and the metrics of every update."""

    directory: Path
    digests: Mapping[int, str]
    metrics: tuple[Mapping[str, Json], ...]

    @property
    def digest(self) -> str:
        """The digest of the last checkpoint."""
        return self.digests[max(self.digests)]


def num_draws(config: ResolvedConfig) -> int:
    """Return the number of prompts that a run draws over all its updates."""
    return config.schedule.updates * config.sampling.prompts_per_update


def episode_order(num_items: int, num_draws: int, seed: int) -> list[int]:
    """Return the item of each draw: one random permutation of all items after another.

    The order depends on nothing else, so all methods of a fold and seed see the same episodes in the same order.
    """
    if num_items < 1:
        raise RunError("there is no item to train on", expected="at least one item")
    order: list[int] = []
    epoch = 0
    while len(order) < num_draws:
        draw = generator(seed, "episode order", epoch).permutation(num_items)
        order.extend(int(i) for i in draw)
        epoch += 1
    return order[:num_draws]


def train_run(
    config: ResolvedConfig,
    method: Method,
    backbone: Backbone,
    records: Records,
    directory: Path,
    *,
    seed: int,
    encode_seed: int,
    identity: str = "",
    group: ProcessGroup = ALONE,
    check: Callable[[CausalModel], None] = lambda model: None,
    on_update: OnUpdate = lambda metrics, num_tokens: None,
    validation: Validation | None = None,
) -> FinishedRun:
    """Train one run in ``directory``, from its latest checkpoint on; a finished run is only read.

    ``encode_seed`` seeds the random choices of a record's serialisation; ``identity`` names the run in its checkpoints.
    All processes of ``group`` call this together. Their number may differ from that of the processes that wrote the
    checkpoint; the last bits of the result depend on it. ``on_update`` receives each update and the number of tokens of
    prompts and prefixes that it scored. ``validation`` is called every ``schedule.validate_every`` updates and after
    the last, and its values are a part of those updates' metrics. ``check`` gets the model, adapters attached, before
    any training, and raises if it cannot be trusted. Raises :class:`RunError` if the latest checkpoint is damaged or
    another run's.
    """
    order = episode_order(len(records), num_draws(config), seed)
    # Only drawn records are encoded, in their own order, so that the bits do not depend on where a run resumes.
    drawn = sorted(set(order))
    items = encode_items(
        [records[index] for index in drawn],
        method,
        seed=encode_seed,
        encode=backbone.encode,
    )
    places = {index: place for place, index in enumerate(drawn)}
    draws = [places[index] for index in order]
    checkpoint_gradients(backbone.model, config.memory)
    model = _trained_model(config, backbone, seed=seed)
    if group.is_sharded:
        # The weights are whole only before sharding.
        check(model)
        # Shards save memory, so no weight is kept whole in further orders.
        drop_ordered_weights(model)
    model = group.place(model)
    if not group.is_sharded:
        check(model)
    # Before the first update the model is the frozen backbone: adapters start as zero.
    frozen = orbit_log_masses(
        model,
        items,
        interface=method.interface,
        config=config.estimator,
        seed=seed,
        backend=config.model.scoring,
        batch_size=config.memory.prompts_at_a_time or FROZEN_BATCH,
    )
    state = new_state(model, config, seed=seed)
    metrics: list[dict[str, Json]] = []
    with _alone(directory, group):
        latest = latest_checkpoint(directory)
        made = 0 if latest is None else updates_kept(latest)
        if validation is not None and made < config.schedule.updates:
            validation.begin(state.model)
        if latest is not None:
            _require_earlier(config, directory, made)
            metrics = load_checkpoint(state, latest, identity=identity)
        if state.update_index < config.schedule.updates:
            _train(
                config,
                method,
                items,
                frozen,
                draws,
                state,
                metrics,
                directory,
                identity,
                group,
                on_update,
                validation,
            )
        if group.rank == 0:
            remove_kept(directory)
    digests = {
        n: file_digest(checkpoint_path(directory, n) / HEAD) for n in config.schedule.checkpoints
    }
    return FinishedRun(directory=directory, digests=digests, metrics=tuple(metrics))


@contextmanager
def _alone(directory: Path, group: ProcessGroup) -> Iterator[None]:
    """Exclude processes of other groups from the directory, and remove the partial files of killed processes."""
    with ExitStack() as stack:
        if group.rank == 0:
            make_directory(directory)
            stack.enter_context(alone_in(directory, "this run", RunError))
            remove_partial(directory)
        group.wait()
        yield


def start(config: ResolvedConfig, backbone: Backbone, *, seed: int) -> TrainerState:
    """Return the state before the first update; it trains the backbone's own model.

    Raises :class:`RunError` if parameters in a number format too narrow for training would be trained, and
    :class:`vcrt.errors.BackboneError` if there is nothing to adapt.
    """
    return new_state(_trained_model(config, backbone, seed=seed), config, seed=seed)


def _trained_model(config: ResolvedConfig, backbone: Backbone, *, seed: int) -> CausalModel:
    model = backbone.model
    adapter = config.adapter
    if adapter.rank:
        model = with_adapters(
            model,
            rank=adapter.rank,
            scale=adapter.scale,
            seed=seed,
            dropout=adapter.dropout,
            recurrent=adapter.recurrent,
        )
    narrow = {str(p.dtype) for p in trainable_parameters(model).values()} & _NARROW
    if narrow:
        raise RunError(
            "steps of AdamW would be lost in the rounding of the weights",
            where=backbone.name,
            found=f"all parameters to be trained in {', '.join(sorted(narrow))}",
            expected="adapters (which are in float32), or a model in float32",
            remedy="add --lora-rank 64, or use --dtype float32",
        )
    return model


def checkpoint_gradients(model: CausalModel, memory: MemoryConfig) -> None:
    """Switch gradient checkpointing on if asked for; raises :class:`BackboneError` for a model without it."""
    if not memory.gradient_checkpointing:
        return
    try:
        # Newer versions of transformers rename the method; older supported versions have only the old name.
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    except ValueError as error:
        raise BackboneError(
            "the model has no gradient checkpointing",
            where=type(model).__name__,
            found=str(error),
            remedy="leave --gradient-checkpointing out",
        ) from error


def require_trainable(reference: BackboneReference, config: ResolvedConfig) -> Backbone:
    """Load a backbone and check that it can be trained with these settings, before any work is planned on it.

    Raises as :func:`load_backbone` and :func:`start`. The returned backbone's model may have adapters.
    """
    backbone = load_backbone(reference)
    if not reference.is_embedded:
        start(config, backbone, seed=0)
    return backbone


def _train(
    config: ResolvedConfig,
    method: Method,
    items: Sequence[EncodedItem],
    frozen_log_mass: torch.Tensor,
    draws: Sequence[int],
    state: TrainerState,
    metrics: list[dict[str, Json]],
    directory: Path,
    identity: str,
    group: ProcessGroup,
    on_update: OnUpdate,
    validation: Validation | None,
) -> None:
    # The log is for people: the first process writes it for all.
    writes = group.rank == 0
    place = directory / PROGRESS_LOG if writes else Path(os.devnull)
    if writes:
        write_file(place, "".join(map(_log_line, metrics)).encode())
    with place.open("a", encoding="utf-8") as log:
        kept_at = time.monotonic()
        while state.update_index < config.schedule.updates:
            first = state.update_index * config.sampling.prompts_per_update
            drawn = draws[first : first + config.sampling.prompts_per_update]
            done = update(
                state,
                [items[i] for i in drawn],
                frozen_log_mass[drawn],
                method=method,
                config=config,
                group=group,
            )
            if validation is not None and _is_validated(config.schedule, done.update):
                measured = validation.measure(state.model, metrics, done.update)
                done = replace(done, values={**done.values, **measured})
            metrics.append(done.to_json())
            log.write(_log_line(metrics[-1]))
            log.flush()
            scored = sum(_num_tokens(items[i]) for i in drawn)
            on_update(done, config.schedule.epochs_per_update * scored)
            is_scheduled = state.update_index in config.schedule.checkpoints
            is_due = time.monotonic() - kept_at > KEPT_EVERY_S
            # If there are several processes, the clock of the first one decides.
            if is_scheduled or group.agree(is_due, state.model):
                if writes:
                    os.fsync(log.fileno())
                name = checkpoint_path if is_scheduled else kept_path
                path = name(directory, state.update_index)
                save_checkpoint(state, path, metrics, identity=identity, group=group)
                if group.rank == 0:
                    remove_kept(directory, but=path)
                kept_at = time.monotonic()


def _is_validated(schedule: ScheduleConfig, update: int) -> bool:
    every = schedule.validate_every
    return every > 0 and (update % every == 0 or update == schedule.updates)


def _log_line(metrics: Mapping[str, Json]) -> str:
    # Keys are sorted as in a checkpoint, so that a resumed run's log is the same.
    return json.dumps(metrics, sort_keys=True) + "\n"


def _num_tokens(item: EncodedItem) -> int:
    """Return the number of tokens of an item's prompt and, if its orders are listed, of nodes of its prefix tree."""
    if item.listed is None:
        return len(item.prompt.token_ids)
    num_operations = item.prompt.num_operations
    prefixes = sum(math.perm(num_operations, length) for length in range(1, num_operations))
    return len(item.prompt.token_ids) + prefixes


def _require_earlier(config: ResolvedConfig, directory: Path, updates: int) -> None:
    """Raise :class:`RunError`, before training continues, if an earlier scheduled checkpoint is missing."""
    for number in config.schedule.checkpoints:
        path = checkpoint_path(directory, number)
        if number <= updates and not path.is_dir():
            raise RunError(
                "a checkpoint of the run is missing",
                where=str(path),
                found=f"the checkpoint after update {updates}, and not this one",
                remedy="put it back, or remove the run's folder and train it again",
            )
