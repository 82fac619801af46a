"""One training run: a method on the source items of one fold with one seed, from the backbone to its last update.

A run is a function of its configuration, the backbone and its items: repeated, or interrupted at any point and
resumed, it gives the same bits. Its directory holds a checkpoint at every scheduled update and ``progress.jsonl``, a
log for people that is never read back.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from vcrt.errors import RunError
from vcrt.hashing import Json, file_digest
from vcrt.objective.total import ObjectiveConfig
from vcrt.policy.backbone import Backbone
from vcrt.policy.tokenizer import encode_record
from vcrt.randomness import generator
from vcrt.records.supervision import SupervisedRecord
from vcrt.storage import remove_partial
from vcrt.training.checkpoint import HEAD, load_checkpoint, save_checkpoint
from vcrt.training.items import EncodedItem, encode_items, orbit_log_masses
from vcrt.training.methods import Method
from vcrt.training.update import TrainerState, UpdateConfig, new_state, update

PROGRESS_LOG = "progress.jsonl"
_CHECKPOINT = re.compile(r"update-(\d{6})")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of a run that all methods share."""

    num_updates: int = 400
    """Updates of a run (the paper: 400)."""
    prompts_per_update: int = 2
    """Prompts of one update (the paper: 2)."""
    checkpoint_every: int = 100
    """Updates between two checkpoints; the last update always has one."""
    learning_rate: float = 1e-3
    """AdamW's learning rate; the default suits the embedded backbone (the paper, for 2B parameters: 5e-6)."""
    weight_decay: float = 0.0
    """AdamW's weight decay."""
    update: UpdateConfig = field(default_factory=UpdateConfig)
    """The settings of one update."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    """The weights and caps of the objective."""

    def __post_init__(self) -> None:
        counts = ("num_updates", "prompts_per_update", "checkpoint_every")
        for name in counts:
            if getattr(self, name) < 1:
                raise RunError(
                    f"{name} is too small", found=str(getattr(self, name)), expected="1 or more"
                )
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise RunError(
                "not a learning rate",
                found=str(self.learning_rate),
                expected="a finite number above 0",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedRun:
    """A run at its last update: where its checkpoint is, its digest, and the metrics of every update."""

    checkpoint: Path
    digest: str
    metrics: tuple[Mapping[str, Json], ...]


def episode_order(num_items: int, num_draws: int, seed: int) -> list[int]:
    """Which item each draw takes: one random permutation of all items after another.

    It depends on nothing else, so that all methods of a fold and seed see the same episodes in the same order.
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
    config: RunConfig,
    method: Method,
    backbone: Backbone,
    records: Sequence[SupervisedRecord],
    directory: Path,
    *,
    seed: int,
    encode_seed: int,
    identity: str = "",
) -> FinishedRun:
    """Train one run in ``directory``, from its latest checkpoint on; a finished run is only read.

    ``encode_seed`` draws what the serialisation of a record leaves to chance; ``identity`` names the run in its
    checkpoints. Raises :class:`RunError` if the latest checkpoint is damaged or another run's.
    """
    items = encode_items(
        records,
        method,
        seed=encode_seed,
        encode=lambda record, serialisation, rng: encode_record(
            backbone.tokenizer, record, serialisation, rng
        ),
    )
    frozen = orbit_log_masses(
        backbone.model, items, interface=method.interface, backend=config.update.backend
    )
    state = new_state(
        backbone.model,
        seed=seed,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    metrics: list[dict[str, Json]] = []
    latest = latest_checkpoint(directory)
    if latest is not None:
        metrics = load_checkpoint(state, latest, identity=identity)
    if state.update_index < config.num_updates:
        directory.mkdir(parents=True, exist_ok=True)
        remove_partial(directory)
        _train(config, method, items, frozen, state, metrics, directory, seed, identity)
    last = checkpoint_path(directory, config.num_updates)
    return FinishedRun(checkpoint=last, digest=file_digest(last / HEAD), metrics=tuple(metrics))


def _train(
    config: RunConfig,
    method: Method,
    items: Sequence[EncodedItem],
    frozen_log_mass: torch.Tensor,
    state: TrainerState,
    metrics: list[dict[str, Json]],
    directory: Path,
    seed: int,
    identity: str,
) -> None:
    order = episode_order(len(items), config.num_updates * config.prompts_per_update, seed)
    with (directory / PROGRESS_LOG).open("w", encoding="utf-8") as log:
        log.writelines(json.dumps(line) + "\n" for line in metrics)
        while state.update_index < config.num_updates:
            first = state.update_index * config.prompts_per_update
            drawn = order[first : first + config.prompts_per_update]
            done = update(
                state,
                [items[i] for i in drawn],
                frozen_log_mass[drawn],
                method=method,
                objective_config=config.objective,
                config=config.update,
            )
            metrics.append(done.to_json())
            log.write(json.dumps(metrics[-1]) + "\n")
            log.flush()
            at_end = state.update_index == config.num_updates
            if at_end or state.update_index % config.checkpoint_every == 0:
                path = checkpoint_path(directory, state.update_index)
                save_checkpoint(state, path, metrics, identity=identity)


def checkpoint_path(directory: Path, update_index: int) -> Path:
    """Where a run keeps its checkpoint of an update."""
    return directory / f"update-{update_index:06d}"


def latest_checkpoint(directory: Path) -> Path | None:
    """The checkpoint of a run with the most updates, if there is one."""
    if not directory.is_dir():
        return None
    found = [path for path in directory.iterdir() if _CHECKPOINT.fullmatch(path.name)]
    return max(found, key=lambda path: path.name, default=None)


def updates_logged(directory: Path) -> int:
    """How many updates a run's log shows: how far it is, for people to see."""
    path = directory / PROGRESS_LOG
    return path.read_bytes().count(b"\n") if path.is_file() else 0
