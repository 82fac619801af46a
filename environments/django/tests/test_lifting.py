"""A user's own project: branches that a merge would join, windows of its migrations, and what never happens to it."""

from __future__ import annotations

import json
import sys

import pytest

import vcrt_django
from command_line import refused as refused_command
from command_line import run
from django_support import FIRST, MANAGE, SETTINGS, branches, needs_django, project
from vcrt.errors import MalformedInputError, UnavailableError, VcrtError, VerifierFailure
from vcrt_django.branches import judge_branches
from vcrt_django.lifting import DjangoProject
from vcrt_django.session import Limits

pytestmark = needs_django
NOTE = 'migrations.AddField("Order", "note", models.TextField(default=""))'
INDEX = 'migrations.AddIndex("Order", models.Index(fields=["total"], name="by_total"))'
STRICT = 'migrations.AlterField("Order", "state", models.CharField(max_length=9))'
FILL = "migrations.RunSQL(\"UPDATE shop_order SET state = 'new' WHERE state IS NULL\")"
TOUCH = """from django.db import migrations
def act(apps, editor):
    %s
class Migration(migrations.Migration):
    dependencies = [("shop", "0001_first")]
    operations = [migrations.RunPython(act)]
"""


def merge_of(folder, **options):
    (merge,) = vcrt_django.lift_django(folder, **options).merges
    return merge


