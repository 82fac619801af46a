"""`vcrt --help` is a table of contents, and names that are wrong lead to the right ones."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import vcrt
from test_cli import refused, run
from vcrt.cli.contents import CHAPTERS
from vcrt.cli.main import COMMANDS


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_all_commands_on_one_screen(capsys, option):
    code, out, _ = run(capsys, option)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) < 32
    assert max(map(len, lines)) <= 80
    for chapter, commands in CHAPTERS.items():
        assert any(line.startswith(chapter) for line in lines)
        for name, command in commands.items():
            assert any(name in line.split() and line.endswith(command.summary) for line in lines)


def test_without_a_command_the_contents_are_printed_as_an_error(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert "vcrt COMMAND --help" in err


def test_a_wrong_command_is_a_named_error(capsys):
    assert "did you mean 'train'?" in refused(capsys, "trian", "runs/experiment")
    assert "to mend" not in refused(capsys, "quux")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_of_itself(capsys, name):
    assert f"Example: vcrt {name}" in inspect.getdoc(COMMANDS[name])
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"vcrt {name}" in out


def test_the_page_says_which_commands_are_functions():
    """One table, in the contents, says it; the page and what `vcrt` exports agree with it."""
    functions = {
        name: command.function
        for chapter in CHAPTERS.values()
        for name, command in chapter.items()
        if command.function is not None
    }
    assert set(functions.values()) <= set(vcrt.__all__)
    # A command with a function of its name is in the table under that name.
    assert set(COMMANDS) & set(vcrt.__all__) <= set(functions)
    page = (Path(__file__).parents[1] / "docs" / "start.md").read_text(encoding="utf-8")
    said = " ".join(page.split()).partition("These commands are functions too: ")[2]
    said = said.partition(" The others are commands alone.")[0]
    found = {
        command: function or command
        for command, function in re.findall(r"`([\w-]+)`(?: \(`(\w+)`\))?", said)
    }
    assert found == functions
    readme = Path(__file__).parents[1] / "README.md"
    for text in (page, readme.read_text(encoding="utf-8")):
        assert "Every command is a function" not in " ".join(text.split())
