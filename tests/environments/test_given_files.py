"""An environment that is given as FILE.py:CLASS: what lies beside it, and what is said of one that cannot be loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import vcrt
from documentation import blocks, text_of
from vcrt.environments.registry import named_factory
from vcrt.errors import EnvironmentFailure, UnavailableError

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
    (tmp_path / "stock_of_the_shop.py").write_text(BESIDE)
    (tmp_path / "taking_of_the_shop.py").write_text(TAKING)
    (tmp_path / "corner.py").write_text(SHOP)
    calls = [("tea", 1), ("rice", 1), ("tea", 2)]
    lines = [{"name": "take", "arguments": {"item": i, "amount": n}} for i, n in calls]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def vcrt_command(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "vcrt", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_imports_what_lies_beside_it_in_every_command(folder):
    given = ("--environment", "corner.py:Shop")
    # From another folder, by a path: nothing but the file's own folder is where its modules are.
    done = vcrt_command(
        folder.parent, "lift", "log", folder / "trace.jsonl", "--environment",
        f"{folder.name}/corner.py:Shop", "--output", folder / "data", "--jobs", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    option = f"--environment {folder.name}/corner.py:Shop"
    assert f"next: vcrt verify {folder / 'data'} {option}" in done.stdout
    assert f"vcrt show corner-shop/log/0 --dataset {folder / 'data'} {option}" in done.stdout
    assert vcrt_command(folder, "verify", "data", *given, "--jobs", 1).returncode == 0
    shown = vcrt_command(folder, "show", "corner-shop/log/0", "--dataset", "data", *given)
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
        with pytest.raises(UnavailableError, match="cannot be loaded") as caught:
            factory()
        assert found in caught.value.found
        assert remedy.format(file=file) in caught.value.remedy
        assert "package" not in caught.value.remedy


def test_the_classes_of_a_file_are_named_without_running_it(tmp_path):
    file = tmp_path / "two.py"
    file.write_text("class One: ...\nclass Other: ...\nraise SystemExit\n")
    with pytest.raises(UnavailableError, match="without the name of its class") as caught:
        named_factory(str(file))
    assert caught.value.expected == f"{file}:One or {file}:Other"
    file.write_text("class One: ...\n")
    with pytest.raises(UnavailableError, match="without the class 'Non'") as caught:
        named_factory(f"{file}:Non")()
    assert caught.value.expected == f"{file}:One"
    with pytest.raises(UnavailableError, match="the class of environment 'One'") as caught:
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
    assert done.returncode == 3
    assert "`vcrt lift log TRACE.jsonl --environment corner.py:Shop`" in done.stderr


def test_advice_names_a_command_that_works(folder):
    (folder / "taking_of_the_shop.py").write_text("def take(state, arguments): return 1 / 0\n")
    done = vcrt_command(folder, "lift", "log", "trace.jsonl", "--environment", "corner.py:Shop")
    assert done.returncode == EnvironmentFailure.exit_code
    assert "mend it there; `vcrt lift log LOG --environment corner.py:Shop`" in done.stderr


@pytest.mark.parametrize("name", ["reset", "canonical", "step", "snapshot", "tools"])
def test_the_pages_example_calls_no_method_of_the_environment(tmp_path, name):
    """A log may have a tool of any name."""
    example = blocks(text_of("tool-calls.md"), "python")[0]
    (tmp_path / "paged.py").write_text(example)
    shop = named_factory(f"{tmp_path / 'paged.py'}:Shop")()
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        shop.call(shop.reset(None), name, {})
