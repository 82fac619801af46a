"""Attacks on plans from outside: backbones, code, searches and environments that are not what they seem."""

from __future__ import annotations

import json
import shutil

import pytest

from protocol_attacks import ATTACKS, in_this_process, locked, make_place, outcome, plan, said
from vcrt.errors import BackboneError
from vcrt_train.policy.model_provenance import PROVENANCE_FILE, ModelProvenance

#: Those that start other processes.
SLOW = (
    *("code_changed_in_silence", "alias_of_the_same_versions"),
    *("alias_of_other_versions", "alias_in_the_backbones_past"),
)
MARKS = dict.fromkeys(SLOW, pytest.mark.slow) | {
    "code_changed_between_two_methods": pytest.mark.nightly
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("attacks"))


@pytest.mark.parametrize(
    "attack",
    [pytest.param(a, id=a.do.__name__, marks=MARKS.get(a.do.__name__, ())) for a in ATTACKS],
)
def test_every_attack_is_refused_or_said(attack, place, tmp_path):
    assert outcome(attack, place, tmp_path) == attack.ends


def test_an_honest_plan_has_nothing_to_say(place, tmp_path):
    shutil.copytree(place, tmp_path / "place")
    with in_this_process():
        assert said(plan(tmp_path / "place", "honest", "clrs")) == ""
        # What the model was not trained on by vcrt may be held out again; where its base is from nobody knows.
        reference = locked(tmp_path / "place" / "model")
        words = said(plan(tmp_path / "place", "second", "proofwriter", backbone=reference))
    assert "\n" not in words
    assert "is of unknown training, then trained on clrs by vcrt/proofwriter/0" in words


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"{",
            b"[]",
            b"null",
            b"\xff",
            b"[" * 100_000,
            b'{"format": "vcrt-model-provenance/2"}',
        ),
        b'{"format": "vcrt-model-provenance/1", "provenance": {"trainings": 1}, "weights": {}, "digest": 0}',
        b'{"format": "vcrt-model-provenance/1", "provenance": {}, "weights": 7, "digest": "0"}',
    ],
)
def test_a_provenance_that_is_none_is_named(place, tmp_path, content):
    model = tmp_path / "model"
    shutil.copytree(place / "model", model)
    (model / PROVENANCE_FILE).write_bytes(content)
    with pytest.raises(BackboneError, match="provenance of the model") as error:
        locked(model)
    assert PROVENANCE_FILE in error.value.where


def test_what_a_forged_provenance_says_is_printed_without_its_control_characters(place):
    found = json.loads((place / "model" / PROVENANCE_FILE).read_text())["provenance"]
    found["trainings"][0]["run"] = "\x1b[2Jvcrt\n"
    words = ModelProvenance.model_validate(found).in_words()
    assert "\x1b" not in words
    assert "\n" not in words
