"""Keep a state of tools that is a PostgreSQL database: read all rows, and put them back in a copy of it.

Each process has one copy of the database, made by the server. A state is the rows of all tables and the values of all
sequences; before a call, the tables that hold anything else are emptied and written anew, so that the order of rows on
the disk is the state's own. Not covered: what other programs do to the copy, and what is no row (see
:func:`postgres`), of which a change is refused.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from vcrt.environments.made_databases import MadeDatabase, require_psycopg
from vcrt.environments.outside_effects import NETWORK
from vcrt.errors import MalformedInputError, TooLargeError, VerifierFailure
from vcrt.frameworks.tool_states import STATE, ToolState, opened_at
from vcrt.hashing import Json, sha256_hex

#: The most bytes of rows, as text.
MAX_BYTES = 1 << 28
#: How long an open transaction may take to end after a call.
_ENDING_S = 2.0
#: Rows as ``COPY`` writes them, by table, and values of sequences.
_Content: TypeAlias = Mapping[str, bytes]

#: Settings of the connection that reads and writes rows: one text for one value.
_SETTINGS = {
    "search_path": "pg_catalog",
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "row_security": "off",
    "synchronize_seqscans": "off",
    "lock_timeout": "10s",
}
_OWN = "n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
_NAME = "format('%I.%I', n.nspname, c.relname)"
_RELATIONS = f"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {_OWN}"
_TABLES = (
    f"SELECT {_NAME}, (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE "
    "attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') "
    f"{_RELATIONS} AND c.relkind = 'r' ORDER BY 1"
)
_SEQUENCES = f"SELECT {_NAME} {_RELATIONS} AND c.relkind = 'S' ORDER BY 1"
#: Foreign keys, from table to table.
_KEYS = (
    "SELECT format('%I.%I', n.nspname, c.relname), format('%I.%I', m.nspname, d.relname) FROM pg_constraint k JOIN "
    "pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class d ON "
    "d.oid = k.confrelid JOIN pg_namespace m ON m.oid = d.relnamespace WHERE k.contype = 'f'"
)
#: Enabled triggers: the table, the trigger, and how it is enabled.
_TRIGGERS = (
    "SELECT format('%I.%I', n.nspname, c.relname), quote_ident(t.tgname), CASE t.tgenabled WHEN 'R' THEN "
    "'REPLICA ' WHEN 'A' THEN 'ALWAYS ' ELSE '' END FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN "
    "pg_namespace n ON n.oid = c.relnamespace WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND c.relkind = 'r'"
)
#: What is no row of a table and cannot be kept.
_OTHERS = (
    f"SELECT CASE c.relkind WHEN 'm' THEN 'materialized view ' WHEN 'f' THEN 'foreign table ' ELSE 'table of "
    f"another role: ' END || {_NAME} {_RELATIONS} AND (c.relkind IN ('m', 'f') OR c.relkind IN ('r', 'p', 'S') AND "
    "NOT pg_has_role(c.relowner, 'USAGE')) UNION ALL SELECT 'large object ' || oid FROM pg_largeobject_metadata "
    "UNION ALL SELECT 'table with row level security that holds for its owner: ' || relname FROM pg_class WHERE "
    "relforcerowsecurity ORDER BY 1"
)
#: Keys may refer to rows that are written later, and nothing else works in the copy.
_PREPARE = """DO $$ DECLARE each record; BEGIN
FOR each IN SELECT conrelid::regclass AS its, conname FROM pg_constraint
  WHERE contype = 'f' AND NOT condeferrable AND conparentid = 0 LOOP
  EXECUTE format('ALTER TABLE %s ALTER CONSTRAINT %I DEFERRABLE', each.its, each.conname);
END LOOP;
FOR each IN SELECT c.oid::regclass AS its FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' LOOP
  EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', each.its);
