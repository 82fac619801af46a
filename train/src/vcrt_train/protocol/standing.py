"""Say how runs stand while they are trained and scored, in words: pass rates with an interval, beside chance.

Not covered: results. They are the report's, with intervals over runs as well.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from vcrt.printable import counted
from vcrt.progress import tell
from vcrt.records.manifest import Manifest, legal_share
from vcrt_train.protocol.source_validation import FLAGGED_REMEDY, validations
from vcrt_train.protocol.statistics import proportion_interval
from vcrt_train.training.update import UpdateMetrics

#: Updates at the end of a run's log that its reward is the mean of.
RECENT = 50
#: Seconds between two words on a run's course.
TOLD_EVERY_S = 30.0
#: What to do about a run that is at chance.
AT_CHANCE = (
    "An evaluation opens what was held out once, and would show no more. More certified episodes help, then more "
    "--updates: docs/train.md says what to expect at which size."
)


def chance_of(manifest: Manifest, environments: Collection[str]) -> float | None:
    """The pass rate of a random order on some environments' items: legal orders over all; None if not counted."""
    counts = [one for name in environments for one in manifest.counts[name].values()]
    return legal_share((one.legal_orders, one.orders) for one in counts)


def is_at_chance(rate: float, num_items: int, chance: float | None) -> bool:
    """Whether the 95% interval over ``num_items`` items includes the pass rate of a random order, or lies below it."""
    return (
        chance is not None and proportion_interval(round(rate * num_items), num_items)[0] <= chance
    )


def standing(what: str, rate: float, num_items: int, chance: float | None) -> str:
    """``what 61% [51, 71] over 100 items, better than chance (50%)``."""
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
    """Tells every now and then, and at a run's end, what share of the orders that training draws passes.

    Every validation is told, and when it flags the run.
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
        """Take note of an update, and tell how the run stands if it is time to."""
        self.recent.append(metrics)
        self._tell_validation(metrics)
        is_last = metrics.update == self.num_updates
        if not is_last and time.monotonic() - self.told < TOLD_EVERY_S:
            return
        self.told = time.monotonic()
        count = len(self.recent)
        reward, mass = (
            sum(getattr(one, name) for one in self.recent) / count
            for name in ("mean_reward", "orbit_mass")
        )
        # A source item that was drawn twice is one item.
        items = min(count * self.prompts, self.num_items)
        told = standing(
            f"{self.run} after update {metrics.update} of {self.num_updates}: reward (orders drawn in the last "
            f"{counted(count, 'update')} that pass)",
            reward,
            items,
            self.chance,
        )
        tell(f"{told}; orbit mass {mass:.2f}, both before the steps on those prompts")

    def tell_pass_rate(self, update: int, rate: float, frozen: float | None = None) -> None:
        """Tell what share of the source items set aside passes after ``update``; warn if it is at chance at the end."""
        what = f"{self.run} after update {update} of {self.num_updates}: source items set aside that pass"
        told = standing(what, rate, self.num_validated, self.chance)
        tell(told if frozen is None else f"{told}; the frozen backbone {100 * frozen:.0f}%")
        if update == self.num_updates and is_at_chance(rate, self.num_validated, self.chance):
            tell(f"warning: {self.run} is not to be told from chance. {AT_CHANCE}")

    def _tell_validation(self, metrics: UpdateMetrics) -> None:
        for found in validations([metrics.to_json()]):
            self.tell_pass_rate(found.update, found.rate, found.frozen)
            if found.flagged and not self.was_flagged:
                self.was_flagged = True
                tell(f"warning: {self.run} is flagged: {found.in_words()}. {FLAGGED_REMEDY}")
