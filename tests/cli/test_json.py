"""What commands print for machines: one document on the standard output, and nothing else there."""

from __future__ import annotations

import json

import pytest

from command_line import refused, run
from vcrt.environments.registry import environment_names
from vcrt_train.training.methods import METHODS


def test_lists(capsys):
    assert set(json.loads(run(capsys, "methods", "--json")[1])) == set(METHODS)
    found = json.loads(run(capsys, "environments", "--json")[1])
    assert set(found) == set(environment_names())
    assert found["clrs"]["available"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return tmp_path_factory.mktemp("json") / "data"


def test_a_dataset_from_certification_to_plan(capsys, dataset):
    options = ["--schemas", "clrs/bellman_ford", "proofwriter/relational_join", "--episodes", "12"]
    code, out, err = run(capsys, "certify", "--output", str(dataset), *options, "--json")
    frozen = json.loads(out)
    assert code == 0
    assert "certify" in err
    assert frozen["counts"]["clrs"]["bellman_ford"]["episodes"] == 12

    verified = json.loads(run(capsys, "verify", str(dataset), "--json")[1])
    assert verified["agreed"] == verified["replays"] == 2 * 12 * 24
    assert verified["root_hash"] == frozen["root_hash"]

    place = str(dataset.parent / "experiment")
    planned = json.loads(run(capsys, "plan", str(dataset), "--output", place, "--json")[1])
    assert len(planned["runs"]) == 2 * 2 * 3
    assert len(planned["plan_hash"]) == 64


def test_where_there_is_nothing_for_machines_it_is_refused(capsys, dataset):
    refused(capsys, "environments", "validate", "clrs", "--json")
    refused(capsys, "verify", str(dataset), "--no-replay", "--json")
