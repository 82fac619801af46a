"""One foreign program at a time: what it prints, how it ends, and that nothing of it is left after its time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from vcrt.processes import programs
from vcrt.processes.confinement import Bounds
from vcrt.processes.programs import answer_of, protections_by, run_program
from vcrt.processes.watching import is_alive

#: Starts a process that keeps the output open, and writes its number; then ends, or waits too.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)"])
with open(sys.argv[1] + ".new", "w") as note: note.write(str(child.pid))
os.rename(sys.argv[1] + ".new", sys.argv[1])
if sys.argv[2:]: time.sleep(120)
"""


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def number_in(note: Path) -> int:
    until = time.monotonic() + 20
    while not note.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(note.read_text())


def is_gone(process: int) -> bool:
    until = time.monotonic() + 10
    while is_alive(process):
        if time.monotonic() > until:
            os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.01)
    return True


def test_it_gives_the_status_and_what_was_printed_to_both_streams(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.write(1, b'\\xff' + os.getcwd().encode()); sys.stderr.write(sys.stdin.read() + "
        "','.join(sorted(os.environ))); sys.exit(3)"
    )
    found = run_program(python(code), seconds=60, folder=tmp_path, variables={"ONLY": "this"})
    assert found.returncode == 3
    assert found.stdout == f"\ufffd{tmp_path}"
    # Python itself may add the locale that it has chosen.
    assert {*found.stderr.split(",")} - {"LC_CTYPE"} == {"ONLY"}


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_late_is_killed_with_all_that_it_has_started(tmp_path: Path, waits: bool) -> None:
    note = tmp_path / "note"
    command = python(PARENT, str(note), *["wait"] * waits)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"timed out after 2 seconds"):
        run_program(command, seconds=2)
    assert time.monotonic() - began < 20
    assert is_gone(number_in(note))


def test_an_interruption_kills_it_too(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    note = tmp_path / "note"
    # Whoever is started in the background is told to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupt() -> None:
        number_in(note)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_program(python(PARENT, str(note), "wait"), seconds=60)
    thread.join()
    assert is_gone(number_in(note))


def test_an_answer_is_empty_unless_the_program_gives_one(tmp_path: Path) -> None:
    assert answer_of(python("print('  1.2  ')"), seconds=60) == "1.2"
    assert answer_of(python("print('1.2'); raise SystemExit(1)"), seconds=60) == ""
    assert (
        answer_of(python("import time; print('1.2', flush=True); time.sleep(60)"), seconds=1) == ""
    )
    assert answer_of([str(tmp_path / "nothing")], seconds=60) == ""


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["/nothing/is/here"], "FileNotFoundError: [Errno 2] No such file or directory"),
        (python("import time; time.sleep(60)"), "TimeoutExpired: Command "),
        (python("raise SystemExit(3)"), "CalledProcessError: Command "),
        (python("print('no')"), "JSONDecodeError: "),
    ],
)
def test_protections_that_cannot_be_told_are_absent(
    monkeypatch: pytest.MonkeyPatch, command: list[str], found: str
) -> None:
    def quickly(_: object, *, seconds: float, variables: dict[str, str]) -> object:
        assert (seconds, variables) == (60, programs.empty_environment())
        return run_program(command, seconds=1, variables=variables)

    monkeypatch.setattr(programs, "run_program", quickly)
    report = protections_by(Bounds(None, None))
    assert report.in_force == {}
    assert report.absent["everything"].startswith(found)
