"""Run commands in this process: what they print, and how they refuse."""

from __future__ import annotations

import subprocess
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO

import pytest

from vcrt.cli import main

#: For tests of commands that vcrt-train and vcrt-research bring.
needs_training = pytest.mark.skipif(
    find_spec("vcrt_train") is None, reason="vcrt-train is not installed"
)


def ran(*arguments):
    """How a command ended that is run in this process, as :func:`subprocess.run` gives it."""
    command = [str(each) for each in arguments]
    out, err, code = StringIO(), StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(command)
        except SystemExit as stop:
            code = stop.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def run(capsys, *arguments):
    """Exit code, standard output and standard error of one command, run in this process."""
    try:
        main([str(a) for a in arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *arguments, code=2):
    """The message of a command that must fail with a named error, its exit code and without a traceback."""
    found, out, err = run(capsys, *arguments)
    assert found == code, out + err
    assert "Traceback" not in out + err
    assert err.strip()
    return err
