"""An environment that is given as FILE.py:CLASS: what lies beside it, and what is said of one that cannot be loaded."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from types import ModuleType

import pytest

import vcrt
from command_line import ran
from documentation import blocks, text_of
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import named_factory
from vcrt.environments.tool_calls import InvalidCall
from vcrt.errors import EnvironmentFailure, MalformedInputError, VcrtError

BESIDE = """
def stock():
    return {"tea": 3, "rice": 1}
"""
SHOP = """
import vcrt
from stock_of_the_shop import stock

class Shop(vcrt.CallEnvironment):
    name = "corner-shop"

    def reset(self, initial):
        return stock()

    def call(self, state, name, arguments):
        import taking_of_the_shop
        return taking_of_the_shop.take(state, arguments)
"""
TAKING = """
def take(state, arguments):
    state[arguments.pop("item")] -= arguments.pop("amount")
    return "taken"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("stock_of_the_shop", "taking_of_the_shop", "corner"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "stock_of_the_shop.py").write_text(BESIDE)
    (tmp_path / "taking_of_the_shop.py").write_text(TAKING)
    (tmp_path / "corner.py").write_text(SHOP)
    calls = [("tea", 1), ("rice", 1), ("tea", 2)]
    lines = [{"name": "take", "arguments": {"item": i, "amount": n}} for i, n in calls]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def vcrt_command(folder, *arguments):
    with contextlib.chdir(folder):
        return ran(*arguments)


