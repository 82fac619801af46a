"""The README's Python example runs as it stands and is as short as it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

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
