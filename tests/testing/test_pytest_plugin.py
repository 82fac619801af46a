"""pytest's plug-in, in processes of pytest as a user has them: fixtures, failures, and certificates for review."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from vcrt.records.certificate import read_certificate
from vcrt.testing.recorded import place_of
from vcrt.testing.sessions import RunningTest

SHOP = """
import vcrt

class Shop:
    def __init__(self):
        self.left = {"tea": 3, "rice": 1}

    def look(self, item: str):
        return {"left": self.left[item]}

    def order(self, item: str):
        self.left[item] -= 1
        return "done"

SHOP = vcrt.tools_environment(Shop)
"""
TESTS = (
    SHOP
    + """
import pytest
from vcrt.testing import assert_commutes

TEA, RICE = {"item": "tea"}, {"item": "rice"}

def test_passes(vcrt_commutes):
    vcrt_commutes(SHOP, [("order", TEA), ("order", RICE)])

@pytest.mark.parametrize("item", ["a/b"])
class TestTwice:
    def test_both(self, item):
        assert_commutes(SHOP, [("order", TEA), ("order", RICE)])
        assert_commutes(SHOP, [("order", TEA), ("look", RICE)])

def test_fails(vcrt_commutes):
    vcrt_commutes(SHOP, [("order", TEA), ("look", TEA)])

def test_errs(vcrt_declared):
    vcrt_declared(SHOP, [("order", TEA), ("look", TEA)])

def test_a_local_environment():
    shop = vcrt.tools_environment(Shop)
    assert_commutes(shop, [("order", TEA), ("order", RICE)])
"""
)


#: The plug-in is loaded by its module, whether or not an installation registers it.
PLUGINS = ["-p", "no:cacheprovider", "-p", "no:vcrt", "-p", "vcrt.testing.pytest_plugin"]


def run(folder, *options):
    made = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-q", "--tb=short", *options, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        # Other plug-ins that are installed here take two seconds of each call.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return made.stdout + made.stderr


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_suite_of_a_user(tmp_path, mode):
    (tmp_path / "test_shop.py").write_text(TESTS)
    text = run(tmp_path, f"--import-mode={mode}")
    assert "2 failed, 3 passed" in text, text
    assert (
        'E   AssertionError: calls: two orders differ: order(item="tea") and look(item="tea")'
        in text
    )
    assert re.search(r'output\["left"\] of look\(item="tea"\)\nE\s+2 +\| +3\n', text), text
    assert (
        "E   vcrt.errors.MalformedInputError: no declaration that replay could contradict" in text
    )
    assert "/src/vcrt/" not in text  # no frame inside of vcrt
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "test_shop.py"
    ]  # nothing is written


@pytest.mark.slow
def test_certificates_are_recorded_for_review(tmp_path):
    file = tmp_path / "test_shop.py"
    file.write_text(TESTS)
    run(tmp_path, "--vcrt-update")
    made = {path.name: path.read_bytes() for path in (tmp_path / "__vcrt__").iterdir()}
    assert sorted(made) == [
        "test_shop.TestTwice.test_both[a_b]-36c3d3a9.2.json",
        "test_shop.TestTwice.test_both[a_b]-36c3d3a9.json",
        "test_shop.test_a_local_environment.json",
        "test_shop.test_passes.json",
    ]
    run(tmp_path, "--vcrt-update")
    folder = tmp_path / "__vcrt__"
    assert made == {path.name: path.read_bytes() for path in folder.iterdir()}
    certified = read_certificate(folder / "test_shop.test_passes.json").certified
    assert [relation.kind for relation in certified.relations] == ["commutes"]

    # Another version of the file is no difference; other outputs are one, and so are other calls.
    file.write_text(TESTS + "\n# a comment\n")
    assert "2 failed, 3 passed" in run(tmp_path)
    file.write_text(TESTS.replace('return "done"', 'return "ordered"'))
    text = run(tmp_path, "-k", "test_passes")
    assert "the recorded certificate no longer holds" in text, text
    assert "ordered" in text
    assert "done" in text
    assert "`pytest --vcrt-update`" in text
    file.write_text(
        TESTS.replace('[("order", TEA), ("order", RICE)]', '[("order", TEA), ("look", RICE)]')
    )
    text = run(tmp_path, "-k", "test_passes")
    assert "the calls, or their start, are others than in the recorded certificate" in text, text
    assert made == {path.name: path.read_bytes() for path in folder.iterdir()}

    # Nor is a file that somebody changed a certificate.
    place = folder / "test_shop.test_passes.json"
    document = json.loads(made[place.name])
    place.write_text(json.dumps({**document, "relations": []}))
    file.write_text(TESTS)
    text = run(tmp_path, "-k", "test_passes")
    assert "1 failed" in text
    assert "restore the file, or write it anew: `pytest --vcrt-update`" in text
    run(tmp_path, "-k", "test_passes", "--vcrt-update")
    assert place.read_bytes() == made[place.name]


HELPED = """
import vcrt
from helper_of_tests import act

class Cell:
    def __init__(self):
        self.number = 0

    def do(self, number: int):
        act(self, number)

CELL = vcrt.tools_environment(Cell)
"""
ADD = "def act(cell, number):\n    cell.number += number\n"
SET = ADD.replace("+=", "=")
TEST_OF_FILES = """
import pytest
from pathlib import Path

