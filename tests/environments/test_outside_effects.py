"""What a call of tools does outside of its state is refused before it is done."""

import gc
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

import vcrt
from command_line import run
from vcrt.environments.contract import Operation
from vcrt.environments.outside_effects import FILES, NETWORK, PROCESSES, watched_effects
from vcrt.errors import MalformedInputError, VcrtError


class Notes:
    """Tools that leave their state in peace."""

    def __init__(self):
        self.notes = []

    def write(self, path: str) -> str:
        Path(path).write_text("x")
        return "ok"

    def swallow(self, path: str) -> str:
        try:
            Path(path).write_text("x")
        except Exception:
            return "could not"
        return "ok"

    def connect(self, path: str) -> int:
        with sqlite3.connect(path) as database:
            return database.execute("select 1").fetchone()[0]

    def look(self, path: str) -> int:
        with sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True) as database:
            return database.execute("select 1").fetchone()[0]

    def share(self, path: str) -> None:
        with closing(sqlite3.connect("file:notes?mode=memory&cache=shared", uri=True)) as database:
            database.execute("create table if not exists notes (text)")

    def remove(self, path: str) -> None:
        os.remove(path)

    def move(self, path: str) -> None:
        os.replace(path, f"{path}.old")

    def folder(self, path: str) -> None:
        os.mkdir(path)

    def start(self, path: str) -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    def call(self, path: str) -> None:
        with socket.socket() as each:
            each.connect(("127.0.0.1", 9))

    def in_between(self, path: str) -> int:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a").mkdir()
            (Path(folder) / "a" / "b").write_text("x")
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
        return Path(path).stat().st_size

    def left(self, path: str) -> None:
        os.close(tempfile.mkstemp()[0])


def step(kind, name, path):
    environment = kind()
    payload = {"name": name, "arguments": {"path": str(path)}}
    return environment.step(environment.reset(None), Operation(signature=name, payload=payload))


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file that is none of the state's, and no temporary file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    found = tmp_path / "w.db"
    with sqlite3.connect(found) as database:
        database.execute("create table tank (litres)")
    return found


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (each, FILES)
            for each in ("write", "swallow", "connect", "share", "remove", "move", "left")
        ),
        ("start", PROCESSES),
        ("call", NETWORK),
    ],
)
def test_an_effect_outside_of_the_state_is_refused_and_not_done(path, name, kind):
    before = path.read_bytes()
    with pytest.raises(MalformedInputError, match="reaches outside of its state") as caught:
        step(vcrt.tools_environment(Notes), name, path)
    assert kind in str(caught.value)
    assert path.read_bytes() == before
    # Named as what no call can see, it is done.
    if name != "call":  # nobody listens there
        step(vcrt.tools_environment(Notes, ignored=[kind]), name, path)


def test_a_new_folder_elsewhere_is_refused(path):
    with pytest.raises(MalformedInputError, match=r"os\.mkdir"):
        step(vcrt.tools_environment(Notes), "folder", path.parent / "new")
    assert not (path.parent / "new").exists()


@pytest.mark.parametrize("name", ["look", "in_between"])
def test_reading_and_files_that_are_gone_afterwards_are_no_effects(path, name):
    step(vcrt.tools_environment(Notes), name, path)


def test_a_state_of_files_may_be_written_to_and_nothing_else(tmp_path, path):
    def tools(folder):
        def inside(path: str) -> None:
            os.makedirs(os.path.join(folder, "a", "b"))
            Path(folder, "a", "c").write_text("x")
            os.replace(os.path.join(folder, "a", "c"), os.path.join(folder, "d"))
            subprocess.run([sys.executable, "-c", "pass"], check=True)

        def beside(path: str) -> None:
            Path(path).write_text("x")

        return [inside, beside]

    kind = vcrt.tools_environment(tools_of=tools, state=vcrt.folder(), name="files")
    step(kind, "inside", path)
    with pytest.raises(MalformedInputError, match="reaches outside"):
        step(kind, "beside", path)


class Own(vcrt.CallEnvironment):
    """An environment whose state's bytes are its author's: vcrt does not know what they show."""

    name = "own"

    def reset(self, initial):
        return Notes()

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)

    def canonical(self, state):
        return b""


class Default(Own):
    """The same, with the bytes of the state's objects."""

    canonical = vcrt.CallEnvironment.canonical


def test_classes_are_watched_where_the_bytes_are_those_of_their_objects(path):
    step(Own, "write", path)
    with pytest.raises(MalformedInputError, match="reaches outside"):
        step(Default, "write", path)


def test_the_place_of_temporary_files_is_not_looked_for_in_a_call(path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(MalformedInputError, match="reaches outside"):
        step(vcrt.tools_environment(Notes), "write", path)
    assert tempfile.tempdir is not None


def test_what_is_no_call_is_not_watched(path):
    with pytest.raises(MalformedInputError), watched_effects(()):
        path.write_text("x")
    path.write_text("y")


GLOBAL = """
import sqlite3
import vcrt

FILE = open(__file__ + ".log", "a")
KEPT = sqlite3.connect(":memory:", check_same_thread=False)
KEPT.execute("create table tank (litres)")
KEPT.execute("insert into tank values (3)")
KEPT.commit()
STOCK = {"litres": 3}


class Tools:
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def fill(self):
        KEPT.execute("update tank set litres = litres + 1")
        KEPT.commit()

    def drain(self):
        KEPT.execute("update tank set litres = 0")
        KEPT.commit()

    def log(self):
        FILE.write("x")

    def again(self):
        FILE.write("y")

    def add(self):
        STOCK["litres"] += 1

    def clear(self):
        STOCK["litres"] = 0


TOOLS = vcrt.tools_environment(Tools)
"""


@pytest.mark.parametrize(
    ("calls", "place"),
    [(("fill", "drain"), "KEPT"), (("add", "clear"), "STOCK"), (("log", "again"), "FILE")],
)
def test_globals_behind_the_methods_of_a_class_are_named(tmp_path, capsys, calls, place):
    # They were called safe: the globals of the tools' module were looked at under the name of another module's.
    (tmp_path / "tanks.py").write_text(GLOBAL)
    lines = [f'{{"name": "{each}", "arguments": {{}}}}\n' for each in calls]
    lines.append('{"name": "note", "arguments": {"text": "a"}}\n')
    (tmp_path / "log.jsonl").write_text("".join(lines))
    given = (tmp_path / "log.jsonl", "--environment", f"{tmp_path / 'tanks.py'}:TOOLS")
    code, _, error = run(capsys, "schedule", *given)
    assert code == VcrtError.exit_code
    assert f"global tanks.{place} changed during call {calls[0]}()" in error


def test_a_folder_that_goes_with_its_state_while_a_call_runs_is_no_effect_of_the_call():
    def look(word: str) -> str:
        gc.collect()
        return word

    environment = vcrt.tools_environment([look], state=vcrt.folder(), name="tidy")()
    gone, state = (environment.reset(None) for _ in range(2))
    folder = gone.folder
    gone.itself = gone  # only the garbage collector finds it
    del gone
    with watched_effects(environment.own_places(state)):
        assert environment.call(state, "look", {"word": "tea"}) == "tea"
    assert not folder.exists()
