"""Environments on the small server of ``mcp_server.py``."""

import sys
from pathlib import Path
from typing import ClassVar

from vcrt.environments.contract import Provenance, Schema
from vcrt.environments.mcp import EVERY_TOOL, McpEnvironment, text_of
from vcrt.environments.tool_calls import Call, episode_of_calls, operations_of

SERVER = str(Path(__file__).with_name("mcp_server.py"))


class Small(McpEnvironment):
    name = "small"
    command = (sys.executable, SERVER, "{state}")
    initial: ClassVar = {"a": "one", "in/b": "two"}
    restart = False
    schemas = (Schema(name="calls", summary="some calls", relation="either", preset="any"),)
    calls = (
        Call("write", {"path": "a", "text": "1"}),
        Call("write", {"path": "a", "text": "2"}),
        Call("write", {"path": "c", "text": "3"}),
    )

    def sample(self, schema, seed):
        initial = {"a": f"seed {seed}", "b": "x"}
        provenance = Provenance(source=str(seed), generator="test", seed=seed)
        return episode_of_calls(self.name, schema, initial, operations_of(self.calls), provenance)

    def answer(self, name, result):
        return text_of({"content": super().answer(name, result)["content"]})


class Restarted(Small):
    restart = True


class ReadsAtStart(Small):
    """Reads its folder when it starts, not again, and is declared to."""

    restart = True
    calls = (*Small.calls[:2], Call("read_as_started", {"path": "a"}))


class KeepsWhatItRead(Small):
    """Keeps what it has read, and is declared to keep nothing."""

    calls = (Call("write", {"path": "a", "text": "1"}), Call("read_cached", {"path": "a"}))


class ReadsAtStartUndeclared(ReadsAtStart):
    """Reads its folder when it starts, and is declared to keep nothing."""

    restart = False


class Remembering(Small):
    """Has notes in its memory, which only asking shows."""

    remembered = frozenset({"note"})
    calls = (
        Call("note", {"text": "x"}),
        Call("note", {"text": "y"}),
        Call("write", {"path": "a", "text": "1"}),
    )

    def canonical(self, state):
        return super().canonical(state) + str(self.look(state, "notes", {})).encode()


class AllInMemory(Remembering):
    remembered = frozenset({EVERY_TOOL})
