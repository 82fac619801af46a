"""Check a schedule of which not every context was replayed: replay orders that it allows, and mend it where one fails.

An allowed order that ends otherwise than the trace, or gives other outputs, is turned back into the trace swap by swap;
where the outcome changes (found by bisection), two steps do not commute in a context that nobody had looked at. They
are replayed evidence then, and the schedule is made anew. It ends when all orders of a round fare as the trace does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vcrt.certification.data_flow import DataFlow
from vcrt.certification.replay import replay_all
from vcrt.certification.replay_tree import Answers, EpisodeReplays
from vcrt.certification.schedules import Schedule, schedule_of
from vcrt.environments.contract import Environment, Replay, ReplayRequest
from vcrt.environments.posets import below_of, draw_extension
from vcrt.orders import Order
from vcrt.randomness import generator

#: Orders that are replayed in a round. If all of them fare as the trace does, at most 4.6% of the orders that are
#: drawn so fare otherwise, with 95% confidence: 1 - 0.05^(1/64).
CHECKED_ORDERS = 64


def checked_schedule(
    environment: Environment,
    replays: EpisodeReplays,
    flows: Sequence[DataFlow] = (),
    *,
    once: bool = False,
) -> Schedule:
    """The schedule of what was replayed, with ``checked_orders`` of its orders replayed besides if it is not complete.

    Where all was replayed only ``once``, orders that it allows and both orders of each edge's certificate are replayed
    from fresh initial states in any case. Raises what :func:`vcrt.certification.schedules.schedule_of` raises, and what
    the environment raises.
    """
    schedule = schedule_of(replays.tree, flows)
    if schedule.complete and not once:
        return schedule
    trial = _Trial(environment, replays, Answers(dict(replays.tree.answers)))
    draw = generator(0, "orders of a schedule", replays.episode.content_hash())
    while True:
        if once:
            trial.replay_edges(schedule)
            schedule_of(trial.answers.tree(schedule.num_steps), flows)
        orders = list(
            dict.fromkeys(
                draw_extension(schedule.order, below_of(draw)) for _ in range(CHECKED_ORDERS)
            )
        )
        failing = [order for order in orders if not trial.is_legal(order)]
        if not failing:
            return schedule if schedule.complete else replace(schedule, checked_orders=len(orders))
        for order in failing:
            trial.find_swap(order)
        schedule = schedule_of(trial.answers.tree(schedule.num_steps), flows)


@dataclass(slots=True)
class _Trial:
    """Replays of an episode, to which more are added."""

    environment: Environment
    replays: EpisodeReplays
    answers: Answers

    def replay(self, order: Order) -> Replay:
        (found,) = replay_all(self.environment, [ReplayRequest(self.replays.episode, order)])
        self.answers.note_replay(found)
        return found

    def replay_edges(self, schedule: Schedule) -> None:
        """Replay both orders of each edge's certificate."""
        for edge in schedule.edges:
            if edge.certificate is not None:
                for path in (edge.certificate.forward, edge.certificate.reverse):
                    self.replay((*edge.certificate.context, *path.operations))

    def is_legal(self, order: Order) -> bool:
        """Whether an order is legal, by a replay of its own."""
        reference = self.replays.tree.replay(tuple(range(self.replays.tree.num_operations)))
        return self.replay(order).is_legal(reference.outcome)

    def find_swap(self, order: Order) -> None:
        """Replay both sides of a swap, between the reference order and an illegal one, that makes it illegal."""
        path = path_of_swaps(order)
        illegal, legal = 0, len(path) - 1
        while legal - illegal > 1:
            middle = (illegal + legal) // 2
            if self.is_legal(path[middle]):
                legal = middle
            else:
                illegal = middle
        for place in (illegal, legal):
            self.replay(path[place])


def path_of_swaps(order: Order) -> list[Order]:
    """The orders between one and the ascending one, each an adjacent swap from the one before; no pair swaps twice.

    >>> path_of_swaps((2, 0, 1))
    [(2, 0, 1), (0, 2, 1), (0, 1, 2)]
    """
    path, now = [order], list(order)
    place = 0
    while place < len(now) - 1:
        if now[place] > now[place + 1]:
            now[place : place + 2] = now[place + 1], now[place]
            path.append(tuple(now))
            place = max(place - 1, 0)
        else:
            place += 1
    return path
