"""All that calls an order legal calls the same orders legal: those that brute force does, outputs included.

On random episodes of reads, writes and refusals, replayed in every order, in every context, and in a sample of them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations

import pytest

from cells import ENVIRONMENT, VERSIONS, Cells, contexts_of, drawn, episode, legal_by_hand, legal_of
from explorer_support import without_processes
from vcrt.calls.schedules import checked_schedule
from vcrt.certificates.episodes import (
    PRESETS,
    CertifiedEpisode,
    certify_episode,
    legal_orders,
)
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.pairs import report_orders
from vcrt.datasets.freezing import make_dataset
from vcrt.datasets.verdicts import passes
from vcrt.environments.conformance_checks import Sample, _some_order_is_not_legal
from vcrt.environments.contract import ReplayRequest
from vcrt.environments.cross_checks import replays_to_check
from vcrt.environments.posets import below_of
from vcrt.environments.relation_search import relations_of
from vcrt.errors import MalformedInputError
from vcrt.orders import all_orders, linear_extensions
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import generator, pick
from vcrt.records.dataset import load_items
from vcrt.replay import shards
from vcrt.replay.config import given
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively
from vcrt_train.integrations.text import answer_text, is_certified
from vcrt_train.training.items import EncodedItem

SEEDS = range(40)


@cache
def accepted(steps):
    """Random episodes whose own order is accepted, and the orders that brute force calls legal."""
    return [(drawn(seed, steps), legal) for seed in SEEDS if (legal := legal_of(seed, steps))]


def replays_of(made):
    orders = list(permutations(range(made.num_operations)))
    return ENVIRONMENT.replay([ReplayRequest(made, order) for order in orders])


@pytest.mark.parametrize("steps", [3, 4])
def test_what_replays_every_order(steps):
    observed = 0
    for made, legal in accepted(steps):
        replays = replays_of(made)
        assert [r.sequence for r in replays if r.is_legal(replays[0].outcome)] == legal
        assert legal_orders(replays) == legal
        (evidence,) = replay_exhaustively(ENVIRONMENT, [made])
        assert sorted(report_orders(evidence).legal) == legal
        assert Lattice.of(evidence.tree).num_legal() == len(legal)
        outcome = certify_episode(evidence, VERSIONS, PRESETS["any"])
        if isinstance(outcome, CertifiedEpisode):
            assert list(outcome.orbit) == legal
            observed += "observes" in outcome.kinds
        sample = Sample("cells", (made,), ({r.sequence: r for r in replays},))
        other = replace_preset(ENVIRONMENT, "several")
        every = len(legal) == len(replays)
        assert (_some_order_is_not_legal(other, sample) is not None) == every
    assert observed >= 3


def replace_preset(environment, preset):
    """The environment with a schema that promises an order which is not legal."""
    other = Cells()
    other.schemas = tuple(replace(schema, preset=preset) for schema in environment.schemas)
    return other


@pytest.mark.parametrize("sampled", [False, True])
def test_what_follows_from_contexts(sampled):
    preset = replace(PRESETS["posets6"], sampled=sampled)
    observed = 0
    for made, legal in accepted(6):
        evidence = contexts_of(made.provenance.seed, 6, sampled)
        if not sampled:
            assert Lattice.of(evidence.tree).num_legal() == len(legal)
        outcome = certify_episode(evidence, VERSIONS, preset)
        if isinstance(outcome, CertifiedEpisode):
            assert linear_extensions(6, outcome.order.pairs) == legal
            observed += "observes" in outcome.kinds
        schedule = checked_schedule(ENVIRONMENT, evidence)
        assert set(linear_extensions(6, schedule.order.pairs)) <= set(legal)
        found = relations_of(ENVIRONMENT, made, below_of(generator(0, "legal")))
        if found is not None:
            assert linear_extensions(6, found.order.pairs) == legal
    assert observed >= 3


class OneMore(Cells):
    """Cells with one more, which a last step alone uses."""

    def initial_state(self, episode):
        return (1, 1, 1, 1)


def test_a_step_that_commutes_with_all_changes_no_verdict():
    """Also where orders are listed without it, and counted in contexts with it."""
    environment, found = OneMore(), {True: 0, False: 0}
    preset = replace(PRESETS["any"], orbit_size=None)
    for seed in range(40):
        draw = generator(seed, "one more")
        kinds = ["add", "get"] if seed % 2 else ["add", "get", "set", "take", "swap"]
        steps = [[pick(draw, kinds), int(draw.integers(2)), 1 + number] for number in range(5)]
        (listed,) = replay_exhaustively(environment, [episode(steps, seed)])
        (merged,) = replay_lattices(environment, [episode([*steps, ["add", 3, 1]], seed)])
        verdicts = [certify_episode(one, VERSIONS, preset) for one in (listed, merged)]
        fewer, more = (isinstance(verdict, CertifiedEpisode) for verdict in verdicts)
        assert fewer == more, (seed, steps, verdicts)
        found[fewer] += 1
        if fewer:
            whole = set(linear_extensions(6, verdicts[1].order.pairs))
            assert {tuple(i for i in order if i < 5) for order in whole} == set(verdicts[0].orbit)
    assert min(found.values()) > 3, found


def test_orders_for_a_second_opinion_wander_among_legal_ones():
    """A read of its own before and behind writes of its cell: without outputs every order looks legal."""
    made = episode(
        [["get", 0, 1], ["get", 1, 1], ["get", 2, 1], ["set", 0, 2], ["set", 1, 2], ["set", 2, 2]]
    )
    reads_first = [replay.sequence for replay in replays_to_check(ENVIRONMENT, made)[2:]]
    legal = set(legal_by_hand(made))

    def is_near(order):
        rest = [(k, order[:k] + order[k + 1 :]) for k in range(6)]
        return any(
            (*less[:place], order[k], *less[place:]) in legal
            for k, less in rest
            for place in range(6)
        )

    assert reads_first
    assert all(map(is_near, reads_first))


@pytest.fixture(scope="module", params=[False, True], ids=["complete", "sampled"])
def frozen(request, tmp_path_factory):
    """A frozen dataset, and by episode what brute force calls legal."""
    legal = {made.episode_id: (made, orders) for made, orders in accepted(6)}
    preset = replace(PRESETS["posets6"], sampled=request.param)
    config = given([made for made, _ in legal.values()], preset=preset)
    with without_processes():
        dataset = make_dataset(
            config, tmp_path_factory.mktemp("legal") / "data", jobs=1, factories={"cells": Cells}
        )
    return dataset, legal, request.param


def judged(items):
    """For each item, the orders of slots that pass, among all of them."""
    orders = all_orders(6)
    found = []
    for item in items:
        ready = EncodedItem(
            record_id=item.episode_id, prompt=None, orbit=item.supervised.order, credit=None
        )
        count = len(orders)
        verdicts = passes([item] * count, [ready] * count, orders)
        found.append({o for o, verdict in zip(orders, verdicts, strict=True) if verdict == "1"})
    return found


def slots_of(item, legal):
    """The legal orders in the item's slots, by the texts of its operations."""
    known = item.unreplayed
    return {order for order in all_orders(6) if known.sequence(order) in legal}


