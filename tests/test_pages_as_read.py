"""Pages do what they say: commands, files and Python of each, in one folder and in order, as its reader has them."""

from __future__ import annotations

import pytest

from documentation import text_of
from reading import fresh_environment, read

#: Pages that one reader has in one folder, one after the other.
READINGS = (
    ("your-environment.md",),
    (
        "start.md",
        "certify.md",
        "train.md",
        "trl.md",
        "report.md",
        "protocol.md",
        "estimator.md",
        "errors.md",
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("pages", READINGS, ids=lambda pages: pages[0])
def test_a_reader_gets_what_the_pages_show(pages, tmp_path):
    folder = tmp_path / "reader"
    folder.mkdir()
    environment = fresh_environment(tmp_path / "environment")
    read({page: text_of(page) for page in pages}, folder, environment)
