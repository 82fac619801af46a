"""``vcrt lift`` through the real command: theories, Lean files, windows of genuine runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vcrt.records.dataset import load_items, open_dataset

THEORIES = Path(__file__).parents[2] / "shared" / "data" / "proofwriter_owa_d5_english.jsonl"


def vcrt(*arguments):
    command = [sys.executable, "-m", "vcrt", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


LEAN = """\
-- one theorem that is judged, one that may not reach Lean
theorem facts (p q r : Prop) (hp : p) (hpq : p → q) (hr : r) : q ∧ r := by
  have hq : q := hpq hp
  have h2 : r ∨ p := Or.inl hr
  have h3 : q ∧ r := And.intro hq hr
  exact h3
theorem evil (p : Prop) : p := by
  have h : p := sorry
  exact h
"""


@pytest.fixture
def lean_file(tmp_path):
    file = tmp_path / "Facts.lean"
    file.write_text(LEAN)
    return file


def test_a_lean_file_is_reported_for_people(lean_file):
    done = vcrt("lift", "lean", lean_file)
    assert done.returncode == 0, done.stderr
    assert "3 of 6 orders are legal" in done.stdout
    assert "1. hq precedes" in done.stdout
    assert "nknown identifier `hq`" in done.stdout
    assert f"refused: {lean_file}:7 evil (grammar)" in done.stdout or ":8 evil" in done.stdout


def test_a_lean_file_is_reported_for_machines(lean_file):
    done = vcrt("lift", "lean", lean_file, "--json")
    (report,) = json.loads(done.stdout)
    (theorem,) = report["theorems"]
    assert (theorem["orders"], theorem["legal_orders"]) == (6, 3)
    relations = {(p["first"], p["second"]): p["relation"] for p in theorem["pairs"]}
    assert relations == {(0, 1): "commutes", (0, 2): "precedes", (1, 2): "commutes"}
    assert [refusal["cause"] for refusal in report["refused"]] == ["grammar"]


def test_a_file_without_anything_to_judge_is_an_error(tmp_path):
    file = tmp_path / "Nothing.lean"
    file.write_text("#eval 1\n")
    done = vcrt("lift", "lean", file)
    assert done.returncode == 2
    assert "nothing in these files could be judged" in done.stderr


def test_eight_steps_are_judged_by_merged_replay(tmp_path):
    steps = [f"  have h{i} : p ∧ q := And.intro hp hq" for i in range(6)]
    steps.insert(3, "  have k : p ∨ q := Or.inl hp")
    steps.append("  have l : (p ∨ q) ∧ p := And.intro k hp")
    text = ["theorem long (p q : Prop) (hp : p) (hq : q) : p := by", *steps, "  exact hp"]
    file = tmp_path / "Long.lean"
    file.write_text("\n".join(text) + "\n")
    done = vcrt("lift", "lean", file, "--json")
    assert done.returncode == 0, done.stderr
    ((theorem,),) = (report["theorems"] for report in json.loads(done.stdout))
    assert (theorem["orders"], theorem["legal_orders"]) == (40320, 20160)
    kinds = [pair["relation"] for pair in theorem["pairs"]]
    assert kinds.count("precedes") == 1
    assert kinds.count("commutes") == 27


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
    assert all("seed=" in item.source or item.source for item in load_items(dataset, "clrs"))
    assert vcrt("verify", path).returncode == 0


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
