"""Hold the schedule of some steps, and, if they are calls of a log, what their order in its messages changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vcrt.calls.batches import Batch
from vcrt.calls.differences import Differing
from vcrt.calls.log_lifting import LeftOut
from vcrt.calls.schedules import Schedule

#: What the schedule of a log rests on.
CAVEATS = (
    "replay makes one call at a time: what happens when two calls overlap in time is not tested",
    "an agent may have chosen a call because of an earlier output: the log cannot show it",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """The schedule of some steps; ``names`` lists them in the reference order, ``name`` says where they come from.

    If there is no schedule, ``problem`` says why. ``left_out`` lists the calls of the same trace that are in no
    schedule, and why.

    The rest is of calls of a log, and empty for others. ``ids`` are the log's own identifiers of the calls, None for
    one without. ``rounds`` are the calls by the round in which the log has them: those of one message, or such as were
    waited for at once. ``batches`` say, of each round of several calls, what their order changes. ``differences`` say
    where the two orders of an edge's certificate end apart, by the edge's calls; edges that follow from others have
    none.
    """

    name: str
    names: tuple[str, ...]
    schedule: Schedule | None
    problem: str | None = None
    left_out: tuple[LeftOut, ...] = ()
    ids: tuple[str | None, ...] = ()
    rounds: tuple[tuple[int, ...], ...] = ()
    batches: tuple[Batch, ...] = ()
    differences: Mapping[tuple[int, int], tuple[Differing, ...]] = field(default_factory=dict)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What the schedule of a log rests on."""
        return CAVEATS if self.rounds else ()

    @property
    def joined(self) -> tuple[tuple[int, ...], ...]:
        """The waves with calls of several rounds of the log: these further ones could have been sent together."""
        if self.schedule is None or not self.rounds:
            return ()
        number = {call: place for place, calls in enumerate(self.rounds) for call in calls}
        waves = self.schedule.waves
        return tuple(wave for wave in waves if len({number[call] for call in wave}) > 1)

    @property
    def num_rounds(self) -> int:
        """The number of rounds that would do: the waves, or the log's rounds if these are fewer and nothing conflicts.

        0 without a schedule.
        """
        waves = len(self.schedule.waves) if self.schedule else 0
        safe = all(batch.safe == batch.calls for batch in self.batches)
        return min(waves, len(self.rounds)) if self.rounds and safe else waves

    @property
    def speed_up(self) -> float:
        """The log's rounds (without a log, the steps) divided by the rounds that would do."""
        return (len(self.rounds) or len(self.names)) / max(self.num_rounds, 1)
