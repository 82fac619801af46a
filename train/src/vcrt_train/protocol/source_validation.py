"""Measure a run's source pass rate on untrained items while it trains, and flag a run that stays below its backbone.

Greedy orders of source items that are set aside show whether training destroys the policy. The measurement draws
nothing from the run's generators and changes no weight, so a run has the same bits without it. Messages during training
and scoring also come from here: pass rates with an interval, beside chance. Not covered: results (see the report).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import torch

from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.progress import tell
from vcrt.records.dataset import Item
from vcrt.records.manifest import Manifest, legal_share
from vcrt_train.config import RunConfig, ScheduleConfig
from vcrt_train.policy.backbone import Backbone
from vcrt_train.policy.causal_model import CausalModel, unwrapped
from vcrt_train.policy.scoring import greedy_orders
from vcrt_train.protocol.statistics import proportion_interval
from vcrt_train.randomness import generator
from vcrt_train.training.gradient_variance import Variance, gradient_moments
from vcrt_train.training.items import EncodedItem, encode_items
from vcrt_train.training.methods import Method
from vcrt_train.training.process_group import ALONE, ProcessGroup
from vcrt_train.training.update import UpdateMetrics

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
#: The message for a run with fewer validations.
TOO_FEW = "too few validations to flag"
#: The remedy for a flagged run.
FLAGGED_REMEDY = "A lower learning rate helps most often: docs/train.md says what else to look at."
#: Items on which the gradient's variance is accounted for, at every fourth validation and after the last update, as it
#: takes a backward pass for each order. It needs 24 bytes for each trained parameter, and none is made above.
ACCOUNTED, ACCOUNTED_EVERY, MOST_PARAMETERS = 2, 4, 20_000_000
#: The fields that such an account adds to a log: the shares of the variance, by part.
VARIANCE = {
    "between": "variance_between_classes",
    "within_successes": "variance_within_successes",
    "within_failures": "variance_within_failures",
}
#: The fields that a validation adds to a log.
RATE, LOW, HIGH, FROZEN, FLAGGED = (
    "source_pass_rate",
    "source_pass_rate_low",
    "source_pass_rate_high",
    "frozen_source_pass_rate",
    "flagged",
)
#: The number of last updates whose mean reward is told.
RECENT = 50
#: Seconds between two messages on a run.
TOLD_EVERY_S = 30.0
#: The remedy for a run that is at chance.
AT_CHANCE = (
    "An evaluation opens what was held out once, and would show no more. More certified episodes help, then more "
    "--updates: docs/train.md says what to expect at which size."
)


class Validated(NamedTuple):
    """One validation in a log: shares of the items that pass, and whether the run is flagged by then."""

    update: int
    rate: float
    low: float
    high: float
    frozen: float
    flagged: bool

    def in_words(self) -> str:
        """Write ``at update 150, 12% [6, 20] of the source items set aside against the frozen backbone's 50%``."""
        rate, low, high, frozen = (f"{100 * share:.0f}" for share in self[1:5])
        return (
            f"at update {self.update}, {rate}% [{low}, {high}] of the source items set aside against the frozen "
            f"backbone's {frozen}%"
        )


def validations(log: Iterable[Mapping[str, Json]]) -> list[Validated]:
    """Return the validations among the updates of a log, in their order; ignore lines of another form."""
    found = []
    for line in log:
        values = [line.get(name) for name in ("update", RATE, LOW, HIGH, FROZEN, FLAGGED)]
        numbers = [one for one in values if isinstance(one, int | float) and isfinite(one)]
        if len(numbers) == len(values):
            update, rate, low, high, frozen, flagged = numbers
            found.append(Validated(int(update), rate, low, high, frozen, bool(flagged)))
    return found


def flagged_at(log: Iterable[Mapping[str, Json]]) -> Validated | None:
    """Return the validation that flagged a run; None if none did."""
    return next((one for one in validations(log) if one.flagged), None)


