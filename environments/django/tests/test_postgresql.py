"""PostgreSQL as the database that judges: verdicts, what is taken back, and that nothing of the server's is touched."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import vcrt_django
from django_support import (
    KEY,
    KITE,
    NODE,
    SERVER,
    SETTINGS,
    SecondOpinions,
    branches,
    episode,
    needs_django,
    needs_postgresql,
    outcomes,
    project,
    replayed,
)
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt_django.environment import DjangoEnvironment
from vcrt_django.lifting import DjangoProject
from vcrt_django.servers import MadeDatabase
from vcrt_django.session import shared_session

pytestmark = [needs_django, needs_postgresql]
FILL = "migrations.RunSQL(\"UPDATE shop_order SET state = 'new' WHERE state IS NULL\")"
STRICT = 'migrations.AlterField("Order", "state", models.CharField(max_length=9))'


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("VCRT_DJANGO_DATABASE", SERVER)
    found = DjangoEnvironment()
    yield found
    shared_session(SERVER, found.limits).close()


def databases():
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(SERVER, autocommit=True) as server:
        return {name for (name,) in server.execute("SELECT datname FROM pg_database")}


def test_a_database_is_dropped_while_somebody_and_autovacuum_are_in_it():
    psycopg = pytest.importorskip("psycopg")
    made = MadeDatabase(SERVER)
    try:
        with psycopg.connect(SERVER, dbname=made.name, autocommit=True) as inside:
            # Work for minutes, a page at a time.
            inside.execute(
                "CREATE TABLE slow (row text) WITH (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_cost_limit = 1,"
                " autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 100)"
            )
            inside.execute(
                "INSERT INTO slow SELECT repeat('x', 1000) FROM generate_series(1, 20000)"
            )
            inside.execute("DELETE FROM slow")
            works = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usesysid IS NULL"
            # It comes around once a minute, or as often as the server is told (.ci/postgresql).
            until = time.monotonic() + 150
            while not inside.execute(works, [made.name]).fetchone()[0]:
                assert time.monotonic() < until, "autovacuum did not come"
                time.sleep(0.05)
            made.drop()
            with pytest.raises(psycopg.OperationalError):
                inside.execute("SELECT 1")
    finally:
        made.drop()
    assert made.name == ""


def test_which_database_judges(environment):
    assert "on PostgreSQL" in environment.versions().verifier


def test_what_protects_is_named(environment):
    guards = environment.guards()
    named = {**guards.in_force, **guards.absent}
    assert {"files", "further connections", "other programs"} <= named.keys()
    assert "network" not in named


class TestSecondOpinions(SecondOpinions):
    def test_a_key_that_refers_to_none_is_refused_when_its_step_ends(self, environment):
        key = '("kite", models.ForeignKey("app.Kite", on_delete=models.CASCADE))'
        lost = """migrations.RunSQL(['INSERT INTO "app_tail" (kite_id) VALUES (99)'])"""
        one = episode(lost, before=[KITE, f'migrations.CreateModel("Tail", [{KEY}, {key}])'])
        assert not replayed(environment, one)[0].accepted
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (1, 1)

    def test_what_is_checked_at_once_is_not_put_off(self, environment):
        """Only what is deferred from the start is."""
        unique = """migrations.RunSQL(['ALTER TABLE "app_kite" ADD UNIQUE (size) DEFERRABLE INITIALLY IMMEDIATE'])"""
        row = """'INSERT INTO "app_kite" (size) VALUES (1)'"""
        twice = f"""migrations.RunSQL([{row}, 'DELETE FROM "app_kite"'])"""
        one = episode(unique, twice, before=[KITE, f"migrations.RunSQL([{row}])"])
        first, _ = replayed(environment, one)
        assert "UniqueViolation" in first.rejection.reason or "duplicate" in first.rejection.reason
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (2, 2)

    def test_constraints_of_two_tables_may_share_a_name(self, environment):
        put_off = """'ALTER TABLE "app_kite" ADD CONSTRAINT same UNIQUE (size) DEFERRABLE INITIALLY DEFERRED'"""
        other = """'ALTER TABLE "app_node" ADD CONSTRAINT same CHECK (id > 0)'"""
        one = episode(
            'migrations.AddField("Kite", "a", models.IntegerField(null=True))',
            before=[KITE, NODE, f"migrations.RunSQL([{put_off}, {other}])"],
        )
        assert replayed(environment, one)[0].accepted
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (1, 1)

    def test_a_connection_that_is_lost_is_no_verdict(self, environment):
        psycopg = pytest.importorskip("psycopg")
        one = episode('migrations.RenameField("Kite", "size", "width")')
        before = databases()
        environment.versions()
        made = databases() - before
        with psycopg.connect(SERVER, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY(%s)",
                [list(made)],
            )
        # A worker whose connections are gone is replaced.
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (1, 1)

    def test_their_database_is_dropped_too(self, environment):
        before = databases()
        environment.versions()
        assert len(databases() - before) == 2
        shared_session(SERVER, environment.limits).close()
        assert databases() == before


@pytest.mark.parametrize("schema", ["creates", "unique", "backfills", "overwrites", "statements"])
def test_twelve_of_24_orders_are_legal(environment, schema):
    replays = replayed(environment, environment.sample(schema, 1))
    ends = [replay.terminal_hash for replay in replays]
    assert ends.count(ends[0]) == 12


def test_its_own_message(environment):
    fill = 'migrations.RunPython(rows.fill("app.Kite", "size", 7))'
    strict = 'migrations.AlterField("Kite", "size", models.IntegerField())'
    found = outcomes(environment, episode(fill, strict))
    assert (
        found[1, 0] == 'IntegrityError: column "size" of relation "app_kite" contains null values'
    )


def test_sequences_go_back_with_the_rest(environment):
    one = episode(
        """migrations.RunSQL(['INSERT INTO "app_kite" (size) VALUES (5)'])""",
        """migrations.RunSQL(['UPDATE "app_kite" SET size = 6 WHERE size = 1'])""",
    )
    assert len(set(outcomes(environment, one).values())) == 1
    assert outcomes(environment, one) == outcomes(environment, one)


def test_what_fails_at_the_end_of_a_step_leaves_nothing(environment):
    key = '("kite", models.ForeignKey("app.Kite", on_delete=models.CASCADE))'
    lost = """migrations.RunSQL(['INSERT INTO "app_tail" (kite_id) VALUES (99)'])"""
    unset = 'migrations.AlterField("Bow", "kite", models.ForeignKey("app.Kite", on_delete=models.CASCADE))'
    before = [
        KITE,
        f'migrations.CreateModel("Tail", [{KEY}, {key}])',
        f'migrations.CreateModel("Bow", [{KEY}, ("kite", models.IntegerField())])',
        """migrations.RunSQL(['INSERT INTO "app_bow" (kite) VALUES (99)'])""",
    ]
    added = 'migrations.AddField("Kite", "a", models.IntegerField(null=True))'
    found = replayed(environment, episode(lost, unset, added, before=before))
    reasons = {replay.sequence[:1]: replay.rejection.reason for replay in found}
    assert "app_tail_kite_id" in reasons[0,]
    assert "app_bow_kite_id" in reasons[1,]
    assert {len(replay.state_hashes) for replay in found} == {1, 2}


def test_what_differs_where_both_orders_run(tmp_path):
    one, other = (
        f"migrations.RunSQL(\"INSERT INTO shop_order (total, state) VALUES ({n}, 'x')\")"
        for n in (1, 2)
    )
    (merge,) = vcrt_django.lift_django(branches(tmp_path, one, other), database=SERVER).merges
    assert merge.outcome == "other state"
    assert len(merge.differences) == 4
    assert all('row of "public"."shop_order": "id" ' in line for line in merge.differences)


def test_what_killed_processes_left_behind_is_dropped(tmp_path):
    """What is somebody else's, or in use, stays: of another machine, of a process that lives, with a connection."""
    psycopg = pytest.importorskip("psycopg")
    code = (
        "import os, sys; from vcrt_django.servers import MadeDatabase; "
        "print(MadeDatabase(sys.argv[1]).name, flush=True); os.kill(os.getpid(), 9)"
    )
    before = databases()
    killed = subprocess.run([sys.executable, "-c", code, SERVER], capture_output=True, text=True)
    left = killed.stdout.strip()
    elsewhere = left[: len("vcrt_")] + "0" * 8 + left[len("vcrt_") + 8 :]
    assert databases() == before | {left}
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{elsewhere}"')
    mine = MadeDatabase(SERVER)
    try:
        # The first dropped what was left; now somebody looks at another one.
        assert databases() == before | {elsewhere, mine.name}
        killed = subprocess.run(
            [sys.executable, "-c", code, SERVER], capture_output=True, text=True
        )
        used = killed.stdout.strip()
        with psycopg.connect(psycopg.conninfo.make_conninfo(SERVER, dbname=used)):
            MadeDatabase(SERVER).drop()
            assert used in databases()
        MadeDatabase(SERVER).drop()
        assert databases() == before | {elsewhere, mine.name}
    finally:
        mine.drop()
        with psycopg.connect(SERVER, autocommit=True) as server:
            server.execute(f'DROP DATABASE "{elsewhere}"')


