"""Relations inferred without replay, on the environments' own episodes."""

from __future__ import annotations

import json

import pytest

import toy_environment as toy
import vcrt
from language_models import byte_level_tokenizer, locked_model
from vcrt.cli import main
from vcrt.errors import RunError, VcrtError

SCHEMAS = ("clrs/bubble_sort", "clrs/bellman_ford", "proofwriter/attribute_chain")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("relations") / "d"
    made = vcrt.certify(path, schemas=SCHEMAS, episodes=10, jobs=1)
    vcrt.verify(made, jobs=1)
    return made


@pytest.fixture(scope="module")
def experiment(dataset, tmp_path_factory):
    made = vcrt.plan(
        dataset.path,
        tmp_path_factory.mktemp("planned") / "experiment",
        methods=("vcrt",),
        runs=2,
        config=vcrt.RunConfig().override({"schedule.updates": 2}),
    )
    vcrt.train(made, jobs=1)
    return made


def rows(found):
    return {(row.environment, row.predictor): row for row in found.rows}


def test_footprints_miss_no_edge_and_words_are_scored_on_the_others_threshold(dataset):
    found = vcrt.relations(dataset)
    scores = {name: row.scores for name, row in rows(found).items()}
    assert set(scores) == {
        (name, kind)
        for name in ("clrs", "proofwriter")
        for kind in ("shared words", "declared footprints")
    }
    for name, number in (("clrs", 20), ("proofwriter", 10)):
        declared = scores[name, "declared footprints"]
        # Six pairs an episode, one of them an edge.
        assert (declared.pairs, declared.edges, declared.missed) == (6 * number, number, 0)
        assert declared.auroc.value > 0.9
        assert declared.calibration is None
    assert (
        scores["clrs", "shared words"].threshold != scores["proofwriter", "shared words"].threshold
    )
    assert found.implied == {"clrs": 0, "proofwriter": 0}
    assert vcrt.relations(dataset.path) == found


def test_environments_that_declare_nothing_have_no_such_row(tmp_path):
    made = vcrt.certify(
        tmp_path / "d",
        schemas=["toy"],
        episodes=4,
        jobs=1,
        environments={"toy": toy.ToyEnvironment},
    )
    found = vcrt.relations(made, environments={"toy": toy.ToyEnvironment})
    assert {row.predictor for row in found.rows} == {"shared words"}


@pytest.mark.slow
def test_policies_before_and_after_training_where_they_are_held_out(dataset, experiment, capsys):
    with pytest.raises(RunError, match="closed until the experiment is evaluated"):
        vcrt.relations(dataset, experiment=experiment)
    vcrt.evaluate(experiment, jobs=1)
    found = rows(vcrt.relations(dataset, experiment=experiment))
    for name, number in (("clrs", 20), ("proofwriter", 10)):
        before, after = found[name, "vcrt before training"], found[name, "vcrt"]
        assert (before.runs, before.scores.pairs) == (1, 6 * number)
        assert (after.runs, after.scores.pairs) == (2, 12 * number)
        assert 0 <= after.scores.calibration <= 1
    path = dataset.path.parent / "other"
    other = vcrt.certify(path, schemas=["clrs/heapsort"], episodes=1, jobs=1)
    with pytest.raises(RunError, match="another dataset"):
        vcrt.relations(other, experiment=experiment)
    one = "vcrt/clrs/1"
    main(
        [
            "relations",
            str(dataset.path),
            "--experiment",
            str(experiment.path),
            "--run",
            one,
            "--json",
        ]
    )
    printed = json.loads(capsys.readouterr().out)
    assert [row["runs"] for row in printed["rows"] if row["predictor"] == "vcrt"] == [1]


def test_fewer_episodes_are_drawn_by_the_seed(dataset):
    some = [vcrt.relations(dataset, episodes=3, seed=seed) for seed in (1, 1, 2)]
    assert some[0] == some[1] != some[2]
    assert {row.scores.pairs for row in some[0].rows} == {18}


def test_no_episodes_at_all_are_refused(dataset):
    with pytest.raises(VcrtError, match="too few episodes"):
        vcrt.relations(dataset, episodes=0)


def test_a_language_model_is_asked_about_each_pair(dataset, tmp_path):
    tokenizer = byte_level_tokenizer(letters="ABCDEFGHIJYyNn")
    reference = locked_model(tmp_path / "model", "llama", tokenizer=tokenizer)
    found = vcrt.relations(dataset, backbone=str(reference.folder), episodes=2)
    asked = [row for row in found.rows if row.predictor.endswith(", asked")]
    assert [row.environment for row in asked] == ["clrs", "proofwriter"]
    for row in asked:
        assert row.scores.pairs == 12
        assert 0 <= row.scores.calibration <= 1


def test_the_command_prints_a_table(dataset, capsys):
    main(["relations", str(dataset.path)])
    shown = capsys.readouterr().out
    assert "How well relations between steps are inferred" in shown
    assert "declared" in shown
    assert "left out" not in shown
