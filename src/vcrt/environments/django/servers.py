"""Make a database of its own on a PostgreSQL server, and drop it: no database that was there before is written to.

The one in the URL is only connected to. A database is made empty, under a name that begins with ``vcrt_``, and dropped
when its session ends or this process does. Not covered: a process that is killed, which leaves its database behind.
"""

from __future__ import annotations

import atexit
import os
import secrets
from typing import Any

from vcrt.errors import UnavailableError

_REMEDY = "start the server (Debian: apt-get install postgresql, service postgresql start), or leave the setting out"
_SECONDS = 10


class MadeDatabase:
    """A database that was made on a server; raises :class:`UnavailableError` where none can be made."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"vcrt_{os.getpid()}_{secrets.token_hex(4)}"
        self._run(f'CREATE DATABASE "{self.name}" TEMPLATE template0')
        atexit.register(self.drop)

    def settings(self) -> dict[str, Any]:
        """An entry of Django's ``DATABASES``."""
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(self._url)
        named = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": self.name,
            **{key: str(parts[name]) for key, name in named.items() if parts.get(name)},
        }

    def drop(self) -> None:
        """Drop it, once; whoever is still connected is not asked."""
        atexit.unregister(self.drop)
        if self.name:
            name, self.name = self.name, ""
            self._run(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _run(self, sql: str) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise UnavailableError(
                "no client of PostgreSQL",
                found=str(error),
                expected="psycopg",
                remedy="pip install 'psycopg[binary]'",
            ) from error
        try:
            with psycopg.connect(self._url, connect_timeout=_SECONDS, autocommit=True) as server:
                server.execute(sql)
        except psycopg.Error as error:
            raise UnavailableError(
                "no database can be made on the PostgreSQL server",
                where=self._url.split("@")[-1],
                found=" ".join(str(error).split())[:300],
                expected="a server that runs, and a role that may make databases",
                remedy=_REMEDY,
            ) from error
