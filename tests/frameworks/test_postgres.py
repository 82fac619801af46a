"""A state of tools that is a database of PostgreSQL: what counts, what is put back, and what is refused by name."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import vcrt
from vcrt.environments.tool_calls import CallRefused
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.frameworks import postgres_states
from vcrt.processes.watching import is_alive

SERVER = os.environ.get("VCRT_TEST_POSTGRESQL")
psycopg = pytest.importorskip("psycopg")
needs_server = pytest.mark.skipif(
    not SERVER, reason="VCRT_TEST_POSTGRESQL is no server of PostgreSQL (.ci/postgresql)"
)
SCRIPT = """
CREATE TABLE stock (item text PRIMARY KEY, n int NOT NULL CHECK (n >= 0));
CREATE TABLE orders (id serial PRIMARY KEY, item text NOT NULL REFERENCES stock, customer text,
  twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE lines (of_order int REFERENCES orders DEFERRABLE, place int GENERATED ALWAYS AS IDENTITY, note text);
CREATE TABLE changes (what text);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO changes VALUES (TG_OP || ' ' || TG_TABLE_NAME); RETURN NULL; END $$;
CREATE TRIGGER noted AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION noted();
INSERT INTO stock VALUES ('tea', 3), ('rice', 1);
"""


def over(connection):
    """The shop's tools; what they raise is a refusal, and a connection that raises is not committed."""

    def look(item: str):
        ((n,),) = connection.execute("SELECT n FROM stock WHERE item = %s", [item])
        return {"item": item, "left": n}

    def order(item: str, customer: str):
        connection.execute("UPDATE stock SET n = n - 1 WHERE item = %s", [item])
        made = connection.execute(
            "INSERT INTO orders (item, customer) VALUES (%s, %s) RETURNING id", [item, customer]
        )
        return {"order": made.fetchone()[0]}

    def deliver(item: str, amount: int):
        connection.execute("UPDATE stock SET n = n + %s WHERE item = %s", [amount, item])
        connection.commit()
        return "delivered"

    def run(sql: str):
        cursor = connection.execute(sql)
        return [list(map(str, row)) for row in cursor] if cursor.description else None

    return [look, order, deliver, run]


@pytest.fixture
def database():
    """A database of somebody: its address; nothing in it may change."""
    name = f"shop_{os.getpid()}"
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name}")
        url = f"{SERVER.rpartition('/')[0]}/{name}"
        with psycopg.connect(url) as connection:
            connection.execute(SCRIPT)
        before = contents(url)
        yield url
        assert contents(url) == before
        server.execute(f"DROP DATABASE {name}")


def contents(url):
    with psycopg.connect(url) as connection:
        return [
            connection.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("stock", "orders", "lines", "changes", "orders_id_seq")
        ]


def left_behind():
    """The copies of processes that have ended."""
    made(f"{SERVER.rpartition('/')[0]}/template0", script=SCRIPT).reset(None)
    with psycopg.connect(SERVER, autocommit=True) as server:
        ours = [n for (n,) in server.execute("SELECT datname FROM pg_database")]
    return [n for n in ours if n.startswith("vcrt_") and not is_alive(int(n.split("_")[2]))]


@pytest.fixture(autouse=True)
def own_copies():
    yield
    for copy in postgres_states._COPIES.values():
        copy._server.close()
        copy._made.drop()
    postgres_states._COPIES.clear()


def made(url, tools=over, **options):
    return vcrt.tools_environment(
        tools_of=tools, state=vcrt.postgres(url, **options), name="shop"
    )()


def schedule(environment, path: Path, *calls):
    file = path / "log.jsonl"
    lines = [{"name": name, "arguments": arguments} for name, arguments in calls]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (found,) = vcrt.schedule(file, environment=environment)
    assert found.problem is None, found.problem
    return found


def done(environment, *statements):
    state = environment.reset(None)
    for sql in statements:
        environment.call(state, "run", {"sql": sql})
    return environment.canonical(state)


