"""The warm process of :mod:`fault_injection`: imports all of vcrt once and runs each request in a fork of itself.

Requests and answers are lines of JSON. A request's process leads a group of its own, so that a fault can kill it with
all its workers, as a loss of power would; orphans come back to this process, which waits until none is left.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
#: What vcrt's modules import only when they need it.
_LATER = (
    "clingo",
    "clrs",
    "safetensors.torch",
    "scipy.stats",
    "sklearn",
    "sqlite3",
    "transformers.models.qwen3.modeling_qwen3",
    "vl_convert",
)


class ForkedWorker:
    """Stands for the process of a worker: a fork of the warm process, without the start of an interpreter."""

    def __init__(self, connection: int, variables: Mapping[str, str]) -> None:
        self.pid = os.fork()
        self._status: int | None = None
        if self.pid == 0:
            code = 1
            try:
                os.dup2(connection, 0)
                os.dup2(2, 1)
                os.environ.update(variables)
                importlib.import_module("vcrt.processes.workers").serve()
                code = 0
            finally:
                os._exit(code)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when there is one; raises ``TimeoutExpired`` after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            with suppress(ChildProcessError):
                found, status = os.waitpid(self.pid, os.WNOHANG)
                if found:
                    self._status = os.waitstatus_to_exitcode(status)
                    break
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(0.002)
        return self._status

    def kill(self) -> None:
        """End it at once."""
        if self._status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def warm_up() -> None:
    """Import everything; a thread that was started now would be missing in every fork."""
    import vcrt

    os.environ["MKL_THREADING_LAYER"] = "SEQUENTIAL"
    _import_below(vcrt)
    for name in _LATER:
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def _import_below(package: ModuleType) -> None:
    """Import a package's modules, but for bridges to libraries that need not be installed."""
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not module.name.endswith((".__main__", ".integrations")):
            imported = importlib.import_module(module.name)
            if module.ispkg:
                _import_below(imported)


def run(target: Sequence[str], workers: str) -> int:
    """In the fork: the command's exit code."""
    if workers == "forked":
        remember_pages()
        replace("vcrt.processes.workers", "started", ForkedWorker)
    try:
        if target[0] == "call":
            module, _, name = target[1].partition(":")
            getattr(importlib.import_module(module), name)(*target[2:])
        else:
            from vcrt.cli import main

            main(list(target))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


def replace(module: str, name: str, value: object) -> None:
    """Put something else in the place of what a module imported; an error if it imports no such thing."""
    getattr(importlib.import_module(module), name)
    setattr(importlib.import_module(module), name, value)


def remember_pages() -> None:
    """Draw the same report's page and figures once for all forks: they take seconds. No file is written for them."""
    import vcrt_train.report.page as page

    folder = Path(os.environ["VCRT_FAULTS"]).parent / "pages"
    folder.mkdir(exist_ok=True)
    render_page, to_files = page.render_page, page.to_files

    def remembered(name: str, draw: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
        kept = folder / name
        if not kept.exists():
            begun = folder / f"{name}.{os.getpid()}"
            begun.write_text(json.dumps({k: v.hex() for k, v in draw().items()}))
            begun.replace(kept)
        return {k: bytes.fromhex(v) for k, v in json.loads(kept.read_text()).items()}

    def rendered(*values: Any) -> str:
        name = hashlib.sha256(repr(values[2]).encode()).hexdigest()
        return remembered(name, lambda: {"page": render_page(*values).encode()})["page"].decode()

    def files(figures: Any) -> dict[str, bytes]:
        name = hashlib.sha256(repr(figures).encode()).hexdigest()
        return remembered(name, lambda: to_files(figures))

    page.render_page, page.to_files = rendered, files


def arm(is_armed: bool) -> None:
    """Let the library look at this process's calls, through the control block's first word."""
    with open(os.environ["VCRT_FAULTS"], "r+b") as block:
        block.write(int(is_armed).to_bytes(4, sys.byteorder))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Fork for one request, wait for its end or end it, and wait for all that it started."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            code = 1
            try:
                arm(True)
                code = run(request["target"], request["workers"])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        status = wait_for(child, began + request["timeout"])
        seconds = time.monotonic() - began
        arm(False)
        reap()
        said.seek(0)
        text = said.read().decode(errors="replace")
    return {"code": os.waitstatus_to_exitcode(status), "said": text, "seconds": seconds}


def wait_for(child: int, until: float) -> int:
    """The status of a child; it is killed with its group when its time is over."""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            # What it left running is an orphan of a killed command, and goes with it.
            kill_group(child)
            return status
        if time.monotonic() > until:
            kill_group(child)
            return os.waitpid(child, 0)[1]
        time.sleep(0.002)


def kill_group(leader: int) -> None:
    """Kill a group, if it is still there."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def reap() -> None:
    """Wait until no process of the request is left."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main() -> None:
    """Answer until there are no more requests."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if "--cold" not in sys.argv:
        warm_up()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
