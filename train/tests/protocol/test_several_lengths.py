"""Datasets of episodes of several lengths: planning on them, and every command from certification to the page."""

from __future__ import annotations

import json
import sys

import pytest

import vcrt
import vcrt_train
from any_environment import BOTH
from command_line import run
from configs import config
from one_process import in_this_process
from poset_environment import Posets, episode
from vcrt.environments.contract import Schema
from vcrt.errors import RunError


class Free(Posets):
    """Steps of which every order is legal."""

    name = "free"
    schemas = (Schema(name="free", summary="none", relation="either", preset="any"),)

    def sample(self, schema, seed):
        made = episode(2 + seed % 3, seed=seed, schema=schema)
        return type(made)(
            environment=self.name,
            schema=schema,
            initial=made.initial,
            operations=made.operations,
            provenance=made.provenance,
        )


def test_a_plan_on_items_without_anti_diamonds_is_refused(tmp_path):
    both = {"free": Free, "plans": BOTH["plans"]}
    made = vcrt.certify(
        tmp_path / "data",
        schemas=["free", "plans/three"],
        episodes=12,
        preset="any",
        jobs=1,
        environments=both,
    )
    vcrt.verify(made, environments=both, jobs=1)
    assert made.manifest.num_all_legal(["free"]) == (12, 12)
    with pytest.raises(RunError, match="every order is legal") as caught:
        vcrt_train.plan(made, tmp_path / "one", config=long_model(), runs=1)
    assert caught.value.where == "plans held out"
    planned = vcrt_train.plan(
        made, tmp_path / "other", config=long_model(), runs=1, held_out=("free",)
    )
    assert planned.plan.held_out == ("free",)


def long_model():
    return config(backbone="embedded-long", updates=2)


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """The two environments, as pip would install them."""
    metadata = tmp_path / "own-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    points = "plans = any_environment:Plans\nrecipes = any_environment:Recipes\n"
    (metadata / "entry_points.txt").write_text(f"[vcrt.environments]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.nightly
def test_every_command_takes_a_dataset_of_several_lengths(registered, capsys):
    def done(*command):
        code, out, err = run(capsys, *command)
        assert code == 0, out + err
        return out

    schemas = ["plans/three", "plans/five", "plans/nine", "recipes/mixed"]
    done("certify", "--preset", "any", "--schemas", *schemas, "--episodes", "4", "--output", "data")
    done("verify", "data")
    assert "certifies episodes of any number of steps" in done("environments", "validate", "plans")
    first = json.loads((registered / "data" / "leaves.jsonl").read_text().splitlines()[0])
    shown = done("show", first["episode"], "--dataset", "data", "--json")
    (registered / "certificate.json").write_text(shown)
    done("verify", "--certificate", "certificate.json")
    planned = ("plan", "data", "--backbone", "embedded-long")
    code, _, err = run(capsys, *planned, "--output", "none", "--methods", "outcome-grpo")
    assert code == 2
    assert "answers in tokens" in err
    out = done(
        *(*planned, "--output", "runs", "--methods", "canonical-grpo", "vcrt"),
        *("--runs", "1", "--updates", "3", "--held-out", "recipes"),
    )
    assert "every order of" in out
    with in_this_process():
        done("train", "runs")
        done("evaluate", "runs")
    done("report", "runs")
    text = (registered / "runs" / "report" / "report.html").read_text()
    assert "An item is an episode of 2 to 9 steps" in text
    done("explore", "data", "--experiment", "runs", "--output", "page.html")
    assert "2 to 9 steps" in (registered / "page.html").read_text()
