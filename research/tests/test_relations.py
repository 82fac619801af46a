"""Relations inferred without replay, on the environments' own episodes."""

from __future__ import annotations

import json

import pytest

import toy_environment as toy
import vcrt
import vcrt_research
import vcrt_train
from language_models import byte_level_tokenizer, locked_model
from pretended_device import DEVICE, PretendedDevice
from vcrt.cli import main
from vcrt.errors import RunError, VcrtError
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import read_audit
from vcrt_research import relation_inference

SCHEMAS = ("clrs/bubble_sort", "clrs/bellman_ford", "proofwriter/attribute_chain")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("relations") / "d"
    made = vcrt.certify(path, schemas=SCHEMAS, episodes=10, jobs=1)
    vcrt.verify(made, jobs=1)
    return made


@pytest.fixture(scope="module")
def experiment(dataset, tmp_path_factory):
    made = vcrt_train.plan(
        dataset.path,
        tmp_path_factory.mktemp("planned") / "experiment",
        methods=("vcrt",),
        runs=2,
        config=vcrt_train.RunConfig().override({"schedule.updates": 2}),
    )
    vcrt_train.train(made, jobs=1)
    return made


def rows(found):
    return {(row.environment, row.predictor): row for row in found.rows}


def test_footprints_miss_no_edge_and_words_are_scored_on_the_others_threshold(dataset):
    found = vcrt_research.relations(dataset)
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
    assert vcrt_research.relations(dataset.path) == found


def test_environments_that_declare_nothing_have_no_such_row(tmp_path):
    made = vcrt.certify(
        tmp_path / "d",
        schemas=["toy"],
        episodes=4,
        jobs=1,
        environments={"toy": toy.ToyEnvironment},
    )
    found = vcrt_research.relations(made, environments={"toy": toy.ToyEnvironment})
    assert {row.predictor for row in found.rows} == {"shared words"}


@pytest.mark.slow
def test_policies_before_and_after_training_where_they_are_held_out(dataset, experiment, capsys):
    with pytest.raises(RunError, match="closed until the experiment is evaluated"):
        vcrt_research.relations(dataset, experiment=experiment)
    vcrt_train.evaluate(experiment, jobs=1)
    found = rows(vcrt_research.relations(dataset, experiment=experiment))
    for name, number in (("clrs", 20), ("proofwriter", 10)):
        before, after = found[name, "vcrt before training"], found[name, "vcrt"]
        assert (before.runs, before.scores.pairs) == (1, 6 * number)
        assert (after.runs, after.scores.pairs) == (2, 12 * number)
        assert 0 <= after.scores.calibration <= 1
    path = dataset.path.parent / "other"
    other = vcrt.certify(path, schemas=["clrs/heapsort"], episodes=1, jobs=1)
    with pytest.raises(RunError, match="another dataset"):
        vcrt_research.relations(other, experiment=experiment)
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
    some = [vcrt_research.relations(dataset, episodes=3, seed=seed) for seed in (1, 1, 2)]
    assert some[0] == some[1] != some[2]
    assert {row.scores.pairs for row in some[0].rows} == {18}


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    path = tmp_path_factory.mktemp("six") / "d"
    schemas = ("clrs/posets6", "proofwriter/posets6")
    made = vcrt.certify(path, preset="posets6", schemas=schemas, episodes=3, jobs=1)
    vcrt.verify(made, jobs=1)
    return made


def test_longer_episodes_have_all_pairs_but_those_that_others_imply(six):
    found = vcrt_research.relations(six)
    scores = {name: row.scores for name, row in rows(found).items()}
    for name in ("clrs", "proofwriter"):
        certified = [certified_from_row(r, six.manifest.preset) for r in read_audit(six, name)]
        relations = [relation for of in certified for relation in of.relations]
        declared = scores[name, "declared footprints"]
        assert declared.pairs == scores[name, "shared words"].pairs == len(relations)
        assert declared.pairs + found.implied[name] == 15 * 3
        assert declared.edges == sum(r.kind != "commutes" for r in relations) > 3
        assert declared.missed == 0
    assert found.implied["proofwriter"] > 0


def test_episodes_of_several_lengths(tmp_path):
    schemas = ("clrs/bubble_sort", "clrs/posets6", "proofwriter/attribute_chain")
    made = vcrt.certify(tmp_path / "d", preset="any", schemas=schemas, episodes=2, jobs=1)
    found = rows(vcrt_research.relations(made))
    assert found["clrs", "declared footprints"].scores.pairs == 2 * (6 + 15)
    assert {row.scores.missed for name, row in found.items() if "declared" in name[1]} == {0}


def test_a_policys_relations_are_not_read_beyond_five_steps(six, tmp_path):
    """Before any of its files is opened: the runs are not even trained."""
    planned = vcrt_train.plan(
        six.path,
        tmp_path / "e",
        methods=("vcrt",),
        runs=1,
        config=vcrt_train.RunConfig().override({"model.backbone": "embedded-long"}),
    )
    with pytest.raises(RunError, match="too many to read a policy's relations from") as refused:
        vcrt_research.relations(six, experiment=planned)
    assert "of one length, of 5 operations at most" in str(refused.value)


def test_no_episodes_at_all_are_refused(dataset):
    with pytest.raises(VcrtError, match="too few episodes"):
        vcrt_research.relations(dataset, episodes=0)


def test_a_language_model_is_asked_about_each_pair(dataset, tmp_path):
    tokenizer = byte_level_tokenizer(letters="ABCDEFGHIJYyNn")
    reference = locked_model(tmp_path / "model", "llama", tokenizer=tokenizer)
    found = vcrt_research.relations(dataset, backbone=str(reference.folder), episodes=2)
    asked = [row for row in found.rows if row.predictor.endswith(", asked")]
    assert [row.environment for row in asked] == ["clrs", "proofwriter"]
    for row in asked:
        assert row.scores.pairs == 12
        assert 0 <= row.scores.calibration <= 1


def test_a_language_model_is_asked_on_the_device_that_there_is(dataset, tmp_path, monkeypatch):
    tokenizer = byte_level_tokenizer(letters="ABCDEFGHIJYyNn")
    reference = locked_model(tmp_path / "model", "llama", tokenizer=tokenizer)
    asked = {"backbone": str(reference.folder), "episodes": 2}
    expected = vcrt_research.relations(dataset, **asked)
    monkeypatch.setattr(relation_inference, "device_of", lambda _: DEVICE)
    with PretendedDevice() as device:
        assert vcrt_research.relations(dataset, **asked) == expected
        assert device.has_computed


def test_the_command_prints_a_table(dataset, capsys):
    main(["relations", str(dataset.path)])
    shown = capsys.readouterr().out
    assert "How well relations between steps are inferred" in shown
    assert "declared" in shown
    assert "left out" not in shown
