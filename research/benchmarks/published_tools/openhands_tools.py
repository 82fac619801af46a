"""The tools of OpenHands' SDK on a folder, as `vcrt` replays them: `--environment openhands_tools.py:TOOLS`.

A tool is made by its own ``create`` for each state's folder, its action is parsed by its own schema, and its own
executor runs it. A terminal is made for each call, so that files are its state, not a shell. ``main`` prints what is
declared of the calls of a log: annotations, and what they lock. It runs where `openhands-tools` and `vcrt` are
installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from openhands.tools.file_editor import FileEditorTool
from openhands.tools.gemini import EditTool, ListDirectoryTool, ReadFileTool, WriteFileTool
from openhands.tools.glob import GlobTool
from openhands.tools.grep import GrepTool
from openhands.tools.task_tracker import TaskTrackerTool
from openhands.tools.terminal import TerminalTool

import vcrt

KINDS = {
    "file_editor": FileEditorTool,
    "grep": GrepTool,
    "glob": GlobTool,
    "list_directory": ListDirectoryTool,
    "read_file": ReadFileTool,
    "write_file": WriteFileTool,
    "edit": EditTool,
    "task_tracker": TaskTrackerTool,
    "terminal": TerminalTool,
}
#: Times that listings hold, and what a terminal says of itself.
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:]+")


def made(name: str, folder: str) -> Any:
    """Return the tool for a folder, as the SDK makes it."""
    state = SimpleNamespace(
        workspace=SimpleNamespace(working_dir=folder),
        persistence_dir=folder,
        env_observation_persistence_dir=None,
        agent=SimpleNamespace(llm=SimpleNamespace(vision_is_active=lambda: False)),
    )
    more = {"terminal_type": "tmux"} if name == "terminal" else {}
    return KINDS[name].create(state, **more)[0]


def tools_of(folder: str) -> list[Callable[..., Any]]:
    """Return a function for each tool."""
    return [_function(name, folder) for name in KINDS]


def _function(name: str, folder: str) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        tool = made(name, folder)
        try:
            seen = tool.executor(tool.action_type(**arguments))
        finally:
            tool.executor.close()
        if seen.is_error:
            raise vcrt.CallRefused(_TIME.sub("~", seen.text))
        return _TIME.sub("~", seen.text)

    call.__name__ = name
    return call


#: The editor keeps a history in a temporary folder, and a terminal is a process of its own with a socket. Both are made
#: anew for each call, so that no other call sees them.
TOOLS = vcrt.tools_environment(
    tools_of=tools_of,
    state=vcrt.folder(Path(__file__).with_name("start")),
    name="openhands",
    ignored=("outside.files", "outside.processes"),
)


def main(log: str) -> None:
    """Print, of each call of a log, the tool's annotations and the resources that it locks."""
    Path("/tmp/state").mkdir(exist_ok=True)
    found = []
    for line in Path(log).read_text().splitlines():
        trace = json.loads(line.replace("{state}", "/tmp/state"))
        locks = []
        for call in trace["calls"]:
            tool = made(call["name"], "/tmp/state")
            action = tool.action_type(**call["arguments"])
            declared = tool.declared_resources(action)
            hints = tool.annotations.model_dump() if tool.annotations else {}
            locks.append(
                {
                    "name": call["name"],
                    "hints": hints,
                    "keys": list(declared.keys),
                    "declared": declared.declared,
                }
            )
            tool.executor.close()
        found.append(locks)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