class TestBranches:
    @pytest.mark.parametrize(
        ("one", "other", "outcome"),
        [
            (NOTE, INDEX, "either"),
            (FILL, STRICT, "first"),
            (STRICT, FILL, "second"),
            (
                "migrations.RunSQL('UPDATE shop_order SET total = total + 1')",
                "migrations.RunSQL('UPDATE shop_order SET total = total * 2')",
                "other state",
            ),
            (STRICT, f"{INDEX}, {STRICT}", "neither"),
        ],
    )
    def test_which_order_is_right(self, tmp_path, one, other, outcome):
        assert merge_of(branches(tmp_path, one, other)).outcome == outcome

    def test_what_breaks_and_how(self, tmp_path):
        merge = merge_of(branches(tmp_path, f"{NOTE}, {FILL}", f"{INDEX}, {STRICT}"))
        assert [step.text.split()[0] for step in merge.steps] == [
            "Add",
            "RunSQL",
            "Create",
            "Alter",
        ]
        assert [step.irreversible for step in merge.steps] == [False, True, False, False]
        assert merge.refusals[0] is None
        assert (
            "shop.0002_b: Alter field state on Order: IntegrityError: NOT NULL" in merge.refusals[1]
        )
        relations = {(pair.first, pair.second): pair.relation for pair in merge.pairs}
        assert relations == {
            (0, 2): "commutes",
            (0, 3): "undecided",
            (1, 2): "commutes",
            (1, 3): "precedes",
        }
        assert next(pair for pair in merge.pairs if pair.relation == "precedes").before == 1
        assert merge.orders.ends == (12,)

    def test_a_null_that_is_not_said_is_the_same(self, tmp_path):
        """Django says it where it makes a table anew."""
        field = 'migrations.AddField("Order", "note", models.TextField(null=True))'
        sql = f"migrations.RunSQL('ALTER TABLE shop_order ADD COLUMN note text', state_operations=[{field}])"
        assert (
            merge_of(branches(tmp_path, sql, FILL.replace("state =", "total = 3, state ="))).outcome
            == "either"
        )
        longer = (
            'migrations.AlterField("Order", "state", models.CharField(max_length=99, null=True))'
        )
        assert merge_of(branches(tmp_path / "b", sql, longer)).outcome == "either"
        other = sql.replace("note text", "note text DEFAULT NULL")
        assert merge_of(branches(tmp_path / "c", other, longer)).outcome == "other state"

    def test_a_migration_that_ends_python_is_refused_by_name(self, tmp_path):
        folder = project(
            tmp_path, ("0002_a", TOUCH % "raise SystemExit(3)"), ("0002_b", ["0001_first"], NOTE)
        )
        merge = merge_of(folder)
        assert merge.outcome == "neither"
        assert merge.refusals[0].endswith("SystemExit: 3")
        assert merge.refusals[0].startswith("shop.0002_a: ")

    def test_what_waits_for_the_commit_is_run(self, tmp_path):
        orders = "apps.get_model('shop', 'Order').objects"
        act = f"from django.db import transaction; transaction.on_commit(lambda: {orders}.update(total=7))"
        double = "migrations.RunSQL('UPDATE shop_order SET total = total * 2')"
        folder = project(tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], double))
        assert merge_of(folder).outcome == "other state"

    def test_what_differs_where_both_orders_run(self, capsys, tmp_path):
        add = "migrations.RunSQL('UPDATE shop_order SET total = total + 1')"
        double = "migrations.RunSQL('UPDATE shop_order SET total = total * 2')"
        rows = tmp_path / "rows.sql"
        rows.write_text("INSERT INTO shop_order (total, state) VALUES (10, 'old')")
        folder = branches(tmp_path, add, f"{NOTE}, {double}")
        (merge,) = vcrt_django.lift_django(folder, rows=rows).merges
        (conflict,) = (pair for pair in merge.pairs if pair.relation == "conflicts")
        told = [
            f"""the {name} order alone: row of "shop_order": "id" {number}, "note" '', """
            f""""state" {"'old'" if number == 3 else "NULL"}, "total" {total}"""
            for name, totals in (("first", (4, 6, 22)), ("second", (3, 5, 21)))
            for number, total in enumerate(totals, start=1)
        ]
        assert list(merge.differences) == told
        assert list(conflict.differences) == told
        printed = run(capsys, "lift", "django", folder, "--rows", rows)[1]
        assert printed.count('"total" 22') == 2

    def test_what_differs_in_a_project_s_state_and_in_columns(self, tmp_path):
        one, other = (
            f'migrations.AlterField("Order", "total", models.IntegerField(default={number}))'
            for number in (1, 2)
        )
        merge = merge_of(branches(tmp_path, one, other))
        assert [line.split(",")[0] for line in merge.differences] == [
            "the first order alone: model shop.order",
            "the second order alone: model shop.order",
        ]
        assert all('"default", 2' in line for line in merge.differences[:1])
        assert all('"default", 1' in line for line in merge.differences[1:])

    def test_a_long_list_of_differences_is_cut(self, capsys, tmp_path):
        add = "migrations.RunSQL('UPDATE shop_order SET total = total + 1')"
        double = "migrations.RunSQL('UPDATE shop_order SET total = total * 2')"
        rows = tmp_path / "rows.sql"
        values = ", ".join(f"({number}, 'old')" for number in range(10, 1_110))
        rows.write_text(f"INSERT INTO shop_order (total, state) VALUES {values}")
        folder = branches(tmp_path, add, double)
        printed = run(capsys, "lift", "django", folder, "--rows", rows)[1]
        assert printed.count("    and 1996 more: see --json") == 2
        document = json.loads(run(capsys, "lift", "django", folder, "--rows", rows, "--json")[1])
        told = document["merges"][0]["differences"]
        assert len(told) == 2_002
        assert told[1_000] == "the first order alone: 102 more"

    @pytest.mark.parametrize("more", ["", f", {NOTE}"])
    def test_a_connection_that_is_closed_on_the_way(self, tmp_path, more):
        """As on a database in a file: what its transaction did is lost, and nothing can be done in it."""
        text = TOUCH.replace("RunPython(act)]", f"RunPython(act){more}]").replace(
            "import migrations", "import migrations, models"
        )
        act = "from django.db import connection as c; c.close()"
        folder = project(tmp_path, ("0002_a", text % act), ("0002_b", ["0001_first"], INDEX))
        merge = merge_of(folder)
        assert merge.outcome == "neither"
        assert all("Cannot operate on a closed database" in refusal for refusal in merge.refusals)

    def test_branches_of_more_operations_than_all_orders_are_replayed_of(self, tmp_path):
        fields = [
            ", ".join(
                f'migrations.AddField("Order", "{side}{n}", models.TextField(null=True))'
                for n in range(4)
            )
            for side in "ab"
        ]
        merge = merge_of(branches(tmp_path, *fields))
        assert (merge.outcome, merge.orders, len(merge.pairs)) == ("either", None, 16)
        assert {pair.relation for pair in merge.pairs} == {"commutes"}

    def test_what_only_one_branch_needs_of_another_app_stands_before(self, tmp_path):
        folder = branches(
            tmp_path,
            NOTE,
            'migrations.AddField("Order", "kind", models.ForeignKey("contenttypes.ContentType", '
            "models.CASCADE, null=True))",
            settings=SETTINGS.replace('["shop"]', '["shop", "django.contrib.contenttypes"]'),
        )
        file = folder / "shop" / "migrations" / "0002_b.py"
        text = file.read_text().replace("[('shop'", "[('contenttypes', '0001_initial'), ('shop'")
        file.write_text(text)
        merge = merge_of(folder)
        assert (merge.outcome, merge.branches.base) == ("either", 2)
        assert {step.app for step in merge.steps} == {"shop"}

    def test_rows_of_the_user_s_own_are_what_a_branch_meets(self, tmp_path):
        unique = (
            'migrations.AlterField("Order", "total", models.IntegerField(null=True, unique=True))'
        )
        folder, rows = branches(tmp_path, NOTE, unique), tmp_path / "rows.sql"
        assert merge_of(folder).outcome == "either"
        rows.write_text(
            "INSERT INTO shop_order (total) VALUES (1);\nINSERT INTO shop_order (total) VALUES (9);"
        )
        merge = merge_of(folder, rows=rows)
        assert merge.outcome == "neither"
        assert "UNIQUE constraint failed" in merge.refusals[1]
        rows.write_text("INSERT INTO nowhere (total) VALUES (1)")
        with pytest.raises(MalformedInputError, match="rows that do not go into"):
            merge_of(folder, rows=rows)
        with pytest.raises(MalformedInputError, match="rows that cannot be read"):
            merge_of(folder, rows=tmp_path / "none.sql")
        with pytest.raises(VcrtError, match="rows are for branches"):
            vcrt_django.lift_django(folder, rows=rows, window=2)

    def test_three_leaves_are_judged_two_by_two(self, tmp_path):
        folder = project(
            tmp_path,
            *(
                (f"0002_{n}", ["0001_first"], text)
                for n, text in zip("abc", (NOTE, INDEX, STRICT), strict=True)
            ),
        )
        merges = vcrt_django.lift_django(folder).merges
        assert [merge.branches.leaves for merge in merges] == [
            ("0002_a", "0002_b"),
            ("0002_a", "0002_c"),
            ("0002_b", "0002_c"),
        ]

    def test_answers_that_contradict_each_other_are_a_failure(self, tmp_path):
        class Fickle(DjangoProject):
            def replay(self, requests):
                found = super().replay(requests)
                return [
                    one if n else type(one)(one.sequence, ("0" * 64,) * 3)
                    for n, one in enumerate(found)
                ]

        found = Fickle(branches(tmp_path, NOTE, INDEX))
        with pytest.raises(VerifierFailure, match="in two ways"):
            judge_branches(found, found.branches()[0])
        found.close()


