"""``vcrt lift`` through the real command: theories, windows of genuine runs, and what every kind refuses."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import vcrt_lean
import vcrt_rocq
from command_functions import PACKAGES
from vcrt.cli import main
from vcrt.errors import VcrtError
from vcrt.records.dataset import load_items, open_dataset
from vcrt_clrs.lift import lift_windows

THEORIES = Path(__file__).parents[3] / "shared" / "data" / "proofwriter_owa_d5_english.jsonl"


def vcrt(*arguments):
    command = [sys.executable, "-m", "vcrt", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def failed(capsys, *arguments):
    """Standard output and error of a `vcrt lift` in this process that must fail with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        main(["lift", *map(str, arguments)])
    captured = capsys.readouterr()
    assert stop.value.code == 2, captured
    return captured.out, captured.err


def refused(capsys, *arguments):
    return failed(capsys, *arguments)[1]


def test_what_is_wrong_with_arguments_is_said_at_the_call(tmp_path):
    """Before anything is iterated over."""
    for refused_call in (
        lambda: vcrt_lean.lift_lean([], project=tmp_path),
        lambda: vcrt_lean.lift_lean(["Mine.lean"], project=tmp_path, steps=1),
        lambda: vcrt_lean.lift_lean(["Mine.lean"], project=tmp_path),
        lambda: vcrt_rocq.lift_rocq([]),
        lambda: vcrt_rocq.lift_rocq(["Mine.v"], steps=1),
    ):
        with pytest.raises(VcrtError):
            refused_call()
    public = [getattr(each, name) for each in PACKAGES for name in each.__all__]
    assert vcrt_lean.lift_lean in public
    assert not [each for each in public if inspect.isgeneratorfunction(inspect.unwrap(each))]


@pytest.mark.slow
def test_windows_of_runs_become_a_dataset(tmp_path):
    path = tmp_path / "lifted"
    names = ("bellman_ford", "bubble_sort")
    done = vcrt("lift", "clrs", *names, "--runs", 6, "--output", path)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(path)
    counts = dataset.manifest.counts["clrs"]
    assert set(counts) == set(names)
    for name in names:
        assert counts[name].legal_orders == 12 * counts[name].episodes > 0
        assert (
            sum(counts[name].exclusions.values()) == counts[name].candidates - counts[name].episodes
        )
    items = load_items(dataset, "clrs")
    found = {item.episode_id: item.source for item in items}
    lifted = [lift_windows(name, [seed], 8) for name in names for seed in range(6)]
    runs = [windows for windows in lifted if windows]
    sources = [{window.provenance.source for window in windows} for windows in runs]
    # One source for each run, and one run for each source.
    assert {len(of_a_run) for of_a_run in sources} == {1}
    assert len(set.union(*sources)) == len(runs)
    of_windows = {w.episode_id: w.provenance.source for windows in runs for w in windows}
    assert found.items() <= of_windows.items()
    assert all(item.source.startswith(f"clrs.{item.schema}/") for item in items)
    assert 1 < len(set(found.values())) < len(found)
    assert vcrt("verify", path).returncode == 0


@pytest.mark.slow
def test_longer_windows_are_reported_and_not_frozen(tmp_path):
    options = ("--runs", 1, "--length", 5, "--steps", 5)
    done = vcrt("lift", "clrs", "bubble_sort", *options)
    assert done.returncode == 0, done.stderr
    assert "of 120 orders are legal" in done.stdout
    refused = vcrt("lift", "clrs", "bubble_sort", *options, "--output", tmp_path / "no")
    assert refused.returncode == 2
    assert "only episodes of four steps" in refused.stderr


