"""Workers that have Django, forked from one process that has imported it: an import takes most of a lifting's time.

Each is a process of its own in which nothing of a project has run, with the environment, folder, input and output that
it would be started with. Run as a program, this file is the process that forks.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile

from vcrt.processes.programs import BoundedProcess


class Forks:
    """The process that forks, started when it is first needed."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, command: Sequence[str], variables: Mapping[str, str], files: list[int]) -> None:
        """Let a worker be made, which has ``files`` as input, output, errors, and for what is told of it."""
        if self._socket is None:
            self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._process = subprocess.Popen(
                [*command[:2], __file__, str(other.fileno())], pass_fds=[other.fileno()]
            )
            other.close()
        request = {"places": command[-1], "variables": dict(variables), "folder": os.getcwd()}
        with TemporaryFile() as file:
            file.write(json.dumps(request).encode())
            file.flush()
            rights = array.array("i", [file.fileno(), *files])
            self._socket.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])

    def close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()


class _Forked:
    """A worker, with what :class:`BoundedProcess` asks of a ``Popen``."""

    def __init__(
        self, forks: Forks, command: Sequence[str], variables: Mapping[str, str], errors: int
    ) -> None:
        its_input, to_input = os.pipe()
        from_output, its_output = os.pipe()
        self._told, telling = os.pipe()
        forks.fork(command, variables, [its_input, its_output, errors, telling])
        for file in (its_input, its_output, telling):
            os.close(file)
        self.stdin, self.stdout = os.fdopen(to_input, "wb", 0), os.fdopen(from_output, "rb")
        self.pid = self._next()
        self.returncode: int | None = None

    def _next(self) -> int:
        return int.from_bytes(os.read(self._told, 4), "little", signed=True)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, seconds: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], seconds)[0]:
                raise subprocess.TimeoutExpired("a forked worker", seconds or 0)
            self.returncode = self._next()
            os.close(self._told)
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class ForkedProcess(BoundedProcess):
    """A worker for a project, forked."""

    def __init__(
        self,
        forks: Forks,
        command: Sequence[str],
        *,
        max_memory_mb: float,
        variables: Mapping[str, str],
    ) -> None:
        self._max_memory_mb = max_memory_mb
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = _Forked(forks, command, variables, self._errors.fileno())  # type: ignore[assignment]
        self._input, self._output = self._process.stdin, self._process.stdout  # type: ignore[assignment]
        os.set_blocking(self._input.fileno(), False)


def _serve(requests: socket.socket) -> None:
    """Fork a process for each request, which forks the worker and tells its number and how it ended."""
    while True:
        data, files, _, _ = socket.recv_fds(requests, 1, 5)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not data:
            return
        if os.fork() == 0:
            requests.close()
            request, *its_own, telling = files
            worker = os.fork()
            if worker == 0:
                os.setsid()
                os.write(telling, os.getpid().to_bytes(4, "little", signed=True))
                os.close(telling)
                _work(json.loads(os.pread(request, os.fstat(request).st_size, 0)), its_own)
            for file in its_own:
                os.close(file)
            status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
            os.write(telling, status.to_bytes(4, "little", signed=True))
            os._exit(0)
        for file in files:
            os.close(file)


def _work(request: dict, files: list[int]) -> None:
    """Be the worker, as ``vcrt_django.session`` starts it."""
    from vcrt_django.worker import main

    status = 1
    try:
        for place, file in enumerate(files):
            os.dup2(file, place)
        os.closerange(3, 64)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["variables"])
        sys.argv[:] = ["-c"]
        sys.path[0:0] = request["places"].split(os.pathsep)
        main()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    import vcrt_django.project  # noqa: F401 - what a worker imports at its first request

    _serve(socket.socket(fileno=int(sys.argv[1])))
