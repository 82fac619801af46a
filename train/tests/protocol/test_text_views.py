"""Records of text, from certification to the report, on a tiny language model; refused where the model cannot read."""

from __future__ import annotations

import html
import json

import pytest

import vcrt
import vcrt_train
from language_models import save_model
from one_process import in_this_process
from vcrt.errors import BackboneError
from vcrt.records.dataset import read_policy_records
from vcrt_train.policy.locking import make_lock
from vcrt_train.policy.reference import backbone_reference

SCHEMAS = ("clrs/bubble_sort", "proofwriter/attribute_chain")


#: By view, what the report says that was shown, and what it says that this cannot tell.
SAID = {
    "steps": (
        "the task and the native steps as text, in random order under anonymous pointers, and no relations",
        "Whether a policy orders steps that it writes itself",
    ),
    "footprints": (
        "with what each step declares to read and to write, and no relations",
        "Whether footprints could be read from raw text",
    ),
}


@pytest.fixture(scope="module", params=list(SAID))
def dataset(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "d"
    made = vcrt.certify(path, schemas=SCHEMAS, episodes=8, view=request.param, jobs=1)
    vcrt.verify(made, jobs=1)
    return made


@pytest.fixture(scope="module")
def report(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    # Steps are longer than the small model reads by default.
    settings = save_model(folder / "model", "llama") / "config.json"
    settings.write_text(
        json.dumps(json.loads(settings.read_text()) | {"max_position_embeddings": 2048})
    )
    reference = backbone_reference(str(folder / "model"), dtype="float32", prompt_style="plain")
    make_lock(reference)
    config = vcrt_train.RunConfig().override(
        {
            "model.backbone": str(reference.folder),
            "adapter.rank": 2,
            "adapter.alpha": 4.0,
            "optimiser.learning_rate": 1e-3,
            "schedule.updates": 2,
        }
    )
    experiment = vcrt_train.plan(
        dataset.path,
        folder / "experiment",
        methods=("canonical-grpo", "vcrt"),
        held_out=("clrs",),
        runs=1,
        config=config,
    )
    with in_this_process():
        vcrt_train.train(experiment, jobs=1)
        vcrt_train.evaluate(experiment, jobs=1)
    return vcrt_train.write_report(experiment)


@pytest.mark.slow
def test_the_report_says_what_was_shown_and_what_it_gives_away(dataset, report):
    view = dataset.manifest.record_form.view
    tables, text = (
        html.unescape(" ".join(report.files[name].read_text().split()))
        for name in ("tables.txt", "report.html")
    )
    shown, untold = SAID[view]
    assert shown in tables
    assert shown in text
    assert untold in text
    assert "the certified relations, no text" not in tables + text
    texts = {
        name: [
            " ".join((each.task, *each.steps))
            for each in read_policy_records(dataset, name).values()
        ]
        for name in dataset.environments
    }
    for name, of_name in texts.items():
        naming = sum(name in text.lower() for text in of_name)
        assert f"Of {len(of_name)} records of {name}, {naming} name it and" in text
    assert ("hold a word of it alone: " in text) is (view == "steps")


@pytest.mark.parametrize("backbone", ["embedded", "embedded-long"])
def test_an_embedded_backbone_is_refused_before_anything_is_made(dataset, tmp_path, backbone):
    config = vcrt_train.RunConfig().override({"model.backbone": backbone})
    with pytest.raises(BackboneError, match="these records are text") as error:
        vcrt_train.plan(dataset.path, tmp_path / "experiment", config=config)
    assert "smollm2-135m" in error.value.remedy
    assert not (tmp_path / "experiment").exists()
