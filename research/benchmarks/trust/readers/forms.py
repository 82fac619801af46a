"""What the readers' valid inputs are made of."""

from __future__ import annotations

import json
from typing import Any

from vcrt.errors import VcrtError


def text_of(data: bytes) -> str:
    """The text that a file of these bytes is read as."""
    return data.decode("utf-8", "surrogateescape")


def dumped(*values: object) -> tuple[bytes, ...]:
    """Each value as JSON."""
    return tuple(json.dumps(value).encode() for value in values)


def json_value(data: bytes) -> Any:
    """What the texts of a row give: the readers below take values; what is no JSON is another reader's."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise VcrtError("no JSON") from error