END LOOP; END $$"""
#: The rows of the catalogue that say what a database holds besides rows; the first number of a user's object.
_CATALOGUE = {
    "pg_attribute": "attrelid",
    "pg_index": "indexrelid",
    "pg_sequence": "seqrelid",
    "pg_enum": "enumtypid",
    "pg_inherits": "inhrelid",
    "pg_attrdef": "oid",
    "pg_constraint": "oid",
    "pg_trigger": "oid",
    "pg_proc": "oid",
    "pg_rewrite": "oid",
    "pg_type": "oid",
    "pg_namespace": "oid",
    "pg_policy": "oid",
    "pg_extension": "oid",
    "pg_largeobject_metadata": "oid",
    "pg_statistic_ext": "oid",
}
_DEFINITIONS = (
    "SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM ("
    + " UNION ALL ".join(
        f"SELECT '{table} ' || x::text AS line FROM {table} x WHERE {key} >= 16384"
        for table, key in _CATALOGUE.items()
    )
    + ") lines"
)
_OPEN = (
    "SELECT left(query, 100) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND backend_type = 'client backend' AND state <> 'idle'"
)


@dataclass(slots=True)
class Rows:
    """A state: what the database holds."""

    content: _Content


class _Copy:
    """The copy of the database that this process has, and how its content is read and written."""

    def __init__(self, url: str, script: str | None) -> None:
        psycopg = require_psycopg()
        source = unquote(urlsplit(url).path[1:])
        self._made = MadeDatabase(
            _at(url, "postgres"),
            source,
            remedy="end what else is connected to the database, or name a copy of it (createdb -T, pg_dump); the role "
            "needs CREATEDB",
        )
        self.name, self.url = self._made.name, _at(url, self._made.name)
        if script is not None:
            self.run(script)
        self._server = psycopg.connect(self.url, autocommit=True)
        for name, value in _SETTINGS.items():
            self._ask("SELECT set_config(%s, %s, false)", name, value)
        if others := [str(each) for (each,) in self._ask(_OTHERS)]:
            raise MalformedInputError(
                "a database with more than rows of its own tables, which vcrt.postgres does not put back",
                found=", ".join(others)[:200],
                expected="tables that the role owns, without materialized views, foreign tables and large objects",
                remedy="name a copy of the database without them, or give the tables by script=...",
            )
        self._ask(_PREPARE)
        self._tables = dict(self._ask(_TABLES))
        self._sequences = [name for (name,) in self._ask(_SEQUENCES)]
        self._keys, self._triggers = list(self._ask(_KEYS)), list(self._ask(_TRIGGERS))
        self._definitions = self._ask(_DEFINITIONS)
        #: Tables whose rows stand as this process wrote them last.
        self._fresh: dict[str, bytes] = {}
        self._now: _Content = {}
        self.first = self.read()
        self.version = self._server.info.server_version

    def run(self, script: str) -> None:
        """Run SQL as a tool would."""
        psycopg = require_psycopg()
        try:
            with psycopg.connect(self.url) as connection:
                connection.execute(script)
        except psycopg.Error as error:
            raise MalformedInputError(
                "an initial state that PostgreSQL refuses", found=str(error)[:300]
            ) from error

    def read(self) -> _Content:
        """Return what the database holds; raise :class:`MalformedInputError` where it was changed beyond its rows."""
        with _no_verdict():
            return self._read()

    def _read(self) -> _Content:
        until = time.monotonic() + _ENDING_S
        while running := [str(each) for (each,) in self._ask(_OPEN)]:
            # The server ends the transaction of a connection that was closed a moment later.
            if time.monotonic() < until:
                time.sleep(0.005)
                continue
            raise MalformedInputError(
                "a call that leaves a transaction open",
                found=running[0],
                expected="a call that is over, with all its effects, when it returns",
                remedy="let the tool commit, or end its connection",
            )
        if self._ask(_DEFINITIONS) != self._definitions:
            raise MalformedInputError(
                "a call that changes more of a database than rows and sequences",
                expected="no CREATE, ALTER or DROP in a call",
                remedy="make tables by script=...; vcrt.postgres does not put their definitions back",
            )
        found = {table: self._rows(table, columns) for table, columns in self._tables.items()}
        if sum(map(len, found.values())) > MAX_BYTES:
            raise TooLargeError(
                "a database that is too large to be kept", expected=f"at most {MAX_BYTES:,} bytes"
            )
        for name in self._sequences:
            ((last, is_called),) = self._ask(f"SELECT last_value, is_called FROM {name}")
            found[name] = f"{last} {is_called}".encode()
        # What is as before shares its memory.
        self._now = {
            name: self._now[name] if self._now.get(name) == rows else rows
            for name, rows in found.items()
        }
        self._fresh = {t: rows for t, rows in self._fresh.items() if self._now[t] == rows}
        return self._now

    def write(self, content: _Content) -> None:
        """Let the database hold this."""
        with _no_verdict():
            self._write(content)

    def _write(self, content: _Content) -> None:
        if content is self._now:
            return
        stale = {table for table in self._tables if self._fresh.get(table) != content[table]}
        while more := {one for one, other in self._keys if other in stale and one in self._tables}:
            if more <= stale:
                break
            stale |= more
        if stale:
            with self._server.transaction():
                self._ask("SET CONSTRAINTS ALL DEFERRED")
                self._switch("DISABLE TRIGGER", stale)
                self._ask(f"TRUNCATE {', '.join(f'ONLY {table}' for table in sorted(stale))}")
                for table in sorted(stale):
                    columns = self._tables[table]
                    with self._server.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as rows:
                        rows.write(content[table])
                self._ask("SET CONSTRAINTS ALL IMMEDIATE")
                self._switch("ENABLE {}TRIGGER", stale)
            self._fresh |= {table: content[table] for table in stale}
        for name in self._sequences:
            if self._now.get(name) != content[name]:
                last, is_called = content[name].decode().split()
                self._ask(
                    "SELECT setval(%s::regclass, %s, %s)", name, int(last), is_called == "True"
                )
        self._now = content

    def columns(self, table: str) -> str:
        """Return the columns of a table; nothing for a sequence."""
        return str(self._tables.get(table, ""))

    def _switch(self, action: str, tables: set[str]) -> None:
        for table, trigger, how in self._triggers:
            if table in tables:
                self._ask(f"ALTER TABLE {table} {action.format(how)} {trigger}")

    def _rows(self, table: str, columns: str) -> bytes:
        with self._server.cursor().copy(f"COPY {table} ({columns}) TO STDOUT") as rows:
            return b"".join(rows)

    def _ask(self, sql: str, *values: object) -> Any:
        cursor = self._server.execute(sql, values or None)
        return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def _no_verdict() -> Iterator[None]:
    try:
        yield
    except require_psycopg().Error as error:
        raise VerifierFailure(
            "PostgreSQL does not read or put back the rows of a state",
            found=" ".join(str(error).split())[:300],
            expected="a server that runs, and no lock that a call has left",
        ) from error


#: The copies of this process; one that was forked from it makes its own.
_COPIES: dict[tuple[int, str, str | None], _Copy] = {}


class Postgres(ToolState):
    """A state that is a database of PostgreSQL; see :func:`postgres`."""

    effects = (NETWORK,)

    def __init__(
        self, url: str, script: str | None, opened: Callable[[str], Any] | None, *, row_order: bool
    ) -> None:
        self._url, self._script, self._opened = url, script, opened
        self._row_order = row_order

    def begin(self, initial: Json) -> Rows:
        """Take the rows that the copy began with, and run the statements that ``initial`` has as a text."""
        if initial is not None and not isinstance(initial, str):
            raise MalformedInputError(
                "an initial state that is no SQL", found=repr(initial)[:80], expected="a text"
            )
        copy = self._copy()
        if not initial:
            return Rows(copy.first)
        copy.write(copy.first)
        copy.run(initial)
        return Rows(copy.read())

    @contextmanager
    def opened(self, state: Rows) -> Iterator[Any]:
        """Put the rows there, and give what ``opened`` makes of the copy's address."""
        copy = self._copy()
        copy.write(state.content)
        try:
            with opened_at(self._opened or _connected, copy.url) as given:
                yield given
        finally:
            state.content = copy.read()

    def canonical(self, state: Rows) -> bytes:
        """Return one line for each table, for each of its rows, and for each sequence."""
        copy, lines = self._copy(), list[bytes]()
        for name, rows in state.content.items():
            found = rows.splitlines()
            head = json.dumps(name).encode()
            lines.append(head + f" ({copy.columns(name)})".encode())
            lines += [head + b" " + row for row in (found if self._row_order else sorted(found))]
        return b"\n".join(lines)

    def snapshot(self, state: Rows) -> _Content:
        """Return what the database holds."""
        return state.content

    def restore(self, snapshot: _Content) -> Rows:
        """Make a state that holds the same."""
        return Rows(snapshot)

    def names(self, state: Rows) -> Mapping[str, str]:
        """Return the copy's name."""
        return {self._copy().name: STATE}

    def version(self) -> str:
        """Return the digest of the rows at the start, and the server's version."""
        return f"{self._copy().version} {sha256_hex(self.canonical(self.begin(None)))}"

    def _copy(self) -> _Copy:
        key = os.getpid(), self._url, self._script
        if key not in _COPIES:
            _COPIES[key] = _Copy(self._url, self._script)
        return _COPIES[key]


