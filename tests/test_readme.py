"""The README's Python example runs as it stands and is as short as it says; so does the environment that it names."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys

import pytest

from documentation import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs():
    (example,) = blocks(README, "python")
    assert len(example.splitlines()) <= 12
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 6
    assert sum("precedes" in line for line in lines) == 1
    assert sum("commutes" in line for line in lines) == 5


@pytest.mark.slow
def test_the_environment_of_the_readme_runs(tmp_path):
    example = ROOT / "examples" / "folders.py"
    assert "(examples/folders.py)" in README
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "20 episodes, 480 of 480 replays agree"
    assert sorted(line.split(" | ")[1] for line in lines[1:]) == ["commutes"] * 5 + ["precedes"]
