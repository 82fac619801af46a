"""Certification goes on where it was stopped, and nothing half-done is ever taken for finished."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import toy_environment as toy
from vcrt.datasets.freezing import make_dataset, unfinished_path
from vcrt.errors import (
    DatasetError,
    MalformedInputError,
    TooLargeError,
    UnavailableError,
    UnknownNameError,
    VcrtError,
    VerifierFailure,
)
from vcrt.hashing import canonical_json, json_digest, sha256_hex
from vcrt.processes import in_fresh_processes
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import read_audit
from vcrt.replay import evidence, run
from vcrt.replay import shards as shards_module
from vcrt.replay import store as store_module
from vcrt.replay.config import given, sampled
from vcrt.replay.evidence import own_columns
from vcrt.replay.run import certify
from vcrt.storage import sole_user

TOY = {"toy": toy.ToyEnvironment}
CONFIG = sampled({"toy": ("needs", "overwrite")}, 25, seed=3)


@pytest.fixture(scope="module")
def root_hash(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "data"
    return make_dataset(CONFIG, path, jobs=1, factories=TOY).manifest.root_hash


def shards(path):
    return sorted(p for p in path.rglob("*.json") if p.name != "identity.json")


def test_finished_shards_are_not_done_again(tmp_path, root_hash):
    certify(CONFIG, tmp_path / "data.shards", jobs=2, factories=TOY)
    finished = shards(tmp_path / "data.shards")
    assert len(finished) == 2 * 2 * 4
    # A verifier that breaks at once would be noticed if any shard were replayed.
    dataset = make_dataset(CONFIG, tmp_path / "data", jobs=2, factories={"toy": toy.DyingVerifier})
    assert dataset.manifest.root_hash == root_hash
    assert not unfinished_path(tmp_path / "data").exists()


def test_an_episode_is_derived_once_and_its_replays_are_read_once(tmp_path, monkeypatch):
    calls = Counter()

    def counting(module, name):
        original = getattr(module, name)

        def counted(*arguments):
            calls[f"{module.__name__}.{name}"] += 1
            return original(*arguments)

        monkeypatch.setattr(module, name, counted)

    for module in (run, shards_module):
        counting(module, "certify_episode")
    for name in ("replays_from_json", "replays_to_json"):
        counting(evidence, name)
    config = sampled({"toy": ("needs", "overwrite")}, 4)
    dataset = make_dataset(config, tmp_path / "data", jobs=2, factories=TOY)
    candidates = sum(some.candidates for some in dataset.manifest.counts["toy"].values())
    assert candidates == 8
    assert calls == {
        "vcrt.replay.shards.certify_episode": candidates,
        "vcrt.replay.evidence.replays_to_json": candidates,
        "vcrt.replay.evidence.replays_from_json": candidates,
    }


class NumbersAsKeys(toy.ToyEnvironment):
    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        return replace(episode, initial={**episode.initial, "more": {2: "two", 10: "ten"}})


def test_a_dataset_has_what_is_read_again_where_keys_are_numbers(tmp_path):
    episodes = [NumbersAsKeys().sample("needs", seed) for seed in range(3)]
    own = {"toy": NumbersAsKeys}
    dataset = make_dataset(given(episodes), tmp_path / "data", jobs=1, factories=own)
    row = read_audit(dataset, "toy")[0]
    assert '"more":{"10":"ten","2":"two"}' in row["episode"]
    certified = certified_from_row(row, dataset.manifest.preset)
    assert own_columns(certified).items() <= row.items()


@pytest.mark.parametrize("column", ["episode", "relations"])
@pytest.mark.parametrize("text", ["[", "[7]", 7])
def test_texts_that_come_from_elsewhere_are_refused(tmp_path, column, text):
    path = unfinished_path(tmp_path / "data")
    config = sampled({"toy": ("needs",)}, 2)
    certify(config, path, jobs=1, factories=TOY)
    identity = json_digest(json.loads((path / "identity.json").read_bytes()))
    store = store_module.ShardStore(path, identity)
    first, second = (one.relative_to(path).as_posix() for one in shards(path))
    content, again = store.read(first), store.read(second)
    content["outcomes"][0]["columns"][column] = text
    body = canonical_json(content)
    store.write(first, body)
    store.write(second, canonical_json({**again, "of": sha256_hex(body)}))
    with pytest.raises(DatasetError, match="does not have the documented form"):
        make_dataset(config, tmp_path / "data", jobs=1, factories=TOY)


@pytest.mark.parametrize("stage", ["first", "second"])
@pytest.mark.slow
def test_a_damaged_or_foreign_shard_is_done_again(tmp_path, root_hash, stage):
    store = tmp_path / "data.shards"
    certify(CONFIG, store, jobs=2, factories=TOY)
    one, other, third, *_ = (p for p in shards(store) if stage in p.name)
    damaged = bytearray(one.read_bytes())
    damaged[-20] ^= 1
    one.write_bytes(damaged)
    other.write_bytes(other.read_bytes()[:-100])
    third.write_bytes(shards(store)[-1].read_bytes())
    (store / "toy" / ".half-written").write_bytes(b"{")
    with pytest.raises(VerifierFailure):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories={"toy": toy.DyingVerifier})
    dataset = make_dataset(CONFIG, tmp_path / "data", jobs=1, factories=TOY)
    assert dataset.manifest.root_hash == root_hash


def test_work_of_another_certification_is_refused_and_kept(tmp_path):
    store = tmp_path / "data.shards"
    certify(CONFIG, store, jobs=1, factories=TOY)
    kept = shards(store)
    other = sampled({"toy": ("needs", "overwrite")}, 25, seed=4)
    with pytest.raises(DatasetError, match="another config"):
        make_dataset(other, tmp_path / "data", jobs=1, factories=TOY)
    with pytest.raises(DatasetError, match="another versions"):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories={"toy": toy.ChangingVersions})
    assert shards(store) == kept
    identity = json.loads((store / "identity.json").read_bytes())
    (store / "identity.json").write_bytes(canonical_json({**identity, "format": "vcrt-shards/1"}))
    with pytest.raises(DatasetError, match="another format"):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories=TOY)
    assert shards(store) == kept
    (tmp_path / "mine.shards").mkdir()
    (tmp_path / "mine.shards" / "notes.txt").write_text("keep")
    (tmp_path / "mine.shards" / ".env").write_text("keep")
    with pytest.raises(DatasetError, match="holds something else"):
        make_dataset(CONFIG, tmp_path / "mine", jobs=1, factories=TOY)
    assert {p.name for p in (tmp_path / "mine.shards").iterdir()} == {"notes.txt", ".env"}


@pytest.mark.slow
@pytest.mark.processes
def test_a_second_replay_counts_only_for_the_first_that_it_repeated(tmp_path):
    store = tmp_path / "data.shards"
    certify(CONFIG, store, jobs=1, factories=TOY)
    first = next(p for p in shards(store) if "first" in p.name)
    first.unlink()
    with pytest.raises(MalformedInputError, match=r"21 of .* left out as nondeterministic"):
        certify(CONFIG, store, jobs=1, factories={"toy": toy.ProcessDependent})


@pytest.mark.slow
def test_a_dataset_that_was_published_before_the_kill_is_tidied_up(tmp_path, root_hash):
    path = tmp_path / "data"
    certify(CONFIG, unfinished_path(path), jobs=2, factories=TOY)
    shutil.copytree(unfinished_path(path), tmp_path / "kept")
    make_dataset(CONFIG, path, jobs=1, factories=TOY)
    shutil.copytree(tmp_path / "kept", unfinished_path(path))
    (tmp_path / ".data.partial-abc").mkdir()
    with pytest.raises(VcrtError, match="exists already"):
        make_dataset(CONFIG, path, jobs=1, factories=TOY)
    assert not unfinished_path(path).exists()
    shutil.copytree(tmp_path / "kept", unfinished_path(path))
    other = sampled({"toy": ("needs",)}, 3)
    with pytest.raises(VcrtError, match="exists already"):
        make_dataset(other, path, jobs=1, factories=TOY)
    assert unfinished_path(path).exists()


class Malformed(toy.ToyEnvironment):
    def step(self, state, operation):
        raise MalformedInputError("an operation that cannot be read")


def test_finished_shards_are_kept_under_any_other_error(tmp_path):
    certify(CONFIG, tmp_path / "data.shards", jobs=1, factories=TOY)
    kept = shards(tmp_path / "data.shards")
    kept.pop().unlink()
    with pytest.raises(MalformedInputError, match="cannot be read"):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories={"toy": Malformed})
    assert shards(tmp_path / "data.shards") == kept


@pytest.mark.slow
def test_what_can_never_become_a_dataset_leaves_nothing(tmp_path):
    with pytest.raises(MalformedInputError, match="too few"):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories={"toy": toy.AlwaysRejects})
    with pytest.raises(UnknownNameError):
        make_dataset(sampled({"tyo": ("x",)}, 1), tmp_path / "other", jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_do_not_certify_the_same_dataset(tmp_path):
    (tmp_path / "data.shards").mkdir()
    with (
        sole_user(tmp_path / "data.shards" / "lock", "this dataset", DatasetError),
        pytest.raises(VcrtError, match="another process is at work"),
    ):
        make_dataset(CONFIG, tmp_path / "data", jobs=1, factories=TOY)


def test_nothing_certified_is_an_error_and_not_an_empty_dataset(tmp_path):
    episode = toy.SameSignatures().sample("needs", 0)
    with pytest.raises(MalformedInputError, match="ambiguous_correspondence: 1"):
        make_dataset(given([episode]), tmp_path / "data", jobs=1, factories=TOY)
    assert not (tmp_path / "data").exists()


SCRIPT = """
import sys, time
from pathlib import Path
import toy_environment as toy
from vcrt.replay.config import sampled
from vcrt.datasets.freezing import make_dataset

