"""A server that keeps tables in sessions of its memory, whose names it draws: `csv-mcp-server`."""

from __future__ import annotations

from typing import Any, ClassVar

from published_servers import Published, masked

from vcrt.environments.mcp import EVERY_TOOL, ServerState
from vcrt.environments.tool_calls import CallRefused
from vcrt.hashing import canonical_json

#: Times, also those in the names of operations.
MASKS = (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+", r"_[0-9]{8}_[0-9]{6}_[0-9]{6}")


class CsvSessions(Published):
    """The state is the folder, and of each session what the server lists, and its history."""

    ids: ClassVar = {"load_csv": "session_id"}
    masks = MASKS
    remembered = frozenset({EVERY_TOOL})
    restart = False
    refused_texts = ('{"success":false',)
    ignored = frozenset({".csv_history", ".csv_history/*"})
    initial: ClassVar = {"shop.csv": "name,n\ntea,2\nrice,1\n"}

    def canonical(self, state: ServerState) -> bytes:
        """Return the folder, the sessions that the server lists, and the history of each."""
        listed: Any = self.look(state, "list_sessions", {})
        names = sorted(each["session_id"] for each in listed["structuredContent"]["sessions"])
        shown = [self._history(state, name) for name in names]
        return super().canonical(state) + canonical_json([masked(listed, self.masks), *shown])

    def _history(self, state: ServerState, session: str) -> Any:
        try:
            return self.look(state, "get_history", {"session_id": session})
        except CallRefused as refusal:
            return str(refusal)