def is_too_short_to_flag(schedule: ScheduleConfig) -> bool:
    """Return whether a whole run is validated, but too seldom to be flagged."""
    every = schedule.validate_every
    return every > 0 and -(-schedule.updates // every) < IN_A_ROW


def flagged_runs(bodies: Mapping[str, Mapping[str, Json]]) -> dict[str, int]:
    """Return the update at which each flagged run was flagged, from the ledger's rows of finished runs by name."""
    found = {name: body.get("source_validation") for name, body in bodies.items()}
    flags = {n: one.get("flagged_at") for n, one in found.items() if isinstance(one, dict)}
    return {name: update for name, update in flags.items() if isinstance(update, int)}


def stratified(items: Sequence[Item], limit: int, seed: int) -> list[Item]:
    """Choose at most ``limit`` items, one from each environment in turn, as long as it has any.

    The choice depends only on the seed and the items, so it is the same for every method and run.
    """
    of: dict[str, list[Item]] = {}
    for item in items:
        of.setdefault(item.environment, []).append(item)
    in_turn = sorted(
        (place, name, int(index))
        for name, some in of.items()
        for place, index in enumerate(
            generator(seed, "source validation", name).permutation(len(some))
        )
    )
    return [of[name][index] for _, name, index in in_turn[:limit]]


@dataclass(kw_only=True, slots=True)
class SourceValidation:
    """The items on which a run is measured while it trains: see :class:`vcrt_train.training.run.Validation`.

    Several processes share the items; if they hold one model in shards, each process scores all items, because every
    forward pass needs all processes.
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
        """Choose some of the ``items`` that are set aside, and encode them as the method's policy sees them."""
        some = [item.supervised for item in stratified(items, MOST_ITEMS, seed)]
        ready = encode_items(some, chosen, seed=seed, encode=backbone.encode)
        return cls(items=ready, chosen=chosen, config=config, group=group)

    def begin(self, model: CausalModel) -> None:
        """Measure the frozen backbone; call this before ``model`` is trained."""
        self.frozen = self.pass_rate(model)

    def measure(
        self, model: CausalModel, log: Sequence[Mapping[str, Json]], update: int
    ) -> dict[str, float]:
        """Return the fields of the log on the model after ``update``; ``log`` has the updates before."""
        rate = self.pass_rate(model)
        low, high = proportion_interval(round(rate * len(self.items)), len(self.items))
        found = {RATE: rate, LOW: low, HIGH: high, FROZEN: self.frozen, FLAGGED: 0.0}
        made = validations([*log, {"update": update, **found}])
        last = made[-IN_A_ROW:]
        is_long_below = len(last) == IN_A_ROW and all(one.high < one.frozen for one in last)
        found[FLAGGED] = float(is_long_below or flagged_at(log) is not None)
        if len(made) % ACCOUNTED_EVERY == 0 or update == self.config.schedule.updates:
            found |= self.variance_shares(model, update)
        return found

    def variance_shares(self, model: CausalModel, update: int) -> dict[str, float]:
        """Return what part of the variance of a group's gradient lies where, over the first items.

        The part within successes is what the ratio of the orbit saves at this moment. Empty if there is no variance, if
        it is not known, for a model in shards, and for one with too many trained parameters.
        """
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        if self.group.is_sharded or trained > MOST_PARAMETERS:
            return {}
        parts = [
            gradient_moments(
                model,
                item,
                interface=self.chosen.interface,
                seed=update,
                num_samples=self.config.sampling.samples_per_prompt,
                config=self.config.estimator,
                backend=self.config.model.scoring,
            ).variance(self.config.sampling.samples_per_prompt)
            for item in self.items[:ACCOUNTED]
        ]
        known = [part for part in parts if part is not None]
        shares = Variance(*map(sum, zip(*known, strict=True))).shares() if known else None
        return {VARIANCE[name]: share for name, share in (shares or {}).items()}

    def pass_rate(self, model: CausalModel) -> float:
        """Return the share of items whose greedy order is in the certified orbit; all processes call this together."""
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
        """Return the ledger's record of a finished run's validations."""
        found, flag = validations(log), flagged_at(log)
        if not found:
            return {}
        return {
            "source_validation": {
                "items": len(self.items),
                "frozen": found[-1].frozen,
                "last": found[-1].rate,
                "flagged_at": None if flag is None else flag.update,
            }
        }


def chance_of(manifest: Manifest, environments: Collection[str]) -> float | None:
    """Return a random order's pass rate on some environments' items: legal orders over all; None if not counted."""
    counts = [one for name in environments for one in manifest.counts[name].values()]
    return legal_share((one.legal_orders, one.orders) for one in counts)


def is_at_chance(rate: float, num_items: int, chance: float | None) -> bool:
    """Return whether the 95% interval over ``num_items`` items includes or lies below a random order's pass rate."""
    return (
        chance is not None and proportion_interval(round(rate * num_items), num_items)[0] <= chance
    )


def standing(what: str, rate: float, num_items: int, chance: float | None) -> str:
    """Write a result such as ``what 61% [51, 71] over 100 items, better than chance (50%)``."""
    low, high = proportion_interval(round(rate * num_items), num_items)
    text = f"{what} {100 * rate:.0f}% [{100 * low:.0f}, {100 * high:.0f}] over {counted(num_items, 'item')}"
    if chance is None:
        return text
    verdict = "better than"
    if is_at_chance(rate, num_items, chance):
        verdict = "below" if high < chance else "not to be told from"
    return f"{text}, {verdict} chance ({100 * chance:.3g}%)"


@dataclass(kw_only=True, slots=True)
class Course:
    """Tell at intervals, and at a run's end, what share of the orders that training draws passes.

    It also tells every validation, and warns when one flags the run.
    """

    run: str
    num_updates: int
    num_items: int
    prompts: int
    chance: float | None
    #: Items of a validation.
    num_validated: int
    was_flagged: bool = False
    told: float = field(default_factory=time.monotonic)
    recent: deque[UpdateMetrics] = field(default_factory=lambda: deque(maxlen=RECENT))

    def note(self, metrics: UpdateMetrics) -> None:
        """Record an update, and tell the state of the run if it is time."""
        self.recent.append(metrics)
        for found in validations([metrics.to_json()]):
            saved = metrics.values.get(VARIANCE["within_successes"])
            self.tell_pass_rate(found.update, found.rate, found.frozen, saved)
            if found.flagged and not self.was_flagged:
                self.was_flagged = True
                tell(f"warning: {self.run} is flagged: {found.in_words()}. {FLAGGED_REMEDY}")
        is_last = metrics.update == self.num_updates
        if not is_last and time.monotonic() - self.told < TOLD_EVERY_S:
            return
        self.told = time.monotonic()
        count = len(self.recent)
        reward, mass = (
            sum(getattr(one, name) for one in self.recent) / count
            for name in ("mean_reward", "orbit_mass")
        )
        # Updates can draw a source item twice, which counts once.
        items = min(count * self.prompts, self.num_items)
        told = standing(
            f"{self.run} after update {metrics.update} of {self.num_updates}: reward (orders drawn in the last "
            f"{counted(count, 'update')} that pass)",
            reward,
            items,
            self.chance,
        )
        tell(f"{told}; orbit mass {mass:.2f}, both before the steps on those prompts")

    def tell_pass_rate(
        self, update: int, rate: float, frozen: float | None = None, saved: float | None = None
    ) -> None:
        """Tell what share of the source items set aside passes after ``update``; warn if it is at chance at the end.

        ``saved`` is the share of the gradient's variance that the ratio of the orbit takes away.
        """
        what = f"{self.run} after update {update} of {self.num_updates}: source items set aside that pass"
        told = standing(what, rate, self.num_validated, self.chance)
        if frozen is not None:
            told += f"; the frozen backbone {100 * frozen:.0f}%"
        if saved is not None:
            told += (
                f"; crediting whole orbits takes {100 * saved:.0f}% of the gradient's variance away"
            )
        tell(told)
        if update == self.num_updates and is_at_chance(rate, self.num_validated, self.chance):
            tell(f"warning: {self.run} is not to be told from chance. {AT_CHANCE}")
