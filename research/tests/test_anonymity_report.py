"""The probe of a dataset from its directory to the printed table, the file and the report's sentences."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from vcrt.cli import main
from vcrt.errors import DatasetError, VcrtError
from vcrt.records.dataset import open_dataset
from vcrt_research.anonymity.material import read_probed_records
from vcrt_research.anonymity.probe import probe_dataset
from vcrt_research.anonymity.result import (
    AnonymityReport,
    ProbeResult,
    Unmeasured,
    read_report,
    report_bytes,
    require_anonymous,
)
from vcrt_research.anonymity.tasks import TARGETS
from vcrt_research.anonymity.views import WORD_VIEWS
from vcrt_research.anonymity.words import anonymity_sentences, anonymity_table
from vcrt_research.commands import probe as command
from vcrt_research.probing import probe
from vcrt_train.report.table import to_csv, to_html, to_text


def result(**changes):
    made = ProbeResult(
        target="environment",
        view="file row",
        num_records=600,
        num_classes=2,
        auc=0.52,
        low=0.45,
        high=0.59,
        p_value=0.31,
        at_chance=True,
    )
    return replace(made, **changes)


LEAK = result(
    view="hidden state, mean", auc=0.81, low=0.74, high=0.88, p_value=0.002, at_chance=False
)
SEEN = result(target="relation types", auc=0.99, low=0.9, high=1.0, p_value=0.01, at_chance=False)
BLIND = replace(SEEN, view="prompt, sorted", auc=0.51, low=0.43, high=0.6, at_chance=True)


HONEST = result()


def report(results=(HONEST,), controls=(SEEN,), findings=()):
    return AnonymityReport(
        root_hash="ab" * 32,
        backbone_digest="cd" * 32,
        seed=0,
        level=0.95,
        results=results,
        controls=controls,
        unmeasured=(Unmeasured(target="schema", view=None, reason="there is one schema"),),
        findings=findings,
    )


def certified(path, episodes):
    schemas = ["clrs/bellman_ford", "clrs/mst_kruskal", "proofwriter/attribute_chain"]
    arguments = ["--schemas", *schemas, "--episodes", str(episodes), "--jobs", "1"]
    main(["certify", "--output", str(path), *arguments])
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return certified(tmp_path_factory.mktemp("anonymity") / "data", 12)


@pytest.mark.slow
def test_a_certified_dataset_is_at_chance(tmp_path):
    dataset = certified(tmp_path / "data", 40)
    probed = probe_dataset(open_dataset(dataset), num_permutations=100)
    assert len(probed.results) == 22
    assert probed.leaks == ()
    assert probed.findings == ()
    # Every file holds one environment.
    assert [(u.target, u.view) for u in probed.unmeasured] == [("environment", "row order")]
    controls = {(c.target, c.view): c for c in probed.controls}
    assert controls["relation types", "file row"].auc > 0.9
    assert controls["legal order, given relations", "prompt, sorted"].auc > 0.8
    assert probed == probe_dataset(open_dataset(dataset), num_permutations=100)
    (tmp_path / "anonymity.json").write_bytes(report_bytes(probed))
    assert read_report(tmp_path / "anonymity.json") == probed


def test_the_material_is_the_files_rows(dataset):
    probed = read_probed_records(open_dataset(dataset))
    assert len(probed) == 36
    assert {(r.environment, r.schema) for r in probed} == {
        ("clrs", "bellman_ford"),
        ("clrs", "mst_kruskal"),
        ("proofwriter", "attribute_chain"),
    }
    for record in probed:
        assert json.loads(record.text) == record.record.to_json()
        assert sum(record.legal) == 12
        assert 0 <= record.row < record.num_rows


def test_the_command_prints_and_writes(dataset, tmp_path, capsys):
    output = tmp_path / "anonymity.json"
    # So few records leave some control of a hidden state at chance, and that is said too.
    with pytest.raises(DatasetError, match="control") as caught:
        command(dataset, output)
    assert "asks for more records" in str(caught.value)
    text = capsys.readouterr().out
    assert "What can be guessed from policy records" in text
    assert "22 probes of the policy records' anonymity, none above chance" in text
    assert "both with opaque names of relations and in words" in " ".join(text.split())
    kept = read_report(output)
    assert kept.root_hash == open_dataset(dataset).manifest.root_hash
    for target in TARGETS:
        assert {one.view for one in kept.results if one.target == target} >= {*WORD_VIEWS}
    with pytest.raises(VcrtError, match="not overwritten"):
        probe(dataset, output)
    with pytest.raises(DatasetError, match="nothing but the dataset"):
        probe(dataset, dataset / "anonymity.json")
    open_dataset(dataset)


def test_leaks_blind_controls_and_findings_are_refused():
    require_anonymous(report(), "data")
    for bad, words in (
        (report(results=(HONEST, LEAK)), "environment from hidden state, mean: AUC 0.810"),
        (report(controls=(SEEN, BLIND)), "control relation types from prompt, sorted"),
        (report(findings=("policy/a.jsonl.gz: rows do not ascend by record_id",)), "do not ascend"),
    ):
        with pytest.raises(DatasetError, match=words):
            require_anonymous(bad, "data")


def test_the_table_has_a_row_for_each_probe_and_control():
    full = report(results=(HONEST, LEAK), controls=(SEEN, BLIND))
    table = anonymity_table(full)
    assert [row[-1] for row in table.rows] == ["chance", "leak", "control: seen", "control: blind"]
    assert table.rows[0][4:7] == ("0.520", "[0.450, 0.590]", "0.310")
    for rendered in (to_text(table), to_csv(table), to_html(table)):
        assert "0.810" in rendered
    assert "all 2 hold at once in 95%" in table.note


def test_sentences_say_what_leaks_and_what_was_not_measured():
    (good, unmeasured) = anonymity_sentences(report())
    assert good == "1 probe of the policy records' anonymity, none above chance."
    assert unmeasured == "Not measured: schema, because there is one schema."
    bad = " ".join(anonymity_sentences(report(results=(LEAK,), controls=(BLIND,), findings=("x",))))
    assert "not anonymous" in bad
    assert "Prompts were" not in bad
    prompts = [result(view="prompt, sorted"), result(view="prompt in words, shuffled")]
    (_, opaque, _) = anonymity_sentences(report(results=tuple(prompts[:1])))
    assert opaque == "Prompts were probed with opaque names of relations, not in words."
    (_, both, _) = anonymity_sentences(report(results=tuple(prompts)))
    assert both == "Prompts were probed both with opaque names of relations and in words."
    assert "environment from hidden state, mean (AUC 0.810)" in bad
    assert "Controls that should guess and do not: relation types from prompt, sorted." in bad


def test_no_probe_is_no_verdict():
    sentences = anonymity_sentences(replace(report(), results=(), controls=()))
    assert "Nothing is known" in sentences[0]
    assert "none above chance" not in " ".join(sentences)


def test_a_file_of_another_form_is_refused(tmp_path):
    path = tmp_path / "anonymity.json"
    value = json.loads(report_bytes(report()))
    for change, field in (
        ({"more": 1}, "more"),
        ({"seed": "x"}, "seed"),
        ({"results": [{**value["results"][0], "view": "elsewhere"}]}, "results.0.view"),
    ):
        path.write_text(json.dumps({**value, **change}))
        with pytest.raises(DatasetError, match=field):
            read_report(path)
    path.write_text("{")
    with pytest.raises(DatasetError, match="vcrt probe"):
        read_report(path)
