"""The page of errors is complete and true: every named error with its exit code, and every code."""

from __future__ import annotations

import ast
import pickle
import re
from copy import copy
from pathlib import Path

import pytest

from documentation import SOURCES
from vcrt import errors
from vcrt.errors import VcrtError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def named_errors():
    """Every error class of the package, found in its source."""
    names = {"VcrtError"}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(base, ast.Name) and (base.id in names or base.id.endswith("Error"))
                for base in node.bases
            ):
                assert path.name == "errors.py", f"{node.name} belongs in errors.py"
                names.add(node.name)
    return names


def test_the_page_lists_every_named_error_with_its_code():
    rows = dict(re.findall(r"^\| .+ \| `(\w+)` (\d+) \| .+ \|$", PAGE, re.MULTILINE))
    assert rows.keys() == named_errors()
    assert {n: str(getattr(errors, n).exit_code) for n in rows} == rows
    codes = set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
    assert codes == {"0", "1", "130", *rows.values()}


def test_the_messages_of_the_page_are_those_of_the_source():
    cells = re.findall(r"^\| (`.+`) \| `\w+` \d+ \|", PAGE, re.MULTILINE)
    messages = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(messages) > 20
    source = "\n".join(
        path.read_text(encoding="utf-8") for folder in SOURCES for path in folder.rglob("*.py")
    )
    for message in messages:
        for piece in message.split("..."):
            assert piece.strip() in source, message


@pytest.mark.parametrize("name", sorted(named_errors()))
def test_an_error_says_its_parts_and_crosses_processes(name):
    error = getattr(errors, name)("broke", where="w", found="f", expected="e", remedy="r")
    assert isinstance(error, VcrtError)
    for other in (error, pickle.loads(pickle.dumps(error))):
        assert str(other).splitlines() == [
            "broke",
            "  where: w",
            "  found: f",
            "  expected: e",
            "  to mend: r",
        ]
    assert str(getattr(errors, name)("broke")) == "broke"


class WithTool(VcrtError):
    """A class of somebody's own, made in its own way."""

    def __init__(self, *, tool):
        super().__init__(f"{tool} is missing", remedy=f"install {tool}")
        self.tool = tool


def test_an_error_of_one_s_own_class_crosses_processes_whole():
    error = WithTool(tool="saw")
    for other in (pickle.loads(pickle.dumps(error)), copy(error), error.at("here")):
        assert type(other) is WithTool
        assert (other.what, other.remedy, other.tool) == ("saw is missing", "install saw", "saw")
    assert str(error.within("here")) == "saw is missing\n  where: here\n  to mend: install saw"
