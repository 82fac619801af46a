"""What settles a schedule: the contexts that its order allows, and the same answer as from all contexts."""

from __future__ import annotations

import pytest

from cells import ENVIRONMENT, Cells, contexts_of, drawn, episode, legal_of
from vcrt.calls import settling
from vcrt.calls.schedules import _is_supported, checked_schedule, schedule_of
from vcrt.calls.settling import settle
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.lattice import Lattice
from vcrt.environments.contract import Accepted, Rejected
from vcrt.orders import linear_extensions, transitive_reduction
from vcrt.partial_orders import PartialOrder
from vcrt.replay import lattice_replay
from vcrt.replay.lattice_replay import replay_lattices


def made_of(replays):
    """The schedule of what was settled, of the contexts alone."""
    return schedule_of(replays.tree, reads=replays.reads)


def schedules(seed, steps):
    """The schedule of all contexts, and of those that settle it, with how many sequences each took."""
    every = contexts_of(seed, steps)
    some = settle(ENVIRONMENT, drawn(seed, steps))
    return (
        schedule_of(every.tree),
        made_of(some),
        (len(every.tree.answers), len(some.tree.answers)),
    )


@pytest.mark.parametrize("steps", [3, 4, 5, 6])
def test_the_order_is_legal_complete_and_of_pairs_that_must_wait(steps):
    same = total = 0
    sequences = [0, 0]
    for seed in range(60 if steps < 6 else 30):
        legal = set(legal_of(seed, steps))
        if not legal:
            with pytest.raises(UncertifiedError, match="reference order itself is refused"):
                made_of(settle(ENVIRONMENT, drawn(seed, steps)))
            continue
        every, some, counts = schedules(seed, steps)
        allowed = set(linear_extensions(steps, some.order.pairs))
        assert allowed <= legal, seed
        assert some.complete
        # No pair waits without need: without it, something that the order allows would not commute.
        lattice = Lattice.of(contexts_of(seed, steps).tree)
        assert _is_supported(lattice, some.order)
        for pair in transitive_reduction(some.order.pairs):
            fewer = PartialOrder.of(steps, set(some.order.pairs) - {pair})
            assert not _is_supported(lattice, fewer), (seed, pair)
        same += some.order == every.order
        total += 1
        sequences = [known + more for known, more in zip(sequences, counts, strict=True)]
    # Where contexts differ in what they show, several orders may have no needless pair.
    assert same >= 0.95 * total
    assert sequences[1] < sequences[0]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [7, 8])
def test_more_steps_have_the_schedule_of_all_contexts(steps):
    same = 0
    for seed in range(1000, 1025):
        made = drawn(seed, steps)
        (every,) = replay_lattices(ENVIRONMENT, [made])
        if Lattice.of(every.tree).terminal is None:
            continue
        some = settle(ENVIRONMENT, made)
        found = made_of(some)
        assert _is_supported(Lattice.of(every.tree), found.order), seed
        assert len(some.tree.answers) < len(every.tree.answers)
        same += found.order == schedule_of(every.tree).order
    assert same >= 10


def test_contexts_are_sampled_where_an_order_allows_too_many(monkeypatch):
    made = episode([["add", 0, 1]] * 12)
    assert made_of(settle(ENVIRONMENT, made)).complete is False
    monkeypatch.setattr(settling, "MOST", 100)
    few = episode([["add", 0, 1]] * 8)
    found = checked_schedule(ENVIRONMENT, settle(ENVIRONMENT, few))
    assert found.waves == (tuple(range(8)),)
    assert not found.complete
    assert found.checked_orders


