"""Make the environment of an MCP server from the command that starts it; nobody writes a class.

Its folder or file is put back in place; orders are tested on new servers, which finds out one that keeps more. Not
covered: what else a class can say (see :mod:`vcrt.environments.mcp`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.errors import MalformedInputError

if TYPE_CHECKING:
    from vcrt.environments.mcp import McpEnvironment

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts")
_BEGIN = (
    "let --state be a copy of what the server had when the log began, and --root the path that the log has for it; if "
    "the server keeps a file open, as one of a database does, --restart"
)
_UNSEEN = (
    "the server's answers depend on something outside of its folder or file: if it keeps it in its memory, or a "
    "database open, --restart, and --shown-by TOOL for a tool without arguments that shows it; what a clock or chance "
    "decides, as the order of ids that are drawn, takes a class with `answer` (docs/tools-reference.md)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class McpServer:
    """A factory of the environment of a server; :func:`mcp_server` checks what is given."""

    command: tuple[str, ...]
    state: str | None
    root: str
    shown_by: tuple[str, ...]
    restart: bool
    url: str
    name: str
    ids: tuple[tuple[str, str], ...]

    @property
    def options(self) -> str:
        """The options of a shell that give the same."""
        from vcrt.environments.mcp_servers import PORT

        words = [f"--mcp {shlex.quote(shlex.join(self.command))}"]
        words += [] if self.state is None else [f"--state {shlex.quote(self.state)}"]
        words += [f"--root {shlex.quote(self.root)}"] + ["--restart"] * self.restart
        words += [f"--shown-by {shlex.join(self.shown_by)}"] * bool(self.shown_by)
        words += [f"--ids {shlex.join(map('='.join, self.ids))}"] * bool(self.ids)
        words += [f"--url {shlex.quote(self.url)}"] * any(PORT in one for one in self.command)
        return " ".join(words)

    def __call__(self) -> McpEnvironment:
        """Make it; the server starts when it is first needed."""
        from vcrt.environments.mcp import EVERY_TOOL, McpEnvironment

        start = {} if self.state is None else {"start": Path(self.state)}
        kind = type(
            self.name,
            (McpEnvironment,),
            {
                "__module__": __name__,
                "name": self.name,
                "command": self.command,
                "root": self.root,
                "file": Path(self.root).name if start and start["start"].is_file() else "",
                "templates": start,
                "initial": "start" if start else None,
                "restart": self.restart,
                "starts_anew": not self.restart,
                "remembered": frozenset({EVERY_TOOL} if self.restart else ()),
                "shown_by": self.shown_by,
                "url": self.url,
                "ids": {tool: [at for of, at in self.ids if of == tool] for tool, _ in self.ids},
                "begin_advice": _BEGIN,
                "unseen": _UNSEEN,
            },
        )
        made: McpEnvironment = kind()
        return made


def mcp_server(
    command: str,
    *,
    state: str | Path | None = None,
    root: str | None = None,
    shown_by: Sequence[str] = (),
    restart: bool = False,
    url: str = "http://127.0.0.1:{port}/mcp",
    name: str = "mcp",
    ids: Sequence[str] = (),
) -> McpServer:
    """Make an environment of an MCP server's tools from the command that starts the server, over stdio or HTTP.

    >>> import vcrt
    >>> server = vcrt.mcp_server("mcp-server-filesystem {state}")

    In a shell, these are options of each command that takes an environment: vcrt schedule LOG --mcp "server {state}".

    Args:
        command: The command that starts an MCP server, in place of an environment. {state} stands for a fresh copy of
            the server's folder or file, its working directory; {port} stands for a free port, for HTTP.
        state: The folder or file that an MCP server begins with: it is copied, and never written to.
        root: The path of this folder or file in the log; by default, its path now.
        restart: Start an MCP server anew for each state, and repeat the calls that led there. This is slow; use it for
            a server that keeps something in its memory.
        shown_by: Tools without arguments, or resources, that show what an MCP server keeps in its memory; this restarts
            the server for each state, too.
        url: Where an MCP server over HTTP answers.
        name: The environment's name.
        ids: Where ids stand that an MCP server draws: create=id, add=notes.*.id in a list, create= if all of it is.

    Raises:
        MalformedInputError: The command is none, an id has no place, or nothing of the server's state could be seen.
    """
    from vcrt.environments.mcp_servers import PORT, STATE

    where = f"--mcp {command!r}"
    if "://" in command.partition(" ")[0]:
        raise MalformedInputError(
            "the command is an address: such an MCP server cannot be put back into an earlier state",
            where=where,
            expected="the command that starts it",
            remedy=f'--mcp "COMMAND --port {PORT}" --state PATH --url http://127.0.0.1:{PORT}/mcp',
        )
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise MalformedInputError("no command", where=where, found=str(error)) from error
    if not words:
        raise MalformedInputError("no command", where=where, expected='such as "server {state}"')
    if state is None and not (shown_by or any(STATE in word for word in words)):
        raise MalformedInputError(
            "nothing shows the state of the MCP server",
            where=where,
            expected="the folder or file that it changes (an empty one if it changes nothing), or what shows "
            "its memory",
            remedy=f'--mcp "... {STATE}" --state PATH; or --shown-by TOOL, a tool that takes no argument and tells '
            "the state",
        )
    if wrong := [each for each in ids if each.find("=") < 1]:
        raise MalformedInputError(
            "no place of an id", where=f"--ids {wrong[0]}", expected="such as create=id, or create="
        )
    place = None if state is None else Path(state).absolute()
    if place is not None and not place.exists():
        raise MalformedInputError(
            "the initial state of an MCP server does not exist",
            where=f"--state {state}",
            expected="a folder or a file",
        )
    root = root or (STATE if place is None else str(place))
    if Path(root).name == "":
        raise MalformedInputError(
            "every path is below this root", where=f"--root {root}", expected="a folder or a file"
        )
    return McpServer(
        # The server's own working directory is the copy.
        command=tuple(
            str(Path(word).absolute())
            if Path(word).is_file() and (not place_in or word.endswith(_SCRIPTS))
            else word
            for place_in, word in enumerate(words)
        ),
        state=None if place is None else str(place),
        root=root.rstrip("/"),
        shown_by=tuple(shown_by),
        restart=restart or bool(shown_by),
        url=url,
        name=name,
        ids=tuple((tool, at) for tool, _, at in (each.partition("=") for each in ids)),
    )
