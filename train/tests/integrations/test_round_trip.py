"""Every dataset that vcrt certifies goes through ``datasets`` and comes back equal in every field."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest

import vcrt
from any_environment import BOTH
from poset_environment import AnyLength
from rocq_support import needs_rocq
from toy_environment import ToyEnvironment
from vcrt.environments.registry import in_process_names, load_environment
from vcrt.errors import RunError
from vcrt.records.dataset import load_items
from vcrt.records.policy_view import PolicyRecord
from vcrt.records.record_form import RecordForm
from vcrt.records.supervision import PosetRecord, SupervisedRecord
from vcrt_train.integrations.text import answer_text, prompt_text

hub = pytest.importorskip("datasets", reason="not installed: make test-integrations")

from vcrt_train.integrations.datasets import from_dataset, to_dataset  # noqa: E402

#: Longer ones have the payloads of posets6: each length is tried in one environment, and 33 steps further below.
LONGER = {("proofwriter", "posets8"), ("proofwriter", "posets12"), ("clrs", "posets16")}
#: The environments whose presets all come back here, with all schemas. What an exporter sees of another environment is
#: its names, and the payloads of what was not replayed: one schema of each preset shows that.
LIGHT = ("clrs", "proofwriter")


def presets():
    """Environment and preset, and the schemas that are tried."""
    found = {}
    for name in in_process_names():
        for schema in load_environment(name).schemas:
            preset = schema.preset
            is_tried = not preset.startswith("posets") or preset == "posets6"
            if schema.default and (is_tried or (name, preset) in LONGER):
                found.setdefault((name, preset), []).append(f"{name}/{schema.name}")
    return {key: found[key] if key[0] in LIGHT else found[key][:1] for key in sorted(found)}


PRESETS = presets()


def marks_of(environment, preset):
    marks = [] if is_quick(environment, preset) else [pytest.mark.nightly]
    return [*marks, needs_rocq] if environment == "rocq" else marks


def is_quick(environment, preset):
    return environment in LIGHT and preset in ("paper", "several", "posets6")


HARDER = RecordForm(relations="reduced", commutations="omitted", distractors=4, pool="large")


def items_of(dataset):
    return [item for name in dataset.environments for item in load_items(dataset, name)]


def require_round_trip(dataset, folder, *, chat=False):
    """Through memory and through a file; returns the items."""
    items = items_of(dataset)
    exported = to_dataset(dataset, chat=chat)
    exported.to_parquet(str(folder / "rows.parquet"))
    read = hub.Dataset.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))
    for found in (from_dataset(exported), from_dataset(read)):
        assert found == items
        require_same_types(found, items)
    return items


def require_same_types(found, expected):
    """What ``==`` does not tell: 1 from True, and a list from a tuple within what compares by its own rule."""
    assert type(found) is type(expected)
    if is_dataclass(expected):
        for field in fields(expected):
            require_same_types(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, (list, tuple)):
        for one, other in zip(found, expected, strict=True):
            require_same_types(one, other)
    elif isinstance(expected, dict):
        for name, value in expected.items():
            require_same_types(found[name], value)


@pytest.mark.parametrize(
    ("environment", "preset"),
    [pytest.param(*each, marks=marks_of(*each), id="-".join(each)) for each in PRESETS],
)
def test_every_preset_comes_back(tmp_path, environment, preset):
    dataset = vcrt.certify(
        tmp_path / "data",
        schemas=PRESETS[environment, preset],
        episodes=1,
        preset=preset,
        jobs=1,
    )
    items = require_round_trip(dataset, tmp_path)
    # Whole trajectories of calls are long; the other environments' episodes of any preset have four steps.
    long = preset.startswith("posets") or (preset == "any" and environment in ("agentdojo", "bfcl"))
    kind = PosetRecord if long else SupervisedRecord
    assert {type(item.supervised) for item in items} == {kind}


@pytest.mark.parametrize("commutations", ["shown", "omitted"])
@pytest.mark.parametrize("relations", ["all", "reduced"])
@pytest.mark.parametrize(("pool", "distractors"), [("usual", 0), ("large", 3), ("large", 0)])
def test_every_form_of_record_comes_back(tmp_path, relations, commutations, distractors, pool):
    form = RecordForm(
        relations=relations, commutations=commutations, distractors=distractors, pool=pool
    )
    dataset = vcrt.certify(
        tmp_path / "data",
        schemas=["toy"],
        episodes=2,
        **({} if form is None else form.model_dump()),
        jobs=1,
        environments={"toy": ToyEnvironment},
    )
    items = require_round_trip(dataset, tmp_path, chat=distractors > 0)
    assert {item.supervised.record.pool for item in items} == {8 if pool == "usual" else 32}


@pytest.mark.parametrize("view", ["steps", "footprints"])
def test_records_of_text_come_back(tmp_path, view):
    dataset = vcrt.certify(
        tmp_path / "data", schemas=["clrs/bubble_sort"], episodes=2, view=view, jobs=1
    )
    items = require_round_trip(dataset, tmp_path)
    prompts = to_dataset(dataset)["prompt"]
    for item, prompt in zip(items, prompts, strict=True):
        record = item.supervised.record
        assert ("Bubble sort" in prompt) == (view == "steps")
        for slot, text in enumerate(record.steps):
            assert f"\n{answer_text(record, (slot,))}: {text}\n" in prompt


@pytest.mark.parametrize(
    ("preset", "pool", "complete"),
    [(5, 32, 1), (7, 32, 1), (11, 32, 0), pytest.param(33, 64, 0, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("form", [None, HARDER], ids=["usual", "harder"])
def test_records_of_any_length_come_back(tmp_path, preset, pool, complete, form):
    dataset = vcrt.certify(
        tmp_path / "data",
        schemas=["posets"],
        episodes=1 if preset == 33 else 2,
        preset=f"posets{preset}",
        **({} if form is None else form.model_dump()),
        jobs=1,
        environments={"posets": AnyLength},
    )
    items = require_round_trip(dataset, tmp_path)
    assert {item.supervised.record.pool for item in items} == {pool}
    assert {item.unreplayed is None for item in items} == {bool(complete)}


def test_records_of_several_lengths_come_back(tmp_path):
    dataset = vcrt.certify(
        tmp_path / "data",
        schemas=["plans/three", "plans/mixed"],
        episodes=6,
        preset="any",
        jobs=1,
        environments=BOTH,
    )
    items = require_round_trip(dataset, tmp_path)
    assert len({item.supervised.num_operations for item in items}) > 2


def test_every_field_of_an_item_is_exported():
    """A field that is new must be exported too; this list is what the round trip was written for."""
    assert [field.name for field in fields(PolicyRecord)] == [
        "record_id", "pointers", "relations", "distractors", "pool", "task", "steps",
    ]  # fmt: skip
    assert [field.name for field in fields(SupervisedRecord)] == ["record", "legal", "histories"]
    assert [field.name for field in fields(PosetRecord)] == ["record", "order"]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return vcrt.certify(
        tmp_path_factory.mktemp("long") / "data",
        schemas=["posets"],
        episodes=2,
        preset="posets7",
        jobs=1,
        environments={"posets": AnyLength},
    )


def test_long_records_are_rewarded_by_their_partial_order_and_refused_where_orbits_are_needed(long):
    pytest.importorskip("trl", reason="not installed: make test-integrations")
    from vcrt_train.integrations.trl import OrbitGRPOConfig, certified_reward
    from vcrt_train.integrations.trl.orbit_grpo_config import require_supported

    rows = to_dataset(long)
    columns = {name: rows[name] for name in ("orbit", "partial_order", "pointers")}
    items = items_of(long)
    slots = [tuple(range(7)), tuple(reversed(range(7)))]
    for order in (*slots, (1, 0, 2, 3, 4, 5, 6)):
        texts = [answer_text(item.supervised.record, order) for item in items]
        expected = [float(item.supervised.order.allows(order)) for item in items]
        assert certified_reward(texts, **columns) == expected
    assert certified_reward(["p0 p1", ""], **columns) == [0.0, 0.0]
    config = OrbitGRPOConfig("unused", use_cpu=True, bf16=False)
    with pytest.raises(RunError, match=r"not listed.*\n.*\n.*2 of 2 records"):
        require_supported(config, {"train_dataset": rows}, {})


def test_long_records_are_tasks_of_verifiers(long):
    pytest.importorskip("verifiers.v1", reason="not installed: make test-integrations")
    from vcrt_train.integrations.verifiers import load_environment, score_answer

    tasks = list(load_environment(long.path).taskset)
    for task, item in zip(tasks, items_of(long), strict=True):
        record, order = item.supervised.record, item.supervised.order
        assert task.data.prompt == prompt_text(record, vcrt_rendering())
        assert task.data.orbit is None
        legal = next(iter(sorted(range(7), key=lambda i: order.predecessors[i].bit_count())))
        assert order.predecessors[legal] == 0
        whole = sorted(range(7), key=lambda i: order.predecessors[i].bit_count())
        for sequence in (whole, whole[::-1]):
            found = score_answer(
                task.data.pointers, None, answer_text(record, sequence), task.data.partial_order
            )
            assert found == float(order.allows(sequence))


def vcrt_rendering():
    from vcrt_train.integrations.text import Rendering

    return Rendering()
