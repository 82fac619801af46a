"""A relation record from bytes of any of the forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vcrt.documents import MAX_BYTES, strict_json
from vcrt.errors import MalformedInputError
from vcrt.records.certificate import certificate_of
from vcrt.records.stated.by_hand import from_hand
from vcrt.records.stated.form import malformed
from vcrt.records.stated.lifted import from_lifted
from vcrt.records.stated.record import StatedRecord


def read_stated(data: bytes, where: str, *, theorem: str | None = None) -> StatedRecord:
    """Read a record of any of the three forms; ``theorem`` chooses one of several lifted ones.

    Raises :class:`MalformedInputError` and, for certificates, :class:`vcrt.errors.DatasetError`, with ``where`` as
    the place of the data; :class:`UnknownNameError` for a theorem that is not there.
    """
    if len(data) > MAX_BYTES:
        raise malformed(where, f"more than {MAX_BYTES:,} bytes")
    try:
        value = strict_json(data)
    except ValueError as error:
        raise malformed(where, f"no JSON: {error}" if data.strip() else "nothing") from error
    is_lifted = isinstance(value, list) or (isinstance(value, dict) and "pairs" in value)
    if theorem is not None and not is_lifted:
        raise MalformedInputError(
            "there are no theorems to choose from",
            where=where,
            found=f"--theorem {theorem}",
            expected="what `vcrt lift lean FILE --json` prints",
            remedy="leave --theorem out",
        )
    try:
        if is_lifted:
            return from_lifted(value, where, theorem)
        if isinstance(value, dict) and "format" in value:
            return _from_certificate(value, Path(where))
        return from_hand(value, where)
    except MalformedInputError as error:
        raise MalformedInputError(
            error.what,
            where=error.where or where,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _from_certificate(value: dict[str, Any], path: Path) -> StatedRecord:
    certified = certificate_of(value, path).certified
    names = tuple(operation.signature for operation in certified.episode.operations)
    return StatedRecord(operations=names, relations=tuple(sorted(certified.relations)))
