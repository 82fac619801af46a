"""Measure a run's source pass rate on untrained items while it trains, and flag a run that stays below its backbone.

Rewards and orbit masses of a log are of prompts that were trained on; what shows a destroyed policy is greedy orders of
source items that are set aside. Nothing is drawn from the run's generators and no weight is touched, so that a run
comes to the same bits without it. Not covered: when it is measured (:func:`vcrt_train.training.run.train_run`), and
results, which are the report's, on all items that are set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import torch

from vcrt.hashing import Json
from vcrt.randomness import generator
from vcrt.records.dataset import Item
from vcrt_train.config import RunConfig, ScheduleConfig
from vcrt_train.policy.backbone import Backbone
from vcrt_train.policy.prompts import unwrapped
from vcrt_train.policy.scoring import CausalModel, greedy_orders
from vcrt_train.protocol.statistics import proportion_interval
from vcrt_train.training.items import EncodedItem, encode_items
from vcrt_train.training.methods import Method
from vcrt_train.training.process_group import ALONE, ProcessGroup

#: The most items of one validation: at a rate of 50%, the 95% interval is then 13 points to either side.
MOST_ITEMS = 64
#: Prompts that are scored at a time, unless fewer are asked for.
PROMPTS_AT_A_TIME = 16
#: Validations in a row that flag a run.
IN_A_ROW = 3
RULE = (
    "A run is flagged when, at three validations in a row, the whole 95% interval of its source pass rate lies below "
    "the frozen backbone's pass rate on the same items."
)
#: What is said instead of a run that has fewer.
TOO_FEW = "too few validations to flag"
#: What to do about a run that is flagged.
FLAGGED_REMEDY = "A lower learning rate helps most often: docs/train.md says what else to look at."
#: What a log says at a validation.
RATE, LOW, HIGH, FROZEN, FLAGGED = (
    "source_pass_rate",
    "source_pass_rate_low",
    "source_pass_rate_high",
    "frozen_source_pass_rate",
    "flagged",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Validated:
    """One validation as a log has it: shares of the items that pass, and whether the run is flagged by then."""

    update: int
    rate: float
    low: float
    high: float
    frozen: float
    flagged: bool

    @property
    def is_below(self) -> bool:
        """Whether the whole interval lies below the frozen backbone's rate."""
        return self.high < self.frozen

    def in_words(self) -> str:
        """``at update 150, 12% [6, 20] of the source items set aside against the frozen backbone's 50%``."""
        rate, low, high, frozen = (
            f"{100 * one:.0f}" for one in (self.rate, self.low, self.high, self.frozen)
        )
        return (
            f"at update {self.update}, {rate}% [{low}, {high}] of the source items set aside against the frozen "
            f"backbone's {frozen}%"
        )


def validations(log: Iterable[Mapping[str, Json]]) -> list[Validated]:
    """The validations among the updates of a log, in their order; what is none, whoever wrote it, is passed over."""
    found = []
    for line in log:
        values = [line.get(name) for name in ("update", RATE, LOW, HIGH, FROZEN, FLAGGED)]
        numbers = [one for one in values if isinstance(one, int | float) and isfinite(one)]
        if len(numbers) == len(values):
            update, rate, low, high, frozen, flagged = numbers
            found.append(
                Validated(
                    update=int(update),
                    rate=rate,
                    low=low,
                    high=high,
                    frozen=frozen,
                    flagged=bool(flagged),
                )
            )
    return found


def flagged_at(log: Iterable[Mapping[str, Json]]) -> Validated | None:
    """The validation that flagged a run; None if none did."""
    return next((one for one in validations(log) if one.flagged), None)


