"""The calls of OpenHands' tools that are tried: traces of tool and arguments."""

from __future__ import annotations

from typing import Any

from toolsets import Framework

FRAMEWORK = Framework(
    name="OpenHands",
    packages=("openhands-sdk==1.58.2", "openhands-tools==1.58.2"),
    file="openhands_tools.py",
)
_A, _B = "{state}/a.txt", "{state}/b.txt"


def _edit(command: str, path: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "file_editor", {"command": command, "path": path, **more}


TRACES: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = (
    (
        _edit("create", _B, file_text="tea\n"),
        ("grep", {"pattern": "tea"}),
        ("list_directory", {"dir_path": "{state}"}),
    ),
    (_edit("create", _B, file_text="tea\n"), ("glob", {"pattern": "**/*.txt"})),
    (_edit("str_replace", _A, old_str="tea", new_str="rice"), ("grep", {"pattern": "tea"})),
    (
        ("write_file", {"file_path": _A, "content": "new\n"}),
        ("grep", {"pattern": "tea"}),
        ("read_file", {"file_path": _A}),
    ),
    (("terminal", {"command": "echo rice >> a.txt"}), ("terminal", {"command": "cat a.txt"})),
    (("terminal", {"command": "echo rice >> a.txt"}), ("grep", {"pattern": "rice"})),
)
