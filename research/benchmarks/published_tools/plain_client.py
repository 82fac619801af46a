"""Talk to an MCP server over standard input and output without vcrt and without the official client.

What replay contradicts is made again with it: a new process, the calls by hand, and what is there before and after.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Seconds that an answer may take.
TIMEOUT_S = 60.0


class PlainClient:
    """A started server; use it as a context manager. Raises :class:`RuntimeError` if it ends without an answer."""

    def __init__(self, command: tuple[str, ...], folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._number = 0
        threading.Thread(target=self._read, daemon=True).start()
        about = {"name": "plain", "version": "1"}
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
        self.server = self.ask("initialize", asked)["result"]["serverInfo"]
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        self._number += 1
        request = {
            "jsonrpc": "2.0",
            "id": self._number,
            "method": method,
            "params": dict(parameters),
        }
        self._say(request)
        while True:
            line = self._lines.get(timeout=TIMEOUT_S)
            if line is None:
                raise RuntimeError(f"the server ended without an answer to {method}")
            try:
                answer: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if answer.get("id") == self._number and "method" not in answer:
                return answer

    def tools(self) -> list[dict[str, Any]]:
        """Return the tools as the server lists them."""
        found: list[dict[str, Any]] = []
        cursor: str | None = ""
        while cursor is not None:
            result = self.ask("tools/list", {"cursor": cursor} if cursor else {})["result"]
            found += result["tools"]
            cursor = result.get("nextCursor")
        return found

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a tool's texts, or the error."""
        answer = self.ask("tools/call", {"name": name, "arguments": dict(arguments)})
        if "error" in answer:
            return f"error: {answer['error']['message']}"
        return "\n".join(part.get("text", "") for part in answer["result"].get("content", ()))

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)