def in_its_own_process(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "vcrt", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_file_imports_what_lies_beside_it_in_every_command(folder):
    given = ("--environment", "corner.py:Shop")
    # From another folder, by a path: nothing but the file's own folder is where its modules are.
    done = in_its_own_process(
        folder.parent, "lift", "log", folder / "trace.jsonl", "--environment",
        f"{folder.name}/corner.py:Shop", "--output", folder / "data", "--jobs", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    option = f"--environment {folder.name}/corner.py:Shop"
    assert f"next: vcrt verify {folder / 'data'} {option}" in done.stdout
    assert f"vcrt show corner-shop/log/0 --dataset {folder / 'data'} {option}" in done.stdout
    assert in_its_own_process(folder, "verify", "data", *given, "--jobs", 1).returncode == 0
    shown = in_its_own_process(folder, "show", "corner-shop/log/0", "--dataset", "data", *given)
    assert 'take(item="tea", amount=1)' in shown.stdout, shown.stderr


def test_what_a_call_does_to_its_arguments_is_not_seen_by_the_next_replay(folder):
    found = vcrt.lift_log(
        [folder / "trace.jsonl"], environment=f"{folder / 'corner.py'}:Shop", jobs=1
    )
    assert found.calls[0].schedule.waves == ((0, 1, 2),)


@pytest.mark.parametrize(
    ("text", "found", "remedy"),
    [
        ("class Shop(:\n", "SyntaxError", "mend line 1 of {file}"),
        (
            "import vcrt\nimport no_such_module\n",
            "no_such_module",
            "mend line 2 of {file}: install",
        ),
        ("import vcrt\n\nraise SystemExit(3)\n", "SystemExit", "mend line 3 of {file}"),
        (SHOP.replace("def call", "def other"), "call", "mend its class in {file}"),
        (SHOP.replace("def reset", "def other"), "reset", "mend its class in {file}"),
        (SHOP + "\n    def __init__(self, db): pass\n", "'db'", "mend its class in {file}"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(folder, text, found, remedy):
    file = folder / "broken.py"
    file.write_text(text)
    factory = named_factory(f"{file}:Shop")
    for _ in range(2):  # what is half loaded is not taken for the module
        with pytest.raises(VcrtError, match="cannot be loaded") as caught:
            factory()
        assert caught.value.exit_code == (3 if "import no_such" in text else 2)
        assert found in caught.value.found
        assert remedy.format(file=file) in caught.value.remedy
        assert "package" not in caught.value.remedy


def test_the_classes_of_a_file_are_named_without_running_it(tmp_path):
    file = tmp_path / "two.py"
    file.write_text("class One: ...\nclass Other: ...\nraise SystemExit\n")
    with pytest.raises(MalformedInputError, match="without the name of its class") as caught:
        named_factory(str(file))
    assert caught.value.expected == f"{file}:One or {file}:Other"
    file.write_text("class One: ...\n")
    with pytest.raises(MalformedInputError, match="without the class 'Non'") as caught:
        named_factory(f"{file}:Non")()
    assert caught.value.expected == f"{file}:One"
    with pytest.raises(MalformedInputError, match="the class of environment 'One'") as caught:
        named_factory(f"{file}:One")()
    assert "vcrt.CallEnvironment" in caught.value.expected


def test_the_conformance_kit_takes_a_file(folder):
    text = (
        SHOP
        + """
    def sample(self, schema, seed):
        from vcrt.environments.contract import Provenance
        from vcrt.environments.tool_calls import Call, episode_of_calls, operations_of

        calls = [Call("take", {"item": item, "amount": seed}) for item in ("tea", "rice")]
        source = Provenance(source=f"day {seed}", generator="own", seed=seed)
        return episode_of_calls(self.name, schema, None, operations_of(calls), source)
"""
    )
    (folder / "sampled.py").write_text(text)
    found = vcrt.validate_environment(f"{folder / 'sampled.py'}:Shop", quick=True)
    assert [finding for finding in found.findings if not finding.passed] == []


def test_an_environment_without_a_sampler_is_told_what_it_needs(folder):
    done = vcrt_command(folder, "environments", "validate", "corner.py:Shop")
    assert done.returncode == 2
    assert "`vcrt lift log TRACE.jsonl --environment corner.py:Shop`" in done.stderr


def test_advice_is_what_helps_and_not_the_command_that_was_run(folder):
    (folder / "taking_of_the_shop.py").write_text("def take(state, arguments): return 1 / 0\n")
    done = vcrt_command(folder, "lift", "log", "trace.jsonl", "--environment", "corner.py:Shop")
    assert done.returncode == EnvironmentFailure.exit_code
    assert "mend it there; what a tool refuses, `call` says by vcrt.CallRefused" in done.stderr
    assert "lift log" not in done.stderr
    (folder / "nameless.py").write_text(SHOP.replace("name =", "label ="))
    done = vcrt_command(folder, "lift", "log", "trace.jsonl", "--environment", "nameless.py:Shop")
    assert "name = ... in the class\n  to mend: write it there" in done.stderr


@pytest.mark.parametrize("name", ["reset", "canonical", "step", "snapshot", "tools"])
def test_the_pages_example_calls_no_method_of_the_environment(tmp_path, name):
    """A log may have a tool of any name."""
    (example,) = [b for b in blocks(text_of("tools-logs.md"), "python") if "CallEnvironment" in b]
    (tmp_path / "paged.py").write_text(example)
    memory = named_factory(f"{tmp_path / 'paged.py'}:Memory")()
    with pytest.raises(InvalidCall, match=f"no tool '{name}'"):
        memory.call(memory.reset(None), name, {})


HELD = """
import sqlite3, threading
import vcrt

class Tools:
    def __init__(self):
        self.db = {held}

class Notes(vcrt.CallEnvironment):
    name = "notes"
    ignored = frozenset({ignored})

    def reset(self, initial):
        return Tools()

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)
"""


@pytest.mark.parametrize(
    "held", ["sqlite3.connect(':memory:')", "threading.Lock()", "open('held.py')"]
)
def test_what_cannot_be_copied_has_one_message_whatever_is_ignored(tmp_path, monkeypatch, held):
    monkeypatch.chdir(tmp_path)
    messages = set()
    for ignored in ("()", "('db',)"):
        text = HELD.replace("{held}", held).replace("{ignored}", ignored)
        (tmp_path / "held.py").write_text(text)
        made: dict = {}
        exec(text, made)
        environment = make_guarded(made["Notes"])
        state = environment.reset(None)
        for ask in (environment.canonical, environment.snapshot):
            if ignored == "()" or ask != environment.canonical:
                with pytest.raises(MalformedInputError) as caught:
                    ask(state)
                messages.add(str(caught.value))
    (message,) = messages
    assert "state.db" in message
    assert "override canonical, snapshot and restore, all three" in message
    assert "ignored" not in message


def test_what_can_be_copied_may_be_ignored():
    made: dict = {}
    held = "iter((1, 2))"
    exec(HELD.replace("{held}", held).replace("{ignored}", "()"), made)
    environment = make_guarded(made["Notes"])
    with pytest.raises(MalformedInputError, match="`ignored` if no call can see it") as caught:
        environment.canonical(environment.reset(None))
    assert "canonical, snapshot and restore" in caught.value.remedy


@pytest.fixture
def notes(tmp_path):
    """The page's example of a database in memory."""
    (example,) = [b for b in blocks(text_of("tools-logs.md"), "python") if "import sqlite3" in b]
    calls = [("write", {"name": name, "text": text}) for name, text in ("ax", "by", "az")]
    lines = [{"name": name, "arguments": arguments} for name, arguments in calls]
    lines.append({"name": "raed", "arguments": {"name": "b"}, "output": "Error: unknown tool"})
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def write(text=example):
        (tmp_path / "notes.py").write_text(text)
        return f"{tmp_path / 'notes.py'}:Memory"

    return write


def test_a_database_in_memory_is_an_environment(notes, tmp_path):
    assert vcrt.schedule(tmp_path / "notes.jsonl", environment=notes(), jobs=1)[
        0
    ].schedule.waves == ((0, 1, 3), (2,))
    environment = named_factory(notes())()
    state = environment.reset(None)
    for name in "ab":
        environment.call(state, "write", {"name": name, "text": name})
        kept = environment.snapshot(state)
        assert environment.canonical(environment.restore(kept)) == environment.canonical(state)


#: The name of a module of Python's own, or of an installed package, for the file of an environment.
NAMED = """
import datetime, json, pickle
import vcrt

class Event:
    def __init__(self): self.days = {}

class Calendar(vcrt.CallEnvironment):
    name = "days"

    def reset(self, initial):
        return Event()

    def call(self, state, name, arguments):
        import numpy, statistics
        state.days[arguments["day"]] = str(datetime.datetime.strptime("1 Feb", "%d %b"))
        assert type(pickle.loads(pickle.dumps(state))) is Event
        assert statistics.mean([1]) == len(numpy.zeros(1)) == 1
        return vcrt.__name__
"""


@pytest.mark.parametrize(
    "name", ["calendar", "queue", "types", "statistics", "token", "numpy", "vcrt", "__main__"]
)
def test_a_file_takes_the_place_of_no_other_module(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = sys.modules.get(name)
    file = tmp_path / f"{name}.py"
    file.write_text(NAMED)
    factory = named_factory(f"{file}:Calendar")
    environment = factory()
    assert sys.modules.get(name) is before
    assert type(environment) is type(factory())
    state = environment.reset(None)
    environment.call(state, "add", {"day": 1})
    assert environment.versions().verifier.startswith(f"{name}.Calendar ")
    assert environment.canonical(
        environment.restore(environment.snapshot(state))
    ) == environment.canonical(state)
    file.write_text("raise ValueError\n")
    for own in [
        own for own, module in sys.modules.items() if getattr(module, "__file__", "") == str(file)
    ]:
        del sys.modules[own]
    with pytest.raises(MalformedInputError, match="cannot be loaded"):
        factory()
    assert sys.modules.get(name) is before


def test_what_lies_beside_a_file_takes_no_place_of_pythons_own(folder):
    """No module of the standard library that is imported for the first time, that is."""
    for name in ("colorsys", "tabnanny", "wave"):
        (folder / f"{name}.py").write_text("raise ImportError('the one beside')\n")
    program = (
        "import sys\n"
        "from vcrt.environments.registry import named_factory\n"
        "made = named_factory(sys.argv[1])()\n"
        "import colorsys, tabnanny, wave\n"
        "print(type(made).__module__, made.reset(None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"{folder / 'corner.py'}:Shop"],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "corner {'tea': 3, 'rice': 1}\n", done.stderr


def test_a_file_that_fails_leaves_the_module_that_was_there(folder):
    sys.path.insert(0, str(folder))
    one, other = folder / "one" / "corner.py", folder / "other" / "corner.py"
    for file, text in ((one, SHOP), (other, "raise ValueError\n")):
        file.parent.mkdir()
        file.write_text(text)
    named_factory(f"{one}:Shop")()
    first = sys.modules["corner"]
    with pytest.raises(MalformedInputError, match="cannot be loaded"):
        named_factory(f"{other}:Shop")()
    assert sys.modules["corner"] is first
    other.write_text(SHOP)
    named_factory(f"{other}:Shop")()
    assert sys.modules["corner"].__file__ == str(other)
    del sys.modules["corner"]


def test_a_file_leaves_the_users_own_module_of_its_name(folder, monkeypatch):
    own = ModuleType("corner")
    own.__file__ = str(folder / "elsewhere" / "corner.py")
    monkeypatch.setitem(sys.modules, "corner", own)
    named_factory(f"{folder / 'corner.py'}:Shop")()
    assert sys.modules["corner"] is own