def test_real_theories_become_a_dataset_split_by_theory(tmp_path):
    if not THEORIES.exists():
        pytest.skip("the ProofWriter data is not here")
    rows = THEORIES.read_text().splitlines()[:12]
    file = tmp_path / "theories.jsonl"
    file.write_text("\n".join([*rows, '{"id": "broken"}']) + "\n")
    path = tmp_path / "lifted"
    done = vcrt("lift", "proofwriter", file, "--limit", 3, "--output", path)
    assert done.returncode == 0, done.stderr
    assert f"refused: {file}" in done.stdout
    items = load_items(open_dataset(path), "proofwriter")
    assert len(items) > 12
    theories = {json.loads(row)["id"] for row in rows}
    assert all(any(name in item.source for name in theories) for item in items)
    assert len({item.source for item in items}) > 3


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("clrs", "bubble_sort", "--steps", 9), ("steps 9", "from 2 to 8")),
        (("clrs", "bubble_sort", "--steps", 1), ("steps 1", "from 2 to 8")),
        (("clrs", "bubble_sort", "--runs", 0), ("runs 0", "at least 1")),
        (("clrs", "bubble_sort", "--length", 0), ("length 0", "from 2 to 256")),
        (("clrs", "bubble_sort", "--seed", -1), ("seed -1", "from 0 to")),
        (("clrs", "bubble_sort", "--jobs", 0), ("too few jobs", "found: 0", "at least 1")),
        (("clrs", "buble_sort"), ("did you mean 'bubble_sort'",)),
        (("proofwriter", "FILE", "--limit", 0), ("limit 0", "at least 1")),
        (("clrs", "bubble_sort", "--json"), ("Unrecognized", "--json")),
        (("proofwriter", "FILE", "--json"), ("Unrecognized", "--json")),
        (("proofwriter", "FILE", "--seed", 0), ("Unrecognized", "--seed")),
        (("lean", "FILE", "--output", "o", "--limit", 3), ("Unrecognized", "--output", "--limit")),
        (("lean", "FILE", "--length", 4, "--jobs", 1), ("Unrecognized", "--length", "--jobs")),
        (("lean", "FILE"), ("needs a Lake project with a Lean toolchain", "with --project")),
        (("lean", "FILE", "--backend", "local"), ("Unrecognized", "--backend")),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(capsys, arguments, expected):
    message = refused(capsys, *arguments)
    assert all(words in message for words in expected), message


def test_a_source_without_candidates_is_an_error_with_its_own_remedy(capsys, tmp_path):
    for steps in (4, 8):
        options = ("--length", 2, "--runs", 1, "--steps", steps)
        message = refused(capsys, "clrs", "bubble_sort", *options)
        assert "nothing was lifted" in message
        assert "--length" in message
    file = tmp_path / "theories.jsonl"
    file.write_text('{"id": "A-OWA-1", "theory": "Bob is big.", "questions": []}\n')
    message = refused(capsys, "proofwriter", file)
    assert "nothing was lifted" in message
    assert "--length" not in message
    assert "more theories" in message


def test_an_output_that_exists_is_refused_before_anything_is_lifted(capsys, monkeypatch, tmp_path):
    def lifted(*arguments, **options):
        raise AssertionError("something was lifted")

    monkeypatch.setattr("vcrt_clrs.lift.lift_windows", lifted)
    monkeypatch.setattr("vcrt_proofwriter.lift.lift_theories", lifted)
    file = tmp_path / "theories.jsonl"
    file.write_text("{}\n")
    for material in (("clrs", "bubble_sort"), ("proofwriter", file)):
        message = refused(capsys, *material, "--output", tmp_path)
        assert "not overwritten" in message


def test_theories_that_cannot_be_read_are_named(capsys, tmp_path):
    empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
    empty.touch()
    binary.write_bytes(bytes(range(128, 256)))
    for path, found in (
        (tmp_path / "absent.jsonl", "no such file"),
        (tmp_path, "a directory"),
        (empty, "an empty file"),
    ):
        message = refused(capsys, "proofwriter", binary, path)
        assert f"where: {path}\n" in message
        assert found in message
    message = refused(capsys, "proofwriter", binary)
    assert "no theory could be read" in message
    assert str(binary) in message
