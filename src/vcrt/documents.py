"""Read JSON from untrusted sources with limits on its size and depth, and check file names that a document contains.

Not covered: which fields a document must have; each reader of documents checks its own.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vcrt.hashing import canonical_json

#: The largest document that is read, in bytes.
MAX_BYTES = 16 * 2**20
#: The deepest nesting of lists and objects in a document that is read.
MAX_DEPTH = 64
#: The longest name of a file that is accepted, in bytes of UTF-8; file systems take 255.
MAX_NAME_BYTES = 200


def read_limited(path: Path, limit: int = MAX_BYTES, *, may_be_pipe: bool = False) -> bytes:
    """Read the bytes of a file; links are followed.

    Raises ``ValueError`` if the file is longer than ``limit``, or is a pipe or device, which might never end; and
    ``OSError`` as the system does. Set ``may_be_pipe`` only for paths that the user gives, such as ``<(COMMAND)``.
    """
    descriptor = os.open(path, os.O_RDONLY | (0 if may_be_pipe else os.O_NONBLOCK))
    try:
        size = _size(descriptor, path, may_be_pipe=may_be_pipe)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            # Not more than there is: room for all that is asked for is made at once.
            data = stream.read(min(limit, limit if size is None else size) + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise ValueError(f"more than {limit:,} bytes")
    return data


def strict_json(data: bytes | str) -> Any:
    """Parse JSON from an untrusted source.

    Raises ``ValueError`` for text that is not JSON, a field given twice, a number that is not finite, half a Unicode
    character, or nesting deeper than :data:`MAX_DEPTH`.
    """
    try:
        value = json.loads(data, object_pairs_hook=_without_repetition, parse_constant=_no_number)
        if _deeper_than(value, MAX_DEPTH):
            raise ValueError(f"lists and objects that are nested more than {MAX_DEPTH} deep")
        canonical_json(value)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    return value


def is_plain_name(name: object) -> bool:
    """Whether ``name`` may name one file or folder inside another: no separator, no way up, nothing hidden or odd."""
    return (
        isinstance(name, str)
        and bool(name)
        and name.isprintable()
        and not name.startswith(".")
        and not {"/", "\\"} & set(name)
        and len(name.encode("utf-8", "replace")) <= MAX_NAME_BYTES
    )


def _size(descriptor: int, path: Path, *, may_be_pipe: bool) -> int | None:
    """How many bytes an open file has; None for a pipe or device."""
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    if not may_be_pipe:
        raise ValueError("a pipe, device or socket, and no file")
    return None


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("an object that has a field twice")
    return fields


def _no_number(text: str) -> None:
    raise ValueError(f"{text}, which is no JSON")


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
