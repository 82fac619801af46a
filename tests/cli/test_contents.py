"""`vcrt --help` is a table of contents, and names that are wrong lead to the right ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from command_functions import COMMANDS, FUNCTIONS, PACKAGES
from command_line import refused, run
from vcrt.cli.commands import in_the_shell, loaded, shell_type
from vcrt.cli.contents import chapters, single_commands
from vcrt.records.dataset import Dataset
from vcrt.replay.shards import EnvironmentFactory

#: Every command, those of a group too.
SINGLE = dict(single_commands())


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


@pytest.mark.parametrize("name", SINGLE)
def test_every_command_shows_an_example_of_itself(capsys, name):
    code, out, _ = run(capsys, *name.split(), "--help")
    assert code == 0
    assert f"Example: vcrt {name}" in out


def test_a_group_shows_its_parts(capsys):
    code, out, _ = run(capsys, "lift", "--help")
    assert code == 0
    assert all(f"{name}  " in out for name in ("log", "clrs", "lean"))
    assert "which lift?" in refused(capsys, "lift")
    assert "did you mean 'clrs'?" in refused(capsys, "lift", "clsr", "bellman_ford")


def test_options_that_do_not_go_together_are_refused_before_anything_runs(capsys):
    episode = "clrs/bellman_ford/7"
    said = refused(capsys, "schedule", episode, "--dataset", "data", "--environment", "shop.py:S")
    assert "--dataset for an episode" in said
    said = refused(capsys, "show", episode, "--brief", "--pair", "0", "1")
    assert "one of --brief, --full, --json and --pair" in said


#: Options of the shell that its commands take and their functions do not, by reason: everything else is declared once,
#: by the public function itself. An adapter is a function for the shell alone.
ADAPTERS = {
    "verify": "four functions in Python: of a dataset, of its seal alone, of a certificate, of a proof",
    **{
        name: "prints by itself"
        for name, one in SINGLE.items()
        if one.function.startswith(("vcrt_train.cli.", "vcrt_research."))
    },
}
#: What a public function takes and no shell can give: what is shown where, and classes.
PYTHON_ALONE = {"progress", "environments"}


@pytest.mark.parametrize("name", SINGLE)
def test_a_command_is_its_function(name):
    """Or an adapter that is listed; a view adds options that say how to print."""
    command = SINGLE[name]
    function = loaded(command.function)
    parameters = inspect.signature(function).parameters
    is_public = any(getattr(package, function.__name__, None) is function for package in PACKAGES)
    assert is_public or name in ADAPTERS
    options = inspect.signature(in_the_shell(command)).parameters
    assert set(parameters) - set(options) <= PYTHON_ALONE | {"settings"}
    for option in set(parameters) & set(options):
        given, own = options[option].default, parameters[option].default
        assert given == (Path(own) if isinstance(given, Path) else own)


@pytest.mark.parametrize("name", SINGLE)
def test_every_option_says_what_it_is(name):
    for option in inspect.signature(in_the_shell(SINGLE[name])).parameters.values():
        (about,) = (one for one in option.annotation.__metadata__ if hasattr(one, "help"))
        assert about.help or about.name == "", option.name


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (str | Path, Path),
        (Dataset | str | Path | None, Path | None),
        (str | EnvironmentFactory, str),
        (Sequence[str] | str, tuple[str, ...]),
        (Sequence[str | Path] | str | Path, tuple[Path, ...]),
        (Mapping[str, str] | Sequence[str] | None, tuple[str, ...] | None),
        (tuple[int, int] | None, tuple[int, int] | None),
        (Mapping[str, EnvironmentFactory] | None, None),
        (Dataset, None),
    ],
)
def test_a_shell_gives_what_is_plain(kind, given):
    assert shell_type(kind) == given


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_has_the_name_of_its_command_unless_that_is_taken(name):
    own = name.replace("-", "_")
    if own not in FUNCTIONS[name]:
        is_a_room = any((Path(package.__file__).parent / own).is_dir() for package in PACKAGES)
        assert is_a_room or len(FUNCTIONS[name]) > 1


def test_the_page_says_which_functions_have_other_names():
    page = (Path(__file__).parents[2] / "docs" / "api" / "vcrt.md").read_text(encoding="utf-8")
    said = " ".join(page.split()).partition("Every command is a function of the same name")[2]
    said = said.partition(".")[0]
    for name, functions in FUNCTIONS.items():
        if functions != [name.replace("-", "_")] and name not in ("verify", "decide"):
            assert f"`{name}`" in said
            assert f"`{functions[0]}`" in said
