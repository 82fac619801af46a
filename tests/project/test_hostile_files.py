"""Files that nobody honest wrote: what research/benchmarks/trust/fuzz.py found, and more, each ending in a named error.

Mutations by the hundred thousand are the benchmark's; here stand the defects that were found, one input each, the
attempts on places outside a given directory, and a little of hypothesis.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toy_environment as toy
from configs import config
from language_models import save_model
from training_fixtures import tiny_model
from vcrt.datasets.freezing import make_dataset
from vcrt.documents import is_plain_name, strict_json
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.errors import (
    BackboneError,
    ConfigError,
    DatasetError,
    MalformedInputError,
    RunError,
    VcrtError,
)
from vcrt.hashing import file_digest, json_digest, sha256_hex
from vcrt.records import audit
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import open_dataset, read_audit
from vcrt.records.ledger import Ledger
from vcrt.records.manifest import Manifest
from vcrt.records.policy_view import record_from_json, record_of_json
from vcrt.replay.config import sampled
from vcrt.replay.evidence import FirstReplay, SecondReplay
from vcrt_lean.program import read_program
from vcrt_proofwriter import files
from vcrt_proofwriter.files import Refused, read_rows
from vcrt_proofwriter.theory import MAX_TERM, is_term
from vcrt_train.policy.backbone import EMBEDDED_DIRECTORY, load_backbone, verify_lock
from vcrt_train.policy.locking import make_lock, model_files, read_lock
from vcrt_train.policy.reference import EMBEDDED, backbone_reference
from vcrt_train.protocol.experiment import create_experiment
from vcrt_train.protocol.plan import PLAN_FILE, Plan, read_plan
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.relation_records import read_relation_record
from vcrt_train.protocol.search import FORMAT, Search, Trial, read_search, settings_of_trial
from vcrt_train.training.checkpoint import (
    METRICS,
    TRAINER,
    WEIGHTS,
    load_checkpoint,
    save_checkpoint,
)
from vcrt_train.training.update import new_state

DEEP = "[" * 100_000 + "]" * 100_000
#: Texts that are no JSON for a reader that is strict, or none that it can bear.
NO_JSON = (
    "",
    "{",
    "\x00",
    DEEP,
    '{"a":' * 5000,
    "NaN",
    '{"a":1,"a":1}',
    '{"a":"\\ud800"}',
    "1e999",
    "9" * 5000,
)
#: Names that lead out of a directory, or are none.
PLACES = (
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..",
    ".",
    "",
    ".x",
    "a\0b",
    "a\nb",
    "x" * 300,
    "\ud800",
    3,
    None,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    asked = sampled({"toy-a": ("needs",), "toy-b": ("needs",)}, 4)
    path = tmp_path_factory.mktemp("hostile") / "data"
    dataset = make_dataset(asked, path, jobs=1, factories=toy.THREE_TOYS)
    dataset.path.with_name("plan").mkdir()
    plan = make_plan(
        dataset,
        backbone=EMBEDDED,
        backbone_digest="d",
        methods=("vcrt",),
        seeds=(0,),
        config=EMBEDDED.resolved(config(updates=2, retention_share=0.3)),
    )
    create_experiment(plan, path.with_name("experiment"))
    return dataset


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def plan(made, tmp_path):
    """A plan's file, and its JSON."""
    shutil.copy(made.path.with_name("experiment") / PLAN_FILE, tmp_path / PLAN_FILE)
    return tmp_path / PLAN_FILE, json.loads((tmp_path / PLAN_FILE).read_text())


@pytest.mark.parametrize("text", NO_JSON)
def test_the_strict_reader_of_json_refuses(text):
    with pytest.raises(ValueError):  # noqa: PT011 - its own words vary with what is wrong
        strict_json(text)


def test_names_of_files_are_plain():
    assert not any(map(is_plain_name, PLACES))
    assert all(map(is_plain_name, ("lean", "toy-b", "model-00001-of-00002.safetensors", "é")))