def test_what_a_dataset_is_evaluated_by(frozen, monkeypatch):
    dataset, legal, sampled = frozen
    monkeypatch.setattr(shards, "Registered", lambda name: {"cells": Cells}[name])
    items = load_items(dataset, "cells")
    assert len(items) >= 5
    reversed_observations = 0
    for item, found in zip(items, judged(items), strict=True):
        made, orders = legal[item.episode_id]
        assert len(found) == len(orders)
        partial = item.supervised.order
        record = item.supervised.record
        pairs = [list(pair) for pair in partial.pairs]
        for order in all_orders(6)[::7]:
            text = answer_text(record, order)
            assert is_certified(text, None, pairs, record.pointers) == (order in found)
        if sampled:
            assert found == slots_of(item, set(orders))
            ends = {o for o in permutations(range(6)) if ends_alike(made, o)}
            reversed_observations += len(ends) > len(orders)
        assert found == set(linear_extensions(6, partial.pairs))
        assert PartialOrder.of(6, partial.pairs) == partial
    if sampled:
        assert reversed_observations >= 3


def ends_alike(made, order):
    reference, other = ENVIRONMENT.replay(
        [ReplayRequest(made, tuple(range(6))), ReplayRequest(made, order)]
    )
    return other.accepted and other.terminal_hash == reference.terminal_hash


def test_what_was_exported_is_evaluated_alike(frozen, monkeypatch):
    pytest.importorskip("datasets", reason="not installed: make test-integrations")
    from vcrt_train.integrations.datasets import from_dataset, to_dataset

    dataset, _, sampled = frozen
    if not sampled:
        return
    monkeypatch.setattr(shards, "Registered", lambda name: {"cells": Cells}[name])
    items = load_items(dataset, "cells")
    rows = list(to_dataset(dataset))
    back = from_dataset(rows)
    assert back == items
    assert judged(back[:5]) == judged(items[:5])
    older = {**rows[0], "unreplayed": rows[0]["unreplayed"].replace('"outputs"', '"others"')}
    with pytest.raises(
        MalformedInputError, match="lacks the outputs of the reference order"
    ) as caught:
        from_dataset([older])
    assert items[0].episode_id in caught.value.where
    assert "to_dataset" in caught.value.remedy
