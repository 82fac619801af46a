"""Make a new database on a PostgreSQL server, and drop it; never write to an existing database.

The database in the URL is only connected to. A new database is a copy of a template, has a name with the prefix
``vcrt_``, and is dropped when this process ends. So is, then or by the next process, what an ended process of this
machine left behind, if nobody is connected to it.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from vcrt.errors import UnavailableError
from vcrt.processes.watching import is_alive

_REMEDY = "start the server (Debian: apt-get install postgresql, service postgresql start), or leave the setting out"
_SECONDS = 10


def require_psycopg() -> Any:
    """Return the module ``psycopg``; raise :class:`UnavailableError` where it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise UnavailableError(
            "no client of PostgreSQL",
            found=str(error),
            expected="psycopg",
            remedy="pip install 'psycopg[binary]'",
        ) from error
    return psycopg


def _machine() -> str:
    """Return a digest that tells this machine, since its start, from others that share a server."""
    started = Path("/proc/sys/kernel/random/boot_id")
    name = platform.node() + (started.read_text() if started.exists() else "")
    return sha256(name.encode()).hexdigest()[:8]


class MadeDatabase:
    """A database that was made on a server; raises :class:`UnavailableError` if none can be made.

    ``template`` is copied; nobody may be connected to it.
    """

    def __init__(self, url: str, template: str = "template0", *, remedy: str = _REMEDY) -> None:
        self._url, self._remedy, self._process = url, remedy, os.getpid()
        self.name = f"vcrt_{_machine()}_{os.getpid()}_{secrets.token_hex(4)}"
        self._drop_left_behind()
        source = template.replace('"', '""')
        self._run(f'CREATE DATABASE "{self.name}" TEMPLATE "{source}"')
        atexit.register(self.drop)

    def _drop_left_behind(self) -> None:
        """Drop databases of this machine's ended processes, unless somebody is connected or they are not ours."""
        ours = re.compile(rf"vcrt_{_machine()}_([0-9]+)_[0-9a-f]{{8}}")
        for (name,) in self._run("SELECT datname FROM pg_database"):
            made = ours.fullmatch(name)
            if made is not None and not is_alive(int(made[1])):
                # Another process may drop it first, or another role may have made it.
                with suppress(UnavailableError):
                    self._run(f'DROP DATABASE IF EXISTS "{name}"')

    def drop(self) -> None:
        """Drop it, once, even if somebody is still connected; a fork of the process that made it does nothing."""
        if os.getpid() != self._process:
            return
        atexit.unregister(self.drop)
        if self.name:
            name, self.name = self.name, ""
            # Not WITH (FORCE): that fails during autovacuum, which a plain DROP stops and waits for.
            with suppress(UnavailableError):
                self._run(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    f" WHERE datname = '{name}' AND pg_has_role(usesysid, 'USAGE')"
                )
            self._run(f'DROP DATABASE IF EXISTS "{name}"')
            # Workers end without a word.
            self._drop_left_behind()

    def _run(self, sql: str) -> list[tuple[str, ...]]:
        psycopg = require_psycopg()
        try:
            with psycopg.connect(self._url, connect_timeout=_SECONDS, autocommit=True) as server:
                cursor = server.execute(sql)
                return [] if cursor.description is None else cursor.fetchall()
        except psycopg.Error as error:
            raise UnavailableError(
                "no database can be made on the PostgreSQL server",
                where=self._url.split("@")[-1],
                found=" ".join(str(error).split())[:300],
                expected="a server that runs, and a role that may make databases",
                remedy=self._remedy,
            ) from error