class Slow(toy.ToyEnvironment):
    def initial_state(self, episode):
        time.sleep(0.0005)
        return super().initial_state(episode)

if __name__ == "__main__":
    config = sampled({"toy": ("needs", "overwrite")}, 25, seed=3)
    make_dataset(config, Path(sys.argv[1]), jobs=2, factories={"toy": Slow})
"""


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_the_same_dataset(tmp_path, root_hash):
    path = tmp_path / "data"
    script = tmp_path / "certify.py"
    script.write_text(SCRIPT)
    here = str(Path(__file__).parents[1] / "support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    kills = 0
    for pieces in (1, 4, 7, 10, 12, None):
        if path.exists():
            break
        process = subprocess.Popen([sys.executable, str(script), str(path)], env=environment)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if pieces is not None and len(shards(unfinished_path(path))) >= pieces:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.002)
        assert process.wait() in (0, -signal.SIGKILL)
        kills += process.returncode != 0
        if process.returncode != 0:
            assert not path.exists()
    assert kills >= 3
    again = make_dataset(CONFIG, tmp_path / "again", jobs=1, factories=TOY)
    assert again.manifest.root_hash == root_hash
    from vcrt.records.dataset import open_dataset

    assert open_dataset(path).manifest == again.manifest
    assert not unfinished_path(path).exists()


def negated(number):
    return -number


def test_arguments_are_taken_as_they_are_needed():
    taken = []

    def numbers():
        for number in range(100):
            taken.append(number)
            yield number

    results = in_fresh_processes(negated, numbers(), jobs=2, error=VerifierFailure)
    assert next(results) == 0
    assert len(taken) <= 9
    assert [0, *results] == [-n for n in range(100)]


def started_as(name):
    return sys.orig_argv[1:3], os.environ.get(name)


@pytest.mark.processes
def test_workers_are_small_interpreters_with_a_thread_each_unless_the_environment_says_so(
    monkeypatch,
):
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]
    monkeypatch.delenv(names[0], raising=False)
    monkeypatch.setenv(names[1], "2")
    found = list(in_fresh_processes(started_as, names, jobs=1, error=VerifierFailure))
    assert [number for _, number in found] == ["1", "2"]
    assert all(option == "-c" and "vcrt.processes.workers" in code for (option, code), _ in found)


def test_a_backend_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UnavailableError, match=r"pip install 'joblib>=1\.4' 'ray>=2\.40'"):
        list(in_fresh_processes(negated, [1], jobs=1, backend="ray", error=VerifierFailure))


def test_a_piece_that_is_too_large_is_named_when_it_is_written_and_when_it_is_read(
    tmp_path, monkeypatch
):
    versions = {"toy": toy.ToyEnvironment().versions()}
    store = store_module.open_store(tmp_path / "new.shards", CONFIG, versions)
    store.write("piece.json", canonical_json({"text": "x" * 2**17}))
    assert store.read("piece.json") == {"text": "x" * 2**17}
    assert store.read("not there.json") is None
    monkeypatch.setattr(store_module, "_MAX_PIECE", 2**16 + 2**10)
    with pytest.raises(TooLargeError, match="too large to be kept"):
        store.read("piece.json")
    with pytest.raises(TooLargeError, match="too large to be kept"):
        store.write("other.json", canonical_json({"text": "x" * 2**17}))
    assert not (tmp_path / "new.shards" / "other.json").exists()
