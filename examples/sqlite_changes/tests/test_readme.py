"""The README quotes this package as it is, and its example prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from importlib import import_module
from pathlib import Path

from rich.console import Console

from vcrt.api.listing import validate_environment
from vcrt.cli.environments import say_validation
from vcrt.environments.conformance_checks import REMEDIES

FOLDER = Path(__file__).parents[1]
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_quoted_code_is_the_code():
    source = (FOLDER / "vcrt_sqlite" / "environment.py").read_text(encoding="utf-8")
    *quoted, example = blocks("python")
    assert len(quoted) == 2
    assert all(block in source for block in quoted)
    assert all(block in (FOLDER / "pyproject.toml").read_text() for block in blocks("toml"))
    assert "ORDER BY tbl_name, rowid" in source
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    assert printed.getvalue() == blocks("text")[-1]


def test_every_check_is_explained():
    rows = re.findall(r"^\| ([^|]+) \|", README, re.MULTILINE)
    assert set(REMEDIES) <= set(rows)


def test_the_failure_that_it_shows():
    """The edit that the README proposes gives what the README prints."""

    def edited():
        # The kit runs in a process of its own.
        environment = import_module("vcrt_sqlite.environment")
        environment.CATALOGUE = "SELECT name FROM sqlite_schema ORDER BY name"
        return environment.SqliteChanges()

    text = io.StringIO()
    error = ""
    try:
        found = validate_environment("sqlite_changes", environments={"sqlite_changes": edited})
        say_validation(Console(file=text, width=120), "sqlite_changes", found)
    except ValueError as raised:
        error = str(raised)
    (shown,) = (block for block in blocks("text") if "does not conform" in block)
    paragraphs = shown.split("error: ")[0].strip().split("\n\n")
    assert len(paragraphs) == 3
    assert all(paragraph in text.getvalue() for paragraph in paragraphs)
    assert error == shown.split("error: ")[1].strip()


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    for link in links:
        assert (FOLDER / link).exists(), link