@pytest.mark.parametrize("steps", [5, 6, 7])
def test_contexts_of_steps_that_read_stand_before_those_that_they_lead_to(steps):
    merged = 0
    for seed in range(150):
        replays = settle(ENVIRONMENT, drawn(seed, steps))
        lattice = Lattice.of(replays.tree, replays.reads)
        merged += bool(lattice.reads)
        for (number, step), answer in lattice.transitions.items():
            if isinstance(answer, int):
                reads = lattice.reads >> step & 1
                assert answer == number if reads else answer > number, (seed, number, step)
        # Whoever walks once over the transitions finds what whoever walks until nothing is new finds.
        order, found = replays.settled, {0}
        while (
            more := {
                answer
                for (number, step), answer in lattice.transitions.items()
                if isinstance(answer, int)
                and number in found
                and not order.predecessors[step] & ~(lattice.contexts[number].done | lattice.reads)
            }
            - found
        ):
            found |= more
        assert lattice.legal_contexts(order) == found, seed
    assert merged > 50


class Twins(Cells):
    """States that seem equal and are not: what hides tells after the third step which of two came first."""

    def initial_state(self, episode):
        return ()

    def step(self, state, operation):
        number = operation.payload
        hidden = (*state, number)
        told = hidden.index(0) < hidden.index(1) if {0, 1} <= set(hidden) and number == 2 else None
        return Accepted(hidden, None if told is None else str(told))

    def canonical(self, state):
        return repr(sorted(state)).encode()


def test_states_that_hide_something_give_no_schedule():
    replays = settle(Twins(), episode([0, 1, 2]))
    with pytest.raises(UncertifiedError, match="one hash, but differ"):
        checked_schedule(Twins(), replays, once=True)


class Counting(Cells):
    """What reads is counted where the canonical form does not show it; from the ``shows``-th on, an output tells."""

    shows = 1

    def initial_state(self, episode):
        return (1, 0)

    def step(self, state, operation):
        value, reads = state
        if operation.payload == "get":
            return Accepted((value, reads + 1), str(value))
        if operation.payload == "tell":
            return Accepted((value + 100, reads), str(reads >= self.shows))
        return Accepted((value + operation.payload, reads))

    def canonical(self, state):
        return str(state[0]).encode()


@pytest.mark.parametrize("shows", [1, 2, 3])
def test_a_call_that_only_seems_to_read_gives_no_schedule(shows):
    world = Counting()
    world.shows = shows
    for made in (["get", "get", "get", "tell"], [1, "get", "get", 2, "get", "tell", 3]):
        replays = settle(world, episode(made))
        with pytest.raises(UncertifiedError, match="one hash, but differ"):
            checked_schedule(world, replays, once=True)


@pytest.mark.parametrize("steps", [5, 6])
def test_each_step_is_made_right_after_each_that_reads_where_both_may_come_next(steps):
    tested = 0
    for seed in range(100):
        if not legal_of(seed, steps):
            continue
        replays = settle(ENVIRONMENT, drawn(seed, steps))
        order, reads = replays.settled, replays.reads
        for pair in order.unordered(range(steps)):
            for read, other in (pair, pair[::-1]):
                if reads >> read & 1:
                    # What stands between the two only reads, too.
                    assert any(
                        sequence[-1:] == (other,)
                        and read in sequence
                        and all(reads >> k & 1 for k in sequence[sequence.index(read) : -1])
                        for sequence in replays.tree.answers
                    ), (seed, read, other)
                    tested += 1
    assert tested > 100


class Late(Cells):
    """A step that leaves the state as it is, unless another came before."""

    def initial_state(self, episode):
        return ()

    def step(self, state, operation):
        number = operation.payload
        changes = number or 1 in state
        return Accepted(tuple(sorted((*state, number))) if changes else state, str(number))

    def canonical(self, state):
        return repr(state).encode()


def test_a_step_that_writes_only_after_another_is_no_read():
    replays = settle(Late(), episode([0, 1, 2]))
    assert replays.reads == 0
    schedule = checked_schedule(Late(), replays, once=True)
    assert schedule.complete
    assert schedule.order.pairs == ((0, 1),)


