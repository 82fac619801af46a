"""Find Django and the database that judges: SQLite in memory, or a server that ``VCRT_DJANGO_DATABASE`` names.

Django is not imported here: its settings are global, and only workers have them.
"""

from __future__ import annotations

import os
import sqlite3
from importlib import metadata
from urllib.parse import urlsplit

from packaging.specifiers import SpecifierSet

from vcrt.errors import MalformedInputError, UnavailableError

VARIABLE = "VCRT_DJANGO_DATABASE"
SUPPORTED = SpecifierSet(">=4.2,<7")
REMEDY = "pip install 'vcrt[django]'"
#: The first SQLite whose databases in memory this Python can keep as bytes.
_OLDEST_SQLITE = (3, 31)


def django_version() -> str:
    """The version of the Django that is installed; raises :class:`UnavailableError` without a supported one."""
    try:
        version = metadata.version("django")
    except metadata.PackageNotFoundError as error:
        raise UnavailableError(
            "Django is not installed", expected=f"Django {SUPPORTED}", remedy=REMEDY
        ) from error
    require_supported(version)
    return version


def require_supported(version: str) -> None:
    """Raise :class:`UnavailableError` for a version of Django that vcrt does not drive."""
    if not SUPPORTED.contains(version, prereleases=True):
        raise UnavailableError(
            "a Django of a version that is not supported",
            found=f"Django {version}",
            expected=f"Django {SUPPORTED}",
            remedy=REMEDY,
        )
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise UnavailableError(
            "an SQLite that is too old",
            found=sqlite3.sqlite_version,
            expected=".".join(map(str, _OLDEST_SQLITE)),
        )


def server_url(given: str | None = None) -> str | None:
    """Where the server is: as given, or as the variable says; None for SQLite in memory.

    Raises :class:`MalformedInputError` for what names no server of PostgreSQL.
    """
    url = os.environ.get(VARIABLE) if given is None else given
    if not url or url == "sqlite":
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
