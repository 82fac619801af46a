"""A server of the package mcp over HTTP: notes in a folder.

python mcp_http_server.py FOLDER PORT
"""

import socket
import sys
from pathlib import Path

from mcp.server import MCPServer

FOLDER = Path(sys.argv[1])
server = MCPServer("notes")


@server.tool()
def write(name: str, text: str) -> str:
    (FOLDER / name).write_text(text)
    return f"wrote {FOLDER / name}"


@server.tool()
def read(name: str) -> str:
    return (FOLDER / name).read_text()


@server.tool()
def fetch() -> str:
    """Connect to this server itself, which is somewhere else for all that the system knows."""
    with socket.socket() as one:
        one.connect(("127.0.0.1", int(sys.argv[2])))
    return "connected"


server.run("streamable-http", port=int(sys.argv[2]))
