"""Read JSON from anywhere with limits on its size and depth, and check names of files that a document may give.

Not covered: which fields a document must have; its reader says that.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from vcrt.hashing import canonical_json
from vcrt.printable import counted

#: The largest document that is read, in bytes.
MAX_BYTES = 16 * 2**20
#: The deepest nesting of lists and objects in a document that is read.
MAX_DEPTH = 64
#: The longest name of a file that is accepted, in bytes of UTF-8; file systems take 255.
MAX_NAME_BYTES = 200
#: The longest name of a field in an error, in characters; a document may have any.
_MAX_FIELD = 200
#: The most faults that are looked at: each costs some hundred bytes, and a document may have millions.
_MAX_FAULTS = 10_000

Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """What a document holds: every field, of its own type, and no other."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClosedModel(BaseModel):
    """What a file holds: fields of its own and no other; those of ``left_out`` are not written at their default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    left_out: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        for name in self.left_out:
            field = type(self).model_fields[name]
            if getattr(self, name) == field.get_default(call_default_factory=True):
                value.pop(name, None)
        return value


class FieldError(NamedTuple):
    """A field that is wrong, by its path, and why."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"field {self.field}: {self.message}"


def read_limited(path: Path, limit: int = MAX_BYTES, *, may_be_pipe: bool = False) -> bytes:
    """A file's bytes, a link's as well.

    Raises ``ValueError`` if there are more than ``limit``, or if it is a pipe or device, which might never end; and
    ``OSError`` as the system does. ``may_be_pipe`` is for what the user alone names, as ``<(COMMAND)`` does.
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


def first_error(error: ValidationError) -> FieldError:
    """The first field that pydantic found wrong.

    The inputs are left out: pydantic would copy them for every fault. So it does where it reads JSON by itself:
    documents from anywhere are read by :func:`strict_json` and validated as values.
    """
    count = error.error_count()
    if count > _MAX_FAULTS:
        return FieldError("(root)", f"{counted(count, 'fault')}")
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "(root)"
    # pydantic names its own classes here.
    is_object = first["type"] in ("model_type", "dataclass_type")
    message = "Input should be an object" if is_object else first["msg"]
    return FieldError(name[:_MAX_FIELD], message)


def in_a_line(error: Exception) -> str:
    """What an error of reading a document says, in one line; of pydantic's, the first field."""
    if isinstance(error, ValidationError):
        return str(first_error(error))
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def strict_json(data: bytes | str) -> Any:
    """JSON from anywhere.

    Raises ``ValueError`` for what is none, a field given twice, a number that is not finite, half a Unicode character,
    or nesting deeper than :data:`MAX_DEPTH`.
    """
    try:
        value = json.loads(data, object_pairs_hook=_without_repetition, parse_constant=_no_number)
        if _deeper_than(value, MAX_DEPTH):
            raise ValueError(f"lists and objects in one another, more than {MAX_DEPTH} deep")
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
