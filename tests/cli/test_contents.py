"""`vcrt --help` is a table of contents, and names that are wrong lead to the right ones."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from command_functions import COMMANDS, FUNCTIONS, KINDS, PACKAGES, function
from command_line import refused, run
from vcrt.cli.contents import chapters


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_all_commands_on_one_screen(capsys, option):
    code, out, _ = run(capsys, option)
    lines = out.splitlines()
    assert code == 0
    assert len(lines) <= 32
    assert max(map(len, lines)) <= 80
    for chapter, commands in chapters().items():
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
    assert f"Example: vcrt {name}" in inspect.getdoc(COMMANDS[name].run)
    code, out, _ = run(capsys, name, "--help")
    assert code == 0
    assert f"vcrt {name}" in out


#: What has another form in Python: options by command, each with the reason.
PRINTING = "says how to print what the function returns"
PROCESS = "holds for the whole process: VCRT_VERIFIER_TIMEOUT sets it"
BY_NAME = "names the function, or is an argument of one of the command's functions alone"
OF_CLASSES = "FILE.py:CLASS, of which environments are the classes"
NOT_SETTINGS = {
    "annotate": {"json": PRINTING},
    "backbone": {"action": BY_NAME},
    "decide": {"json": PRINTING},
    "doctor": {"json": PRINTING},
    "environments": {"action": BY_NAME, "json": PRINTING},
    "evaluate": {
        "reopen": "reopen_reason is both",
        "reason": "reopen_reason is both",
    },
    "lift": {"source": BY_NAME, "json": PRINTING, "inputs": "files, or algorithms"},
    "methods": {"json": PRINTING},
    "plan": {"json": PRINTING},
    "report": {"table": PRINTING, "form": PRINTING},
    "relations": {"json": PRINTING},
    "schedule": dict.fromkeys(("json", "mermaid", "dot"), PRINTING),
    "show": {
        **dict.fromkeys(("json", "pair", "brief", "full"), PRINTING),
        "environment": OF_CLASSES,
    },
    "train": {"sharded": "in Python, variables of accelerate's"},
    "verify": {
        "json": PRINTING,
        "replay": "without it, it is verify_seal",
        "environment": OF_CLASSES,
    },
    "certify": {"json": PRINTING},
}
#: What a function takes and the command does not.
PYTHON_ALONE = {
    "progress": "where it is shown is the command's business",
    "environments": "classes that are not registered",
    "policy": "what trained_policy gives, to be asked more than once",
    "reopen_reason": "--reopen and --reason",
    "file": "NAME of `vcrt backbone import`",
    "files": "INPUTS of `vcrt lift`",
    "algorithms": "INPUTS of `vcrt lift`",
    "logs": "INPUTS of `vcrt lift`",
}


def options_of(name):
    """The options of a command, with those of its subcommands."""
    runs = [COMMANDS[name].run, *(KINDS.values() if name == "lift" else ())]
    return {option for run in runs for option in parameters_of(run)}


def parameters_of(command):
    """A command's parameters, by the names that functions have for them.

    ``settings`` are a function's ``config``, but those of a Django project.
    """
    found = dict(inspect.signature(command).parameters)
    if "settings" in found and command is not KINDS["django"]:
        found["config"] = found.pop("settings")
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_a_function_with_its_settings(name):
    functions = [function(one) for one in FUNCTIONS[name]]
    taken = {one for each in functions for one in inspect.signature(each).parameters}
    listed = {**NOT_SETTINGS.get(name, {}), "verifier_timeout": PROCESS}
    assert options_of(name) - taken <= set(listed)
    assert not taken & set(NOT_SETTINGS.get(name, {})), "listed and taken"
    assert taken - options_of(name) <= set(PYTHON_ALONE)
    for each in functions:
        # The one that is the command's own says so.
        assert f"``vcrt {name}" in inspect.getdoc(each) or len(functions) > 1


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_has_the_name_of_its_command_unless_that_is_taken(name):
    own = name.replace("-", "_")
    if own not in FUNCTIONS[name]:
        is_a_room = any((Path(package.__file__).parent / own).is_dir() for package in PACKAGES)
        assert is_a_room or len(FUNCTIONS[name]) > 1


def test_defaults_are_those_of_the_function():
    for name in COMMANDS:
        if len(FUNCTIONS[name]) > 1:
            continue
        taken = inspect.signature(function(FUNCTIONS[name][0])).parameters
        for option, parameter in parameters_of(COMMANDS[name].run).items():
            if option in taken and parameter.default is not inspect.Parameter.empty:
                own = taken[option].default
                assert str(parameter.default) == str(own) or not (parameter.default or own), option


def test_the_page_says_which_functions_have_other_names():
    page = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
    said = " ".join(page.split()).partition("Every command is a function of the same name")[2]
    said = said.partition(".")[0]
    for name, functions in FUNCTIONS.items():
        if functions != [name.replace("-", "_")] and name not in ("verify", "decide"):
            assert f"`{name}`" in said
            assert f"`{functions[0]}`" in said