LINE = (
    'migrations.CreateModel("Line", [("id", models.BigAutoField(primary_key=True)), '
    '("order", models.ForeignKey("shop.Order", models.CASCADE))])'
)
OTHER = """from django.db import migrations, models
class Migration(migrations.Migration):
    dependencies = %s
    operations = [%s]
"""


class TestAsMigrateRunsThem:
    """What came out otherwise by ``manage.py migrate`` on SQLite files."""

    def test_a_migration_s_keys_are_checked_at_its_end(self, tmp_path):
        fixed = (
            f'{LINE}, migrations.RunSQL("INSERT INTO shop_line (id, order_id) VALUES (1, 77)"), '
            'migrations.RunSQL("UPDATE shop_line SET order_id = 1")'
        )
        merge = merge_of(branches(tmp_path, fixed, NOTE))
        assert merge.outcome == "either"
        assert {pair.relation for pair in merge.pairs} == {"commutes", "undecided"}

    def test_what_one_branch_needs_of_another_app_may_break_the_other_branch(self, tmp_path):
        folder = project(
            tmp_path,
            (
                "0002_a",
                (
                    TOUCH % "[one.code for one in apps.get_model('base', 'Currency').objects.all()]"
                ).replace('[("shop"', '[("base", "0001_first"), ("shop"'),
            ),
            (
                "0002_b",
                OTHER % ('[("base", "0002_renamed"), ("shop", "0001_first")]', NOTE),
            ),
            settings=SETTINGS.replace('["shop"]', '["shop", "base"]'),
        )
        place = folder / "base" / "migrations"
        place.mkdir(parents=True)
        made = (
            'migrations.CreateModel("Currency", [("id", models.BigAutoField(primary_key=True)), '
            '("code", models.TextField())]), migrations.RunSQL("INSERT INTO base_currency VALUES (1, \'EUR\')")'
        )
        renamed = 'migrations.RenameField("Currency", "code", "iso")'
        for name, text in {
            "../__init__": "",
            "__init__": "",
            "0001_first": OTHER % ("[]", made),
            "0002_renamed": OTHER % ('[("base", "0001_first")]', renamed),
        }.items():
            (place / f"{name}.py").write_text(text, encoding="utf-8")
        merge = merge_of(folder)
        assert merge.outcome == "first"
        assert "no attribute 'code'" in merge.refusals[1]

    def test_a_renamed_model_s_content_type_is_renamed(self, tmp_path):
        types = "apps.get_model('contenttypes', 'ContentType').objects"
        folder = project(
            tmp_path,
            ("0002_a", ["0001_first"], 'migrations.RenameModel("Order", "Purchase")'),
            ("0002_b", TOUCH % f"{types}.get(app_label='shop', model='order')"),
            settings=SETTINGS.replace('["shop"]', '["shop", "django.contrib.contenttypes"]'),
        )
        file = folder / "shop" / "migrations" / "0001_first.py"
        text = (
            file.read_text()
            .replace(
                "dependencies = []",
                'dependencies = [("contenttypes", "0002_remove_content_type_name")]',
            )
            .replace(
                "migrations.RunSQL(",
                "migrations.RunSQL(\"INSERT INTO django_content_type (app_label, model) VALUES ('shop', 'order')\"), "
                "migrations.RunSQL(",
            )
        )
        file.write_text(text)
        merge = merge_of(folder)
        assert (merge.outcome, len(merge.steps)) == ("second", 2)
        assert "ContentType matching query does not exist" in merge.refusals[0]

    @pytest.mark.parametrize(
        ("one", "outcome"),
        [
            (
                "migrations.RunSQL(\"UPDATE django_migrations SET app = 'shop' WHERE app = 'old'\")",
                "either",
            ),
            # The table is made anew by NOTE, with quotes around every name.
            (
                'migrations.RunSQL("ALTER TABLE shop_order ADD COLUMN z integer NULL")',
                "other state",
            ),
            (
                'migrations.RunSQL("ALTER TABLE shop_order ADD COLUMN z integer NULL", '
                'state_operations=[migrations.AddField("Order", "z", models.IntegerField(null=True))])',
                "either",
            ),
        ],
    )
    def test_plain_sql(self, tmp_path, one, outcome):
        assert merge_of(branches(tmp_path, one, NOTE)).outcome == outcome

    def test_white_space_within_quotes_tells_states_apart(self, tmp_path):
        views = [
            f"migrations.RunSQL(['DROP VIEW IF EXISTS v', 'CREATE VIEW v AS SELECT \"{text}\" AS x'])"
            for text in ("a b", "a  b")
        ]
        assert merge_of(branches(tmp_path, *views)).outcome == "other state"

    def test_clock_and_random_numbers_stand_still(self, tmp_path):
        fields = (
            'migrations.AddField("Order", "at", models.DateTimeField(default=timezone.now)), '
            'migrations.AddField("Order", "key", models.UUIDField(default=uuid.uuid4))'
        )
        folder = branches(tmp_path, fields, NOTE)
        file = folder / "shop" / "migrations" / "0002_a.py"
        file.write_text(f"import uuid\nfrom django.utils import timezone\n{file.read_text()}")
        assert merge_of(folder).outcome == "either"

    def test_keys_drawn_in_several_operations_are_different(self, tmp_path):
        made = 'migrations.CreateModel("Tag", [("id", models.UUIDField(primary_key=True, default=uuid.uuid4))])'
        act = "[apps.get_model('shop', 'Tag').objects.create() for _ in range(3)]"
        text = (TOUCH % act).replace(
            "[migrations.RunPython(act)]",
            f"[{made}, migrations.RunPython(act), migrations.RunPython(act)]",
        )
        folder = project(
            tmp_path, ("0002_a", f"import uuid\n{text}"), ("0002_b", ["0001_first"], NOTE)
        )
        text = (folder / "shop/migrations/0002_a.py").read_text()
        (folder / "shop/migrations/0002_a.py").write_text(
            text.replace("import migrations\n", "import migrations, models\n")
        )
        assert merge_of(folder).outcome == "either"

    def test_what_is_of_the_clock_is_not_compared(self, tmp_path):
        act = "import time; apps.get_model('shop', 'Order').objects.update(total=time.time_ns() // 1000)"
        folder = project(tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], NOTE))
        merge = merge_of(folder)
        assert (merge.outcome, merge.drawn) == ("either", ('"shop_order", column "total"',))


