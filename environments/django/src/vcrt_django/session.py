"""Drive one worker that has Django, from this process, which never imports it.

A process that stayed alive while it worked gives an answer, or :class:`vcrt.errors.VerifierFailure` is raised; a broken
worker is replaced and the request repeated once.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import vcrt
from vcrt.errors import UnavailableError, VerifierFailure
from vcrt.processes.programs import BoundedProcess, Needs, bounds, empty_environment
from vcrt_django.fresh import error_of
from vcrt_django.servers import MadeDatabase

#: A worker is replaced after so many requests: Django keeps some memory for every model that it makes.
_REQUESTS_PER_WORKER = 2_000
#: With a Python of the project's own, vcrt comes last, so that the project gets its own packages.
_START = (
    "import os, sys; sys.path[{0}:{0}] = sys.argv.pop().split(os.pathsep); "
    "from vcrt_django.worker import main; main()"
)

#: The folders of vcrt and this package.
_PLACES = os.pathsep.join(
    dict.fromkeys(str(Path(file).parents[1]) for file in (vcrt.__file__, __file__))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Wall-clock seconds for one answer, megabytes in use, and processor seconds for one worker."""

    answer_seconds: float = 600.0
    max_memory_mb: float = 3000.0
    cpu_seconds: float = 3600.0


class Session:
    """One worker, made when it is first needed; ``project`` is a user's, in the form of :class:`Project`.

    ``python`` runs the worker: one that has Django and the project's imports.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        server: str | None = None,
        project: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self._limits, self._server, self._project, self._python = limits, server, project, python
        self._process: BoundedProcess | None = None
        self._made: list[MadeDatabase] = []
        self._first: Any = None
        self._requests = 0

    def first(self) -> Any:
        """Return the worker's first answer; raise its error if it does not start."""
        if self._process is None:
            self._start()
        return self._first

    def ask(self, request: Any, *, where: str) -> Any:
        """Return the answer to a request; raise its error, and :class:`VerifierFailure` if there is no answer."""
        if self._requests >= _REQUESTS_PER_WORKER:
            self.close()
        for last in (False, True):
            try:
                self.first()
                self._requests += 1
                return self._exchange(request)
            except VerifierFailure as error:
                self.close()
                if last:
                    raise error.within(where) from error
        raise AssertionError

    def close(self) -> None:
        """End the worker, if there is one, and drop the databases made for it."""
        process, self._process = self._process, None
        if process is not None:
            process.end()
        with ExitStack() as stack:
            while self._made:
                stack.callback(self._made.pop().drop)

    def _start(self) -> None:
        own = self._project is None
        variables = {**empty_environment(), "PYTHONHASHSEED": "0"} if own else dict(os.environ)
        start = _START.format(0 if self._python == sys.executable else 999)
        # A project's folder stays unchanged.
        flags = "-P" if own else "-BP"
        command = [self._python, flags, "-c", start, _PLACES]
        try:
            if self._server is not None:
                # Episodes have a second opinion, which has a database of its own.
                for _ in range(1 + own):
                    self._made.append(MadeDatabase(self._server))
            self._process = BoundedProcess(
                command, max_memory_mb=self._limits.max_memory_mb, variables=variables
            )
        except OSError as error:
            self.close()
            raise UnavailableError(
                "a Python that cannot be run", found=f"{self._python}: {error.strerror}"
            ) from error
        except UnavailableError:
            self.close()
            raise
        self._requests = 0
        try:
            self._first = self._exchange(
                {
                    "databases": [made.settings() for made in self._made],
                    "project": None
                    if self._project is None
                    else {**self._project, "max_memory_mb": self._limits.max_memory_mb},
                    "bounds": self._bounds() if own else None,
                }
            )
        except BaseException:
            self.close()
            raise

    def _bounds(self) -> str:
        readable = {sys.prefix, sys.base_prefix, *filter(os.path.exists, sys.path)} - {""}
        return bounds(
            Needs(readable=tuple(sorted(readable))),
            cpu_seconds=self._limits.cpu_seconds,
            max_memory_mb=self._limits.max_memory_mb,
            threads=1,
        ).text()

    def _exchange(self, request: Any) -> Any:
        assert self._process is not None
        data = json.dumps(request).encode() + b"\n"
        output = self._process.exchange(data, self._limits.answer_seconds)
        if output.failure is not None:
            raise VerifierFailure("the worker that has Django broke off", found=output.failure)
        try:
            answer = json.loads(output.text)
        except ValueError as error:
            raise VerifierFailure("no answer of Django", found=output.text[:200]) from error
        if isinstance(answer, dict) and "error" in answer:
            raise error_of(answer["error"])
        return answer


@cache
def _session(server: str | None, limits: Limits, process: int) -> Session:
    session = Session(limits, server=server)
    atexit.register(session.close)
    return session


def shared_session(server: str | None, limits: Limits) -> Session:
    """Return this process's worker for episodes; raise :class:`UnavailableError` without a fit Django."""
    return _session(server, limits, os.getpid())
