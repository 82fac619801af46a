"""Run one MCP server as a confined process, and talk to it with the official client, over stdio or HTTP.

The client runs in a thread with an event loop of its own. Whatever a server does instead of answering (it does not
start, dies, hangs, prints a line that is no message) becomes a named error; :meth:`Server.close` ends all its
processes. :mod:`vcrt.environments.mcp` interprets answers and makes the server's folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from vcrt.errors import UnavailableError, VcrtError, VerifierFailure
from vcrt.hashing import Json, json_digest
from vcrt.plugins import installing_extra
from vcrt.processes.confinement import Bounds
from vcrt.processes.programs import confined, start_program
from vcrt.processes.watching import SERVER_MARK, WORKERS_MARK, end_marked

#: What stands in commands for the state's folder, or its one file, and for a server's port.
STATE, PORT = "{state}", "{port}"
#: Environment variables that mark all processes of a server, so that they are found and ended.
MARKS = (SERVER_MARK, WORKERS_MARK)
#: Seconds that its thread has to end, and seconds that an answer may take beyond its time limit.
_LEAVE_S, _GRACE_S = 5.0, 5.0
_LAST_WORDS = 2000
#: Seconds between two looks whether a server listens.
_LOOK_S = 0.05
_IS_ERROR = '"isError": true'


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """How to start a server: its command, the command as messages show it, its environment and its limits."""

    name: str
    command: tuple[str, ...]
    shown: str
    variables: Mapping[str, str]
    bounds: Bounds
    start_timeout_s: float
    timeout_s: float
    #: The address of a server over HTTP, which listens on ``bounds.port``; None over standard input and output.
    url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """A server's description of itself: its name and version, the protocol, and its declared tools by name."""

    server: str
    protocol: str
    tools: Mapping[str, Mapping[str, Json]]

    @property
    def tools_digest(self) -> str:
        """The SHA-256 of the declarations of all tools."""
        return json_digest(dict(self.tools))


class Refusal(Exception):
    """The server refuses a request: its arguments do not fit, or its own code raised an error and it goes on."""


class _ProtocolError(Exception):
    """The server answers a request with an error that is no refusal."""


