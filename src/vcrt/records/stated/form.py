"""What a document of JSON must be to be a relation record, whatever its form."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from vcrt.documents import in_a_line
from vcrt.errors import MalformedInputError

FORM = '{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}'
SOURCES = f"{FORM}, or what `vcrt show EPISODE --json` or `vcrt lift lean FILE --json` prints"

_Model = TypeVar("_Model", bound=BaseModel)


def validated(model: type[_Model], value: Any, where: str) -> _Model:
    """``value`` as a ``model``. Raises :class:`MalformedInputError` that names the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise malformed(where, in_a_line(error)) from error


def malformed(where: str, found: str) -> MalformedInputError:
    """The error for what is no relation record in any form."""
    return MalformedInputError("not a relation record", where=where, found=found, expected=SOURCES)
