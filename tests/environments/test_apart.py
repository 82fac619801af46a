"""Orders that are replayed again begin in copies of a process that has made no call: what calls leave is not met."""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import threading
from functools import partial
from socket import socket

import pytest

import vcrt
from vcrt.errors import VerifierFailure
from vcrt.processes import in_fresh_processes
from vcrt.processes.copies import in_copy, may_copy, own_parts

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux alone"),
]

#: Ways to keep something between calls that no look at values sees, each with a call that writes and one that reads.
KEEPING = """
import csv, functools, logging, vcrt

__flags__ = set()
MADE = type("Made", (), {"__module__": "nowhere", "names": set()})
NAMED = {"made": MADE}

def traced(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

@traced
@functools.lru_cache
def settings(user):
    return set()

class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = set()
    def emit(self, record):
        self.seen.add(record.getMessage())

LOG = logging.getLogger("vcrt.tests.keeping")
LOG.propagate = False
LOG.addHandler(Handler())

WAYS = {
    "dunder": (lambda: __flags__.add(1), lambda: len(__flags__)),
    "class": (lambda: NAMED["made"].names.add(1), lambda: len(NAMED["made"].names)),
    "cached": (lambda: settings("a").add(1), lambda: len(settings("a"))),
    "handler": (lambda: LOG.warning("seen"), lambda: len(LOG.handlers[0].seen)),
    "library": (lambda: csv.register_dialect("mine"), lambda: csv.list_dialects()),
    "nothing": (lambda: None, lambda: None),
}

class Keeping(vcrt.CallEnvironment):
    name = "keeping"
    def reset(self, initial):
        return {"of": initial}
    def call(self, state, name, arguments):
        found = WAYS[state["of"]][name == "see"]()
        return found if name == "see" else "done"
"""
WAYS = ("dunder", "class", "cached", "handler", "library")


def logged(tmp_path, *ways):
    """Return a log with a trace for each way, and the place of the environment."""
    (tmp_path / "tools.py").write_text(KEEPING)
    log = tmp_path / "log.jsonl"
    # The last call is one that writes: a process that begins with it has seen its effect ever after.
    calls = [{"name": name, "arguments": {}} for name in ("put", "see", "put")]
    traces = [{"id": way, "initial": way, "calls": calls} for way in ways]
    log.write_text("\n".join(map(json.dumps, traces)))
    return log, f"{tmp_path / 'tools.py'}:Keeping"


def test_what_calls_leave_in_memory_is_met_by_no_other_order(tmp_path):
    log, place = logged(tmp_path, *WAYS, "nothing")
    found = {one.name.partition(",")[0]: one for one in vcrt.schedule(log, environment=place)}
    for way in WAYS:
        assert found[way].schedule is None
        assert found[way].problem.startswith("nondeterministic: the sequence [1] ")
        assert "what a call leaves beside the state" in found[way].problem
    assert found["nothing"].schedule.order.pairs == ()


def test_that_is_so_of_lifted_and_annotated_calls(tmp_path):
    log, place = logged(tmp_path, *WAYS, "nothing")
    for one in vcrt.lift_log([log], environment=place).calls:
        assert (one.schedule is None) == (one.trace.name != "nothing")
    found = vcrt.annotate([log], environment=place)
    assert found.left_out == {"nondeterministic": len(WAYS)}


#: A tool that sees what any of sixty calls has kept, if it is not made before all of them.
LATE = """
import vcrt
__kept__ = set()
class Late(vcrt.CallEnvironment):
    name = "late"
    def reset(self, initial):
        return {}
    def call(self, state, name, arguments):
        if name == "put":
            __kept__.add(1)
        return len(__kept__) if name == "see" else arguments["n"]
"""


def test_each_call_is_made_before_all_that_need_not_stand_before_it(tmp_path):
    (tmp_path / "tools.py").write_text(LATE)
    log = tmp_path / "log.jsonl"
    calls = [{"name": "put", "arguments": {"n": n}} for n in range(4, 64)]
    # No order that is drawn at random begins with this one, for these numbers.
    calls.insert(30, {"name": "see", "arguments": {}})
    log.write_text("\n".join(map(json.dumps, calls)))
    (found,) = vcrt.schedule(log, environment=f"{tmp_path / 'tools.py'}:Late")
    assert found.schedule is None
    assert found.problem.startswith("nondeterministic: ")


#: What a library does when it is imported, which only a call does, is met by another call.
IMPORTING = """
import vcrt
class Importing(vcrt.CallEnvironment):
    name = "importing"
    def reset(self, initial):
        return {}
    def call(self, state, name, arguments):
        if name == "put":
            import library_of_tests
            return "done"
        import codecs
        try:
            return codecs.lookup("of_tests").name
        except LookupError:
            return None
"""


@pytest.mark.parametrize("traces", [["put", "see", "put"], ["put put", "put put", "put see"]])
def test_what_the_import_of_a_library_leaves_is_met_by_no_other_order(tmp_path, traces):
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "library_of_tests.py").write_text(
        "import codecs\n"
        "codecs.register(lambda name: codecs.CodecInfo(len, len, name=name) if name == 'of_tests' else None)\n"
    )
    (tmp_path / "tools.py").write_text(
        f"import sys\nsys.path.append({str(library)!r})\n{IMPORTING}"
    )
    log = tmp_path / "log.jsonl"
    every = [traces] if "put" in traces else [each.split() for each in traces]
    log.write_text(
        "\n".join(
            json.dumps({"calls": [{"name": name, "arguments": {}} for name in names]})
            for names in every
        )
    )
    place = f"{tmp_path / 'tools.py'}:Importing"
    *others, last = vcrt.schedule(log, environment=place, jobs=1)
    assert [one.schedule.order.pairs for one in others] == [()] * len(others)
    assert last.problem.startswith("nondeterministic: ")
    if others:
        assert vcrt.annotate([log], environment=place, jobs=1).left_out == {"nondeterministic": 1}


