"""A package beside vcrt adds an environment, a lifter, a command and a line of doctor, and touches no other file."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import pytest

import vcrt
from command_line import refused, run
from vcrt.api.doctor import doctor
from vcrt.environments.registry import environment_names, in_process_names, load_environment
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.plugins import ENVIRONMENTS, load, plugins

MEMBER = '''
import vcrt
from vcrt.api.doctor import Finding
from vcrt.cli.commands import Command


class Till(vcrt.CallEnvironment):
    """A till; taking needs what was put in."""

    name = "till"

    def reset(self, initial):
        return {{"coins": 0}}

    def call(self, state, name, arguments):
        if name == "take" and state["coins"] < arguments["coins"]:
            raise vcrt.CallRefused("too few coins")
        state["coins"] += arguments["coins"] if name == "put" else -arguments["coins"]
        return "done"


def lift(file: str) -> int:
    """Say how many lines a file has.

    Example: vcrt lift till FILE

    Args:
        file: The file.
    """
    return len(open(file).read().splitlines())


def print_lines(found: int, *, file: str):
    print(found, "lines")


def count(output: int = 3):
    """Count.

    Example: vcrt count-coins

    Args:
        output: How far.
    """
    print(*range(output))


LIFT = Command(function="{0}:lift", summary="lines of a file", view="{0}:print_lines")
CHAPTERS = {{
    "coins": {{
        "count-coins": Command(
            function="{0}:count", summary="how many coins there are", names={{"output": "number"}}
        )
    }}
}}


def findings():
    yield Finding(subject="till", found="full of coins")
'''
POINTS = """
[vcrt.environments]
till = {0}:Till
[vcrt.lifters]
till = {0}:LIFT
[vcrt.commands]
{0} = {0}:CHAPTERS
[vcrt.doctor]
till = {0}:findings
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a package that looks installed: its module, and its metadata beside it."""
    monkeypatch.syspath_prepend(tmp_path)

    names = []

    def add(name, text=MEMBER, points=POINTS, needs=""):
        names.append(name)
        (tmp_path / f"{name}.py").write_text(text.format(name))
        metadata = tmp_path / f"{name}-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n{needs}"
        )
        (metadata / "entry_points.txt").write_text(points.format(name))
        # As if this process had begun now.
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / f"after {name}")])

    yield add
    for name in names:
        sys.modules.pop(name, None)


def test_a_package_adds_all_of_it(install, capsys, tmp_path):
    install("our_till")
    assert "till" in environment_names()
    assert load_environment("till").name == "till"
    log = tmp_path / "log.jsonl"
    calls = [("put", 2), ("put", 3), ("take", 1)]
    log.write_text(
        "".join(json.dumps({"name": n, "arguments": {"coins": c}}) + "\n" for n, c in calls)
    )
    assert vcrt.schedule(log, environment="till") is not None
    file = tmp_path / "coins.txt"
    file.write_text("a\nb\n")
    assert run(capsys, "lift", "till", str(file))[:2] == (0, "2 lines\n")
    assert "till" in run(capsys, "lift", "--help")[1]
    assert run(capsys, "count-coins", "--number", "2")[:2] == (0, "0 1\n")
    assert "how many coins there are" in run(capsys, "--help")[1]
    (line,) = [finding for finding in doctor() if finding.subject == "till"]
    assert line.found == "full of coins"


def test_a_package_cannot_ask_to_be_spared_the_look_beside_its_states(install, tmp_path):
    """A count that no state holds is found, whatever process the environment may be asked in."""
    counted = MEMBER.replace("class Till", "COUNT = []\n\n\nclass Till")
    counted = counted.replace("        state[", "        COUNT.append(name)\n        state[")
    install("our_till", counted, POINTS + "[vcrt.in_process]\ntill = {0}:Till\n")
    assert "till" in in_process_names()
    log = tmp_path / "log.jsonl"
    call = json.dumps({"name": "put", "arguments": {"coins": 2}}) + "\n"
    log.write_text(call + call.replace("2", "3"))
    with pytest.raises(MalformedInputError, match=r"beside|outside"):
        vcrt.schedule(log, environment="till")


def test_a_package_that_cannot_be_imported_keeps_nothing_else_from_working(
    install, capsys, tmp_path
):
    install("our_till", "import not_there_at_all\n")
    for command in (
        ("environments", "validate", "till"),
        ("lift", "till", "x"),
        ("count-coins",),
    ):
        said = refused(capsys, *command, code=3)
        assert "not_there_at_all" in said
        assert "our_till" in said
        assert "pip install --force-reinstall our_till" in said or "uninstall" in said
    page = run(capsys, "--help")[1]
    assert "schedule" in page
    assert "our_till cannot be loaded: vcrt doctor says why" in page
    assert "logs of tool calls" in run(capsys, "lift", "log", "--help")[1]
    found = doctor()
    for subject, lines in (("till", 1), ("our_till", 2)):
        statuses = [finding.status for finding in found if finding.subject == subject]
        assert statuses == ["broken"] * lines


@pytest.mark.parametrize("asked", ["vcrt==0.0.9", "vcrt>=9", "vcrt[mcp]<0.1"])
def test_a_package_for_another_version_of_vcrt_is_named_before_it_is_imported(
    install, capsys, asked
):
    install("our_till", "raise AssertionError", needs=f"Requires-Dist: {asked}\n")
    said = refused(capsys, "environments", "validate", "till", code=3)
    assert "our_till is made for another version of vcrt" in said
    assert f"vcrt {vcrt.__version__}" in said
    assert asked in said
    assert "pip install --force-reinstall our_till" in said


@pytest.mark.parametrize(
    "asked", [f"vcrt=={vcrt.__version__}", "vcrt>=0.1", "vcrt", "vcrt-lean==7", "vcrt[mcp]>=0.1"]
)
def test_a_package_for_this_version_of_vcrt_is_loaded(install, asked):
    install("our_till", needs=f"Requires-Dist: {asked}\n")
    assert load_environment("till").name == "till"


def test_a_package_of_this_repository_is_installed_from_its_folder(monkeypatch):
    (point,) = entry_points(group=ENVIRONMENTS, name="lean")
    monkeypatch.setattr(vcrt, "__version__", "7.0")
    with pytest.raises(UnavailableError, match="vcrt-lean is made for another") as error:
        load(point)
    assert error.value.remedy.endswith("pip install --force-reinstall ./environments/lean")


def test_two_packages_with_one_name_are_both_named(install, capsys):
    install("our_till")
    install("their_till")
    with pytest.raises(UnavailableError, match="two installed packages register 'till'") as error:
        plugins(ENVIRONMENTS)
    assert "our_till" in error.value.found
    assert "their_till" in error.value.found
    assert "pip uninstall" in error.value.remedy
    assert "two installed packages" in refused(capsys, "environments", code=3)
    found = doctor()
    assert found[0].subject == "vcrt"
    lines = [one for one in found if one.subject == "plug-ins"]
    assert {one.status for one in lines} == {"broken"}
    assert any("two installed packages register 'till'" in one.found for one in lines)
    assert all("pip uninstall" in one.remedy for one in lines)
    assert len(lines) == len(set(lines))


def test_a_package_that_exits_when_it_is_imported_is_named(install):
    install("our_till", "import sys\nsys.exit('no licence')\n")
    lines = [one for one in doctor() if one.subject in ("till", "our_till")]
    assert {one.status for one in lines} == {"broken"}
    assert any("no licence" in one.found for one in lines)
