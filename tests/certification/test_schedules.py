"""Schedules: every order that one allows ends as the trace does, and none waits without a reason."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from cells import (
    ENVIRONMENT,
    VERSIONS,
    Cells,
    certified,
    contexts_of,
    drawn,
    episode,
    legal_by_hand,
    legal_of,
)
from vcrt.calls.data_flow import DataFlow, data_flow
from vcrt.calls.schedules import checked_schedule, path_of_swaps, schedule_of
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.episodes import ANY_PRESET, CertifiedEpisode, certify_episode
from vcrt.certificates.replay_tree import Reached, ReplayTree
from vcrt.environments.contract import Accepted
from vcrt.orders import linear_extensions
from vcrt.randomness import generator
from vcrt.replay.lattice_replay import replay_lattices


def tree_of(made, **options):
    (evidence,) = replay_lattices(ENVIRONMENT, [made], **options)
    return evidence.tree


def test_reads_run_at_once_and_the_write_after_them():
    schedule = schedule_of(
        tree_of(episode([["get", 0, 1], ["get", 0, 1], ["set", 0, 2], ["get", 1, 1]]))
    )
    assert schedule.waves == ((0, 1, 3), (2,))
    assert [(e.first, e.second, e.kind) for e in schedule.edges] == [
        (0, 2, "observes"),
        (1, 2, "observes"),
    ]
    assert schedule.critical_path == (0, 2)
    assert schedule.speed_up == 2.0
    assert schedule.complete


@pytest.mark.parametrize("steps", [3, 5, 6])
def test_every_order_that_a_schedule_allows_is_legal_also_where_nothing_is_certified(steps):
    found = {"scheduled": 0, "uncertified": 0, "parallel": 0}
    for seed in range(80 if steps < 6 else 40):
        replays, legal = contexts_of(seed, steps), legal_of(seed, steps)
        tree = replays.tree
        if not legal:
            with pytest.raises(UncertifiedError, match="reference order itself is refused"):
                schedule_of(tree)
            continue
        schedule = schedule_of(tree)
        assert set(linear_extensions(steps, schedule.order.pairs)) <= set(legal), seed
        outcome = (
            certify_episode(replays, VERSIONS, ANY_PRESET)
            if steps > 5
            else certified(drawn(seed, steps))
        )
        found["scheduled"] += 1
        found["parallel"] += len(schedule.waves) < steps
        if isinstance(outcome, CertifiedEpisode):
            assert schedule.order == outcome.order
        else:
            found["uncertified"] += 1
    assert min(found.values()) > 5, found


def test_schedules_of_sampled_contexts_hold_too():
    for seed in range(40):
        tree = contexts_of(seed, 6, sampled=True).tree
        outcome = certify_episode(contexts_of(seed, 6), VERSIONS, ANY_PRESET)
        if isinstance(outcome, CertifiedEpisode):
            schedule = schedule_of(tree)
            assert set(linear_extensions(6, schedule.order.pairs)) <= set(legal_of(seed, 6))


def test_a_pair_that_another_rules_out_does_not_wait():
    # 2 takes what 1 added or what was there; once 2 waits for 1, 0 and 1 are free of each other.
    made = episode([["take", 0, 1], ["add", 0, 2], ["take", 0, 1]])
    schedule = schedule_of(tree_of(made))
    assert schedule.order.pairs == ((1, 2),)
    assert set(linear_extensions(3, [(1, 2)])) <= set(legal_by_hand(made))


def test_many_reads_are_one_wave():
    schedule = schedule_of(tree_of(episode([["get", 0, 1]] * 20)))
    assert schedule.waves == (tuple(range(20)),)
    assert not schedule.complete


class Rare(Cells):
    """Marks, and a last step that gives something else in a few contexts far from the reference order."""

    def __init__(self, seed):
        drawn = generator(seed, "rare").permutation(11)
        self.wanted, self.barred = set(drawn[:2]), set(drawn[2:6])

    def initial_state(self, episode):
        return frozenset()

    def step(self, state, operation):
        number = operation.payload
        rare = self.wanted <= state and not self.barred & state
        return Accepted(state | {number}, "rare" if number == 11 and rare else "usual")

    def canonical(self, state):
        return repr(sorted(state)).encode()


def test_a_schedule_of_samples_is_mended_where_one_of_its_orders_fails(monkeypatch):
    # No more contexts than it takes to find relations that hold everywhere.
    monkeypatch.setattr("vcrt.certificates.sampling.CONTEXTS_PER_PAIR", 0)
    made = episode(list(range(12)))
    found = []
    for seed in range(8):
        environment = Rare(seed)
        (replays,) = replay_lattices(environment, [made])
        before, after = schedule_of(replays.tree), checked_schedule(environment, replays)
        assert 1 <= after.checked_orders <= 64
        found.append((len(before.order.pairs), len(after.order.pairs)))
        if after.order != before.order:
            # What was found is what must not be: a barred step behind the last one.
            assert {edge.kind for edge in after.edges} == {"observes"}
            assert all(edge.second == 11 for edge in after.edges)
    assert any(before < after for before, after in found), found


def test_the_path_between_two_orders_swaps_each_pair_once():
    path = path_of_swaps((3, 1, 0, 2))
    assert (path[0], path[-1]) == ((3, 1, 0, 2), (0, 1, 2, 3))
    assert len(path) == 1 + 4


def test_data_flow_waits_although_replay_commutes():
    made = episode([["get", 0, 1], ["get", 1, 1], ["get", 2, 1]])
    schedule = schedule_of(tree_of(made), [DataFlow(0, 2, "cell", "abc")])
    assert schedule.waves == ((0, 1), (2,))
    assert [edge.kind for edge in schedule.direct] == ["data flow"]


def test_what_waits_for_a_chain_waits_for_the_end_of_it():
    # 2 takes what 1 added, which takes nothing from 0 but is refused before it.
    made = episode([["add", 0, 2], ["take", 0, 3], ["set", 1, 2]])
    schedule = schedule_of(tree_of(made))
    legal = legal_by_hand(made)
    assert sorted(linear_extensions(3, schedule.order.pairs)) == sorted(legal)
    assert all(order in list(permutations(range(3))) for order in legal)


def test_identifiers_flow_from_text_to_text():
    outputs = ['"made ord-77 and AB-12."', '{"note":"nothing new"}', "null"]
    arguments = [{}, {"text": "see /orders/ord-77?now=1"}, {"all": ["about AB-12", "made up"]}]
    assert data_flow(arguments, outputs) == (
        DataFlow(0, 1, "text", "ord-77"),
        DataFlow(0, 2, "all", "AB-12"),
    )
    long = "a.1" * 300_000
    assert len(data_flow([{}, {"x": long[:60]}], [f'"{long}"', "null"])) <= 1


@pytest.mark.parametrize(
    ("output", "arguments"),
    [
        ({"sku": "sku-8812"}, {"items": {"sku-8812": 2}}),
        ({"id": 48213}, {"url": "/orders/48213/items"}),
        ({"id": 48213}, {"command": "kill 48213"}),
        ({"token": "ghp_" + "a1" * 60}, {"headers": {"Authorization": f"Bearer ghp_{'a1' * 60}"}}),
        ({"text": "注文番号はABC-77です"}, {"id": "ABC-77"}),
        ({"text": "หมายเลข77123ค่ะ"}, {"id": 77123}),
        ({"id": "ABC-77"}, {"text": "注文番号はABC-77です"}),
        ({"total": 1001.0}, {"amount": 1001}),
        ({"total": 1001}, {"amount": 1001.0}),
        ({"made": "ord-1"}, {"body": '{"order": "ord-1"}'}),
        ({"count": 42}, {"body": '{"n": [42]}'}),
    ],
)
def test_values_flow_wherever_they_are_put(output, arguments):
    outputs = [json.dumps(output), "null"]
    assert {(flow.first, flow.second) for flow in data_flow([{}, arguments], outputs)} == {(0, 1)}
    assert data_flow([{}, arguments], ["{}", "null"]) == ()


def test_what_is_a_part_of_a_word_or_common_flows_nowhere():
    for output, argument in (
        ("caféA1bc", "A1bc"),
        ({"id": 148213}, "kill 48213"),
        ({"id": 12}, "take 12 of them"),
        ({"status": "open"}, {"status": "shut"}),
        ({"left": 7}, 7),
        ({"open": True}, True),
        ({"left": 1, "id": 2}, 1),
        ({"id": ""}, ""),
    ):
        assert data_flow([{}, {"x": argument}], [json.dumps(output), "null"]) == (), argument


@pytest.mark.parametrize(
    ("tool", "output", "arguments"),
    [
        ("create", {"id": 7}, {"id": 7}),
        ("create_task", {"id": 7}, {"task": "7"}),
        ("newTask", 7, {"task_id": 7.0}),
        ("find", {"task": {"id": "7", "size": 3}}, {"size": 2, "tasks": [7]}),
        ("find", {"tasks": {"7": {"open": True}}}, {"task": 7}),
        ("free", {"seat": "F7"}, {"seat": "F7"}),
        ("free", {"seats": ["A1", "F7"]}, {"bestSeats": ["F7"], "seat_no": 3}),
        ("find", {"text": '{"id": 3}'}, {"body": '{"id": 3}'}),
    ],
)
def test_a_short_value_flows_to_an_argument_of_its_name(tool, output, arguments):
    given = [{}, arguments], [json.dumps(output), "null"]
    found = data_flow(*given, names=[tool, "do"])
    assert {(flow.first, flow.second) for flow in found} == {(0, 1)}
    assert not any(flow.value in ("2", "3") for flow in found if flow.argument != "body")


def test_a_short_value_of_another_name_or_known_before_flows_nowhere():
    names = ["get", "create_task", "close"]
    arguments, outputs = [{"item": 7}, {}, {"task": 7}], ['{"item":7}', '{"id":7}', "null"]
    assert data_flow(arguments, outputs, names=names) == (DataFlow(1, 2, "task", "7"),)
    assert data_flow(arguments, outputs, [["close task 7."]] * 3, names=names) == ()
    assert data_flow([{"task_id": 7}, *arguments[1:]], outputs, names=names) == ()
    # A count and the numbers of tickets have nothing to do with pages and days.
    outputs = ["3", json.dumps([{"id": k, "priority": 2} for k in range(1, 9)]), "null"]
    arguments = [{}, {"page": 1}, {"page": 3, "days": 3, "limit": 5, "ticket": 2, "level": 8}]
    names = ["count_open", "list_pages", "search"]
    found = data_flow(arguments, outputs, names=names)
    assert {(flow.argument, flow.value) for flow in found} == {("page", "3")}, "ids of list_pages"


def test_values_flow_from_the_call_that_gave_them_first():
    arguments = [{"user": "ann"}, {}, {"id": "f-771", "user": "ann"}, {"id": "f-771", "n": 3}]
    outputs = ['{"id":"f-771","user":"ann"}', '"f-771"', "null", "null"]
    assert data_flow(arguments, outputs) == (
        DataFlow(0, 2, "id", "f-771"),
        DataFlow(0, 3, "id", "f-771"),
    )
    flows = data_flow(arguments, outputs)
    said = ["send f-771"]
    assert data_flow(arguments, outputs, [[], [], said, said]) == flows, "said again, not first"
    assert data_flow(arguments, outputs, [said, said, said, said]) == (), "known before any call"


def test_a_step_that_is_refused_behind_a_later_one_stands_before_it():
    # Each two steps commute at the start; what is known besides is that 2 is refused once 0, 1 and 3 have run.
    accepted = [
        *permutations(range(4), 1),
        *permutations(range(4), 2),
        (0, 1, 2),
        (0, 1, 2, 3),
        (0, 3, 1),
    ]
    answers = {each: Reached(f"{sum(1 << k for k in each):064x}", None) for each in ((), *accepted)}
    answers[0, 3, 1, 2] = Reached(None, "too late")
    schedule = schedule_of(ReplayTree.of(4, answers))
    assert (2, 3) in schedule.order.pairs