def test_the_first_database_is_dropped_where_the_second_cannot_be_made(environment, monkeypatch):
    before, made = databases(), MadeDatabase.__init__

    def only_once(self, url):
        if databases() != before:
            raise UnavailableError("no further database")
        made(self, url)

    monkeypatch.setattr(MadeDatabase, "__init__", only_once)
    with pytest.raises(UnavailableError, match="no further database"):
        environment.versions()
    assert databases() == before


def test_branches_on_a_database_that_is_made_and_dropped(tmp_path):
    before = databases()
    (merge,) = vcrt_django.lift_django(branches(tmp_path, FILL, STRICT), database=SERVER).merges
    assert merge.outcome == "first"
    assert "contains null values" in merge.refusals[1]
    assert databases() == before


@pytest.mark.parametrize(
    "operation",
    [
        'AddIndexConcurrently("Order", models.Index(fields=["total"], name="by_total"))',
        'migrations.RunSQL("CREATE INDEX CONCURRENTLY by_total ON shop_order (total)")',
    ],
)
def test_what_runs_outside_of_transactions_is_not_judged(tmp_path, operation):
    text = """from django.db import models, migrations
from django.contrib.postgres.operations import AddIndexConcurrently
class Migration(migrations.Migration):
    atomic = False
    dependencies = [("shop", "0001_first")]
    operations = [%s]
"""
    folder = project(tmp_path, ("0002_a", text % operation), ("0002_b", ["0001_first"], STRICT))
    with pytest.raises(MalformedInputError, match="outside of transactions"):
        vcrt_django.lift_django(folder, database=SERVER)


