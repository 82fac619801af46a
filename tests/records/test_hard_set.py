"""The hard set from the command line: certified, shown, verified, probed, and described in a report's words."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from vcrt.cli.main import main
from vcrt.records.certificate import read_certificate
from vcrt.records.dataset import open_dataset
from vcrt_research.anonymity.material import read_probed_records
from vcrt_research.anonymity.probe import probe_records
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.report.task import chance, chance_text, task_text

SCHEMAS = ("proofwriter/ground_poset", "proofwriter/sweep_poset")
HARD = ("--relations", "reduced", "--commutations", "omitted", "--distractors", "2")


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    path = tmp_path_factory.mktemp("hard") / "data"
    few = ("--episodes", "12", "--jobs", "1", "--output", str(path))
    main(["certify", "--preset", "several", "--schemas", *SCHEMAS, *HARD, *few])
    return open_dataset(path)


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_the_manifest_says_what_was_asked_for(hard) -> None:
    value = json.loads((hard.path / "manifest.json").read_text())
    assert (value["num_operations"], value["orbit_size"]) == (4, None)
    assert value["record_form"]["distractors"] == 2
    for counts in value["counts"]["proofwriter"].values():
        assert counts["episodes"] == 12
        assert 2 * 12 <= counts["legal_orders"] <= 8 * 12
        assert counts["relations"]["precedes"] + counts["relations"].get("conflicts", 0) >= 24


def test_it_verifies(hard, capsys) -> None:
    main(["verify", str(hard.path), "--jobs", "1"])
    assert f"{24 * 24} of {24 * 24} replays agree" in " ".join(capsys.readouterr().out.split())


def test_an_episode_is_shown_by_its_schemas_preset_and_its_certificate_stands_alone(
    tmp_path, capsys
) -> None:
    main(["show", "clrs/bellman_ford_poset/7", "--json"])
    file = tmp_path / "certificate.json"
    file.write_text(capsys.readouterr().out)
    sealed = read_certificate(file)
    assert sealed.preset.orbit_size is None
    assert 2 <= len(sealed.certified.orbit) <= 8
    main(["verify", "--certificate", str(file)])
    assert "follow from the replays" in capsys.readouterr().out
    value = json.loads(file.read_text())
    value["orbit_size"] = len(sealed.certified.orbit) + 1
    file.write_text(json.dumps(value))
    assert "changed after it was made" in refused(capsys, "verify", "--certificate", file)


def test_the_probe_runs_on_it(hard) -> None:
    records = read_probed_records(hard)
    assert all(record.record.distractors for record in records)
    results, controls, _ = probe_records(records, load_backbone("embedded"), num_permutations=8)
    assert {result.target for result in results} >= {"legal order"}
    assert {control.target for control in controls} >= {"legal order, given relations"}


def test_wrong_options_are_explained(tmp_path, capsys) -> None:
    new = tmp_path / "new"
    few = ("certify", "--output", new, "--episodes", 1)
    message = refused(capsys, *few, "--schemas", "clrs/matrix_chain_poset")
    assert "add --preset several" in message
    message = refused(capsys, *few, "--preset", "several", "--schemas", "lean/cite")
    assert "add --preset paper" in message
    message = refused(capsys, *few, "--distractors", 5)
    assert "0 to 4" in message
    assert not new.exists()


def contents(**dataset):
    return SimpleNamespace(
        folds=("a", "b"), dataset={"num_operations": 4, "orbit_size": None, **dataset}
    )


def test_a_report_says_the_mean_chance() -> None:
    counts = {
        "a": {"x": {"legal_orders": 60, "orders": 240}, "y": {"legal_orders": 20, "orders": 240}},
        "b": {"x": {"legal_orders": 40, "orders": 240}},
        "c": {"x": {"legal_orders": 240, "orders": 240}},
    }
    varied = contents(counts=counts)
    assert chance(varied) == pytest.approx(1 / 6)
    assert chance_text(varied) == "16.67% on average"
    assert (
        "2 to 8 of 24, by the item, orders do, so a random order passes with 16.67%"
        in task_text(varied)
    )
    form = {"relations": "reduced", "commutations": "omitted", "distractors": 1}
    said = task_text(contents(counts=counts, record_form=form))
    assert (
        "certified relations (only relations that do not follow from others, no commuting" in said
    )
    assert "and the certified relations, no text" in task_text(contents(orbit_size=12))
    assert "12 of 24 orders do, so a random order passes with 50%." in task_text(
        contents(orbit_size=12)
    )
