"""Make calls of a published server by the plain client: what replay contradicts once more, or a log with outputs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import servers
from plain_client import PlainClient
from published_servers import Called, Row, masked_text

_SHOWN = 600


def by_hand(row: Row, hint: dict[str, Any], of_a_trace: int) -> dict[str, Any]:
    """Make the calls that contradict a hint by the plain client, in two new processes.

    There are at most ``of_a_trace`` episodes of a trace.
    """
    witness = hint["witness"]
    trace = row.traces[int(witness["episode"].rsplit("/", 1)[1]) // of_a_trace]
    before = [trace[step] for step in witness["context"]]
    call = trace[witness["operations"][0]]
    runs = [shown(row, before, call) for _ in range(2)]
    return {
        "tool": hint["tool"],
        "hint": hint["hint"],
        "declared": hint["declared"],
        "seen": hint["seen"],
        "calls": [f"{name}({json.dumps(given)})" for name, given in [*before, call]],
        **runs[0],
        "same_twice": runs[0] == runs[1],
    }


def shown(row: Row, before: list[Called], call: Called) -> dict[str, Any]:
    """Return what a server shows, in a new process, before a call and after it, and what the calls gave."""
    with tempfile.TemporaryDirectory() as given:
        folder = filled(row, given)
        with started(row, folder) as client:
            asking = Asking(row, client, folder)

            def made(one: Called) -> str:
                return asking.made(one)[1][:_SHOWN]

            outputs = [made(one) for one in before]
            looks = [held(row, folder, made), made(call), held(row, folder, made)]
            again = made(call)
    return {
        "before": looks[0],
        "outputs": [*outputs, looks[1]],
        "after": looks[2],
        "again": again,
        "differs": looks[0] != looks[2],
        "answers_otherwise": again != looks[1],
    }


def recorded(row: Row) -> list[list[dict[str, Any]]]:
    """Return the traces of a row as its client would log them, each in a new process: calls, and what they gave."""
    logged = []
    for trace in row.traces:
        with tempfile.TemporaryDirectory() as given:
            folder = filled(row, given)
            with started(row, folder) as client:
                asking = Asking(row, client, folder)
                calls = [(each[0], *asking.made(each)) for each in trace]
        logged.append([{"name": n, "arguments": given, "output": said} for n, given, said in calls])
    return logged


class Asking:
    """Makes calls of a row in a folder, in which {id} stands for the last id that the server drew."""

    def __init__(self, row: Row, client: PlainClient, folder: Path) -> None:
        self._row, self._client, self._folder = row, client, folder
        self._id = "{id}"

    def made(self, call: Called) -> tuple[Any, str]:
        """Make a call; return its arguments with the id, and its texts without the folder's path."""
        name, given = call[0], json.loads(json.dumps(call[1]).replace("{id}", self._id))
        said = self._client.call(name, placed(given, self._folder))
        if place := (self._row.ids or {}).get(name):
            found = json.loads(said)
            for step in place.split("."):
                found = found[step]
            self._id = str(found)
        return given, masked_text(said.replace(str(self._folder), "{state}"), self._row.masks)


def held(row: Row, folder: Path, made: Any) -> dict[str, str]:
    """Return what the reading tools of a row show, or else the names and sizes of files."""
    if row.views:
        return {f"{name}({json.dumps(given)})": made((name, given)) for name, given in row.views}
    files = (
        path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts
    )
    return {
        str(path.relative_to(folder)): path.read_bytes()[:200].decode(errors="replace")
        for path in files
    }


def filled(row: Row, given: str) -> Path:
    """Make the first state of a row in a folder of its own, beside which the server finds a home."""
    folder = Path(given).resolve() / "state"
    folder.mkdir()
    kind = getattr(servers, row.key)
    kind().fill(folder, kind.initial if row.initial is None else row.initial)
    return folder


def started(row: Row, folder: Path) -> PlainClient:
    """Start a row's server on a folder."""
    env = getattr(servers, row.key).env
    home = {"HOME": str(folder.parent), "TZ": "UTC"}
    command = tuple(placed(list(row.command), folder))
    return PlainClient(command, folder, home | placed(dict(env), folder))


def placed(value: Any, folder: Path) -> Any:
    """Return JSON with the folder's path in the place of {state}."""
    return json.loads(json.dumps(value).replace("{state}", str(folder)))
