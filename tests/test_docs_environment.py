"""The page that makes an environment: its files are taken from it as a reader would, and do what it prints."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from documentation import blocks, commands, text_of
from test_cli import run

PAGE = text_of("your-environment.md")


@pytest.fixture
def bank(tmp_path, monkeypatch):
    """The folder with the page's files, installed as pip would: a module, and its entry point beside it."""
    module = "\n".join(blocks(PAGE, "{code-block} python"))
    project, more = blocks(PAGE, "{code-block} toml")
    declared = tomllib.loads(project)["project"]
    (group,) = tomllib.loads(more)["project"]["entry-points"].items()
    assert declared["entry-points"][group[0]].items() <= group[1].items()
    points = "\n".join(f"{name} = {value}" for name, value in group[1].items())
    metadata = tmp_path / f"{declared['name']}-{declared['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {declared['name']}\nVersion: {declared['version']}\n"
    )
    (metadata / "entry_points.txt").write_text(f"[{group[0]}]\n{points}\n")
    (tmp_path / "bank.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    # For worker processes.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "bank", raising=False)
    yield tmp_path
    sys.modules.pop("bank", None)


def shown(command, number=0):
    """What the page prints after a command."""
    block = [b for b in blocks(PAGE, "console") if f"$ {command}\n" in b][number]
    after = block.partition(f"$ {command}\n")[2]
    return re.split(r"^\$ .*$", after, flags=re.MULTILINE)[0].rstrip("\n").splitlines()


def assert_printed(lines, out):
    missing = [line for line in lines if line and line not in out]
    assert lines
    assert not missing, out


def test_it_conforms(bank, capsys):
    code, out, _ = run(capsys, "environments", "validate", "bank")
    assert code == 0
    assert_printed(shown("vcrt environments validate bank"), out)


def test_the_longer_episodes_conform(bank, capsys):
    code, out, _ = run(capsys, "environments", "validate", "long_bank")
    assert code == 0
    assert_printed(shown("vcrt environments validate long_bank"), out)
    (sequences,) = re.findall(r"here ([0-9,]+) sequences for eight steps", PAGE)
    assert re.search(rf"long_bank/eight\s*│ 8\s*│ {sequences} ", out)


def test_the_failure_that_it_shows(bank, capsys):
    (line,) = re.findall(r"`(initial=\{[^`]+\})`", PAGE)
    source = (bank / "bank.py").read_text()
    broken = re.sub(r"initial=\{.*\}", line, source)
    assert broken != source
    (bank / "bank.py").write_text(broken)
    code, out, _ = run(capsys, "environments", "validate", "bank")
    assert code == 2
    assert_printed(shown("vcrt environments validate bank", 1), out)


def test_the_episode_and_the_python_that_it_shows(bank, capsys):
    code, out, _ = run(capsys, "show", "bank/overdraft/7")
    assert code == 0
    assert_printed(shown("vcrt show bank/overdraft/7"), out)
    (example,) = blocks(PAGE, "python")
    (printed,) = blocks(PAGE, "text")
    exec(compile(example, "your-environment.md", "exec"), {})
    assert capsys.readouterr().out == printed


@pytest.mark.slow
def test_it_goes_from_an_empty_folder_to_a_plan(bank, capsys):
    """The page's commands in their order; what trains and evaluates is tested elsewhere, on other environments."""
    outputs = {}
    for line in commands(PAGE):
        program, *arguments = line.split()
        if program == "vcrt" and arguments[0] in ("certify", "verify", "plan"):
            code, outputs[line], error = run(capsys, *arguments)
            assert code == 0, f"{line}\n{error}"
    for dataset in ("runs/bank", "runs/eight"):
        (certify,) = (
            line for line in outputs if line.startswith("vcrt certify") and dataset in line
        )
        assert_printed(shown(certify), outputs[certify])
        (agreed,) = shown(f"vcrt verify {dataset}")
        assert agreed in outputs[f"vcrt verify {dataset}"]
    for experiment in ("longer", "experiment"):
        assert (bank / f"runs/{experiment}/plan.json").is_file()
