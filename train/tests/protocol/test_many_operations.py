"""`vcrt decide` beyond six operations: the same answers as by listing where both can, and what is said beyond."""

from math import factorial

import pytest

from vcrt.certificates.certificates import OperationRelation
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt_train.cli.decide import decision_lines
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.protocol import decision
from vcrt_train.protocol.decision import Policy, decide
from vcrt_train.protocol.relation_records import RelationRecord
from vcrt_train.training.methods import method


def policy(name, of="vcrt"):
    backbone = load_backbone(name)
    return Policy(
        backbone=backbone,
        model=backbone.model,
        method=method(of),
        backend="auto",
        run=None,
        update=None,
        checkpoint=None,
    )


def stated(count, *pairs):
    return RelationRecord(
        operations=tuple(f"step {n}" for n in range(count)),
        relations=tuple(sorted(OperationRelation(a, b, "precedes") for a, b in pairs)),
    )


CHAINS = [(0, 3), (3, 1), (2, 5), (5, 4)]


@pytest.mark.parametrize("name", ["embedded", "embedded-long"])
def test_it_says_what_listing_all_orders_says(monkeypatch, name):
    asked, record = policy(name), stated(6, *CHAINS)
    listed = decide(asked, record)
    monkeypatch.setattr(decision, "MAX_LISTED", 4)
    found = decide(asked, record)
    assert found.greedy.order == listed.greedy.order
    assert found.greedy.is_legal == listed.greedy.is_legal
    assert found.greedy.probability == pytest.approx(listed.greedy.probability, rel=1e-4)
    assert found.orbit_mass == pytest.approx(listed.orbit_mass, rel=1e-4)
    assert (found.num_legal, found.num_orders) == (listed.num_legal, listed.num_orders) == (20, 720)
    assert found.standard_error is None
    assert len(listed.alternatives) == 3
    assert found.alternatives == ()


def test_an_estimate_is_near_what_listing_gives_and_says_how_near(monkeypatch):
    asked, record = policy("embedded-long"), stated(6, (0, 3))
    listed = decide(asked, record)
    monkeypatch.setattr(decision, "MAX_LISTED", 4)
    for module in ("vcrt_train.training.orbit_masses", "vcrt_train.protocol.decision"):
        monkeypatch.setattr(f"{module}.fits", lambda *_: False)
    found = decide(asked, record)
    assert 0 < found.standard_error < 0.1
    assert abs(found.orbit_mass - listed.orbit_mass) < 4 * found.standard_error
    assert found.orbit_mass != listed.orbit_mass
    assert decide(asked, record) == found


@pytest.mark.parametrize("count", [7, pytest.param(16, marks=pytest.mark.slow), 33])
def test_many_operations_are_put_in_an_order(count):
    asked = policy("embedded-long")
    answer = decide(asked, stated(count, (0, 1), (2, 3), (5, 3)))
    assert sorted(answer.greedy.order) == list(range(count))
    assert 0 < answer.greedy.probability < 1
    assert 0 < answer.orbit_mass < 1
    assert answer.num_orders == factorial(count)
    assert answer.standard_error > 0
    text = "\n".join(decision_lines(asked, stated(count, (0, 1)), answer))
    assert "(an estimate, standard error " in text
    if count <= 20:
        assert answer.num_legal == factorial(count) // 6
        assert f"{answer.num_legal:,} orders of {answer.num_orders:,}" in text
    else:
        assert answer.num_legal is None
        assert "on the orders that keep every required pair" in text


def test_what_a_policy_cannot_be_asked_is_refused():
    with pytest.raises(TooLargeError, match="at most 6"):
        decide(policy("embedded-long", "outcome-grpo"), stated(7))
    with pytest.raises(MalformedInputError, match="embedded-long"):
        decide(policy("embedded"), stated(9))
    with pytest.raises(MalformedInputError, match="2 to 64"):
        stated(65)
    with pytest.raises(MalformedInputError, match="a cycle through 'step 1', 'step 2', 'step 6'"):
        stated(8, (0, 1), (1, 2), (2, 6), (6, 1), (6, 7))
