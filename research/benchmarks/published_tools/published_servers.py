"""Describe an MCP server that somebody published: how it is installed and started, its first state, and calls to make.

A :class:`Row` is all that is said of a server; :func:`environment_of` makes the class of it that `vcrt` replays calls
in. States and outputs are compared without what ``masks`` match: times, and identifiers that the server draws.
Databases are compared by their rows, and office documents by the files in them. Not covered: running (see ``run.py``).
"""

from __future__ import annotations

import io
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Collection, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from vcrt.environments.folder_states import canonical_tree
from vcrt.environments.mcp import McpEnvironment, ServerState, text_of
from vcrt.environments.tool_calls import CallRefused
from vcrt.hashing import Json, canonical_json

#: Where servers are installed; never committed.
BUILD = Path(__file__).parents[3] / "build" / "published"
#: What stands in the place of what a mask matches.
MASKED = "~"
_DATABASES, _DOCUMENTS = (".db", ".sqlite"), (".xlsx", ".docx", ".pptx")
#: What an office document says of when it was written.
_WRITTEN = re.compile(
    rb"<dcterms:(created|modified)[^>]*>[^<]*</dcterms:\1>|<cp:lastModifiedBy>.*?</cp:lastModifiedBy>"
)
#: A tool and its arguments; a trace is a list of them.
Called: TypeAlias = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A published server.

    ``with_them`` are further packages in versions that the server needs, or options of the installer. ``program`` is
    the name of the installed program; ``views`` are reading calls whose output is part of the state, for what no file
    shows, and ``counted`` are tools of which the server keeps, in its memory, each call. ``ids`` are where ids stand
    that the server draws, by tools: {id} in the arguments of later calls stands for the last of them. ``refusals``
    begin texts that say that a call was refused. ``note`` is what a reader must know.
    """

    key: str
    registry: Literal["npm", "PyPI"]
    package: str
    version: str
    with_them: tuple[str, ...] = ()
    program: str
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    base: type[McpEnvironment] | None = None
    initial: Any = None
    restart: bool = False
    remembered: Collection[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    views: tuple[Called, ...] = ()
    counted: tuple[str, ...] = ()
    ids: Mapping[str, str] | None = None
    masks: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    traces: tuple[tuple[Called, ...], ...]
    note: str = ""

    @property
    def folder(self) -> Path:
        """Where the server is installed."""
        return BUILD / ("npm" if self.registry == "npm" else "py") / self.key

    @property
    def command(self) -> tuple[str, ...]:
        """The command that starts it; {state} stands for the folder that it works on."""
        programs = "node_modules/.bin" if self.registry == "npm" else "bin"
        return (str(self.folder / programs / self.program), *self.arguments)

    @property
    def said(self) -> str:
        """All that is said of the server, as the same text in every process."""
        return repr(
            sorted((each.name, _ordered(getattr(self, each.name))) for each in fields(self))
        )


class Published(McpEnvironment):
    """A server whose states and outputs are compared without what ``masks`` match."""

    masks: ClassVar[tuple[str, ...]] = ()
    refused_texts: ClassVar[tuple[str, ...]] = ()
    views: ClassVar[tuple[Called, ...]] = ()
    counted: ClassVar[tuple[str, ...]] = ()

    def answer(self, name: str, result: Mapping[str, Json]) -> Json:
        """Return the output without what masks match."""
        if self.refused_texts and text_of(result).startswith(self.refused_texts):
            raise CallRefused(masked_text(text_of(result), self.masks))
        try:
            return masked(super().answer(name, result), self.masks)
        except CallRefused as refusal:
            raise CallRefused(masked_text(str(refusal), self.masks)) from None

    def fill(self, folder: Path, initial: Any) -> None:
        """Make texts by path, databases by ``{"sql": ...}``, and workbooks by ``{"cell": ...}``."""
        texts = {path: held for path, held in (initial or {}).items() if not isinstance(held, dict)}
        super().fill(folder, texts)
        for path, held in (initial or {}).items():
            if isinstance(held, dict) and "sql" in held:
                with closing(sqlite3.connect(folder / path)) as database:
                    database.executescript(held["sql"])
            elif isinstance(held, dict):
                (folder / path).write_bytes(_workbook(held["cell"]))

    def content(self, folder: Path, kept: Any) -> bytes:
        """Return the folder's bytes, of databases the rows, of office documents the files in them."""
        seen = {
            path: entry._replace(content=_content(path, kept, self.masks))
            for path, entry in kept.items()
            if not path.endswith(("-wal", "-shm", "-journal"))
        }
        return canonical_tree(seen, ignored=self.ignored, names=self._names())

    def canonical(self, state: ServerState) -> bytes:
        """Return the folder, and what the views show; for ``counted`` tools, how often each was called."""
        shown = []
        for name, arguments in self.views:
            try:
                shown.append(self.look(state, name, arguments))
            except CallRefused as refusal:
                shown.append({"error": str(refusal)})
        shown += [sum(called == name for called, _ in state.calls) for name in self.counted]
        return super().canonical(state) + (canonical_json(shown) if shown else b"")


