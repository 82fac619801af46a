"""Find Django and the database that judges: SQLite in memory, or a server that ``VCRT_DJANGO_DATABASE`` names.

This module uses the standard library alone and never imports Django, whose settings are global: only workers have it.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from vcrt.errors import MalformedInputError, UnavailableError

VARIABLE = "VCRT_DJANGO_DATABASE"
SUPPORTED = "Django 4.2 to 6"
REMEDY = "pip install 'django>=4.2,<7'"
_OLDEST, _FIRST_UNKNOWN = (4, 2), (7, 0)


def require_supported(version: tuple[int, ...] | None) -> None:
    """Raise :class:`UnavailableError` if Django is missing or of a version that vcrt does not support."""
    if version is None or not _OLDEST <= version[:2] < _FIRST_UNKNOWN:
        raise UnavailableError(
            "Django is not installed" if version is None else "an unsupported version of Django",
            where=f"Python environment {sys.prefix}",
            found=None if version is None else ".".join(map(str, version[:3])),
            expected=SUPPORTED,
            remedy=REMEDY,
        )


def server_url(given: str | None = None) -> str | None:
    """Return the address of the server, as given or as the variable says; None for SQLite in memory.

    Raise :class:`MalformedInputError` if it names no server of PostgreSQL.
    """
    url = os.environ.get(VARIABLE) or "sqlite" if given is None else given
    if url == "sqlite":
        return None
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise MalformedInputError(
            "a database that vcrt does not judge on",
            where=VARIABLE if given is None else "--database",
            found=url.split("@")[-1][:80],
            expected="sqlite, or postgresql://USER@HOST/NAME of a server on which databases may be made",
            remedy="a file is never taken: SQLite is always a new one in memory",
        )
    return url
