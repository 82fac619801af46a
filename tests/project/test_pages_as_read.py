"""Pages do what they say: commands, files and Python of each, in one folder and in order, as its reader has them."""

from __future__ import annotations

import pytest

from documentation import DOCS, ROOT, all_blocks, commands, text_of
from reading import fresh_environment, read

#: Pages that one reader has in one folder, one after the other.
READINGS = (
    ("tools.md", "tools-logs.md", "tools-declare.md", "tools-tests.md", "tools-reference.md"),
    ("traces.md",),
    ("your-environment.md",),
    ("start.md", "proofs.md", "certify.md"),
    ("training.md", "train.md", "protocol.md", "report.md"),
)


def run_commands(text):
    """The commands of a page but for those that it marks as not run."""
    lines = [
        block.body for block in all_blocks(text) if block.language == "bash" and not block.not_run
    ]
    return {command for body in lines for command in commands(f"```bash\n{body}```\n")}


@pytest.mark.slow
@pytest.mark.parametrize("pages", READINGS, ids=lambda pages: pages[0])
def test_a_reader_gets_what_the_pages_show(pages, tmp_path):
    folder = tmp_path / "reader"
    folder.mkdir()
    environment = fresh_environment(tmp_path / "environment")
    read({page: text_of(page) for page in pages}, folder, environment)


def test_every_page_with_commands_is_read():
    told = {
        path.name for path in DOCS.glob("*.md") if run_commands(path.read_text(encoding="utf-8"))
    }
    assert told == {page for pages in READINGS for page in pages}


def test_the_commands_of_the_readme_are_those_of_pages_that_are_read():
    read_ones = set().union(*(run_commands(text_of(page)) for pages in READINGS for page in pages))
    mine = run_commands((ROOT / "README.md").read_text(encoding="utf-8"))
    assert mine
    assert mine <= read_ones


def test_output_that_a_command_does_not_give_is_found(tmp_path):
    environment = fresh_environment(tmp_path / "environment")
    page = "In `a.txt`:\n\n```text\none\n```\n\n```bash\ncat a.txt\n```\n\n```text\n{}\n```\n"
    read({"page": page.format("one")}, tmp_path, environment)
    with pytest.raises(AssertionError, match="shows 'two'"):
        read({"page": page.format("two")}, tmp_path, environment)
    with pytest.raises(AssertionError, match="false"):
        read({"page": "```bash\nfalse\necho on\n```\n"}, tmp_path, environment)
    read({"page": "<!-- not run: a reason -->\n```bash\nfalse\n```\n"}, tmp_path, environment)
