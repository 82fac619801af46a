"""The whole experiment in one command: the same bytes each time, whatever is there already and whoever kills it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vcrt.cli import main
from vcrt.errors import VcrtError
from vcrt.storage import sole_user

# Its fixture is the whole experiment, which no other quick test needs.
pytestmark = pytest.mark.slow

SMALL = (
    *("--schemas", "clrs/bubble_sort", "proofwriter/attribute_chain", "--episodes", "24"),
    *("--methods", "canonical-grpo", "vcrt", "--runs", "1", "--updates", "6"),
    *("--trials", "2", "--jobs", "1"),
)


def reproduce(output, *options):
    main(["reproduce", "--output", str(output), *SMALL, *options])


def evidence(output: Path) -> dict[str, bytes]:
    """Every file that must be the same each time: all but logs, clocks and paths."""
    kept = {}
    for path in sorted(output.rglob("*")):
        name = path.relative_to(output).as_posix()
        is_table = name.startswith("report/") and not name.endswith((".html", "/clocks.csv"))
        is_table = is_table and not name.endswith("/clocks.tex")
        # The run's log, the ledger with the moment of the opening, and the plan with the dataset's place.
        is_other = path.name in ("progress.jsonl", "plan.json", "lock")
        is_other = is_other or path.suffix.startswith(".sqlite")
        if path.is_file() and (is_table or not name.startswith("report/")) and not is_other:
            kept[name] = path.read_bytes()
    plan = json.loads((output / "experiment" / "plan.json").read_text())
    return {**kept, "plan hash": plan["plan_hash"].encode()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    output = tmp_path_factory.mktemp("reproduce") / "whole"
    reproduce(output)
    return output


def test_everything_is_there(whole):
    found = evidence(whole)
    assert {"search.json", "experiment/scores.json", "dataset/manifest.json"} <= found.keys()
    runs = {name.rsplit("/", 2)[0] for name in found if "/update-" in name}
    assert len(runs) == 2 * 2
    assert len([name for name in found if name.endswith("update-000006/weights.safetensors")]) == 4
    scores = json.loads(found["experiment/scores.json"])
    assert set(scores["checkpoints"]) == set(scores["runs"])
    assert set(scores["runs"]) == {name.removeprefix("experiment/runs/") for name in runs}


def test_a_second_call_changes_nothing(whole):
    before = evidence(whole)
    stamps = {
        p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file() and "report" not in p.parts
    }
    reproduce(whole)
    assert evidence(whole) == before
    changed = [p.name for p, stamp in stamps.items() if p.stat().st_mtime_ns != stamp]
    assert set(changed) <= {"lock", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"}


def test_a_second_place_has_the_same_bytes_with_two_workers(whole, tmp_path):
    reproduce(tmp_path / "again", "--jobs", "2")
    assert evidence(tmp_path / "again") == evidence(whole)


def test_a_stage_that_was_lost_is_made_again(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    (copy / "search.json").unlink()
    shutil.rmtree(copy / "report")
    reproduce(copy)
    assert evidence(copy) == evidence(whole)


def test_what_killed_calls_left_is_removed(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    # Between the publication of a result and the removal of the work for it.
    (copy / "search.json.trials").mkdir()
    for name in ("lock", "vcrt-clrs-0-0123456789abcdef.json", ".lock.unfinished-abcdefgh"):
        (copy / "search.json.trials" / name).write_text("{}")
    # In the middle of a file, of a directory, and of a report.
    (copy / ".search.json.unfinished-abcdefgh").write_text("{")
    (copy / "experiment" / ".scores.json.unfinished-abcdefgh").write_text("{")
    (copy / "report" / ".main.csv.unfinished-abcdefgh").write_text("method")
    (copy / "dataset" / ".agreement.json.unfinished-abcdefgh").write_text("{")
    (copy / ".experiment.partial-abcdefgh").mkdir()
    (copy / ".experiment.partial-abcdefgh" / "plan.json").write_text("{")
    (copy / ".mine").write_text("not of vcrt")
    assert evidence(copy) != evidence(whole)
    reproduce(copy)
    assert (copy / ".mine").read_text() == "not of vcrt"
    (copy / ".mine").unlink()
    assert evidence(copy) == evidence(whole)


def test_it_can_be_moved(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole, copy)
    shutil.rmtree(copy / "report")
    (whole / "dataset").rename(whole / "hidden")
    try:
        reproduce(copy)
    finally:
        (whole / "hidden").rename(whole / "dataset")
    assert evidence(copy) == evidence(whole)


def test_one_output_has_one_user_at_a_time(whole, capsys):
    with (
        sole_user(whole / "lock", "this reproduction", VcrtError),
        pytest.raises(SystemExit) as stop,
    ):
        reproduce(whole)
    assert stop.value.code == 2
    assert "another process is at work on this reproduction" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--episodes", "25"), "dataset was made with other options"),
        (("--trials", "3"), "search is not of this experiment"),
        (("--runs", "2"), "experiment was planned with other options"),
        (("--updates", "7", "--trials", "0"), "experiment was planned with other options"),
        (("--trial-updates", "3"), "trials of another length"),
        (("--updates", "7"), "trials of another length"),
        (("--trial-updates", "7"), "trials cannot be so long"),
        (("--trials", "0", "--trial-updates", "3"), "trials cannot be so long"),
        (("--seed", "1"), "dataset was made with other options"),
        (("--held-out", "clrs"), "experiment was planned with other options"),
        (("--held-out", "lean"), "unknown environment of the dataset 'lean'"),
    ],
)
def test_other_options_are_refused(whole, capsys, options, message):
    before = evidence(whole)
    with pytest.raises(SystemExit) as stop:
        reproduce(whole, *options)
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert evidence(whole) == before


@pytest.mark.nightly
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(whole, tmp_path):
    draw = np.random.Generator(np.random.PCG64(0))
    output = tmp_path / "killed"
    command = [sys.executable, "-m", "vcrt", "reproduce", "--output", str(output), *SMALL]
    kills = 0
    # Longer and longer, so that it ends on a machine of any speed.
    for limit in np.geomspace(5, 400, 11):
        with subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            try:
                said, _ = process.communicate(timeout=float(draw.uniform(0.5, 1.0) * limit))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
                # Workers are in the same group; a moment for the system to take them away.
                time.sleep(0.5)
                continue
        assert process.returncode == 0, said.decode()
        break
    assert kills >= 3
    found, expected = evidence(output), evidence(whole)
    # The names first: bytes of files that differ say little.
    assert sorted(found) == sorted(expected)
    assert [name for name in expected if found[name] != expected[name]] == []