@needs_server
def test_a_shop_has_the_schedule_of_its_database(database, tmp_path):
    look, order = {"item": "tea"}, {"item": "tea", "customer": "ann"}
    found = schedule(
        type(made(database)),
        tmp_path,
        ("look", look),
        ("order", order),
        ("deliver", {"item": "rice", "amount": 5}),
    )
    assert found.schedule.waves == ((0, 2), (1,))
    assert [(e.first, e.second, e.kind) for e in found.schedule.edges] == [(0, 1, "observes")]
    assert not left_behind()


@needs_server
def test_a_restored_state_has_the_rows_sequences_and_triggers_of_its_own(database):
    environment = made(database)
    state = environment.reset(None)
    assert environment.call(state, "order", {"item": "tea", "customer": "a\\b\nc"}) == {"order": 1}
    kept, form = environment.snapshot(state), environment.canonical(state)
    other = environment.restore(kept)
    assert environment.call(other, "order", {"item": "rice", "customer": "bob"}) == {"order": 2}
    environment.call(other, "run", {"sql": "DELETE FROM stock WHERE item NOT IN ('rice', 'tea')"})
    environment.call(other, "run", {"sql": "INSERT INTO lines (of_order, note) VALUES (2, NULL)"})
    assert environment.canonical(other) != form
    # The one that was left goes on as if the other were not there.
    assert environment.canonical(state) == form
    assert environment.call(state, "run", {"sql": "SELECT customer, twice FROM orders"}) == [
        ["a\\b\nc", "2"]
    ]
    assert environment.call(state, "order", {"item": "rice", "customer": "eve"}) == {"order": 2}
    rows = environment.call(state, "run", {"sql": "SELECT what FROM changes"})
    assert rows == [["INSERT orders"]] * 2


@needs_server
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 1", "SELECT nextval('orders_id_seq')"),
        ("INSERT INTO stock VALUES ('x', 1)", "INSERT INTO stock VALUES ('X', 1)"),
        ("INSERT INTO changes VALUES (NULL)", "INSERT INTO changes VALUES ('\\N')"),
        ("INSERT INTO changes VALUES ('a'), ('b')", "INSERT INTO changes VALUES ('b'), ('a')"),
        ("INSERT INTO changes VALUES (E'a\\nb')", "INSERT INTO changes VALUES ('a'), ('b')"),
        ("UPDATE stock SET n = n WHERE item = 'tea'", "SELECT 1"),
    ],
)
def test_what_a_query_can_see_counts(one, other, database):
    environment = made(database, row_order=True)
    assert done(environment, one) != done(environment, other)
    assert done(environment, one) == done(environment, one)


@needs_server
def test_rows_can_be_a_set(database):
    environment = made(database)
    one = done(environment, "INSERT INTO changes VALUES ('a'), ('b')")
    assert one == done(environment, "INSERT INTO changes VALUES ('b'), ('a')")
    assert one != done(environment, "INSERT INTO changes VALUES ('b'), ('b')")


@needs_server
def test_an_order_of_rows_that_a_query_shows_is_no_schedule(database, tmp_path):
    environment = type(made(database))
    notes = [("run", {"sql": f"INSERT INTO changes VALUES ('{what}')"}) for what in "ab"]
    assert schedule(environment, tmp_path, *notes).schedule.waves == ((0, 1),)
    shown = ("run", {"sql": "SELECT what FROM changes"})
    with pytest.raises(AssertionError, match="SELECT what FROM changes"):
        schedule(environment, tmp_path, *notes, shown)


@needs_server
def test_the_block_of_the_page_runs(database):
    page = (Path(__file__).parents[2] / "docs" / "tools-logs.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^## PostgreSQL\n+```py\n(.*?)^```", page, re.M | re.S)
    names = {"__name__": "page"}
    exec(code.replace("postgresql://me@localhost/shop", database), names)
    environment = names["SHOP"]()
    given = {"item": "tea", "customer": "ann"}
    assert environment.call(environment.reset(None), "order", given) == {"order": 1}