def is_too_short_to_flag(schedule: ScheduleConfig) -> bool:
    """Whether a whole run is validated, after every so many updates and the last, but too seldom to be flagged."""
    every = schedule.validate_every
    return every > 0 and -(-schedule.updates // every) < IN_A_ROW


def flagged_runs(bodies: Mapping[str, Mapping[str, Json]]) -> dict[str, int]:
    """The update at which each flagged run was flagged, from the ledger's rows of finished runs by name."""
    found = {name: body.get("source_validation") for name, body in bodies.items()}
    flags = {n: one.get("flagged_at") for n, one in found.items() if isinstance(one, dict)}
    return {name: update for name, update in flags.items() if isinstance(update, int)}


def stratified(items: Sequence[Item], limit: int, seed: int) -> list[Item]:
    """At most ``limit`` items, from each environment in turn, so that all have as many until one has no more.

    Which ones depends on the seed and the items alone, so that it is the same for every method and run.
    """
    of: dict[str, list[Item]] = {}
    for item in items:
        of.setdefault(item.environment, []).append(item)
    draws = {
        name: generator(seed, "source validation", name).permutation(len(some))
        for name, some in of.items()
    }
    in_turn = sorted(
        (place, name, int(index))
        for name, draw in draws.items()
        for place, index in enumerate(draw)
    )
    return [of[name][index] for _, name, index in in_turn[:limit]]


@dataclass(kw_only=True, slots=True)
class SourceValidation:
    """What a run is measured on while it trains: see :class:`vcrt_train.training.run.Validation`.

    Several processes share the items; where they hold one model in shards, each of them scores all, because a pass is
    by all of them together.
    """

    items: Sequence[EncodedItem]
    chosen: Method
    config: RunConfig
    group: ProcessGroup = ALONE
    frozen: float = field(default=0.0, init=False)

    @classmethod
    def of(
        cls,
        items: Sequence[Item],
        chosen: Method,
        backbone: Backbone,
        config: RunConfig,
        *,
        seed: int,
        group: ProcessGroup = ALONE,
    ) -> SourceValidation:
        """On some of the ``items`` that are set aside, as the method's policy sees them."""
        some = [item.supervised for item in stratified(items, MOST_ITEMS, seed)]
        ready = encode_items(some, chosen, seed=seed, encode=backbone.encode)
        return cls(items=ready, chosen=chosen, config=config, group=group)

    def begin(self, model: CausalModel) -> None:
        """Measure the frozen backbone, which ``model`` still is."""
        self.frozen = self.pass_rate(model)

    def measure(
        self, model: CausalModel, log: Sequence[Mapping[str, Json]], update: int
    ) -> dict[str, float]:
        """What the log says of the model after ``update``; ``log`` has the updates before."""
        rate = self.pass_rate(model)
        low, high = proportion_interval(round(rate * len(self.items)), len(self.items))
        found = {RATE: rate, LOW: low, HIGH: high, FROZEN: self.frozen, FLAGGED: 0.0}
        last = validations([*log, {"update": update, **found}])[-IN_A_ROW:]
        is_long_below = len(last) == IN_A_ROW and all(one.is_below for one in last)
        return {**found, FLAGGED: float(is_long_below or flagged_at(log) is not None)}

    def pass_rate(self, model: CausalModel) -> float:
        """The share of the items whose greedy order is in the certified orbit; all processes call this together."""
        group = self.group
        mine = self.items if group.is_sharded else self.items[group.rank :: group.size]
        answers = greedy_orders(
            model,
            [one.prompt for one in mine],
            interface=self.chosen.interface,
            backend=self.config.model.scoring,
            batch_size=self.config.memory.prompts_at_a_time or PROMPTS_AT_A_TIME,
        )
        passed = sum(
            order is not None and one.is_legal(order)
            for one, order in zip(mine, answers, strict=True)
        )
        if not group.is_sharded:
            found = torch.tensor([passed], device=unwrapped(model).device)
            passed = int(group.gather(found).sum())
        return passed / len(self.items)

    def record(self, log: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
        """What the ledger keeps of a finished run's validations."""
        found, flag = validations(log), flagged_at(log)
        if not found:
            return {}
        last = found[-1]
        value: dict[str, Json] = {
            "items": len(self.items),
            "frozen": last.frozen,
            "last": last.rate,
            "flagged_at": None if flag is None else flag.update,
        }
        return {"source_validation": value}
