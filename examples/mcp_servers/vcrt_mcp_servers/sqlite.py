"""The SQLite server: ``pip install mcp-server-sqlite 'mcp<2'``."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from vcrt.environments.mcp import McpEnvironment, ServerState, text_of
from vcrt.environments.tool_calls import CallRefused
from vcrt.hashing import Json, canonical_json
from vcrt.randomness import Generator
from vcrt_mcp_servers.sampling import SampledServer, one_of, schemas

INSIGHT = "append_insight"


class SqliteServer(McpEnvironment):
    """Opens the database anew for each call, and keeps insights in its memory. A beginning is a script of SQL."""

    name = "sqlite"
    command = ("mcp-server-sqlite", "--db-path", "{state}/shop.db")
    initial: ClassVar[Json] = "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price INT);"
    restart = False
    remembered = frozenset({INSIGHT})

    def fill(self, folder: Path, initial: Json) -> None:
        """The database that the script makes."""
        with closing(sqlite3.connect(folder / "shop.db")) as database:
            database.executescript(str(initial))

    def content(self, folder: Path, kept: Any) -> bytes:
        """What SELECT can see: the catalogue and the rows, in the order in which SQLite gives them."""
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(kept["shop.db"].content)
            catalogue = database.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
            tables = [name for kind, name, _ in catalogue if kind == "table"]
            return repr([catalogue, [_rows(database, table) for table in tables]]).encode()

    def canonical(self, state: ServerState) -> bytes:
        """The database and, once there is an insight, the memo."""
        if not any(name == INSIGHT for name, _ in state.calls):
            return super().canonical(state)
        return super().canonical(state) + canonical_json(self.resource(state, "memo://insights"))

    def answer(self, name: str, result: Mapping[str, Json]) -> Json:
        """It says of its refusals in their text alone that they are some."""
        if text_of(result).startswith(("Error:", "Database error:")):
            raise CallRefused(text_of(result))
        return super().answer(name, result)


def _rows(database: sqlite3.Connection, table: str) -> list[Any]:
    name = '"' + table.replace('"', '""') + '"'
    try:
        return database.execute(f"SELECT rowid, * FROM {name}").fetchall()
    except sqlite3.OperationalError:  # a table without row numbers
        return database.execute(f"SELECT * FROM {name}").fetchall()


TABLES = ("item", "customer", "note")
NAMES = ("pen", "cup", "lamp")


class Sqlite(SqliteServer, SampledServer):
    """The server with a sampler."""

    name = "mcp_sqlite"
    schemas = schemas(
        rows="rows are written and read",
        catalogue="tables are made, listed and described",
        insights="insights are added between other calls",
    )
    #: Each order with an insight in it takes a server of its own.
    num_calls: ClassVar[Mapping[str, int]] = {"insights": 3}
    drawn: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rows": ("write_query", "write_query", "write_query", "read_query"),
        "catalogue": (
            *("create_table", "create_table", "list_tables", "describe_table", "write_query"),
            "read_query",
        ),
        "insights": (INSIGHT, INSIGHT, "write_query", "read_query", "list_tables"),
    }

    def beginning(self, draw: Generator) -> Json:
        """One table with a few rows."""
        rows = ", ".join(
            f"({number}, '{one_of(draw, NAMES)}', {int(draw.integers(1, 9))})"
            for number in range(1, 4)
        )
        return f"{self.initial} INSERT INTO item VALUES {rows};"

    def arguments(self, name: str, draw: Generator) -> dict[str, Json]:
        """Statements on few rows and tables, so that calls meet."""
        table, item, row = one_of(draw, TABLES), one_of(draw, NAMES), int(draw.integers(1, 7))
        queries = {
            "read_query": (
                f"SELECT * FROM {table} WHERE id = {row}",
                f"SELECT count(*) FROM {table}",
                f"SELECT max(price) FROM item WHERE name = '{item}'",
            ),
            "write_query": (
                f"INSERT INTO item VALUES ({row}, '{item}', {int(draw.integers(1, 9))})",
                f"INSERT INTO item (name, price) VALUES ('{item}', 1)",
                f"UPDATE item SET price = price + 1 WHERE id = {row}",
                f"UPDATE item SET price = 2 * price WHERE name = '{item}'",
                f"DELETE FROM item WHERE id = {row}",
            ),
            "create_table": (f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, name TEXT)",),
        }
        if name in queries:
            return {"query": one_of(draw, queries[name])}
        own: dict[str, dict[str, Json]] = {
            "describe_table": {"table_name": table},
            INSIGHT: {"insight": f"{item}s sell"},
        }
        return own.get(name, {})