@pytest.mark.parametrize("text", NO_JSON)
def test_no_json_is_a_named_error_everywhere(text, made, plan, tmp_path):
    file = tmp_path / "file.json"
    file.write_text(text)
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (model / name).write_text("{}")
    (model / "model.safetensors.index.json").write_text(text)
    (tmp_path / "lock.json").write_text(text)
    readers = [
        lambda: read_plan(file),
        lambda: read_search(file),
        lambda: read_lock(file),
        lambda: model_files(model),
        lambda: verify_lock(tmp_path),
        lambda: record_of_json(text, "here"),
        lambda: audit.episode_of_json(text, "here"),
        lambda: read_relation_record(text.encode(), "here"),
    ]
    for read in readers:
        with pytest.raises(VcrtError):
            read()


def resealed(path, value):
    """A plan whose hash holds, whatever is in it; of settings that are none, nobody knows the hash."""
    with suppress(ValueError):
        value["plan_hash"] = Plan.model_validate(value["plan"]).plan_hash
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("name", PLACES[:9])
@pytest.mark.parametrize("field", ["methods", "held_out", "environments"])
def test_a_plan_names_no_folder_outside_the_experiment(plan, field, name):
    path, value = plan
    value["plan"][field] = [*value["plan"][field], name]
    with pytest.raises(RunError, match="cannot be read"):
        read_plan(resealed(path, value))


def chosen(*changed):
    """What a search chose, but for one setting of one method and fold."""
    return {
        "vcrt": {
            "toy-a": {**settings_of_trial(0, 1), **dict(changed)},
            "toy-b": settings_of_trial(0, 1),
        }
    }


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": list(range(10_001))},
        {"seeds": []},
        {"episode_order_hashes": {}},
        {"chosen": {"other": {}}},
        {"config": {}},
        {"config": {"schedule": {"updates": 10**18, "checkpoints": []}}},
        {"config": {"extra": 1}},
        {"config": {"extra": {}}},
        {"config": {"schedule": {"extra": 1}}},
        {"config": {"schedule": {"updates": "many"}}},
        {"config": {"schedule": {"checkpoints": []}}},
        {"config": {"optimiser": {"learning_rate": None}}},
        {"chosen": chosen(("objective.margn", 2.0))},
        {"chosen": chosen(("objective.mu", -1.0))},
        {"chosen": chosen(("schedule.updates", 800))},
    ],
)
def test_a_plan_whose_hash_holds_may_still_be_impossible(plan, change):
    path, value = plan
    if change.get("config"):
        change = {"config": merged(value["plan"]["config"], change["config"])}
    value["plan"] |= change
    with pytest.raises(RunError, match="cannot be read"):
        read_plan(resealed(path, value))


def merged(settings, change):
    return settings | {
        name: settings[name] | keys if name in settings and isinstance(keys, dict) else keys
        for name, keys in change.items()
    }


def test_a_plan_may_hold_what_a_search_chose(plan):
    path, value = plan
    value["plan"]["chosen"] = chosen()
    read_plan(resealed(path, value))


def test_a_search_that_claims_to_be_endless_is_refused_at_once(tmp_path):
    trial = Trial(
        method="vcrt", held_out="a", number=0, settings=settings_of_trial(0, 0), pass_rate=0, orbit_mass=0
    )  # fmt: skip
    for change in ({"num_trials": 10**15}, {"learning_rate": 1e-320}, {"methods": ("vcrt",) * 500}):
        values = {
            "format": FORMAT, "root_hash": "r", "backbone": EMBEDDED, "backbone_digest": "d", "methods": ("vcrt",),
            "definitions": {}, "held_out": ("a",), "num_trials": 1, "seed": 0,
            "learning_rate": 1e-3, "config": {}, "code": {"vcrt": "c"}, "trials": (trial,),
        }  # fmt: skip
        search = Search(**{**values, **change})
        value = {"search": search.model_dump(mode="json"), "digest": search.digest}
        (tmp_path / "search.json").write_text(json.dumps(value))
        with pytest.raises(RunError, match="does not have the trials"):
            read_search(tmp_path / "search.json")


def reseal(path, value):
    """A manifest whose root hash holds."""
    value["root_hash"] = Manifest.model_validate(value).computed_root_hash()
    (path / "manifest.json").write_text(json.dumps(value))