class TestWindows:
    def test_operations_of_one_migration(self, tmp_path):
        folder = project(tmp_path, ("0002_a", ["0001_first"], f"{FILL}, {STRICT}, {NOTE}"))
        first, second = vcrt_django.lift_django(folder, window=2, app="shop").windows
        assert [one.window.steps[0].migration for one in (first, second)] == [
            "0001_first",
            "0002_a",
        ]
        assert [pair.relation for pair in second.orders.pairs] == ["precedes"]

    def test_what_django_s_own_reduce_knows(self, tmp_path):
        folder = project(
            tmp_path,
            ("0002_a", ["0001_first"], f"{NOTE}, {NOTE.replace('note', 'memo')}"),
            ("0003_a", ["0002_a"], f"{FILL}, {STRICT}"),
        )
        found = DjangoProject(folder)
        assert [one.reduces for one in found.windows(None, 2, every=1)][1:] == [
            (True,),
            (False,),
        ]
        found.close()


@pytest.mark.processes
class TestNothingOfTheirsIsTouched:
    def test_their_databases_are_never_opened(self, tmp_path):
        act = "from django.db import connections; assert connections['old'].settings_dict['NAME'] == ':memory:'"
        settings = SETTINGS + 'DATABASES["old"] = dict(DATABASES["default"], NAME="old.sqlite3")\n'
        settings += 'DATABASE_ROUTERS = ["nowhere.Router"]\n'
        folder = project(
            tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], NOTE), settings=settings
        )
        assert merge_of(folder).outcome == "either"
        assert not list(folder.rglob("*.sqlite3"))

    @pytest.mark.parametrize("where", ["0001_first", "0002_a"])
    def test_a_migration_that_asks_another_database_is_not_judged(self, tmp_path, where):
        """What it holds is in no snapshot."""
        settings = SETTINGS + 'DATABASES["old"] = dict(DATABASES["default"], NAME="old.sqlite3")\n'
        folder = branches(tmp_path, NOTE, INDEX, settings=settings)
        file = folder / "shop" / "migrations" / f"{where}.py"
        ask = "from django.db import connections; connections['old'].cursor().execute('SELECT 1')"
        act = f"\ndef act(apps, editor):\n    {ask}\nMigration.operations.append(migrations.RunPython(act))\n"
        file.write_text(file.read_text() + act)
        with pytest.raises(MalformedInputError, match=r"asks another database.*\n.*shop\." + where):
            vcrt_django.lift_django(folder)

    def test_nothing_is_written_into_the_project(self, tmp_path):
        folder = branches(tmp_path, NOTE, INDEX)
        before = sorted(folder.rglob("*"))
        vcrt_django.lift_django(folder)
        assert sorted(folder.rglob("*")) == before

    @pytest.mark.parametrize(
        "sql", ["ATTACH 'other.sqlite3' AS other", "VACUUM INTO 'other.sqlite3'", "VACUUM"]
    )
    def test_sql_opens_no_other_file(self, tmp_path, sql):
        folder = branches(tmp_path, f'migrations.RunSQL("{sql}")', NOTE)
        file = folder / "shop" / "migrations" / "0002_a.py"
        file.write_text(file.read_text().replace("    dep", "    atomic = False\n    dep"))
        with pytest.raises(MalformedInputError, match="opens another file"):
            vcrt_django.lift_django(folder)
        assert not list(folder.rglob("*.sqlite3"))

    def test_settings_that_connect_are_refused(self, tmp_path):
        settings = SETTINGS + "from django.db import connections; connections['default']\n"
        folder = branches(
            tmp_path, NOTE, INDEX, settings="from django.conf import settings\n" + settings
        )
        with pytest.raises(MalformedInputError, match="settings that look at their databases"):
            vcrt_django.lift_django(folder)

    def test_an_app_that_puts_its_database_back_is_refused(self, tmp_path):
        folder = branches(tmp_path, NOTE, INDEX)
        text = (
            "from django.apps import AppConfig\nfrom django.db import connections\n"
            "class C(AppConfig):\n    name = 'shop'\n    def ready(self):\n"
            "        connections.settings['default']['NAME'] = 'production.sqlite3'\n"
        )
        (folder / "shop" / "apps.py").write_text(text)
        with pytest.raises(VcrtError, match="replaces vcrt's databases"):
            vcrt_django.lift_django(folder)
        assert not list(folder.rglob("*.sqlite3"))

    def test_files_are_neither_stored_nor_logged(self, tmp_path):
        act = (
            "from django.core.files.storage import default_storage as s; "
            "from django.core.files.base import ContentFile as C; s.save('a.txt', C(b'x')); assert s.exists('a.txt')"
        )
        settings = SETTINGS + (
            f'MEDIA_ROOT = "{tmp_path}/media"\nLOGGING = {{"version": 1, "handlers": {{"f": {{"class": '
            f'"logging.FileHandler", "filename": "{tmp_path}/x.log"}}}}, "root": {{"handlers": ["f"]}}}}\n'
        )
        folder = project(
            tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], NOTE), settings=settings
        )
        assert merge_of(folder).outcome == "either"
        assert not (tmp_path / "media").exists()
        assert not (tmp_path / "x.log").exists()

    def test_a_migration_that_puts_its_database_back_is_no_verdict(self, tmp_path):
        kept = tmp_path / "production.sqlite3"
        kept.write_bytes(b"")
        act = f"from django.db import connection as c; c.settings_dict['NAME'] = '{kept}'"
        folder = project(tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], NOTE))
        with pytest.raises(VerifierFailure, match="puts its own database back"):
            vcrt_django.lift_django(folder)
        assert kept.read_bytes() == b""

    def test_an_app_that_writes_while_it_loads_is_refused(self, tmp_path):
        folder = branches(tmp_path, NOTE, INDEX)
        (folder / "shop" / "apps.py").write_text(
            "from django.apps import AppConfig\nfrom django.db import connection\n"
            "class C(AppConfig):\n    name = 'shop'\n    def ready(self):\n"
            "        connection.cursor().execute('CREATE TABLE t (a)')\n"
        )
        with pytest.raises(MalformedInputError, match="write to the database while they load"):
            vcrt_django.lift_django(folder)

    def test_what_it_prints_and_reads_is_not_what_the_worker_says(self, tmp_path):
        act = "import os, sys; print('x'); os.write(1, b'y'); assert sys.stdin.read() == ''"
        folder = project(
            tmp_path,
            ("0002_a", TOUCH % act),
            ("0002_b", ["0001_first"], NOTE),
            settings=SETTINGS + "print('hello')\n",
        )
        assert merge_of(folder).outcome == "either"

    def test_this_process_imports_nothing_of_it(self, tmp_path):
        before = set(sys.modules)
        merge_of(branches(tmp_path, NOTE, INDEX))
        assert not {"shop", "its_settings"} & (set(sys.modules) - before)