@needs_server
def test_two_orders_conflict_by_their_numbers_and_say_so(database, tmp_path):
    orders = [("order", {"item": item, "customer": "ann"}) for item in ("tea", "rice")]
    found = schedule(type(made(database)), tmp_path, *orders)
    assert found.schedule.waves == ((0,), (1,))
    ((_, difference),) = found.differences.items()
    assert any("orders" in str(each) for each in difference)


@needs_server
def test_a_refused_call_leaves_nothing(database):
    environment = made(database)
    state = environment.reset(None)
    before = environment.canonical(state)
    for name, arguments in (
        ("order", {"item": "coffee", "customer": "ann"}),
        ("run", {"sql": "UPDATE stock SET n = -1"}),
    ):
        with pytest.raises(CallRefused, match=r"foreign key|check constraint"):
            environment.call(state, name, arguments)
    # But for what no transaction takes back: the number of the order.
    assert environment.canonical(state) != before
    assert environment.call(state, "order", {"item": "tea", "customer": "ann"}) == {"order": 2}


@needs_server
@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE more (a int)",
        "ALTER TABLE stock ADD COLUMN colour text",
        "DROP TRIGGER noted ON orders",
        "CREATE INDEX ON stock (n)",
        "CREATE OR REPLACE VIEW tea AS SELECT 1 AS a",
        "SELECT lo_create(0)",
        "CREATE TYPE colour AS ENUM ('red')",
    ],
)
def test_what_is_no_row_is_refused_by_name(sql, database):
    environment = made(database)
    with pytest.raises(MalformedInputError, match="more of a database than rows"):
        environment.call(environment.reset(None), "run", {"sql": sql})


@needs_server
def test_a_transaction_that_stays_open_is_named(database, monkeypatch):
    monkeypatch.setattr(postgres_states, "_ENDING_S", 0.1)
    kept = []

    def tools(url: str):
        def begin():
            kept.append(psycopg.connect(url))
            kept[0].execute("DELETE FROM changes")

        return [begin]

    environment = made(database, tools, opened=str)
    with pytest.raises(MalformedInputError, match="leaves a transaction open"):
        environment.call(environment.reset(None), "begin", {})
    kept[0].close()


@needs_server
def test_a_tool_commits_by_itself_and_by_another_library(database):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    def session(url):
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        return Session(engine)

    def tools(session):
        def add(what: str):
            session.execute(sqlalchemy.text("INSERT INTO changes VALUES (:w)"), {"w": what})
            session.commit()

        def read():
            return session.execute(sqlalchemy.text("SELECT what FROM changes")).scalars().all()

        return [add, read]

    environment = made(database, tools, opened=session)
    state = environment.reset(None)
    kept = environment.snapshot(state)
    environment.call(state, "add", {"what": "a"})
    assert environment.call(state, "read", {}) == ["a"]
    assert environment.call(environment.restore(kept), "read", {}) == []


@needs_server
def test_an_async_connection_works(database):
    def tools(url: str):
        async def add(what: str):
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await connection.execute("INSERT INTO changes VALUES (%s)", [what])

        return [add]

    environment = made(database, tools, opened=str)
    state = environment.reset(None)
    before = environment.canonical(state)
    environment.call(state, "add", {"what": "a"})
    assert environment.canonical(state) != before


@needs_server
def test_what_cannot_be_copied_is_named(database):
    with (
        psycopg.connect(database, autocommit=True),
        pytest.raises(UnavailableError, match="accessed by other users"),
    ):
        made(database).reset(None)
    with pytest.raises(MalformedInputError, match="syntax error"):
        made(database, script="SELEC").reset(None)
    with pytest.raises(MalformedInputError, match=r"materialized view public\.m"):
        made(database, script="CREATE MATERIALIZED VIEW m AS SELECT 1").reset(None)


def test_an_address_without_a_database_is_named():
    for url in ("postgresql://localhost", "sqlite:///shop.db", "shop"):
        with pytest.raises(MalformedInputError, match="names no database"):
            vcrt.postgres(url)


def test_a_server_that_is_not_there_is_named():
    environment = made("postgresql://nobody@127.0.0.1:1/shop")
    with pytest.raises(UnavailableError, match="no database can be made"):
        environment.reset(None)
