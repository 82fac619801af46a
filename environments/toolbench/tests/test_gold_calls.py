"""Episodes of gold calls, on a small shop: how they are put together, and from which tasks."""

from __future__ import annotations

from collections import Counter

import pytest

from call_oracle import kept_pair, legal_orders
from vcrt.environments.contract import Schema, Versions
from vcrt.environments.tool_calls import Call, CallRefused
from vcrt.errors import MalformedInputError, VcrtError
from vcrt_toolbench.gold_calls import GoldCallEnvironment, Trajectory, gold_schemas


class Shop(GoldCallEnvironment):
    """Shelves that are filled, emptied and counted; every task has shelves of its own."""

    name = "shop"
    schemas = (
        Schema(name="shelves", summary="shelves", relation="either"),
        Schema(name="counting", summary="a count sees what was put there", relation="observes"),
        Schema(name="impossible", summary="none is refused", relation="precedes"),
        *gold_schemas(6),
    )

    def versions(self):
        return Versions(environment=self.name, adapter="1", canonicalizer="1", verifier="shop 1")

    def trajectories(self):
        return tuple(
            Trajectory(
                task=f"task{number}",
                initial={"shelves": {f"{number}{name}": 5 for name in "abc"}},
                calls=tuple(
                    Call(tool, {"shelf": f"{number}{shelf}"})
                    for tool, shelf in (("count", "a"), ("put", "a"), ("count", "b"), ("put", "b"))
                    + (("count", "c"), ("put", "c")) * (number % 2)
                ),
            )
            for number in range(20)
        )

    def start(self, initial):
        if "shelves" not in initial:
            raise MalformedInputError("no shelves")
        return dict(initial["shelves"])

    def family(self, trajectory, call):
        return "shelves"

    def joined(self, one, other):
        if len(one["shelves"]) + len(other["shelves"]) > 6:
            return None
        return {"shelves": {**one["shelves"], **other["shelves"]}}

    def call(self, state, name, arguments):
        if arguments["shelf"] not in state:
            raise CallRefused("no such shelf")
        state[arguments["shelf"]] += name == "put"
        return state[arguments["shelf"]] if name == "count" else "done"


SHOP = Shop()


def test_four_calls_have_one_pair_that_keeps_its_order() -> None:
    made = Counter()
    for seed in range(30):
        episode = SHOP.sample("shelves", seed)
        made[episode.provenance.generator] += 1
        orders = legal_orders(SHOP, episode)
        assert len(orders) == 12
        one, other = (episode.operations[place].payload for place in kept_pair(orders))
        assert one["arguments"] == other["arguments"]
        assert {one["name"], other["name"]} == {"count", "put"}
    assert set(made) == {"shop.window/1", "shop.subsequence/1", "shop.joint/1"}


def test_calls_of_a_task_keep_their_order_after_what_came_before() -> None:
    for seed in range(10):
        state = SHOP.sample("posets6", seed).initial["state"]
        operations = SHOP.sample("posets6", seed).operations
        for trajectory in SHOP.trajectories():
            calls = [call.to_json() for call in trajectory.calls]
            drawn = [calls.index(o.payload) for o in operations if o.payload in calls]
            before = [calls.index(call) for call in state["before"] if call in calls]
            assert drawn == sorted(drawn)
            first = drawn[0] if drawn else 0
            assert before == [n for n in range(first) if calls[n]["name"] == "put"]


def test_an_episode_draws_on_the_tasks_of_its_source_alone() -> None:
    sources = {SHOP.sample("shelves", seed).provenance.source for seed in range(60)}
    groups = [source.removeprefix("shop: ").split() for source in sources]
    assert sorted(task for group in groups for task in group) == sorted(
        f"task{number}" for number in range(20)
    )
    for seed in range(20):
        episode = SHOP.sample("shelves", seed)
        assert set(episode.initial["state"]["tasks"]) <= set(episode.provenance.source.split())


def test_a_kind_that_does_not_occur_is_not_drawn_for_ever(monkeypatch) -> None:
    assert SHOP.sample("counting", 1)
    monkeypatch.setattr("vcrt_toolbench.gold_calls._MAX_DRAWS", 20)
    with pytest.raises(VcrtError, match="no calls with the wanted relations"):
        SHOP.sample("impossible", 1)


def test_whole_trajectories_are_numbered_by_the_seeds() -> None:
    episodes = [SHOP.sample("trajectory", seed) for seed in range(20)]
    assert len({episode.content_hash() for episode in episodes}) == 20
    assert {episode.num_operations for episode in episodes} == {4, 6}


@pytest.mark.parametrize(
    "before", [[{"name": "put"}], [7], [{"name": "x", "arguments": {"shelf": 1}}]]
)
def test_earlier_calls_must_be_accepted(before) -> None:
    with pytest.raises(MalformedInputError, match="earlier calls"):
        SHOP.reset({"shelves": {"a": 1}, "before": before})
