"""Checkpoints: resumed equals uninterrupted, and damage is always found."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file

from configs import resolved as config
from training_fixtures import (
    ENCODE,
    answering_model,
    same_tensors,
    supervised_records,
    tiny_model,
    weights,
)
from vcrt.errors import RunError
from vcrt_train.training.checkpoint import load_checkpoint, load_weights, save_checkpoint
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import METHODS, method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

FILES = ("checkpoint.json", "metrics.json", "trainer.safetensors", "weights.safetensors")


def _state(*, rate=1e-3, frozen_layer=False, **model_settings):
    model = tiny_model(**model_settings) if model_settings else answering_model()
    if frozen_layer:
        model.model.layers[0].requires_grad_(False)
    return new_state(model, config(learning_rate=rate), seed=7)


def _go_on(state, updates, name="vcrt"):
    chosen = method(name)
    items = encode_items(supervised_records(6), chosen, seed=7, encode=ENCODE)
    frozen = orbit_log_masses(tiny_model(), items, interface=chosen.interface)
    metrics = []
    for _ in range(updates):
        pick = [(2 * state.update_index + k) % len(items) for k in range(2)]
        metrics.append(
            update(
                state,
                [items[i] for i in pick],
                frozen[pick],
                method=chosen,
                config=config(learning_rate=1e-3, retention_cap=-0.2),
            ).to_json()
        )
    return metrics


def _optimizer_tensors(state):
    flat = {}
    for index, fields in state.optimizer.state_dict()["state"].items():
        flat.update({f"{index}/{field}": value for field, value in fields.items()})
    return flat


@pytest.mark.parametrize("name", sorted(METHODS))
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, name):
    whole = _state()
    whole_metrics = _go_on(whole, 6, name)

    first = _state()
    digest = save_checkpoint(first, tmp_path / "a", _go_on(first, 3, name))
    resumed = _state(seed=99)
    metrics = load_checkpoint(resumed, tmp_path / "a", expected_digest=digest)
    metrics += _go_on(resumed, 3, name)

    assert same_tensors(weights(resumed.model), weights(whole.model))
    assert same_tensors(_optimizer_tensors(resumed), _optimizer_tensors(whole))
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())
    assert resumed.duals == whole.duals
    assert (whole.duals["retention"] > 0) == ("retention" in METHODS[name].terms)
    assert resumed.update_index == whole.update_index == 6
    assert metrics == whole_metrics
    assert save_checkpoint(resumed, tmp_path / "b", metrics) == save_checkpoint(
        whole, tmp_path / "c", whole_metrics
    )


def test_frozen_parameters_are_left_out(tmp_path):
    state = _state(frozen_layer=True)
    save_checkpoint(state, tmp_path / "a", _go_on(state, 2))
    saved = load_file(tmp_path / "a" / "weights.safetensors")
    assert saved
    assert not any("layers.0." in name for name in saved)
    resumed = _state(frozen_layer=True)
    load_checkpoint(resumed, tmp_path / "a")
    assert same_tensors(weights(resumed.model), weights(state.model))
    _go_on(state, 1)
    _go_on(resumed, 1)
    assert same_tensors(weights(resumed.model), weights(state.model))


def test_a_state_before_its_first_update_can_be_saved(tmp_path):
    save_checkpoint(_state(), tmp_path / "a", [])
    resumed = _state(seed=99)
    assert load_checkpoint(resumed, tmp_path / "a") == []
    fresh = _state()
    _go_on(fresh, 1)
    _go_on(resumed, 1)
    assert same_tensors(weights(resumed.model), weights(fresh.model))


def test_only_safetensors_and_json_are_written(tmp_path):
    save_checkpoint(_state(), tmp_path / "a", [])
    assert sorted(os.listdir(tmp_path)) == ["a"]
    assert sorted(os.listdir(tmp_path / "a")) == sorted(FILES)
    assert json.loads((tmp_path / "a" / "checkpoint.json").read_text())["update_index"] == 0


def test_a_checkpoint_is_never_overwritten(tmp_path):
    save_checkpoint(_state(), tmp_path / "a", [])
    with pytest.raises(RunError, match="not overwritten"):
        save_checkpoint(_state(), tmp_path / "a", [])


def test_an_interrupted_write_leaves_no_checkpoint_and_does_not_block_the_next(
    tmp_path, monkeypatch
):
    def fail(descriptor):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(_state(), tmp_path / "a", [])
    assert not (tmp_path / "a").exists()
    save_checkpoint(_state(), tmp_path / "a", [])
    assert sorted(os.listdir(tmp_path)) == ["a"]
    load_checkpoint(_state(), tmp_path / "a")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    state = _state()
    directory = tmp_path_factory.mktemp("saved") / "a"
    digest = save_checkpoint(state, directory, _go_on(state, 1))
    return directory, digest


def _copy(saved, tmp_path):
    directory = tmp_path / "copy"
    directory.mkdir()
    for name in FILES:
        (directory / name).write_bytes((saved[0] / name).read_bytes())
    return directory


def _assert_refused_untouched(directory, *, match, state=None, digest=None):
    state = state or _state()
    before, duals = weights(state.model), dict(state.duals)
    generator = state.generator.get_state()
    with pytest.raises(RunError, match=match):
        load_checkpoint(state, directory, expected_digest=digest)
    assert same_tensors(weights(state.model), before)
    assert torch.equal(state.generator.get_state(), generator)
    assert (state.duals, state.update_index) == (duals, 0)
    assert not state.optimizer.state


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_damage_to_any_file_is_found(saved, tmp_path, name, damage):
    directory = _copy(saved, tmp_path)
    data = bytearray((directory / name).read_bytes())
    if damage == "missing":
        (directory / name).unlink()
    elif damage == "cut":
        (directory / name).write_bytes(data[:-1])
    else:
        data[len(data) // 2] ^= 1
        (directory / name).write_bytes(data)
    _assert_refused_untouched(directory, match=name, digest=saved[1])


def test_an_altered_head_is_found_by_the_expected_digest(saved, tmp_path):
    directory = _copy(saved, tmp_path)
    head = json.loads((directory / "checkpoint.json").read_text())
    head["update_index"] = 400
    (directory / "checkpoint.json").write_text(json.dumps(head))
    _assert_refused_untouched(directory, match="SHA-256", digest=saved[1])


@pytest.mark.parametrize(
    "alter",
    [
        lambda head: head.pop("duals"),
        lambda head: head["files"].pop("metrics.json"),
        lambda head: head["files"].update({"../weights": "0" * 64}),
        lambda head: head.update(format=2),
    ],
    ids=["missing-field", "missing-file", "foreign-file", "other-format"],
)
def test_a_head_of_another_form_is_refused(saved, tmp_path, alter):
    directory = _copy(saved, tmp_path)
    head = json.loads((directory / "checkpoint.json").read_text())
    alter(head)
    (directory / "checkpoint.json").write_text(json.dumps(head))
    _assert_refused_untouched(directory, match=r"checkpoint\.json")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"width": 16}, "another model"),
        ({"frozen_layer": True}, "another model"),
        ({"rate": 2e-3}, "another optimiser"),
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused(saved, settings, match):
    _assert_refused_untouched(saved[0], match=match, state=_state(**settings))


def test_weights_alone_are_those_of_the_checkpoint(saved, tmp_path):
    """Moments and metrics are not opened: neither need be there."""
    directory = _copy(saved, tmp_path)
    for name in ("trainer.safetensors", "metrics.json"):
        (directory / name).unlink()
    whole, alone = _state(), _state()
    before = weights(alone.model)
    load_checkpoint(whole, saved[0])
    load_weights(alone.model, directory, expected_digest=saved[1])
    assert same_tensors(weights(alone.model), weights(whole.model))
    assert not same_tensors(weights(alone.model), before)
    assert not alone.optimizer.state


@pytest.mark.parametrize("name", ["weights.safetensors", "checkpoint.json"])
def test_altered_weights_are_refused_and_the_model_is_left_alone(saved, tmp_path, name):
    directory = _copy(saved, tmp_path)
    data = bytearray((directory / name).read_bytes())
    data[len(data) // 2] ^= 1
    (directory / name).write_bytes(data)
    _assert_weights_refused(directory, saved[1], match=name)


def test_weights_of_another_run_or_model_are_refused(saved):
    _assert_weights_refused(saved[0], "0" * 64, match="SHA-256")
    _assert_weights_refused(saved[0], saved[1], match="another run", identity="another")
    _assert_weights_refused(saved[0], saved[1], match="another model", width=16)


def _assert_weights_refused(directory, digest, *, match, identity="", **model_settings):
    model = _state(**model_settings).model
    before = weights(model)
    with pytest.raises(RunError, match=match):
        load_weights(model, directory, identity=identity, expected_digest=digest)
    assert same_tensors(weights(model), before)