@pytest.mark.parametrize("name", PLACES[:9])
def test_a_manifest_names_no_file_outside_its_directory(copy, name):
    value = json.loads((copy / "manifest.json").read_text())
    outside = copy.parent / "outside"
    outside.write_bytes(b"x")
    entry = {"size": 1, "sha256": file_digest(outside)}
    as_file = json.loads(json.dumps(value))
    as_file["files"][name], as_file["content"][name] = entry, "0" * 64
    as_environment = json.loads(json.dumps(value))
    as_environment["counts"][name] = as_environment["counts"].pop("toy-a")
    for changed in (as_file, as_environment):
        reseal(copy, changed)
        with pytest.raises(DatasetError, match="names files that no dataset has"):
            open_dataset(copy)


def test_a_link_that_leads_out_of_a_dataset_is_refused(copy):
    file = copy / "audit" / "toy-a.jsonl.gz"
    file.rename(copy.parent / "elsewhere.jsonl.gz")
    file.symlink_to(copy.parent / "elsewhere.jsonl.gz")
    with pytest.raises(DatasetError, match="symbolic link"):
        open_dataset(copy)
    file.unlink()
    shutil.copy(copy.parent / "elsewhere.jsonl.gz", file)
    # The whole dataset may well be a link.
    copy.with_name("link").symlink_to(copy)
    open_dataset(copy.with_name("link"))


def test_a_manifest_with_a_number_that_is_none_is_refused(copy):
    value = json.loads((copy / "manifest.json").read_text())
    value["series"][0]["sampled"] = float("nan")
    (copy / "manifest.json").write_text(json.dumps(value))
    with pytest.raises(DatasetError):
        open_dataset(copy)


@pytest.mark.parametrize("name", PLACES[:9])
def test_locks_and_indices_name_no_file_outside_their_folder(tmp_path, name):
    files = {name: "0" * 64}
    lock = {"format": "vcrt-backbone-lock/1", "name": "m", "revision": None, "files": files}
    (tmp_path / "lock.json").write_text(json.dumps({**lock, "digest": json_digest(files)}))
    with pytest.raises(BackboneError, match="cannot be read"):
        read_lock(tmp_path / "lock.json")
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_text("{}")
    index = {"weight_map": {"w": f"{name}"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BackboneError, match="index of the weights cannot be read"):
        model_files(tmp_path)


def test_the_embedded_lock_reads_numbers_that_are_none(tmp_path):
    for path in EMBEDDED_DIRECTORY.iterdir():
        if path.is_file() and path.name != "lock.json":
            (tmp_path / path.name).symlink_to(path)
    lock = json.loads((EMBEDDED_DIRECTORY / "lock.json").read_text())
    lock["files"]["card.json"] = float("nan")
    (tmp_path / "lock.json").write_text(json.dumps(lock))
    with pytest.raises(BackboneError, match="cannot be read"):
        verify_lock(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"pointers": [float("inf"), 1]},
        {"pointers": [0.5, 1]},
        {"pointers": ["٣", "5"]},
        {"relations": [[0, 1, ["precedes"]]]},
        {"relations": [[0, 10**30, "precedes"]]},
        {"relations": 3},
        {"distractors": {"a": 1}},
        {"record_id": None},
    ],
)
def test_policy_records_are_whole_numbers_and_known_words(change):
    record = {"record_id": "0" * 16, "pointers": [1, 4], "relations": [[0, 1, "precedes"]]}
    assert record_from_json(record)
    with pytest.raises(MalformedInputError):
        record_from_json({**record, **change})
    with pytest.raises(MalformedInputError):
        record_from_json([record])


