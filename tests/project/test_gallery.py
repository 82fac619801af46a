"""The gallery says what replay says now, of the environments that every machine can run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "figures" / "gallery.py"


@pytest.mark.nightly
def test_the_gallery_is_what_replay_says():
    names = ["clrs", "proofwriter", "lean"]
    run = subprocess.run(
        [sys.executable, SCRIPT, *names, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