def environment_of(row: Row, module: str) -> type[McpEnvironment]:
    """Return the class of a row's server."""
    base = row.base or Published
    said: dict[str, Any] = {"name": row.key, "command": row.command, "__module__": module}
    if row.base is None:
        said |= {
            "env": dict(row.env or {}),
            "initial": row.initial,
            "restart": row.restart,
            "remembered": row.remembered,
            "ignored": row.ignored,
            "views": row.views,
            "counted": row.counted,
            "ids": dict(row.ids or {}),
            "masks": row.masks,
            "refused_texts": row.refusals,
        }
    elif row.initial is not None:
        said["initial"] = row.initial
    return type(row.key, (base,), said)


def _ordered(value: Any) -> Any:
    """Return what a field holds; of a set, whose order is another one in each process, a sorted list."""
    return sorted(value) if isinstance(value, Set) else value


def masked(value: Json, masks: tuple[str, ...]) -> Json:
    """Return JSON whose texts have :data:`MASKED` in the place of what a mask matches.

    >>> masked({"made": ["on 2026-01-02"]}, (r"[0-9]{4}-[0-9]{2}-[0-9]{2}",))
    {'made': ['on ~']}
    """
    if isinstance(value, str):
        return masked_text(value, masks)
    if isinstance(value, list):
        return [masked(each, masks) for each in value]
    if isinstance(value, dict):
        return {key: masked(each, masks) for key, each in value.items()}
    return value


def masked_text(text: str, masks: tuple[str, ...]) -> str:
    """Return a text with :data:`MASKED` in the place of what a mask matches."""
    for mask in masks:
        text = re.sub(mask, MASKED, text)
    return text


def _content(path: str, kept: Any, masks: tuple[str, ...]) -> bytes:
    content: bytes = kept[path].content
    if path.endswith(_DATABASES) and content:
        content = _rows(content, getattr(kept.get(f"{path}-wal"), "content", b""))
    elif path.endswith(_DOCUMENTS) and content:
        content = _members(content)
    if masks:
        text = content.decode("utf-8", "surrogateescape")
        content = masked_text(text, masks).encode("utf-8", "surrogateescape")
    return content


def _rows(content: bytes, log: bytes) -> bytes:
    """Return a database of SQLite as SQL, with what its write-ahead log holds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "copy.db"
        place.write_bytes(content)
        if log:
            Path(f"{place}-wal").write_bytes(log)
        with closing(sqlite3.connect(place)) as database:
            return "\n".join(database.iterdump()).encode()


def _members(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in sorted(archive.namelist())}
    return b"".join(
        name.encode() + b"\0" + _WRITTEN.sub(b"", held) + b"\0" for name, held in members.items()
    )


def _workbook(cell: str) -> bytes:
    """Return a workbook with one sheet, S, and a text in A1."""
    spread = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    of_office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    relationship = (
        f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type="{of_office}'
    )
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'{relationship}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{spread}" xmlns:r="{of_office}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'{relationship}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{spread}"><dimension ref="A1"/><sheetData><row r="1">'
        f'<c r="A1" t="inlineStr"><is><t>{cell}</t></is></c></row></sheetData></worksheet>',
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in parts.items():
            archive.writestr(zipfile.ZipInfo(name), f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return held.getvalue()