@pytest.mark.parametrize("steps", [5, 6])
def test_calls_that_read_take_few_replays_and_wait_for_what_they_see(steps):
    world, made = ENVIRONMENT, [["get", k % 3, 1] for k in range(20)]
    replays = settle(world, episode([*made, *[["add", k % 3, 1] for k in range(steps)]]))
    schedule = made_of(replays)
    assert schedule.complete
    assert len(replays.tree.answers) < 6_000
    assert schedule.order.pairs == tuple(
        (read, 20 + write) for read in range(20) for write in range(steps) if read % 3 == write % 3
    )


@pytest.mark.parametrize("steps", [4, 5])
def test_what_a_time_limit_leaves_unsettled_keeps_the_reference_order(monkeypatch, steps):
    for seed in range(25):
        made, legal = drawn(seed, steps), set(legal_of(seed, steps))
        if not legal:
            continue
        lattice = Lattice.of(contexts_of(seed, steps).tree)
        waiting = []
        for ticks in (0, 3, 10, 30, 10_000):
            clock = iter(range(100_000))  # Each look at the clock takes a second.
            monkeypatch.setattr(lattice_replay, "monotonic", lambda clock=clock: next(clock))
            monkeypatch.setattr(settling, "monotonic", lambda: 0)
            replays = settle(ENVIRONMENT, made, within=ticks + 1)
            stopped_after = replays.stopped_after
            schedule = schedule_of(
                replays.tree,
                reads=replays.reads,
                settled=replays.settled,
                stopped_after=stopped_after,
            )
            assert schedule.complete
            assert _is_supported(lattice, schedule.order), (seed, ticks)
            assert set(linear_extensions(steps, schedule.order.pairs)) <= legal
            assert all(edge.certificate is None for edge in schedule.unsettled)
            if replays.stopped_after is None:
                assert schedule == made_of(settle(ENVIRONMENT, made))
            waiting.append(len(schedule.unsettled))
        assert waiting[-1] == 0
        assert replays.stopped_after is None
        if schedule.speed_up > 1:
            assert waiting[0]


class Hours(Cells):
    """A clock of six hours: each step adds some, and is refused at an hour of its own."""

    def initial_state(self, episode):
        return 0

    def step(self, state, operation):
        hours, never = operation.payload
        return Rejected("not now") if state == never else Accepted((state + hours) % 6)

    def canonical(self, state):
        return str(state).encode()


def test_a_schedule_allows_no_order_beside_the_one_that_was_settled():
    # What the replays themselves show first is another order, and not all that it allows was replayed.
    replays = settle(Hours(), episode([[4, 1], [5, 5], [4, 0], [4, None]]))
    assert schedule_of(replays.tree).order.pairs == ((0, 2), (1, 2))
    settled = ((0, 3), (1, 2))
    schedule = schedule_of(replays.tree, reads=replays.reads, settled=replays.settled)
    assert schedule.complete
    assert schedule.order.pairs == settled
    for within in (None, 1e-9):
        assert checked_schedule(Hours(), replays, once=True, within=within).order.pairs == settled


def test_orders_from_fresh_states_end_at_the_time_limit():
    made = episode([["get", 0, 1]] * 4)
    found = checked_schedule(ENVIRONMENT, settle(ENVIRONMENT, made), once=True, within=1e-9)
    assert (found.complete, found.checked_orders) == (True, 1)


def test_sampling_ends_at_the_time_limit_too(monkeypatch):
    made = episode([["add", 0, 1]] * 8)
    monkeypatch.setattr(settling, "MOST", 100)
    ticks = iter(range(100_000))
    monkeypatch.setattr(lattice_replay, "monotonic", lambda: next(ticks))
    monkeypatch.setattr(settling, "monotonic", lambda: 0)
    replays = settle(ENVIRONMENT, made, within=150)
    assert replays.stopped_after == 150
    schedule = schedule_of(
        replays.tree, reads=replays.reads, settled=replays.settled, stopped_after=150
    )
    assert schedule.complete
    assert schedule.unsettled
