"""Keep finished pieces of a certification on disk, so that an interrupted certification can continue.

A piece is written whole or not at all, and names its certification and the SHA-256 of its content; a damaged or
truncated file counts as missing. Pieces of another configuration, of other versions of a verifier or of another vcrt
are refused, never mixed in.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vcrt
from vcrt.documents import read_limited
from vcrt.environments.contract import Versions
from vcrt.errors import DatasetError, TooLargeError
from vcrt.hashing import Json, canonical_json, json_digest, sha256_hex
from vcrt.replay.config import CertificationConfig
from vcrt.storage import make_directory, remove_unfinished_files, write_file

_FORMAT = "vcrt-shards/2"
#: The file that names a store's certification.
IDENTITY = "identity.json"
#: The lock of the process that works in a store.
LOCK = "lock"
#: The largest piece that is read, in bytes: it holds a dataset's rows of a shard's few episodes.
_MAX_PIECE = 768 * 2**20


@dataclass(frozen=True, slots=True)
class ShardStore:
    """The pieces of one certification; make one with :func:`open_store`."""

    path: Path
    identity: str

    def read(self, name: str) -> Any:
        """Return the content of a piece, None if it is not whole; raise :class:`TooLargeError` if it is too large."""
        body = self.body(name)
        try:
            return None if body is None else json.loads(body)
        except (ValueError, RecursionError):
            return None

    def body(self, name: str) -> bytes | None:
        """Return the content of a piece as canonical JSON; None and errors are as in :meth:`read`."""
        try:
            size = (self.path / name).stat().st_size
        except OSError:
            return None
        _require_size(self.path / name, size)
        try:
            header, _, body = read_limited(self.path / name, _MAX_PIECE).partition(b"\n")
            return body if json.loads(header) == self._header(name, body) else None
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, body: bytes) -> None:
        """Put a finished piece under ``name``, a relative path; ``body`` is its canonical JSON."""
        file = self.path / name
        make_directory(file.parent)
        _require_size(file, len(body))
        write_file(file, canonical_json(self._header(name, body)) + b"\n" + body)

    def _header(self, name: str, body: bytes) -> dict[str, Json]:
        return {"identity": self.identity, "name": name, "sha256": sha256_hex(body)}


def _require_size(file: Path, size: int) -> None:
    if size > _MAX_PIECE - 2**16:  # room for the header
        raise TooLargeError(
            "the replays of a few candidates are too large to be kept",
            where=str(file),
            found=f"{size / 2**20:,.0f} MiB",
            expected=f"at most {_MAX_PIECE // 2**20} MiB",
            remedy="let the verifier's states and operations be smaller, or take shorter episodes",
        )


def open_store(
    path: Path, config: CertificationConfig, versions: dict[str, Versions]
) -> ShardStore:
    """Make or reopen the store of a certification at ``path``; raise :class:`DatasetError` if it is another's."""
    belongs_to: dict[str, Json] = {
        "format": _FORMAT,
        "vcrt": vcrt.__version__,
        "config": config.to_json(),
        "versions": {name: some.to_json() for name, some in sorted(versions.items())},
    }
    refuse_foreign(path)
    make_directory(path)
    file = path / IDENTITY
    if file.exists():
        found = read_identity(path)
        if found != belongs_to:
            differing = sorted(k for k in belongs_to if found.get(k) != belongs_to[k])
            raise DatasetError(
                "the unfinished certification in this folder was begun with another configuration or version",
                where=str(path),
                found=f"another {', '.join(differing)}",
                expected="the same configuration, verifiers and vcrt",
                remedy="give the options that it was begun with, choose another --output, or remove that folder",
            )
        remove_unfinished_files(path, "*.json")
    else:
        write_file(file, canonical_json(belongs_to))
    return ShardStore(path, json_digest(belongs_to))


def remove_store(path: Path) -> None:
    """Remove a store, its identity last, so that the rest of an interrupted removal is still recognised as one."""
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name not in (IDENTITY, LOCK):
            entry.unlink()
    shutil.rmtree(path)


def is_empty_store(path: Path) -> bool:
    """Return whether a store's folder holds at most its lock and an identity that was not written whole."""
    begun = f".{IDENTITY}."
    return all(entry.name == LOCK or entry.name.startswith(begun) for entry in path.iterdir())


def refuse_foreign(path: Path) -> None:
    """Raise :class:`DatasetError` if something at ``path`` is not a store; change nothing."""
    if path.is_dir():
        if is_empty_store(path) or (path / IDENTITY).is_file():
            return
    elif not path.exists() and not path.is_symlink():
        return
    raise DatasetError(
        "the folder for unfinished work holds something else",
        where=str(path),
        expected=f"nothing of that name, an empty folder, or one with {IDENTITY}",
        remedy="choose another --output, or move it away",
    )


def read_identity(path: Path) -> dict[str, Any]:
    """Return the certification that the store at ``path`` belongs to; empty if that is unknown."""
    try:
        value = json.loads(read_limited(path / IDENTITY))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