@pytest.mark.processes
class TestRefused:
    @pytest.mark.parametrize(
        ("made", "message"),
        [
            ({"settings": "import nothing_such"}, "settings that do not import"),
            ({"settings": "raise SystemExit(3)"}, "settings that do not import"),
            ({"settings": SETTINGS.replace("shop", "absent")}, "apps do not load"),
        ],
    )
    def test_projects_that_do_not_load(self, tmp_path, made, message):
        with pytest.raises(MalformedInputError, match=message):
            vcrt_django.lift_django(branches(tmp_path, NOTE, INDEX, **made))

    @pytest.mark.parametrize(
        "text",
        [
            f'# os.environ.setdefault("DJANGO_SETTINGS_MODULE", "old")\n{MANAGE}',
            'import os\nos.environ["DJANGO_SETTINGS_MODULE"] = "its_settings"\n',
        ],
    )
    def test_settings_that_manage_py_names(self, tmp_path, text):
        folder = branches(tmp_path, NOTE, INDEX)
        (folder / "manage.py").write_text(text, encoding="utf-8")
        assert merge_of(folder).outcome == "either"

    def test_migrations_that_do_not_load(self, tmp_path):
        with pytest.raises(MalformedInputError, match="migrations that do not load"):
            vcrt_django.lift_django(branches(tmp_path, NOTE, "models.Nothing()"))

    def test_migrations_that_need_another_database(self, tmp_path):
        text = FIRST + ', migrations.RunSQL("CREATE EXTENSION hstore")'
        folder = branches(tmp_path, NOTE, INDEX)
        file = folder / "shop" / "migrations" / "0001_first.py"
        file.write_text(file.read_text().replace(FIRST, text))
        with pytest.raises(MalformedInputError, match="before the ones to be judged") as caught:
            vcrt_django.lift_django(folder)
        assert "--database" in caught.value.remedy
        assert 'near "EXTENSION"' in caught.value.found

    def test_one_leaf_has_nothing_to_ask(self, capsys, tmp_path):
        said = refused_command(capsys, "lift", "django", project(tmp_path))
        assert "Django would not ask about any merge" in said
        assert "--window 2" in said

    def test_other_things_that_are_not_there(self, tmp_path):
        with pytest.raises(MalformedInputError, match="no Django project there"):
            vcrt_django.lift_django(tmp_path)
        (tmp_path / "manage.py").write_text("", encoding="utf-8")
        with pytest.raises(MalformedInputError, match="names no settings"):
            vcrt_django.lift_django(tmp_path)
        folder = branches(tmp_path / "own", NOTE, INDEX)
        with pytest.raises(MalformedInputError, match="an app without migrations"):
            vcrt_django.lift_django(folder, app="basket")
        with pytest.raises(MalformedInputError, match="no migration of 5"):
            vcrt_django.lift_django(folder, app="shop", window=5)
        with pytest.raises(VcrtError, match="out of range"):
            vcrt_django.lift_django(folder, window=99)
        with pytest.raises(UnavailableError, match="cannot be run"):
            vcrt_django.lift_django(folder, python="no-such-python")

    @pytest.mark.parametrize(
        ("act", "limits", "found"),
        [
            ("import os; os._exit(3)", Limits(), "exit status 3"),
            ("import time; time.sleep(60)", Limits(answer_seconds=1), "no answer after 1 s"),
        ],
    )
    def test_a_migration_that_ends_its_process_is_no_verdict(self, tmp_path, act, limits, found):
        folder = project(tmp_path, ("0002_a", TOUCH % act), ("0002_b", ["0001_first"], NOTE))
        one = DjangoProject(folder, limits=limits)
        with pytest.raises(VerifierFailure) as caught:
            judge_branches(one, one.branches()[0])
        assert found in caught.value.found
        one.close()