@pytest.mark.parametrize(
    "change",
    [
        ("episode", lambda v: {**v, "operations": [*v["operations"], {}]}),
        ("episode", lambda v: {**v, "operations": v["operations"] * 9}),
        ("episode", lambda v: {**v, "initial": float("nan")}),
        ("versions", lambda v: []),
        ("versions", lambda v: {**v, "extra": 1}),
        ("replays", lambda v: v[:-1]),
        ("replays", lambda v: v[::-1]),
        ("replays", lambda v: [{**v[0], "order": [0, 1, 2, 99]}, *v[1:]]),
        ("replays", lambda v: [{**v[0], "state_hashes": v[0]["state_hashes"][:2], "rejection": None}, *v[1:]]),
        ("cross_checks", lambda v: [["c", -1, 2]]),
        ("cross_checks", lambda v: 7),
    ],
)  # fmt: skip
def test_audit_rows_of_another_form_are_named(made, change):
    column, changed = change
    row = read_audit(made, "toy-a")[0]
    hostile = {**row, column: json.dumps(changed(json.loads(row[column])))}
    with pytest.raises(DatasetError, match="documented form"):
        certified_from_row(hostile, made.manifest.preset)
    with pytest.raises(DatasetError, match="documented form"):
        certified_from_row({**row, column: DEEP}, made.manifest.preset)


def test_pieces_of_unfinished_work_of_another_form_are_named():
    for value in (
        None,
        [],
        {},
        {"versions": [{}]},
        {"versions": [], "outcomes": [3], "process": ""},
    ):
        for kind in (FirstReplay, SecondReplay):
            with pytest.raises(DatasetError, match="unfinished certification"):
                kind.from_json(value)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("run", "[]"),
        ("run", "null"),
        ("other", "{}"),
        ("run", DEEP),
        ("run", '{"a":NaN}'),
        ("run", b"\xff"),
    ],
)
def test_ledger_rows_whose_hash_holds_are_still_read_with_care(tmp_path, kind, body):
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.append("plan", {"plan_hash": "p"})
    (first,) = ledger.entries()
    try:
        value = json.loads(body)
        found = json_digest({"previous": first.hash, "kind": kind, "body": value})
    except (ValueError, RecursionError):
        found = "0" * 64
    connection = sqlite3.connect(ledger.path)
    connection.execute("INSERT INTO entries VALUES (1, ?, ?, ?)", (kind, body, found))
    connection.commit()
    connection.close()
    with pytest.raises(RunError, match="altered"):
        ledger.entries()


def test_a_ledger_that_is_cut_or_changed_anywhere_is_whole_or_named(tmp_path):
    clean = Ledger(tmp_path / "clean.sqlite")
    for number in range(3):
        clean.append("run", {"run": str(number)})
    with sqlite3.connect(clean.path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    data = clean.path.read_bytes()
    for place in range(0, len(data), 97):
        for hostile in (data[:place], data[:place] + b"\xff" + data[place + 1 :]):
            path = tmp_path / f"{place}.sqlite"
            path.write_bytes(hostile)
            with suppress(RunError):
                assert len(Ledger(path).entries()) in (0, 3)
            path.unlink()


@pytest.fixture
def checkpoint(tmp_path):
    state = new_state(tiny_model(), config(learning_rate=1e-3).resolved(), seed=0)
    state.model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    state.optimizer.step()
    save_checkpoint(state, tmp_path / "update-000001", [{"update": 1}])
    return state, tmp_path / "update-000001"


def _tensors(data, **changes):
    from safetensors.torch import load, save

    tensors = {**load(data), **changes}
    return save({name: tensor for name, tensor in tensors.items() if tensor is not None})


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (METRICS, lambda data: b"{"),
        (METRICS, lambda data: b"{}"),
        (METRICS, lambda data: DEEP.encode()),
        (WEIGHTS, lambda data: data[:100]),
        (WEIGHTS, lambda data: data.replace(b'"F32"', b'"XXX"', 1)),
        (TRAINER, lambda data: _tensors(data, generator=None)),
        (TRAINER, lambda data: _tensors(data, generator=torch.zeros(5056, dtype=torch.uint8))),
        (TRAINER, lambda data: _tensors(data, generator=torch.zeros(3))),
        (TRAINER, lambda data: _tensors(data, **{"nobody/step": torch.tensor(0.0)})),
        (TRAINER, lambda data: _tensors(data, **{"model.norm.weight/step": None})),
        (TRAINER, lambda data: _tensors(data, **{"model.norm.weight/exp_avg": torch.zeros(3)})),
        ("checkpoint.json", lambda data: data.replace(b'"duals":{', b'"duals":{"x":"y",')),
        ("checkpoint.json", lambda data: data.replace(b'"update_index":0', b'"update_index":"0"')),
        ("checkpoint.json", lambda data: data.replace(b'"update_index":0', b'"update_index":-1')),
        ("checkpoint.json", lambda data: DEEP.encode()),
    ],
)
def test_a_checkpoint_of_another_form_is_named_before_anything_is_touched(checkpoint, name, change):
    state, folder = checkpoint
    assert load_checkpoint(state, folder) == [{"update": 1}]
    data = change((folder / name).read_bytes())
    assert data != (folder / name).read_bytes()
    (folder / name).write_bytes(data)
    if name != "checkpoint.json":
        head = json.loads((folder / "checkpoint.json").read_bytes())
        head["files"][name] = sha256_hex(data)
        (folder / "checkpoint.json").write_text(json.dumps(head))
    before = {key: value.clone() for key, value in state.model.state_dict().items()}
    drawn = state.generator.get_state()
    with pytest.raises(RunError, match="missing or damaged"):
        load_checkpoint(state, folder)
    assert all(torch.equal(value, before[key]) for key, value in state.model.state_dict().items())
    assert torch.equal(state.generator.get_state(), drawn)


