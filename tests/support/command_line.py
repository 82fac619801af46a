"""Run commands in this process: what they print, and how they refuse."""

from __future__ import annotations

from vcrt.cli import main


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