def sql(*statements):
    return ", ".join(f'migrations.RunSQL("""{statement}""")' for statement in statements)


FUNCTION = "CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE sql {} AS 'SELECT 1'"
TRIGGER = (
    "CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
    "CREATE TRIGGER g BEFORE INSERT ON shop_order FOR EACH ROW EXECUTE FUNCTION g()"
)


@pytest.mark.parametrize(
    ("begin", "one", "other"),
    [
        (FUNCTION.format(""), FUNCTION.format("IMMUTABLE"), FUNCTION.format("SECURITY DEFINER")),
        ("SELECT 1", "ALTER TABLE shop_order SET UNLOGGED", "ALTER TABLE shop_order SET LOGGED"),
        (
            "SELECT 1",
            "ALTER TABLE shop_order SET (fillfactor = 50)",
            "ALTER TABLE shop_order SET (fillfactor = 60)",
        ),
        (
            TRIGGER,
            "ALTER TABLE shop_order DISABLE TRIGGER g",
            "ALTER TABLE shop_order ENABLE TRIGGER g",
        ),
        (
            "CREATE DOMAIN d AS integer",
            "ALTER DOMAIN d SET DEFAULT 1",
            "ALTER DOMAIN d SET DEFAULT 2",
        ),
        (
            "ALTER TABLE shop_order ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE shop_order DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE shop_order ENABLE ROW LEVEL SECURITY",
        ),
        (
            "CREATE POLICY p ON shop_order USING (true)",
            "ALTER POLICY p ON shop_order USING (total > 1)",
            "ALTER POLICY p ON shop_order USING (total > 2)",
        ),
        (
            "CREATE RULE r AS ON DELETE TO shop_order DO NOTHING",
            "CREATE OR REPLACE RULE r AS ON DELETE TO shop_order DO INSTEAD NOTHING",
            "CREATE OR REPLACE RULE r AS ON DELETE TO shop_order WHERE total = 1 DO NOTHING",
        ),
        (
            "CREATE MATERIALIZED VIEW mv AS SELECT total FROM shop_order",
            "INSERT INTO shop_order (total) VALUES (9)",
            "REFRESH MATERIALIZED VIEW mv",
        ),
        (
            "CREATE SEQUENCE s; ALTER SEQUENCE s MAXVALUE 9",
            "ALTER SEQUENCE s CYCLE",
            "ALTER SEQUENCE s NO CYCLE",
        ),
        (
            "CREATE SEQUENCE s",
            "ALTER SEQUENCE s OWNED BY shop_order.id",
            "ALTER SEQUENCE s OWNED BY shop_order.total",
        ),
        (
            "CREATE TEXT SEARCH CONFIGURATION ts (COPY = simple)",
            "ALTER TEXT SEARCH CONFIGURATION ts ALTER MAPPING FOR word WITH english_stem",
            "ALTER TEXT SEARCH CONFIGURATION ts ALTER MAPPING FOR word WITH german_stem",
        ),
        (
            "CREATE VIEW v AS SELECT total FROM shop_order",
            "ALTER VIEW v ALTER total SET DEFAULT 1",
            "ALTER VIEW v ALTER total SET DEFAULT 2",
        ),
        (
            "CREATE SCHEMA pgstuff",
            "CREATE TABLE pgstuff.t AS SELECT 1",
            "DROP TABLE IF EXISTS pgstuff.t",
        ),
        ("SELECT 1", "SET search_path = public", "SET search_path = public, pg_catalog"),
        (
            "CREATE TYPE c AS (x integer)",
            "ALTER TYPE c ALTER ATTRIBUTE x TYPE text",
            "ALTER TYPE c ALTER ATTRIBUTE x TYPE bigint",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_what_one_order_leaves_in_another_way_is_seen(tmp_path, begin, one, other):
    folder = branches(tmp_path, sql(one), sql(other))
    file = folder / "shop" / "migrations" / "0001_first.py"
    file.write_text(file.read_text() + f"\nMigration.operations.append({sql(begin)})\n")
    (merge,) = vcrt_django.lift_django(folder, database=SERVER).merges
    assert merge.outcome == "other state"
    assert merge.differences


def test_how_the_labels_of_an_enumeration_came_to_their_order_is_no_difference(tmp_path):
    folder = branches(
        tmp_path,
        sql("ALTER TYPE mood ADD VALUE 'x' AFTER 'a'"),
        sql("ALTER TYPE mood ADD VALUE 'y' BEFORE 'b'"),
    )
    file = folder / "shop" / "migrations" / "0001_first.py"
    begin = sql("CREATE TYPE mood AS ENUM ('a', 'b')", "INSERT INTO shop_order (total) VALUES (1)")
    file.write_text(file.read_text() + f"\nMigration.operations += [{begin}]\n")
    (merge,) = vcrt_django.lift_django(folder, database=SERVER).merges
    assert merge.outcome == "either"


def test_values_without_their_like_in_python_are_told(tmp_path):
    add = "ALTER TABLE shop_order ADD d date DEFAULT 'infinity'"
    (merge,) = vcrt_django.lift_django(branches(tmp_path, sql(add), FILL), database=SERVER).merges
    assert merge.outcome == "either"


ON_COMMIT = """from django.db import migrations, transaction
def act(apps, editor):
    orders = apps.get_model("shop", "Order").objects
    transaction.on_commit(lambda: orders.update(total=7))
    transaction.on_commit(lambda: 1 / 0, robust=True)
class Migration(migrations.Migration):
    dependencies = [("shop", "0001_first")]
    operations = [migrations.RunPython(act)]
"""


def test_what_waits_for_the_commit_is_run(tmp_path):
    double = sql("UPDATE shop_order SET total = total * 2")
    folder = project(tmp_path, ("0002_a", ON_COMMIT), ("0002_b", ["0001_first"], double))
    (merge,) = vcrt_django.lift_django(folder, database=SERVER).merges
    assert merge.outcome == "other state"
    assert any('"total" 14' in line for line in merge.differences)


@pytest.mark.parametrize(
    ("one", "begin"),
    [
        (ON_COMMIT.replace("    dep", "    atomic = False\n    dep"), "SELECT 1"),
        (ON_COMMIT.replace("orders.update(total=7)", "1 / 0"), "SELECT 1"),
        (
            ON_COMMIT.replace(
                "orders.update(total=7)", "transaction.atomic(durable=True).__enter__()"
            ),
            "SELECT 1",
        ),
        (
            ON_COMMIT.replace("orders.update(total=7)", "transaction.on_commit(lambda: None)"),
            "SELECT 1",
        ),
        (
            sql("ALTER TYPE mood ADD VALUE 'c'", "INSERT INTO feeling VALUES ('c')"),
            "CREATE TYPE mood AS ENUM ('a'); CREATE TABLE feeling (m mood)",
        ),
    ],
    ids=["on_commit", "hook", "durable", "nested", "enumeration"],
)
def test_what_needs_a_commit_is_not_judged(tmp_path, one, begin):
    first = ("0002_a", one) if "class" in one else ("0002_a", ["0001_first"], one)
    folder = project(tmp_path, first, ("0002_b", ["0001_first"], STRICT))
    file = folder / "shop" / "migrations" / "0001_first.py"
    file.write_text(file.read_text() + f"\nMigration.operations.append({sql(begin)})\n")
    with pytest.raises(MalformedInputError, match="needs what they commit"):
        vcrt_django.lift_django(folder, database=SERVER)


def test_a_database_that_is_not_empty(tmp_path, monkeypatch):
    psycopg = pytest.importorskip("psycopg")
    made = MadeDatabase.__init__

    def filled(self, url):
        made(self, url)
        settings = self.settings()
        names = {
            "NAME": "dbname",
            "USER": "user",
            "PASSWORD": "password",
            "HOST": "host",
            "PORT": "port",
        }
        with psycopg.connect(
            **{names[key]: value for key, value in settings.items() if key in names},
            autocommit=True,
        ) as own:
            own.execute("CREATE TABLE theirs (a integer)")

    monkeypatch.setattr(MadeDatabase, "__init__", filled)
    one = DjangoProject(branches(tmp_path, FILL, STRICT), server=SERVER)
    with pytest.raises(UnavailableError, match="a database that is not empty"):
        one.versions()
    one.close()


def test_orders_in_fresh_processes_on_made_rows(tmp_path):
    """What a function keeps is of one order; rows are made where a table is empty, after what ``migrate`` sends."""
    keeps = """import functools
from django.db import connection, migrations
@functools.lru_cache
def biggest():
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(total) FROM shop_order")
        return cursor.fetchone()[0]
def act(apps, editor):
    apps.get_model("contenttypes", "ContentType").objects.get(app_label="shop", model="order")
    if biggest():
        apps.get_model("shop", "Order").objects.filter(state=None).update(total=biggest())
class Migration(migrations.Migration):
    dependencies = [("shop", "0001_first"), ("contenttypes", "0002_remove_content_type_name")]
    operations = [migrations.RunPython(act)]
"""
    more = "migrations.RunSQL('UPDATE shop_order SET total = total * 2 WHERE state IS NOT NULL')"
    folder = project(
        tmp_path,
        ("0002_a", keeps),
        ("0002_b", ["0001_first"], more),
        settings=SETTINGS.replace('["shop"]', '["shop", "django.contrib.contenttypes"]'),
    )
    file = folder / "shop" / "migrations" / "0001_first.py"
    file.write_text(file.read_text().split(",\n    migrations.RunSQL")[0] + "]\n")
    (folder / "shop" / "models.py").write_text(
        "from django.db import models\nclass Order(models.Model):\n    pass\n"
    )
    before = databases()
    (merge,) = vcrt_django.lift_django(folder, database=SERVER).merges
    assert (merge.outcome, [one.outcome for one in merge.rests_on]) == (
        "other state",
        ["either", "other state"],
    )
    assert [pair.relation for pair in merge.pairs] == ["conflicts"]
    assert databases() == before


def test_a_connection_that_processes_cannot_share_is_refused(tmp_path):
    before = databases()
    folder = branches(tmp_path, FILL, STRICT)
    with pytest.raises(UnavailableError, match=r"encrypted|SSL|no database can be made"):
        vcrt_django.lift_django(folder, database=f"{SERVER}?sslmode=require")
    assert databases() == before