def test_no_line_and_no_term_fills_the_memory(tmp_path, monkeypatch):
    assert is_term("x" * MAX_TERM)
    assert not is_term("x" * (MAX_TERM + 1))
    assert not is_term([])
    monkeypatch.setattr(files, "MAX_LINE", 100)
    path = tmp_path / "rows.jsonl"
    path.write_text("{" + " " * 200)
    (refused,) = read_rows(path)
    assert isinstance(refused, Refused)
    assert "more than 100 characters" in refused.error.found


@pytest.mark.parametrize("form", [[], {}, None, 3, "other"])
def test_a_lean_episode_of_an_odd_form_is_named(form):
    episode = Episode(
        environment="lean",
        schema="lift",
        initial={"form": form},
        operations=(Operation(signature="a", payload="case a => exact h1"),),
        provenance=Provenance(source="s", generator="g", seed=0),
    )
    with pytest.raises(MalformedInputError):
        read_program(episode)


def test_more_updates_than_checkpoints_have_names_for_are_refused():
    with pytest.raises(ConfigError, match=r"schedule\.updates is not possible"):
        config(updates=10**18)
    assert config().schedule.updates == 400


HOSTILE_TEMPLATES = {
    "reads attributes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "reads the globals of a function": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "changes what it is given": "{{ messages.append(1) }}",
    "loops": "{% for i in range(1000000000) %}x{% endfor %}",
    "raises": "{{ raise_exception('no') }}",
}


@pytest.mark.parametrize("kind", HOSTILE_TEMPLATES)
def test_a_chat_template_runs_by_the_chat_option_alone_and_in_a_sandbox(tmp_path, kind):
    folder = save_model(tmp_path / "m")
    (folder / "chat_template.jinja").write_text(HOSTILE_TEMPLATES[kind])
    make_lock(backbone_reference(str(folder)))
    # Without the option it is text that nobody runs.
    assert load_backbone(str(folder)).encode
    with pytest.raises(BackboneError, match="chat template cannot be applied"):
        load_backbone(backbone_reference(str(folder), prompt_style="chat"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = {
    "stated": ("operations", "relations", "format", "pairs", "steps", "name", "theorems"),
    "record": ("record_id", "pointers", "relations", "distractors"),
    "episode": ("environment", "schema", "initial", "operations", "provenance"),
}


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(st.data())
def test_any_json_is_a_value_or_a_named_error(data):
    kind = data.draw(st.sampled_from(sorted(FIELDS)))
    value = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS[kind], JSON_VALUES)))
    text = json.dumps(value)
    read = {
        "stated": lambda: read_relation_record(text.encode(), "here"),
        "record": lambda: record_of_json(text, "here"),
        "episode": lambda: audit.episode_of_json(text, "here"),
    }[kind]
    with suppress(VcrtError):
        read()