HERE, CALLS = Path(__file__).parent, [("do", {"number": 1}), ("do", {"number": 2})]

def test_neighbours_of_two_files_have_one_name(vcrt_commutes):
    vcrt_commutes(f"{HERE}/add/cell.py:CELL", CALLS)
    with pytest.raises(AssertionError, match="two orders differ"):
        vcrt_commutes(f"{HERE}/set/cell.py:CELL", CALLS)

def test_a_file_is_written_anew(vcrt_commutes):
    vcrt_commutes(f"{HERE}/add/cell.py:CELL", CALLS)
    (HERE / "add/helper_of_tests.py").write_text((HERE / "set/helper_of_tests.py").read_text())
    with pytest.raises(AssertionError, match="two orders differ"):
        vcrt_commutes(f"{HERE}/add/cell.py:CELL", CALLS)
"""


def write_files(folder, helper):
    folder.mkdir()
    (folder / "helper_of_tests.py").write_text(helper)
    (folder / "cell.py").write_text(HELPED)


def test_the_files_that_an_assertion_names_are_the_ones_that_run(tmp_path):
    write_files(tmp_path / "add", ADD)
    write_files(tmp_path / "set", SET)
    (tmp_path / "test_files.py").write_text(TEST_OF_FILES)
    text = run(tmp_path)
    assert "2 passed" in text, text


def test_a_module_that_the_path_gives_to_workers_alone_is_named(tmp_path):
    """pytest puts each folder of tests before the last one, so that a later start finds the other helper."""
    write_files(tmp_path / "first", SET)
    write_files(tmp_path / "second", ADD)
    calls = '[("do", {"number": 1}), ("do", {"number": 2})]'
    test = f"def test_cell(vcrt_commutes):\n    vcrt_commutes(CELL, {calls})\n"
    (tmp_path / "first" / "test_first.py").write_text(HELPED + test)
    (tmp_path / "second" / "test_second.py").write_text("def test_nothing():\n    pass\n")
    text = run(tmp_path)
    assert "1 failed, 1 passed" in text, text
    assert "a worker process imports another module than the test" in text
    assert "where: module 'helper_of_tests'" in text


PLAIN = (
    SHOP
    + """
GOOD = [("order", {"item": "tea"}), ("order", {"item": "rice"})]

def test_one(vcrt_commutes):
    vcrt_commutes(SHOP, GOOD)

def test_none():
    pass
"""
)


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_certificates_that_no_test_compares_are_named(tmp_path, jobs):
    if jobs == "2":
        pytest.importorskip("xdist")
    (tmp_path / "test_shop.py").write_text(PLAIN)
    (tmp_path / "test_other.py").write_text("")
    folder = tmp_path / "__vcrt__"
    folder.mkdir()
    stale = ["shop.test_gone", "shop.test_none", "shop.test_none.2", "gone.test_one"]
    for name in [*stale, "other.test_one"]:
        (folder / f"test_{name}.json").write_text("{}")
    options = [] if jobs == "0" else ["-p", "xdist", "-n", jobs]
    text = run(tmp_path, "--vcrt-update", *options, "-k", "one or none")
    said = text.partition("recorded certificates that no test compares")[2]
    assert sorted(re.findall(r"__vcrt__/test_(.*)\.json", said)) == sorted(stale), text
    # Of tests that are not collected, or do not run, nothing is known.
    assert "no test compares" not in run(tmp_path, "test_shop.py::test_one")
    said = run(tmp_path, "-k", "test_one").partition("no test compares")[2]
    assert re.findall(r"__vcrt__/test_(.*)\.json", said) == ["gone.test_one", "shop.test_gone"]


@pytest.mark.parametrize("option", ["--color=no", "--vcrt-update"])
def test_what_is_no_file_is_no_certificate(tmp_path, option):
    (tmp_path / "test_shop.py").write_text(PLAIN)
    place = tmp_path / "__vcrt__" / "test_shop.test_one.json"
    if option == "--vcrt-update":
        place.mkdir(parents=True)
    else:
        place.parent.mkdir()
        place.symlink_to(tmp_path / "missing.json")
    text = run(tmp_path, option)
    assert "1 failed, 1 passed" in text, text
    said = "that cannot be written" if option == "--vcrt-update" else "a link to nothing"
    assert said in text, text


def test_names_of_tests_that_differ_give_files_that_differ(tmp_path):
    names = [
        "test[a/b]",
        "test[a_b]",
        "test[a:b]",
        "test[a.b]",
        "test[a::b]",
        "Test::test",
        "test[" + "x" * 200 + "]",
    ]
    names.append(names[-1][:-1] + "y]")
    places = {place_of(RunningTest(tmp_path / "test_shop.py", name, False), 1) for name in names}
    assert len(places) == len(names)
    assert all(len(place.name) < 200 for place in places)


def test_pytest_starts_without_loading_vcrt(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure():\n"
        "    print(sorted(name for name in sys.modules if name.startswith('vcrt')))\n"
    )
    light = [
        "vcrt",
        "vcrt.lazy",
        "vcrt.testing",
        "vcrt.testing.pytest_plugin",
        "vcrt.testing.sessions",
    ]
    assert str(light) in run(tmp_path, "--collect-only")