#: Calls whose answers depend on whether another trace has made them.
CLAIMING = """
import vcrt
__known__ = set()
class Claiming(vcrt.CallEnvironment):
    name = "claiming"
    def reset(self, initial):
        return {}
    def call(self, state, name, arguments):
        is_new = arguments["x"] not in __known__
        __known__.add(arguments["x"])
        return is_new if name == "claim" else "done"
"""


def test_no_trace_meets_what_another_one_left(tmp_path):
    (tmp_path / "tools.py").write_text(CLAIMING)
    log = tmp_path / "log.jsonl"
    traces = [
        {"calls": [{"name": name, "arguments": {"x": x}} for x in "ab"]}
        for name in ("warm", "claim")
    ]
    log.write_text("\n".join(map(json.dumps, traces)))
    found = vcrt.retry(log, environment=f"{tmp_path / 'tools.py'}:Claiming")
    assert found[0].problem is None
    assert found[1].problem.startswith("nondeterministic")


#: Tools that leave something to the end of the process: each folder is removed there; the system waits for children.
ENDING = """
import atexit, shutil, signal, tempfile, vcrt
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
class Tools:
    def __init__(self):
        self.names, self.me = [], self
        self.folder = tempfile.mkdtemp(prefix="made-by-tests-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
    def add(self, name: str) -> str:
        self.names.append(name)
        return "done"
TOOLS = vcrt.tools_environment(Tools, ignored=["folder", "outside.files"])
"""


def test_copies_end_as_their_process_would(tmp_path, monkeypatch):
    (tmp_path / "tools.py").write_text(ENDING)
    (tmp_path / "folders").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "folders"))
    log = tmp_path / "log.jsonl"
    calls = [{"name": "add", "arguments": {"name": name}} for name in "ab"]
    log.write_text("\n".join(map(json.dumps, calls)))
    (found,) = vcrt.schedule(log, environment=f"{tmp_path / 'tools.py'}:TOOLS", jobs=1)
    assert found.schedule.order.pairs == ((0, 1),)
    assert not [*(tmp_path / "folders").glob("made-by-tests-*")]


KEPT = []


def kept():
    KEPT.append(os.getpid())
    return len(KEPT)


def failing():
    raise LookupError("this work fails")


def ending(signal_or_code):
    os.kill(os.getpid(), signal_or_code) if signal_or_code > 0 else os._exit(-signal_or_code)


def of_copies(way):
    """Do work in copies of a worker."""
    if way == "kept":
        return [in_copy(kept), in_copy(kept), in_copy(partial(in_copy, kept)), len(KEPT)]
    if way == "fails":
        try:
            in_copy(failing)
        except LookupError as error:
            return [str(error), "in failing" in str(error.__cause__)]
    return in_copy(partial(ending, way))


def test_a_copy_ends_with_its_work():
    (found,) = in_fresh_processes(of_copies, ["kept"], jobs=1)
    assert found == [1, 1, 1, 0]


def test_the_error_of_a_copy_is_raised_with_its_place():
    (found,) = in_fresh_processes(of_copies, ["fails"], jobs=1)
    assert found == ["this work fails", True]


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGSEGV, "SIGSEGV"),
        (-7, "exit code 7"),
        (0, "exit code 1"),
    ],
)
def test_where_a_copy_is_ended_its_process_ends_in_the_same_way(way, said):
    with pytest.raises(VerifierFailure) as caught:
        list(in_fresh_processes(of_copies, [way], jobs=1))
    assert said in str(caught.value)


def parts_of(what):
    """Return what a worker has of its own before, while and after it holds something."""
    before = own_parts()
    if what == "threads":
        over = threading.Event()
        thread = threading.Thread(target=over.wait)
        thread.start()
        during = own_parts()
        over.set()
        thread.join()
    elif what == "connections":
        with socket():
            during = own_parts()
    elif what == "shared memory":
        with mmap.mmap(-1, 8):
            during = own_parts()
    else:
        reading, writing = os.pipe()
        during = own_parts()
        os.close(reading)
        os.close(writing)
    return before, during, own_parts()


@pytest.mark.parametrize("what", ["threads", "connections", "pipes", "shared memory"])
def test_a_worker_with_threads_connections_pipes_or_shared_memory_is_not_copied(what):
    (found,) = in_fresh_processes(parts_of, [what], jobs=1)
    assert found == ("", what, "")


#: A tool whose module has begun a thread: a copy would have none.
THREADED = """
import threading, vcrt
threading.Thread(target=threading.Event().wait, daemon=True).start()
class Tools:
    def __init__(self):
        self.names = []
    def add(self, name: str) -> str:
        self.names.append(name)
        return "done"
    def count(self) -> int:
        return len(self.names)
TOOLS = vcrt.tools_environment(Tools)
"""


def test_where_nothing_can_be_copied_this_is_said(tmp_path, capfd):
    (tmp_path / "tools.py").write_text(THREADED)
    log = tmp_path / "log.jsonl"
    calls = [{"name": "add", "arguments": {"name": "a"}}, {"name": "count", "arguments": {}}]
    log.write_text("\n".join(map(json.dumps, calls)))
    (found,) = vcrt.schedule(log, environment=f"{tmp_path / 'tools.py'}:TOOLS", jobs=1)
    assert found.schedule.order.pairs == ((0, 1),)
    said = capfd.readouterr().err
    assert (
        said.count("environment 'tools' has threads of its own: orders are replayed in one process")
        == 1
    )


def test_a_process_that_nobody_watches_is_not_copied():
    assert not may_copy()
