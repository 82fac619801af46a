"""Killed or refused at any call that changes a file: what is visible is whole, and the next call ends the same."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(TESTS.parents[1] / "research" / "benchmarks" / "trust"))

import crash_trials  # noqa: E402
import fault_injection  # noqa: E402

from crash_targets import TEXT, append_one, publish_one  # noqa: E402
from vcrt.errors import DatasetError, RunError  # noqa: E402
from vcrt.records import ledger as ledgers  # noqa: E402
from vcrt.records.ledger import Ledger  # noqa: E402
from vcrt.replay.store import IDENTITY, LOCK, refuse_foreign, remove_store  # noqa: E402
from vcrt.storage import alone_in, publish_directory, write_file  # noqa: E402

REASON = fault_injection.why_not()
needs_faults = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with fault_injection.serving(tmp_path_factory.mktemp("faults"), TESTS, is_warm=False) as found:
        yield found


def call(server, name, path, fault=None):
    target = ["call", f"crash_targets:{name}", str(path)]
    return server.trial(target, path.parent, fault, workers="none")


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def visible(folder):
    return [name for name in names(folder) if not name.startswith(".")]


@needs_faults
def test_every_call_of_writing_a_file(server, tmp_path):
    path = tmp_path / "some" / "one.txt"
    crash_trials.restore(path.parent)
    whole = call(server, "write_one", path)
    assert whole.code == 0
    assert {k: n for k, n in whole.counts.items() if n} == {
        "create": 1,
        "write": 1,
        "fsync": 2,
        "rename": 1,
    }
    tree = crash_trials.tree_of(path.parent)
    assert not crash_trials.unflushed(whole.calls, path.parent, before={}, tree=tree)
    faults = list(crash_trials.faults_of(whole, lambda kind, at: True))
    assert len(faults) == 14
    for fault in faults:
        path.write_text("old")
        struck = call(server, "write_one", path, fault)
        assert struck.struck >= 1, fault.name
        assert struck.was_killed == (fault.action in ("kill", "tear")), fault.name
        assert path.read_text() in ("old", TEXT), fault.name
        assert visible(path.parent) == ["one.txt"], fault.name
        if not struck.was_killed:
            assert struck.code == 1, fault.name
            assert names(path.parent) == ["one.txt"], fault.name
        assert call(server, "write_one", path).code == 0
        assert path.read_text() == TEXT
        assert names(path.parent) == ["one.txt"], fault.name


@pytest.mark.slow
@needs_faults
def test_every_call_of_publishing_a_directory(server, tmp_path):
    path = tmp_path / "some" / "data"
    crash_trials.restore(path.parent)
    whole = call(server, "publish_one", path)
    assert whole.code == 0
    tree = crash_trials.tree_of(path.parent)
    assert not crash_trials.unflushed(whole.calls, path.parent, before={}, tree=tree)
    for fault in crash_trials.faults_of(whole, lambda kind, at: True):
        crash_trials.restore(path.parent)
        struck = call(server, "publish_one", path, fault)
        assert struck.struck >= 1, fault.name
        assert visible(path.parent) in ([], sorted(tree)), fault.name
        if not struck.was_killed:
            assert visible(path.parent) == names(path.parent), fault.name
        again = call(server, "publish_one", path)
        assert again.code == 0 or "exists already" in again.said, fault.name
        assert crash_trials.tree_of(path.parent) == tree, fault.name


@pytest.mark.slow
@needs_faults
def test_every_call_of_a_ledgers_row(server, tmp_path):
    path = tmp_path / "some" / "ledger.sqlite"
    crash_trials.restore(path.parent)
    append_one(path)
    kept = tmp_path / "kept"
    path.parent.rename(kept)
    crash_trials.restore(path.parent, kept)
    whole = call(server, "append_one", path)
    for fault in crash_trials.faults_of(whole, lambda kind, at: True):
        crash_trials.restore(path.parent, kept)
        struck = call(server, "append_one", path, fault)
        if struck.code == 1:
            assert "the ledger cannot be read or written" in struck.said, fault.name
        rows = len(Ledger(path).entries())
        assert rows in (1, 2), fault.name
        append_one(path)
        bodies = [entry.body["run"] for entry in Ledger(path).entries()]
        assert bodies == [str(number) for number in range(rows + 1)]
        assert names(path.parent) == ["ledger.sqlite"], fault.name


@needs_faults
def test_a_careless_write_is_found(server, tmp_path):
    path = tmp_path / "some" / "one.txt"
    crash_trials.restore(path.parent)
    whole = call(server, "write_carelessly", path)
    tree = crash_trials.tree_of(path.parent)
    lost = crash_trials.unflushed(whole.calls, path.parent, before={}, tree=tree)
    assert lost == [
        f"{path} is not flushed at the end",
        f"the entries of {path.parent} are not flushed",
    ]
    path.unlink()
    torn = fault_injection.Fault(kind="write", at=1, action="tear")
    assert call(server, "write_carelessly", path, torn).was_killed
    assert path.read_text() == TEXT[: len(TEXT) // 2]
    assert list(crash_trials.half_written(path.parent, {}, tree)) == [
        "one.txt is visible and not whole"
    ]


def test_a_rename_before_the_flush_is_found(tmp_path):
    calls = [
        ("create", f"{tmp_path}/.a"),
        ("write", f"{tmp_path}/.a"),
        ("rename", f"{tmp_path}/.a", f"{tmp_path}/a"),
        ("fsync", str(tmp_path)),
    ]
    found = crash_trials.unflushed(calls, tmp_path, before={}, tree={"a": ""})
    assert found == [
        f"{tmp_path}/.a is renamed before it is flushed",
        f"{tmp_path}/a is not flushed at the end",
    ]


def test_work_in_progress_is_no_leftover(tmp_path):
    def fill(directory):
        (tmp_path / ".data.partial-dead").mkdir()
        publish_one(tmp_path / "data")
        assert directory.is_dir()
        assert not (tmp_path / ".data.partial-dead").exists()

    with pytest.raises(RunError, match="exists already"):
        publish_directory(tmp_path / "data", fill, RunError)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_only_leftovers_of_the_same_name_are_removed(tmp_path):
    other = tmp_path / ".two.txt.unfinished-abcdefgh"
    for place in (other, tmp_path / ".one.txt.unfinished-abcdefgh"):
        place.write_text("{")
    write_file(tmp_path / "one.txt", b"1")
    assert names(tmp_path) == [other.name, "one.txt"]


def test_a_run_waits_for_an_orphan(tmp_path):
    with (
        alone_in(tmp_path, "this run", RunError),
        pytest.raises(RunError, match="another process is at work on this run"),
        alone_in(tmp_path, "this run", RunError, patience=0.1),
    ):
        pass
    with alone_in(tmp_path, "this run", RunError, patience=0.0):
        pass


def test_a_store_that_was_killed_in_its_first_write_is_still_one(tmp_path):
    (tmp_path / LOCK).touch()
    (tmp_path / f".{IDENTITY}.unfinished-abcdefgh").write_text("{")
    refuse_foreign(tmp_path)
    (tmp_path / "mine.txt").touch()
    with pytest.raises(DatasetError, match="holds something else"):
        refuse_foreign(tmp_path)


def test_a_stores_identity_goes_last(tmp_path, monkeypatch):
    for place in ("a/1.json", "b/2.json", IDENTITY, LOCK):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()

    def stop(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("vcrt.replay.store.shutil.rmtree", stop)
    with pytest.raises(KeyboardInterrupt):
        remove_store(tmp_path)
    assert (tmp_path / IDENTITY).exists()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (sqlite3.SQLITE_FULL, "free some space"),
        (sqlite3.SQLITE_IOERR | 5 << 8, "errors of it"),
        (sqlite3.SQLITE_READONLY, "permission"),
        (sqlite3.SQLITE_NOTADB, "restore it"),
        (None, "restore it"),
    ],
)
def test_a_refused_ledger_says_how_to_mend_it(tmp_path, code, remedy):
    error = sqlite3.DatabaseError("no")
    error.sqlite_errorcode = code
    assert remedy in ledgers._unusable(tmp_path, error).remedy
