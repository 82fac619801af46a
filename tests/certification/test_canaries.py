"""Planted false certificates and replaced verifiers; trust/canaries.py does it on more, and in Lean."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import toy_environment as toy
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import DatasetError, DisagreementError
from vcrt.records.dataset import load_items, require_agreement
from vcrt.replay.config import sampled

PLANTING = Path(__file__).parents[2] / "research" / "benchmarks" / "trust" / "canary_planting.py"
TOY = {"toy": toy.ToyEnvironment}


@pytest.fixture(scope="module")
def planting():
    spec = importlib.util.spec_from_file_location("canary_planting", PLANTING)
    module = importlib.util.module_from_spec(spec)
    sys.modules["canary_planting"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    config = sampled({"toy": ("needs", "overwrite")}, 10)
    return make_dataset(config, tmp_path_factory.mktemp("c") / "data", jobs=1, factories=TOY)


def test_the_gate_finds_every_canary_and_no_other(dataset, planting, tmp_path):
    forged, kinds = planting.planted(dataset, tmp_path / "forged")
    assert len(kinds) == 10
    # A pair the other way round would refuse the reference order, which no toy allows.
    assert set(kinds.values()) == set(planting.KINDS) - {"reversed pair"}
    # They are consistent in themselves: without the verifier, the dataset is like any other.
    assert len(load_items(forged, "toy")) == 20
    with pytest.raises(DisagreementError) as caught:
        verify_agreement(forged, jobs=1, factories=TOY)
    assert set(caught.value.episodes) == set(kinds)
    assert "9 more episodes without agreement" in caught.value.found
    with pytest.raises(DatasetError, match="not verified"):
        require_agreement(forged)


class Lax(toy.ToyEnvironment):
    """An older version that does not say so: it let a step through that needs another."""

    def step(self, state, operation):
        payload = {**operation.payload, "needs": []}
        return super().step(state, toy.Operation(signature=operation.signature, payload=payload))


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        (toy.AlwaysAccepts, "does not replay as it was certified"),
        (toy.AlwaysRejects, "does not replay as it was certified"),
        (Lax, "does not replay as it was certified"),
        (toy.ChangingVersions, "other versions"),
    ],
)
def test_a_replaced_verifier_is_found_before_training(dataset, verifier, message):
    with pytest.raises(DatasetError, match=message):
        verify_agreement(dataset, jobs=1, factories={"toy": verifier})
    # What training asks for was not written.
    with pytest.raises(DatasetError, match="not verified"):
        require_agreement(dataset)
