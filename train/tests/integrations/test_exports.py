"""Exports: a frozen dataset as a ``datasets`` dataset and as a ``verifiers`` environment, and back."""

from __future__ import annotations

import asyncio
import shutil
from itertools import permutations

import pytest

import toy_environment as toy
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import DatasetError, MalformedInputError, UnknownNameError
from vcrt.orders import all_orders
from vcrt.records.dataset import load_items, open_dataset
from vcrt.records.record_form import RecordForm
from vcrt.replay.config import sampled
from vcrt_train.integrations.text import Rendering, answer_text, answers, prompt_text, read_answer
from vcrt_train.policy.tokenizer import embedded_tokenizer, encode_record
from vcrt_train.randomness import generator

NAMES = ("toy-a", "toy-b")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Two environments, with commuting pairs omitted in favour of distractors."""
    factories = {name: toy.THREE_TOYS[name] for name in NAMES}
    path = tmp_path_factory.mktemp("exports") / "data"
    config = sampled(dict.fromkeys(NAMES, ("needs", "overwrite")), 2, seed=3)
    form = RecordForm(relations="reduced", distractors=2)
    dataset = make_dataset(config, path, jobs=1, factories=factories, form=form)
    verify_agreement(dataset, jobs=1, factories=factories)
    return dataset


@pytest.fixture(scope="module")
def items(frozen):
    return [item for name in NAMES for item in load_items(frozen, name)]


def test_an_answer_is_read_back_and_anything_else_is_malformed(items):
    record = items[0].supervised.record
    for order in all_orders(4):
        text = answer_text(record, order)
        assert read_answer(record.pointers, text) == order
        assert read_answer(record.pointers, f"\n {text.replace(' ', '  ')} ") == order
    text = answer_text(record, (0, 1, 2, 3))
    first = text.split()[0]
    for broken in ("", first, f"{text} {first}", text.replace(first, "p9"), text + ".", "p0" * 4):
        assert read_answer(record.pointers, broken) is None


def test_both_forms_state_the_same_record(items):
    tokenizer = embedded_tokenizer()
    for index, item in enumerate(items):
        record = item.supervised.record
        serialisation = ("sorted", "shuffled")[index % 2]
        tokens = prompt_text(
            record, Rendering(form="tokens", serialisation=serialisation, seed=index)
        )
        draw = generator(index, "render", record.record_id)
        encoded = encode_record(tokenizer, record, serialisation, draw)
        assert tuple(tokenizer(tokens)["input_ids"]) == encoded.token_ids
        words = prompt_text(record, Rendering(serialisation=serialisation, seed=index))
        lines = words.splitlines()
        assert len(lines) == 4 + len(record.relations) + len(record.distractors)
        stated = tokens.count(" ;")
        assert stated == len(lines) - 4
        assert words.count(" in any order.") == tokens.count(" r0 ")
        assert words.count(" must come before ") == tokens.count(" r1 ")
        assert words.count(" should come after ") == tokens.count(" r4 ")


def test_prompts_name_no_environment(frozen, items):
    for item in items:
        text = prompt_text(item.supervised.record, Rendering())
        for word in (item.environment, item.schema, item.episode_id, "legal", "orbit", "toy"):
            assert word not in text


def test_a_datasets_dataset_comes_back_as_the_items(frozen, items, tmp_path):
    hub = pytest.importorskip("datasets", reason="not installed: make test-integrations")
    from vcrt_train.integrations.datasets import from_dataset, to_dataset

    exported = to_dataset(frozen)
    assert from_dataset(exported) == items
    assert frozen.manifest.root_hash in exported.info.description
    exported.save_to_disk(str(tmp_path / "saved"))
    assert from_dataset(hub.load_from_disk(str(tmp_path / "saved"))) == items
    for row, item in zip(exported, items, strict=True):
        orbit, illegal = answers(item.supervised)
        assert (row["orbit"], row["illegal"]) == (orbit, illegal)
        assert len(orbit) == len(illegal) == 12
        assert len({*orbit, *illegal}) == 24
        assert {read_answer(row["pointers"], text) for text in orbit} == set(
            map(tuple, row["legal"])
        )


def test_held_out_environments_stay_unopened(frozen, items, tmp_path):
    pytest.importorskip("datasets", reason="not installed: make test-integrations")
    from vcrt_train.integrations.datasets import from_dataset, to_dataset

    shutil.copytree(frozen.path, tmp_path / "data")
    for name in ("audit", "policy"):
        (tmp_path / "data" / name / "toy-b.jsonl.gz").unlink()
    opened = open_dataset(tmp_path / "data", without=["toy-b"])
    kept = from_dataset(to_dataset(opened, held_out="toy-b"))
    assert kept == [item for item in items if item.environment == "toy-a"]
    assert to_dataset(frozen, environments=["toy-b"])[0]["environment"] == "toy-b"
    with pytest.raises(UnknownNameError, match="did you mean 'toy-a'"):
        to_dataset(frozen, held_out="toy-aa")
    with pytest.raises(DatasetError, match="nothing is left"):
        to_dataset(frozen, environments=["toy-a"], held_out="toy-a")


def test_rows_of_another_form_are_refused(frozen):
    pytest.importorskip("datasets", reason="not installed: make test-integrations")
    from vcrt_train.integrations.datasets import from_dataset, to_dataset

    (row, *_) = to_dataset(frozen)
    for change in ({"legal": [[0, 1]]}, {"relations": [{"first": 0}]}, {"pointers": [3, 1]}):
        with pytest.raises(MalformedInputError):
            from_dataset([{**row, **change}])


def test_the_command_writes_what_the_library_loads(frozen, items, tmp_path, capsys):
    hub = pytest.importorskip("datasets", reason="not installed: make test-integrations")
    from vcrt_train.integrations.datasets import from_dataset

    output = tmp_path / "new" / "source.parquet"
    command = ["export", str(frozen.path), "--output", str(output), "--held-out", "toy-b", "--chat"]
    main(command)
    assert f"4 records  {output}" in capsys.readouterr().out
    loaded = hub.Dataset.from_parquet(str(output), cache_dir=str(tmp_path / "cache"))
    assert from_dataset(loaded) == [item for item in items if item.environment == "toy-a"]
    assert loaded[0]["prompt"][0]["role"] == "user"
    for changed, words in (
        (command, "exists already"),
        ([*command[:3], str(frozen.path / "x.parquet")], "nothing but the dataset"),
    ):
        with pytest.raises(SystemExit):
            main(changed)
        assert words in capsys.readouterr().err


def scored(task, reply):
    """The rewards and metrics of one reply, as verifiers computes them offline."""
    import verifiers.v1 as vf

    node = vf.MessageNode(message=vf.AssistantMessage(content=reply), sampled=True, parent=None)
    agent = vf.AgentInfo.model_construct()
    trace = vf.Trace.model_construct(
        task=vf.TraceTask(type="OrderTask", data=task.data, key=task.key, hash=task.hash),
        agent=agent,
        nodes=[node],
        rewards={},
        metrics={},
    )
    asyncio.run(task.score(trace))
    return trace.rewards["certified"].value, trace.metrics["malformed"]


def test_an_environment_of_verifiers_scores_by_the_certified_orbit(frozen, items):
    pytest.importorskip("verifiers", reason="not installed: make test-integrations")
    from vcrt_train.integrations.verifiers import load_environment

    environment = load_environment(frozen.path)
    tasks = list(environment.taskset)
    assert [task.data.id for task in tasks] == [item.supervised.record.record_id for item in items]
    for task, item in zip(tasks, items, strict=True):
        record = item.supervised.record
        assert task.data.prompt == prompt_text(record, Rendering())
        assert asyncio.run(task.validate(None))
    task, item = tasks[0], items[0]
    for order, is_legal in zip(all_orders(4), item.supervised.legal, strict=True):
        assert scored(task, answer_text(item.supervised.record, order)) == (float(is_legal), 0.0)
    first = task.data.orbit[0]
    for malformed in ("", first[:-3], f"{first} p0", "I do not know", first.upper()):
        assert scored(task, malformed) == (0.0, 1.0)


def test_an_environment_of_verifiers_holds_out(frozen):
    pytest.importorskip("verifiers", reason="not installed: make test-integrations")
    from vcrt_train.integrations.verifiers import load_environment

    kept = load_environment(frozen.path, held_out="toy-a")
    assert len(list(kept.taskset)) == 4
    shuffled = Rendering(serialisation="shuffled", seed=1)
    other = load_environment(frozen.path, environments=["toy-b"], rendering=shuffled)
    assert [t.data.id for t in other.taskset] == [t.data.id for t in kept.taskset]
    assert [t.data.prompt for t in other.taskset] != [t.data.prompt for t in kept.taskset]
    with pytest.raises(DatasetError, match="not a frozen dataset"):
        load_environment(frozen.path / "nowhere")
    with pytest.raises(UnknownNameError):
        load_environment(frozen.path, held_out="lean")


def test_all_answers_are_orders_of_the_pointers(items):
    for item in items:
        orbit, others = answers(item.supervised)
        texts = {" ".join(p) for p in permutations(orbit[0].split())}
        assert {*orbit, *others} == texts