class Server:
    """A running server; making one raises :class:`UnavailableError` if the server does not start."""

    def __init__(self, description: Description, place: Path) -> None:
        self._of = description
        self._process = os.getpid()
        # Not drawn: what a call draws, the same call draws in another process, too.
        self._mark = json_digest([self._process, id(self), time.time_ns()])
        self._log = place / "stderr"
        self._parameters = _parameters(description, place, self._mark)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._client: Any = None
        self._thread.start()
        self._ready: Future[About] = Future()
        self._closing = asyncio.Event()
        self._noise: asyncio.Future[str] = self._loop.create_future()
        self._printed = ""
        self._session = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        try:
            self.about = self._ready.result(
                description.start_timeout_s + (_GRACE_S if description.url else 0)
            )
        except TimeoutError:
            raise self._not_started(f"no answer after {description.start_timeout_s:g} s") from None
        except Exception as error:
            raise self._not_started(_words_of(error)) from error
        except BaseException:
            self.close()
            raise

    def call(self, name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the result of a call, in the form of the protocol.

        Raise :class:`Refusal` for arguments that do not fit (-32602), and for an error of a tool's own code that many
        servers report in this way (-32603), if the server answers `tools/list` as before it: hosts hand both to the
        model. Without an answer, end the server and raise :class:`VerifierFailure`.
        """
        doing = f"tools/call {name!r}"
        return self._asked(doing, lambda: self._client.call_tool(name, dict(arguments)))

    def resource(self, uri: str) -> dict[str, Json]:
        """Return a resource, in the form of the protocol; raise as :meth:`call` does."""
        return self._asked(f"resources/read {uri!r}", lambda: self._client.read_resource(uri))

    def close(self) -> None:
        """End the server and all processes that it has started."""
        if self._process != os.getpid():
            return  # this process is a fork; the server belongs to its parent
        end_marked(self._mark, SERVER_MARK)
        if threading.current_thread() is self._thread or self._loop.is_closed():
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closing.set)
        with suppress(Exception):
            self._session.result(_LEAVE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LEAVE_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _serve(self) -> None:
        """Begin and end the client in this one task."""
        from mcp.client import Client
        from mcp.client.stdio import stdio_client

        try:
            with self._log.open("wb") as log:
                transport = (
                    stdio_client(self._parameters, errlog=log)
                    if self._of.url is None
                    else await self._listening(self._of.url, log)
                )
                async with Client(transport, cache=None, message_handler=self._hear) as client:
                    self._client = client
                    self._ready.set_result(await self._described(client))
                    await self._closing.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error if isinstance(error, Exception) else OSError(error))
            elif not isinstance(error, Exception):
                raise

    async def _listening(self, url: str, log: IO[bytes]) -> Any:
        """Start a server over HTTP, wait until a process of it listens, and return the way to it."""
        from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

        of, port = self._parameters, self._of.bounds.port
        process = start_program([of.command, *of.args], log, folder=of.cwd, variables=of.env)
        late = time.monotonic() + self._of.start_timeout_s
        while not _listens(process.pid, port, url):
            if process.poll() is not None:
                raise OSError(f"it ended with exit status {process.returncode}")
            if time.monotonic() > late:
                raise OSError(
                    f"nothing of it listens at {url} after {self._of.start_timeout_s:g} s"
                )
            await asyncio.sleep(_LOOK_S)
        # Proxies of the environment lead away from this machine.
        client = type(create_mcp_http_client())(trust_env=False, timeout=None)
        return streamable_http_client(url, http_client=client)

    async def _described(self, client: Any) -> About:
        tools: dict[str, Mapping[str, Json]] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = await client.list_tools(cursor=cursor or None)
            tools |= {tool.name: _json_of(tool) for tool in page.tools}
            cursor = page.next_cursor
        info = client.session.server_info
        name = "a server without a name" if info is None else f"{info.name} {info.version}"
        return About(server=name, protocol=str(client.session.protocol_version), tools=tools)

    async def _hear(self, message: object) -> None:
        if not isinstance(message, Exception):
            return
        line = _unread(message)
        if not line.lstrip().startswith(("{", "[")):
            self._printed = f"; beside its messages it printed {line[:200]!r}"  # hosts pass it over
        elif not self._noise.done():
            self._noise.set_result(f"a line that is no message: {line[:200]!r}")

    def _asked(self, doing: str, ask: Any) -> dict[str, Json]:
        if self._session.done():
            raise self._broken(doing, "it has ended")
        answer = asyncio.run_coroutine_threadsafe(self._answer(ask), self._loop)
        try:
            return answer.result(self._of.timeout_s + _GRACE_S)
        except Refusal:
            raise
        except _ProtocolError as error:
            raise VerifierFailure(
                "an MCP server answered with an error of the protocol, which says nothing about the call",
                **self._ended(doing, str(error)),
                expected=f"a result; a refusal is a result with {_IS_ERROR}",
                remedy=f'let the tool return its refusal, {{"content": [...], {_IS_ERROR}}}, as the specification says',
            ) from error
        except TimeoutError:
            raise self._broken(doing, f"no answer after {self._of.timeout_s:g} s") from None
        except Exception as error:
            raise self._broken(doing, _words_of(error)) from error
        except BaseException:
            self.close()
            raise

    async def _answer(self, ask: Any) -> dict[str, Json]:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS

        answer = asyncio.ensure_future(ask())
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait({answer, self._noise}, timeout=self._of.timeout_s, return_when=first)
            if self._noise.done():
                raise ValueError(self._noise.result())
            if not answer.done():
                raise TimeoutError
            return _json_of(answer.result())
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise
            if error.code == INVALID_PARAMS or (
                error.code == INTERNAL_ERROR and await self._goes_on()
            ):
                raise Refusal(error.message) from error
            raise _ProtocolError(f"{error.code}: {error.message[:500]}") from error
        finally:
            answer.cancel()

    async def _goes_on(self) -> bool:
        """Tell whether an internal error is a tool's, not the server's: it still says of itself what it did.

        Over HTTP the client makes such an error of any failure of the connection, so there it is never known.
        """
        if self._of.url is not None:
            return False
        with suppress(Exception):
            async with asyncio.timeout(self._of.timeout_s):
                return await self._described(self._client) == self.about
        return False

    def _not_started(self, found: str) -> VcrtError:
        return UnavailableError(
            "an MCP server does not start",
            **self._ended("starting it", found),
            expected="an answer to `initialize` and `tools/list`"
            if self._of.url is None
            else f"a server that listens on port {PORT} of its command, and answers at {self._of.url}",
            remedy="run the command by itself and mend what it reports; in the sandbox it has no network, and writes "
            f"into {STATE}, $HOME and $TMPDIR only: install it beforehand and name the program itself (not npx or uvx)",
        )

    def _broken(self, doing: str, found: str) -> VcrtError:
        return VerifierFailure(
            "an MCP server broke, which says nothing about the call",
            **self._ended(doing, found),
            expected="one MCP message a line on its standard output, and an answer to each request",
            remedy="mend the server, let it log to its standard error, or allow more with `timeout_s` in the class",
        )

    def _ended(self, doing: str, found: str) -> dict[str, str]:
        """End the server, and return the place and the finding for an error, with the server's last words."""
        self.close()
        words = ""
        with suppress(OSError):
            words = self._log.read_bytes()[-_LAST_WORDS:].decode(errors="replace").strip()
        said = f"its last words: {words}" if words else "it wrote nothing to its standard error"
        where = f"environment {self._of.name!r}, {self._of.shown}, {doing}"
        return {"where": where, "found": f"{found}; {said}{self._printed}"}


def free_port() -> int:
    """Return a port of this machine on which nothing listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(process: int, port: int, url: str) -> bool:
    """Tell whether a process, or one that it has started, listens where the address is: not somebody else's server."""
    import psutil

    hosts = {"0.0.0.0", "::", "127.0.0.1"} | ({"::1"} if "127.0.0.1" not in url else set())
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(process)
        for each in (one, *one.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                for found in each.net_connections("tcp"):
                    if found.status == psutil.CONN_LISTEN and found.laddr.port == port:
                        return found.laddr.ip in hosts
    return False


def require_client() -> str:
    """Return the version of the official client; raise :class:`UnavailableError` unless version 2 is installed."""
    try:
        found = version("mcp")
    except ImportError as error:
        raise UnavailableError(
            "the official client of the Model Context Protocol is not installed",
            expected="the package mcp, 2.x",
            remedy=installing_extra("mcp"),
        ) from error
    if not found.startswith("2."):
        raise UnavailableError(
            "another version of the package mcp",
            found=found,
            expected="2.x",
            remedy=installing_extra("mcp"),
        )
    # It logs lines that it cannot read; here those that may be half a message become errors.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
    return found


def _parameters(description: Description, place: Path, mark: str) -> Any:
    from mcp.client.stdio import StdioServerParameters

    program = shutil.which(description.command[0], path=description.variables.get("PATH"))
    if program is None:
        raise UnavailableError(
            "the program of an MCP server is not there",
            where=f"environment {description.name!r}, command {description.command[0]!r}",
            found="no such program on PATH",
            remedy="install the server, or mend `command` or PATH",
        )
    launcher = confined([program, *description.command[1:]], description.bounds)
    variables = {**description.variables, SERVER_MARK: mark}
    return StdioServerParameters(
        command=launcher[0], args=launcher[1:], env=variables, cwd=place / "state"
    )


def _json_of(value: Any) -> dict[str, Json]:
    """Return a value of the protocol as JSON, without the fields that serve the transport alone."""
    found: dict[str, Json] = value.model_dump(by_alias=True, exclude_none=True, mode="json")
    return {key: part for key, part in found.items() if key not in ("_meta", "resultType")}


def _words_of(error: BaseException) -> str:
    """Return the innermost error of a group, as text."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {str(error)[:500]}"


def _unread(error: Exception) -> str:
    """Return the line that is no message, as far as the client's error holds it."""
    errors = getattr(error, "errors", None)
    line = errors()[0].get("input") if callable(errors) else None
    return str(error if line is None else line)