def _connected(url: str) -> Any:
    return require_psycopg().connect(url)


def _at(url: str, database: str) -> str:
    return urlsplit(url)._replace(path=f"/{database}").geturl()


def postgres(
    url: str,
    opened: Callable[[str], Any] | None = None,
    *,
    script: str | None = None,
    row_order: bool = False,
) -> ToolState:
    """Take a database of PostgreSQL as the state of tools; the database itself is copied, never written to.

    Each process makes one copy on the same server and drops it at the end. A state is the rows of all tables and the
    values of all sequences; these are put back, whoever committed them. An error names what is refused: calls that
    create, alter or drop something, or leave a transaction open; databases with materialized views, foreign tables,
    large objects, or tables of another role. A state has no notifications (``LISTEN``), locks, roles or rights, and a
    copy lacks the database's settings (``ALTER DATABASE ... SET``). ``now()`` is the server's clock.

    >>> import vcrt
    >>> state = vcrt.postgres("postgresql://me@localhost/shop")  # nothing is connected to yet

    Args:
        url: The database's address, such as ``postgresql://me:secret@localhost/shop``. While it is copied, nobody may
            be connected to it, and the role needs ``CREATEDB``. For an empty one, name ``template0``.
        opened: Turns the address of a copy into what the tools receive in a call; by default ``psycopg.connect``. Its
            result is closed after each call; a connection of psycopg is committed unless the tool raises.
        script: SQL that is run in each new copy.
        row_order: Whether the order of rows counts. A query without ``ORDER BY`` may show it, but PostgreSQL promises
            none, and each ``UPDATE`` changes it. With False, rows are a set.

    Raises:
        MalformedInputError: The address names no database.
        UnavailableError: There is no psycopg, no server, or no right to make a copy; raised with the first state.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path[1:]:
        raise MalformedInputError(
            "an address that names no database of PostgreSQL",
            found=repr(url.split("@")[-1])[:100],
            expected="such as postgresql://me@localhost/shop",
        )
    return Postgres(url, script, opened, row_order=row_order)
