"""The k-th write, flush or rename of a command, struck: killed, torn or refused by the system, as often as asked.

``faults.c`` is compiled and put before every other library of a warm process, :mod:`fault_server`, which has imported
all of vcrt and forks for each trial. The library sees the calls of Python, SQLite, Arrow and of worker processes, and
counts those that change something below one folder.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[2] / "src"
#: The kinds of calls in the order of ``enum kind`` in faults.c, and their letters in its log.
KINDS = ("create", "write", "fsync", "rename", "remove", "mode")
LETTERS = dict(zip("cwsrdm", KINDS, strict=True))
#: What is done with the k-th call, in the order of ``enum action``.
ACTIONS = ("nothing", "kill", "kill caller", "tear", "fail once", "fail from then on")
_LOG_BYTES = 8 << 20


class _Control(ctypes.Structure):
    _fields_ = (
        ("armed", ctypes.c_int32),
        ("kinds", ctypes.c_int32),
        ("action", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("at", ctypes.c_int64),
        ("struck", ctypes.c_int64),
        ("seen", ctypes.c_int64),
        ("counts", ctypes.c_int64 * len(KINDS)),
        ("log_used", ctypes.c_int64),
        ("folder", ctypes.c_char * 4096),
        ("log", ctypes.c_char * _LOG_BYTES),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What happens at the ``at``-th call (from 1) of ``kind``: one of :data:`ACTIONS`, with the system's error."""

    kind: str
    at: int
    action: str = "kill"
    error: int = 0

    @property
    def name(self) -> str:
        """The fault in words, for a list of findings."""
        refusal = f" {errno.errorcode[self.error]}" if self.error else ""
        return f"{self.kind} {self.at}: {self.action}{refusal}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """How a command ended: its exit code (minus the signal that ended it), what it said, and its calls."""

    code: int
    said: str
    seconds: float
    struck: int
    counts: dict[str, int] = field(default_factory=dict)
    calls: tuple[tuple[str, ...], ...] = ()

    @property
    def was_killed(self) -> bool:
        """Whether the whole command was ended by SIGKILL."""
        return self.code == -9


def why_not() -> str | None:
    """Why no faults can be injected here, or None if they can."""
    if not sys.platform.startswith("linux"):
        return f"LD_PRELOAD and /proc are those of Linux, this is {sys.platform}"
    if shutil.which("gcc") is None:
        return "gcc is not installed"
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = compile_library(Path(folder))
        except subprocess.CalledProcessError as error:
            return f"gcc cannot compile faults.c: {error.stderr[-200:]}"
        command = [sys.executable, "-c", "print(open('/proc/self/maps').read())"]
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        maps = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return None if library.name in maps.stdout else "LD_PRELOAD has no effect"


def compile_library(folder: Path) -> Path:
    """Compile faults.c into ``folder``."""
    library = folder / "faults.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "faults.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class Server:
    """The warm process, its control block, and trials in forks of it; make one with :func:`serving`."""

    def __init__(self, process: subprocess.Popen[str], memory: mmap.mmap) -> None:
        self._process = process
        self._control = _Control.from_buffer(memory)

    def trial(
        self,
        target: Sequence[str],
        folder: Path,
        fault: Fault | None = None,
        *,
        workers: str = "forked",
        timeout: float = 120.0,
    ) -> Trial:
        """Run a command with a fault in its calls below ``folder`` (absolute), or without one but counted.

        ``target`` are arguments of ``vcrt``, or ``call``, a function of a module ``MODULE:NAME`` and its arguments.
        """
        control = self._control
        control.armed = 0
        control.action = ACTIONS.index(fault.action) if fault else 0
        control.kinds = 1 << KINDS.index(fault.kind) if fault else 0
        control.at, control.error = (fault.at, fault.error) if fault else (0, 0)
        control.struck = control.seen = control.log_used = 0
        control.counts[:] = [0] * len(KINDS)
        control.folder = str(folder).encode()
        answer = self._ask({"target": list(target), "workers": workers, "timeout": timeout})
        control.armed = 0
        return Trial(
            code=answer["code"],
            said=answer["said"],
            seconds=answer["seconds"],
            struck=control.struck,
            counts=dict(zip(KINDS, control.counts, strict=True)),
            calls=tuple(self._calls()),
        )

    def kill_after(self, target: Sequence[str], seconds: float) -> Trial:
        """Run a command and kill it with everything it started after so many seconds, if it still runs."""
        answer = self._ask({"target": list(target), "workers": "forked", "timeout": seconds})
        return Trial(code=answer["code"], said=answer["said"], seconds=answer["seconds"], struck=0)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the warm process is gone")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _calls(self) -> Iterator[tuple[str, ...]]:
        used = self._control.log_used
        if used > _LOG_BYTES:
            raise RuntimeError("more calls than the log holds")
        offset = _Control.log.offset
        log = ctypes.string_at(ctypes.addressof(self._control) + offset, used)
        for line in log.decode().splitlines():
            letter, *paths = line.split("\t")
            yield (LETTERS[letter], *paths)


@contextmanager
def serving(folder: Path, *modules: Path, is_warm: bool = True) -> Iterator[Server]:
    """Start the warm process, with its library and control block in ``folder``; ``modules`` are put on its path.

    One that is not warm has imported nothing; trials in it are of functions, with ``workers="none"``.
    """
    if set(str(folder)) & set(" :"):
        raise ValueError(
            f"{folder}: LD_PRELOAD separates paths at spaces and colons; give a path without them"
        )
    library = compile_library(folder)
    block = folder / "control"
    block.write_bytes(bytes(ctypes.sizeof(_Control)))
    path = [str(SOURCES), *map(str, modules), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "VCRT_FAULTS": str(block),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        # Threads do not survive a fork, and the last bits of a result depend on their number.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    with block.open("r+b") as stream:
        memory = mmap.mmap(stream.fileno(), 0)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "fault_server.py"), *([] if is_warm else ["--cold"])],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Server(process, memory)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