def test_a_branch_that_another_database_may_accept(capsys, tmp_path):
    settings = SETTINGS.replace("backends.sqlite3", "backends.postgresql")
    assert settings != SETTINGS
    sql = "migrations.RunSQL('CREATE EXTENSION pg_trgm')"
    folder = branches(tmp_path, NOTE, sql, settings=settings)
    printed = run(capsys, "lift", "django", folder)[1]
    assert "its settings name django.db.backends.postgresql" in printed
    assert (
        "  the project's own database may accept what this one refuses: see --database" in printed
    )


def test_the_command(capsys, tmp_path):
    folder = branches(tmp_path, FILL, f"{INDEX}, {STRICT}")
    printed = run(capsys, "lift", "django", folder)[1]
    assert "0002_a must come first" in printed
    assert "1 before 3 (precedes): IntegrityError: NOT NULL constraint failed" in printed
    assert "let the first migration of 0002_b's branch depend on 0002_a" in printed
    document = json.loads(run(capsys, "lift", "django", folder, "--json")[1])
    assert document["merges"][0]["outcome"] == "first"
    windows = run(capsys, "lift", "django", folder, "--window", "2")[1]
    assert "2 windows judged; pairs: 1 commutes, 1 precedes" in windows
    assert "tables hold what migrations put there" in windows
    assert MANAGE.splitlines()[1] in (folder / "manage.py").read_text()
