"""Run commands in a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

VCRT = [sys.executable, "-m", "vcrt"]


def in_a_terminal(*arguments: str, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    settings = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    with subprocess.Popen(
        [*VCRT, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=settings
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            written += part
    os.close(ours)
    assert process.returncode == 0, written
    return written.decode()
