"""What training and evaluation say on the way: how runs stand beside chance, and what is loaded and checked."""

from __future__ import annotations

import time
from io import StringIO

import pytest
from rich.console import Console

from command_line import run
from vcrt import progress
from vcrt.cli.progress import telling
from vcrt.errors import RunError
from vcrt.processes import in_fresh_processes
from vcrt.records.dataset import open_dataset
from vcrt_train.protocol.source_validation import AT_CHANCE, chance_of, is_at_chance, standing


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small verified dataset of two environments."""
    from vcrt.cli import main

    path = tmp_path_factory.mktemp("standing") / "data"
    schemas = ["--schemas", "clrs", "proofwriter"]
    main(["certify", "--output", str(path), *schemas, "--episodes", "4", "--jobs", "1"])
    main(["verify", str(path), "--jobs", "1"])
    return path


def test_a_rate_is_told_with_its_interval_beside_chance():
    assert standing("x", 0.57, 40, 0.5) == (
        "x 57% [41, 73] over 40 items, not to be told from chance (50%)"
    )
    assert standing("x", 0.95, 40, 0.5).endswith("[83, 99] over 40 items, better than chance (50%)")
    assert standing("x", 0.0, 40, 0.5).endswith("below chance (50%)")
    assert standing("x", 1.0, 1, 0.5) == (
        "x 100% [3, 100] over 1 item, not to be told from chance (50%)"
    )
    assert "chance" not in standing("x", 0.5, 40, None)
    assert not is_at_chance(0.0, 40, None)


def test_chance_is_the_share_of_legal_orders(data):
    assert chance_of(open_dataset(data).manifest, ["clrs"]) == 0.5


def test_training_and_evaluation_say_how_runs_stand_and_warn_at_chance(data, tmp_path, capsys):
    """One update teaches nothing."""
    experiment = tmp_path / "experiment"
    options = ("--runs", 1, "--updates", 1, "--methods", "vcrt", "--held-out", "clrs")
    assert run(capsys, "plan", data, "--output", experiment, *options)[0] == 0
    code, out, err = run(capsys, "train", experiment, "--jobs", 1)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert sum("loading the backbone embedded: done, " in line for line in lines) >= 1
    assert any(line.startswith("self-check of the model's scores (pointers)") for line in lines)
    (reward,) = (line for line in lines if "vcrt/clrs/0 after update 1 of 1: reward" in line)
    assert "over 2 items, not to be told from chance (50%); orbit mass 0." in reward
    (aside,) = (line for line in lines if "source items set aside that pass" in line)
    assert aside.startswith("vcrt/clrs/0 after update 1 of 1: ")
    assert "chance (50%); the frozen backbone " in aside
    assert f"warning: vcrt/clrs/0 is not to be told from chance. {AT_CHANCE}" in lines
    assert "1 run at the last update" in lines
    assert any(line.startswith("note: too few validations to flag a run;") for line in lines)
    code, out, _ = run(capsys, "evaluate", experiment, "--jobs", 1)
    assert code == 0
    (found,) = (line for line in out.splitlines() if line.startswith("vcrt/clrs/0: held-out items"))
    assert "over 20 items" in found
    assert "source items that pass" in found
    warned = "warning: 1 of 1 run not to be told from chance on what they hold out: vcrt/clrs/0."
    assert (warned in out) == ("held-out" in found and "not to be told" in found.partition(";")[0])


def _lasts(seconds):
    with progress.stage("counting"):
        time.sleep(seconds)
    return seconds


def heard_lines(function):
    console = Console(file=StringIO(), width=100)
    with telling(console):
        function()
    return console.file.getvalue().splitlines()


def test_what_lasts_is_told_while_it_lasts(monkeypatch):
    monkeypatch.setattr(progress, "FIRST_TOLD_S", 0.05)
    monkeypatch.setattr(progress, "TOLD_EVERY_S", 0.1)
    first, *middle, last = heard_lines(lambda: _lasts(0.4))
    assert first == "counting ..."
    assert middle
    assert all(line.startswith("counting: not done yet, 0.") for line in middle)
    assert last.startswith("counting: done, 0.")


def test_what_workers_do_is_told_here_and_what_is_quick_once():
    def work():
        with progress.heard(_lasts) as function:
            found = list(
                in_fresh_processes(
                    function, [0.0] * 3, jobs=2, error=RunError, on_wait=function.again
                )
            )
        assert found == [0.0] * 3

    assert heard_lines(work) == ["counting: done, 0.0 s"]


def test_nobody_hears_it_unless_asked(capsys):
    _lasts(0.0)
    assert capsys.readouterr() == ("", "")


def test_a_model_that_fails_to_load_is_not_said_to_be_loaded():
    def work():
        with pytest.raises(ValueError, match="broken"), progress.stage("loading"):
            raise ValueError("broken")

    assert heard_lines(work) == []
