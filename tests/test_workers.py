"""Of what a worker has started nothing is left, whatever that does to its environment and to its ties."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import psutil
import pytest

from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.processes import in_fresh_processes, kept_processes
from vcrt.processes.watching import (
    SERVER_MARK,
    TIMEOUT,
    WORKERS_MARK,
    bears_mark,
    end_marked,
    is_alive,
    mark_process,
)
from vcrt.processes.workers import Workers

pytestmark = pytest.mark.processes
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
#: Detaches itself as daemons do, with an empty environment written over the one that it had, as by a title of its own.
DAEMON = """
import ctypes, os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
first, last = int(fields[47]), int(fields[48])
ctypes.memset(first, 0, last - first)
for descriptor in range(3): os.close(descriptor)
with open(sys.argv[1] + ".new", "w") as note: note.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(120)
"""


def start_daemon(note: Path, *, then_die: bool = False, forget: bool = False) -> None:
    env = {} if forget else None
    subprocess.run([sys.executable, "-I", "-S", "-c", DAEMON, str(note)], check=True, env=env)
    if then_die:
        while not note.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


def number_in(note: Path) -> int:
    for _ in range(500):
        if note.exists():
            return int(note.read_text())
        time.sleep(0.02)
    raise AssertionError("no daemon has started")


def is_gone(process: int) -> bool:
    for _ in range(100):
        if not is_alive(process):
            return True
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)
    return False


@linux
@pytest.mark.parametrize("then_die", [False, True])
def test_a_daemon_that_overwrites_its_environment_ends_with_the_workers(
    tmp_path: Path, then_die: bool
) -> None:
    note, bare = tmp_path / "note", tmp_path / "bare"
    with Workers(1, lambda: None) as workers:
        workers.result(workers.submit(partial(start_daemon, forget=True), bare))
        future = workers.submit(partial(start_daemon, then_die=then_die), note)
        if then_die:
            with pytest.raises(Exception, match="terminated"):
                workers.result(future)
        else:
            workers.result(future)
        daemons = [number_in(note), number_in(bare)]
        assert WORKERS_MARK not in psutil.Process(daemons[0]).environ()
        assert all(map(is_alive, daemons))
    assert [is_gone(daemon) for daemon in daemons] == [True, True]


@linux
def test_a_server_of_a_worker_bears_both_marks(tmp_path: Path) -> None:
    """Of which ends what it has started, and what bears another mark stays."""
    workers, server, other = (uuid.uuid4().hex for _ in range(3))
    made = []
    for mark in (server, other):
        note = tmp_path / mark
        child = os.fork()
        if not child:
            mark_process(WORKERS_MARK, workers)
            mark_process(SERVER_MARK, mark)
            mark_process(WORKERS_MARK, workers)
            start_daemon(note, forget=True)
            os._exit(0)
        os.waitpid(child, 0)
        made.append(number_in(note))
    one, another = made
    assert bears_mark(one, SERVER_MARK, server)
    assert bears_mark(one, WORKERS_MARK, workers)
    assert not bears_mark(one, SERVER_MARK, other)
    assert not bears_mark(os.getpid(), WORKERS_MARK, workers)
    assert end_marked(server, SERVER_MARK)
    assert is_gone(one)
    assert is_alive(another)
    assert end_marked(workers)
    assert is_gone(another)
    assert not end_marked(workers)


def die_once(note: Path) -> int:
    if not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(what: str) -> None:
    raise MalformedInputError(what)


def limit_there(_: object) -> str | None:
    return os.environ.get(TIMEOUT)


def this_process(_: object) -> int:
    return os.getpid()


def test_one_process_does_piece_after_piece_and_is_started_anew_after_it_died(
    tmp_path: Path, monkeypatch
) -> None:
    def do(function, argument):
        (result,) = in_fresh_processes(
            function, [argument], jobs=1, error=VerifierFailure, kept=kept.first
        )
        return result

    with kept_processes() as kept:
        first = do(this_process, None)
        with pytest.raises(MalformedInputError, match="no tea"):
            do(refuse, "no tea")
        assert do(this_process, None) == first != os.getpid()
        # What died is tried once more, alone, before it is an error.
        assert do(die_once, tmp_path / "died") != first
        with pytest.raises(VerifierFailure, match="died twice"):
            do(die, None)
        last = do(this_process, None)
        assert is_alive(last)
        with kept_processes() as inner:
            assert inner is kept
        assert is_alive(last)
        # One that was started before a time limit was set does not go by an older one.
        kept.again.prepare("json")
        monkeypatch.setenv(TIMEOUT, "7")
        (limit,) = in_fresh_processes(
            limit_there, [None], jobs=1, error=VerifierFailure, kept=kept.again
        )
        assert limit == "7"
    assert is_gone(first)
    assert is_gone(last)


def test_a_worker_imports_of_the_layer_only_what_serves() -> None:
    # A lambda is sent by value: this module, which imports more, is not imported there.
    names = lambda _: [name for name in sys.modules if name.startswith("vcrt.processes.")]  # noqa: E731
    with Workers(1, lambda: None) as workers:
        found = workers.result(workers.submit(names, None))
    assert {*found} == {"vcrt.processes.workers", "vcrt.processes.watching"}
