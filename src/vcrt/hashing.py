"""Write canonical JSON and take its SHA-256: the one way in which vcrt turns values into digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, Union

Json: TypeAlias = Union[None, bool, int, float, str, "Sequence[Json]", "Mapping[str, Json]"]


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(value: Json) -> bytes:
    """UTF-8 JSON with sorted keys and no spaces; NaN and infinities are refused with ``ValueError``."""
    return json_text(value).encode("utf-8")


def json_text(value: Json) -> str:
    """Return canonical JSON as text, which may contain lone surrogates."""
    return _ENCODER.encode(value)


def sha256_hex(data: bytes) -> str:
    """SHA-256 of ``data`` as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def json_digest(value: Json) -> str:
    """SHA-256 of the canonical JSON of ``value``."""
    return sha256_hex(canonical_json(value))


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
