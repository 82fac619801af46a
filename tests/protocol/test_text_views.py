"""Records of text, from certification to the report, on a tiny language model; refused where the model cannot read."""

from __future__ import annotations

import pytest

import vcrt
from language_models import locked_model
from vcrt.errors import BackboneError

SCHEMAS = ("clrs/bubble_sort", "proofwriter/attribute_chain")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("footprints") / "d"
    made = vcrt.certify(path, schemas=SCHEMAS, episodes=8, view="footprints", jobs=1)
    vcrt.verify(made, jobs=1)
    return made


@pytest.fixture(scope="module")
def report(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    reference = locked_model(folder / "model", "llama")
    config = vcrt.RunConfig().override(
        {
            "model.backbone": str(reference.folder),
            "adapter.rank": 2,
            "adapter.alpha": 4.0,
            "optimiser.learning_rate": 1e-3,
            "schedule.updates": 2,
        }
    )
    experiment = vcrt.plan(
        dataset.path,
        folder / "experiment",
        methods=("canonical-grpo", "vcrt"),
        held_out=("clrs",),
        runs=1,
        config=config,
    )
    vcrt.train(experiment, jobs=1)
    vcrt.evaluate(experiment, jobs=1)
    return vcrt.write_report(experiment)


@pytest.mark.slow
def test_the_report_says_what_was_shown_and_what_it_gives_away(report):
    text = report.files["tables.txt"].read_text() + report.files["report.html"].read_text()
    assert "with what each step declares to read and to write, and no relations" in text
    assert "hold a word of it alone" in text
    assert "Whether footprints could be read from raw text" in text
    assert "the certified relations, no text" not in text


@pytest.mark.parametrize("backbone", ["embedded", "embedded-long"])
def test_an_embedded_backbone_is_refused_before_anything_is_made(dataset, tmp_path, backbone):
    config = vcrt.RunConfig().override({"model.backbone": backbone})
    with pytest.raises(BackboneError, match="records of steps are text") as error:
        vcrt.plan(dataset.path, tmp_path / "experiment", config=config)
    assert "smollm2-135m" in error.value.remedy
    assert not (tmp_path / "experiment").exists()
