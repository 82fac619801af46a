"""Verdicts of the evaluation: from what was replayed where that is everything, else by a replay of their own."""

from dataclasses import replace

import pytest

import poset_environment as posets
from long_datasets import made
from vcrt.datasets.verdicts import passes, require_verifiers
from vcrt.environments import registry
from vcrt.errors import DatasetError, UnavailableError
from vcrt.partial_orders import PartialOrder, legal_prefixes
from vcrt.records.dataset import load_items
from vcrt.records.supervision import PosetRecord
from vcrt.replay import shards
from vcrt_train.training.items import EncodedItem

ITS_VERSIONS = posets.Posets().versions()


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    """The items of a complete dataset of 6 operations and of a sampled one."""
    folder = tmp_path_factory.mktemp("verdicts")
    return {
        sampled: load_items(made(folder / f"{sampled}", "posets6", sampled=sampled), "posets")
        for sampled in (False, True)
    }


@pytest.fixture
def replays(monkeypatch):
    """How many replays were asked for."""
    asked = []

    class Counted(posets.Posets):
        def replay(self, requests):
            asked.extend(requests)
            return super().replay(requests)

    monkeypatch.setattr(shards, "Registered", lambda name: {"posets": Counted}[name])
    return asked


def as_trained(item):
    """The item as training sees it, but for its prompt, which no verdict needs."""
    assert isinstance(item.supervised, PosetRecord)
    return EncodedItem(
        record_id=item.episode_id, prompt=None, orbit=item.supervised.order, credit=None
    )


def orders_of(item):
    """A legal order of slots, and one that breaks the first pair."""
    order = item.supervised.order
    legal = legal_prefixes(order, 6)[-1]
    a, b = order.pairs[0]
    broken = list(legal)
    broken[legal.index(a)], broken[legal.index(b)] = b, a
    return legal, tuple(broken)


def test_complete_evidence_needs_no_replay(items, replays):
    for item in items[False]:
        assert item.unreplayed is None
        legal, broken = orders_of(item)
        verdicts = [passes([item], [as_trained(item)], [o]) for o in (legal, broken, None)]
        assert verdicts == ["1", "0", "0"]
    assert replays == []


def test_sampled_evidence_is_replayed_once_for_each_order(items, replays):
    some = items[True]
    assert all(item.unreplayed is not None for item in some)
    ready = [as_trained(item) for item in some]
    legal, broken = zip(*map(orders_of, some), strict=True)
    assert passes(some, ready, legal) == "1" * len(some)
    assert passes(some, ready, broken) == "0" * len(some)
    assert passes(some, ready, [None] * len(some)) == "0" * len(some)
    assert len(replays) == 2 * len(some)


def test_the_verifier_is_believed_not_the_sampled_relations(items, replays):
    """A certified order that lacks a pair would call an illegal order legal; its own replay does not."""
    del replays
    item = items[True][0]
    free = replace(as_trained(item), orbit=PartialOrder.of(6, []))
    _, broken = orders_of(item)
    assert free.is_legal(broken)
    assert passes([item], [free], [broken]) == "0"


def test_an_environment_that_is_not_here_is_named(items):
    assert "posets" not in registry.environment_names()
    item = items[True][0]
    with pytest.raises(UnavailableError, match="their environment is not registered here"):
        passes([item], [as_trained(item)], [orders_of(item)[0]])


def test_other_versions_are_no_verdict(items, monkeypatch):
    class Newer(posets.Posets):
        def versions(self):
            return replace(super().versions(), canonicalizer="2")

    monkeypatch.setattr(shards, "Registered", lambda name: {"posets": Newer}[name])
    item = items[True][0]
    with pytest.raises(DatasetError, match="other versions of 'posets'") as caught:
        passes([item], [as_trained(item)], [orders_of(item)[0]])
    assert caught.value.where == item.episode_id


@pytest.mark.parametrize("sampled", [False, True])
def test_a_verifier_that_is_needed_is_asked_for_before_anything_is_opened(
    sampled, tmp_path, monkeypatch
):
    dataset = made(tmp_path / "data", "posets6", sampled=sampled)
    if not sampled:
        require_verifiers(dataset, ["posets"])
        return
    with pytest.raises(UnavailableError, match="their environment is not registered here"):
        require_verifiers(dataset, ["posets"])
    monkeypatch.setattr(shards, "Registered", lambda name: {"posets": posets.Posets}[name])
    require_verifiers(dataset, ["posets"])

    class Newer(posets.Posets):
        def versions(self):
            return replace(ITS_VERSIONS, verifier="posets 2")

    monkeypatch.setattr(shards, "Registered", lambda name: {"posets": Newer}[name])
    with pytest.raises(DatasetError, match="other versions of 'posets'"):
        require_verifiers(dataset, ["posets"])
