"""The README's example gives what it shows; its results, and those of the pages, are those of the runs."""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys

import pytest
from scipy.special import stdtrit

from documentation import ROOT, all_blocks, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_readme_gives_what_it_shows(tmp_path):
    """Two files, one command, its whole output."""
    files = {block.file: block.body for block in all_blocks(README) if block.file}
    assert set(files) == {"shop.py", "calls.jsonl"}
    for name, body in files.items():
        (tmp_path / name).write_text(body, encoding="utf-8")
    assert len(files["shop.py"].strip().splitlines()) <= 20
    (command, *_) = blocks(README, "bash")
    (shown,) = blocks(README, "text")
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip("\n") == shown.strip("\n")


ORDERS = (ROOT / "research/benchmarks/results/orders/tables.md").read_text("utf-8")


def differences(setting):
    """The differences of a setting by their methods, in bold where shown, with = where equal within five points."""
    text = ORDERS.partition(f"## {setting}\n")[2].partition("\n## ")[0]
    marks = {"shown": "**{}**", "equal within five points": "{} =", "not shown": "{}"}
    return {
        pair: marks[verdict].format(points)
        for pair, points, verdict in re.findall(
            r"^\| (`[\w-]+` - `[\w-]+`) \| ([^|]+) \| ([\w ]+) \| \d+ of \d+ \|$",
            text,
            re.MULTILINE,
        )
    }


def test_the_results_are_those_of_the_runs():
    """Rates of the README and of the page, and its differences, are as the experiment's tables have them."""
    page = (ROOT / "docs/results.md").read_text("utf-8")
    hard = ORDERS.partition("## hard\n")[2].partition("\n## ")[0]
    planned = differences("hard")
    assert len(planned) == 17
    others = [differences(name) for name in ("paper", "hard-one-epoch", "six", "eight")]
    shown = re.findall(r"^\| (`[\w-]+` - `[\w-]+`) \| (.*) \|$", page, re.MULTILINE)
    assert len(shown) == 10
    for pair, cells in shown:
        expected = [some.get(pair, "") for some in (planned, *others)]
        assert [cell.strip() for cell in f"{cells} ".split("|")] == expected
    table = [
        [cell.strip(" `") for cell in line.split("|")]
        for line in re.findall(r"^\| `[\w-]+` \|.*$", hard, re.MULTILINE)
    ]
    # A method, rates after 50, 100 and 200 updates, the orbit's probability, pass@1, pass@16 and more.
    rows = {cells[1]: cells for cells in table if len(cells) == 11}
    rate = {name: cells[4].replace(" ", "% ", 1) for name, cells in rows.items()}
    said = re.findall(r"\| (\d+\.\d% \[[\d., ]+\]) \|", README)
    assert said == [
        rate[name] for name in ("exact-log-odds", "margin-alone", "vcrt", "canonical-grpo")
    ]
    first = " ".join(page.split())
    assert (
        f"{rate['exact-log-odds']} and {rate['margin-alone']} of held-out items pass; GRPO "
        f"{rate['canonical-grpo']}, the full method {rate['vcrt']}" in first
    )
    rates = {
        name: {
            cells[1].strip(" `"): cells[4].strip().replace(" ", "% ", 1)
            for line in re.findall(
                r"^\| `[\w-]+` \|.*$",
                ORDERS.partition(f"## {name}\n")[2].partition("\n## ")[0],
                re.M,
            )
            if len(cells := line.split("|")) == 11
        }
        for name in ("hard-one-epoch", "six", "eight")
    }
    one = rates["hard-one-epoch"]
    evenly, two = (
        [each["uniform-orbit"].split()[0] for each in (rates["six"], rates["eight"])],
        [each["margin-alone"].split()[0] for each in (rates["six"], rates["eight"])],
    )
    assert (
        f"{one['uniform-orbit']}, GRPO {one['canonical-grpo']}; with two epochs "
        f"{rate['uniform-orbit'].split()[0]} and {rate['canonical-grpo'].split()[0]} |" in first
    )
    assert (
        f"passes {evenly[0]} and {evenly[1]} on six and eight, without a verdict on every order, the margin "
        f"{two[0]} and {two[1]}." in first
    )
    sixteen, even = ({name: cells[k] for name, cells in rows.items()} for k in (7, 8))
    assert (
        f"{sixteen['margin-alone']}% of items with the margin alone, {sixteen['shuffled-orbit']}% with "
        f"`shuffled-orbit`, {sixteen['exact-log-odds']}% with the log-odds and "
        f"{sixteen['canonical-grpo']}% with GRPO" in first
    )
    assert (
        f"{even['shuffled-orbit']}% with `shuffled-orbit`, {even['uniform-orbit']}% with `uniform-orbit`, "
        f"{even['margin-alone']}%, {even['exact-log-odds']}% and {even['canonical-grpo']}%."
        in first
    )


def differences_by_run(name, minus):
    """VCRT minus a method in points: by run, and the macro and its ends over items, as a kept report prints them."""
    text = (ROOT / "research" / "benchmarks" / "results" / name / "tables.txt").read_text("utf-8")
    by_run = text.split("Macro differences by run")[1].split("How runs differ")[0]
    runs = re.findall(rf"^VCRT +{minus} +\d+ +([+-]?[\d.]+) ", by_run, re.MULTILINE)
    macros = text.split("VCRT minus each other method")[1].split("Intervals belong")[0]
    (found,) = re.findall(rf"^{minus} .*? ([+-][\d.]+) +\[(.+?), (.+?)\]", macros, re.MULTILINE)
    macro, low, high = found
    return [float(run) for run in runs], macro.lstrip("+"), float(high) - float(low)


@pytest.mark.parametrize(
    ("name", "minus"),
    [
        ("reproduce", "Canonical-GRPO"),
        ("hard", "Canonical-GRPO"),
        ("hard", "No-Anti"),
        ("hard", "No-Orbit"),
    ],
)
def test_the_differences_of_the_archive_are_those_of_the_runs(name, minus):
    """A t interval over the macro differences by run, with what the items add."""
    runs, macro, width = differences_by_run(name, minus)
    mean, spread = statistics.fmean(runs), statistics.stdev(runs) / len(runs) ** 0.5
    half = math.hypot(float(stdtrit(len(runs) - 1, 0.975)) * spread, width / 2)
    text = " ".join((ROOT / "research/results.md").read_text("utf-8").split())
    found = re.findall(rf"{re.escape(macro)}(?: points)? (\[[^]]+\])", text)
    assert f"[{mean - half:+.1f}, {mean + half:+.1f}]" in found


@pytest.mark.slow
def test_the_smallest_environment_runs(tmp_path):
    example = ROOT / "examples" / "folders.py"
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "20 episodes, 480 of 480 replays agree"
    assert sorted(line.split(" | ")[1] for line in lines[1:]) == ["commutes"] * 5 + ["precedes"]
