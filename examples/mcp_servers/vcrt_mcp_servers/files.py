"""The file system server: ``npm install -g @modelcontextprotocol/server-filesystem``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from vcrt.environments.mcp import McpEnvironment
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_mcp_servers.sampling import SampledServer, one_of, schemas


class FilesServer(McpEnvironment):
    """Reads and writes the folder when it is called, and keeps nothing."""

    name = "files"
    command = ("mcp-server-filesystem", "{state}")
    initial: ClassVar[Json] = {"a.txt": "alpha\n", "docs/b.txt": "beta\n"}
    restart = False

    def answer(self, name: str, result: Mapping[str, Json]) -> Json:
        """Without times; what a folder holds in an order of its own, as the system gives it in any."""
        return _each_text(super().answer(name, result), LEFT.get(name, str))


def _without_times(text: str) -> str:
    times = ("created:", "modified:", "accessed:")
    return "\n".join(line for line in text.splitlines() if not line.startswith(times))


def _sorted_lines(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


def _sorted_tree(text: str) -> str:
    def of(entries: Any) -> Any:
        own = [{k: of(v) if k == "children" else v for k, v in e.items()} for e in entries]
        return sorted(own, key=lambda entry: str(entry["name"]))

    return json.dumps(of(json.loads(text)))


#: What is left of the text of each tool.
LEFT = {
    "get_file_info": _without_times,
    "list_directory": _sorted_lines,
    "list_directory_with_sizes": _sorted_lines,
    "search_files": _sorted_lines,
    "directory_tree": _sorted_tree,
}


def _each_text(output: Any, change: Any) -> Json:
    """The text stands in an output twice."""
    for part in output["content"]:
        if "text" in part:
            part["text"] = change(part["text"])
    if "content" in output.get("structuredContent", {}):
        content = output["structuredContent"]["content"]
        if isinstance(content, str):
            output["structuredContent"]["content"] = change(content)
    result: Json = output
    return result


FOLDERS = ("", "docs", "src", "docs/old")
NAMES = ("a.txt", "b.txt", "c.md", "logo.png")
WORDS = ("alpha", "beta", "gamma", "delta")
READS = (
    *("read_file", "read_text_file", "read_media_file", "read_multiple_files", "list_directory"),
    *("list_directory_with_sizes", "directory_tree", "search_files", "get_file_info"),
    "list_allowed_directories",
)


class Files(FilesServer, SampledServer):
    """The server with a sampler."""

    name = "mcp_files"
    schemas = schemas(
        contents="files are read, written and edited",
        tree="files and folders are made, moved and listed",
        mixed="calls of every tool",
    )
    drawn: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "contents": (
            *("read_file", "read_text_file", "read_media_file", "read_multiple_files"),
            *("write_file", "write_file", "edit_file", "edit_file", "get_file_info"),
        ),
        "tree": (
            *("create_directory", "move_file", "move_file", "write_file", "list_directory"),
            *("list_directory_with_sizes", "directory_tree", "search_files"),
        ),
        "mixed": (*READS, *("write_file", "edit_file", "create_directory", "move_file") * 2),
    }

    def beginning(self, draw: Generator) -> Json:
        """Some files with a few words, and folders."""
        files = {
            f"{folder}/{name}".lstrip("/"): f"{one_of(draw, WORDS)}\n{one_of(draw, WORDS)}\n"
            for folder in FOLDERS
            for name in NAMES
            if draw.random() < 0.4
        }
        return {"docs": None, "src": None, **files}

    def arguments(self, name: str, draw: Generator) -> dict[str, Json]:
        """Paths of few files and folders, so that calls meet."""
        folder, other = (f"{{state}}/{one_of(draw, FOLDERS)}".rstrip("/") for _ in range(2))
        file, file_2 = f"{folder}/{one_of(draw, NAMES)}", f"{other}/{one_of(draw, NAMES)}"
        edit = {"oldText": one_of(draw, WORDS), "newText": one_of(draw, WORDS)}
        drawn: dict[str, dict[str, Json]] = {
            "read_multiple_files": {"paths": sorted({file, file_2})},
            "write_file": {"path": file, "content": f"{one_of(draw, WORDS)}\n"},
            "edit_file": {"path": file, "edits": [edit]},
            "create_directory": {"path": f"{folder}/{one_of(draw, ('new', 'old'))}"},
            "move_file": {"source": file, "destination": file_2},
            "search_files": {"path": folder, "pattern": one_of(draw, ("*.txt", "**/*.txt"))},
            "list_allowed_directories": {},
        }
        for listing in ("list_directory", "list_directory_with_sizes", "directory_tree"):
            drawn[listing] = {"path": folder}
        return drawn.get(name, {"path": file})
