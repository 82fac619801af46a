"""The README's Python example runs as it stands and is as short as it says."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(example.splitlines()) <= 12
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, str(README), "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 6
    assert sum("precedes" in line for line in lines) == 1
    assert sum("commutes" in line for line in lines) == 5


def test_the_links_of_the_readme_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    for link in links:
        assert (README.parent / link).exists(), link


@pytest.mark.slow
def test_the_environment_of_the_readme_is_the_example_and_runs(tmp_path):
    example = README.parent / "examples" / "folders.py"
    whole = example.read_text(encoding="utf-8")
    assert whole.split('"""\n\n', 1)[1] in README.read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "20 episodes, 480 of 480 replays agree"
    assert sorted(line.split(" | ")[1] for line in lines[1:]) == ["commutes"] * 5 + ["precedes"]
