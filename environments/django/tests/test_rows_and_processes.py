"""What a verdict on branches rests on: rows, what ``migrate`` leaves, and nothing that another order left in Python."""

from __future__ import annotations

import json
import os

import psutil
import pytest

import vcrt_django
from command_line import run
from django_support import FIRST, SETTINGS, branches, needs_django, project
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt_django.fresh import in_fresh_process

pytestmark = needs_django
NOTE = 'migrations.AddField("Order", "note", models.TextField(default=""))'
STRICT = 'migrations.AlterField("Order", "state", models.CharField(max_length=9))'
TABLE = FIRST.split(",\n    migrations.RunSQL")[0]
PYTHON = """%s
from django.db import migrations, models
def act(apps, editor):
    Order = apps.get_model("shop", "Order")
    %s
class Migration(migrations.Migration):
    dependencies = [("shop", "0001_first")%s]
    operations = [migrations.RunPython(act)]
"""
BOTH = SETTINGS.replace(
    '["shop"]', '["shop", "django.contrib.contenttypes", "django.contrib.auth"]'
)


def python(act, *, before="", needs=""):
    return PYTHON % (before, act, needs)


def merge_of(folder, **options):
    (merge,) = vcrt_django.lift_django(folder, **options).merges
    return merge


def with_tables(folder, first, one, other, **more):
    """Two branches after a migration of one's own; each is the text of a migration or its operations."""
    texts = [(t,) if "class Migration" in t else (["0001_first"], t) for t in (one, other)]
    made = project(folder, ("0002_a", *texts[0]), ("0002_b", *texts[1]), **more)
    file = made / "shop" / "migrations" / "0001_first.py"
    file.write_text(file.read_text().replace(FIRST, first))
    return made


class TestEmptyTables:
    @pytest.mark.parametrize(
        ("one", "other", "outcome", "says"),
        [
            # Read by a name that the other branch takes away.
            (
                python("[each.state for each in Order.objects.all()]"),
                'migrations.RenameField("Order", "state", "status")',
                "first",
                "no attribute 'state'",
            ),
            # What is empty is filled or goes, before it must not be.
            (python("Order.objects.filter(state=None).delete()"), STRICT, "first", "NOT NULL"),
            (STRICT, python("Order.objects.filter(state=None).update(state='')"), "second", "NULL"),
            # What is there twice goes, before it must not be.
            (
                python(
                    "seen = set()\n    for each in Order.objects.order_by('id'):\n"
                    "        (each.delete() if each.total in seen else seen.add(each.total))"
                ),
                'migrations.AlterField("Order", "total", models.IntegerField(null=True, unique=True))',
                "first",
                "UNIQUE constraint failed",
            ),
        ],
    )
    def test_rows_are_made_that_show_what_empty_tables_do_not(
        self, tmp_path, one, other, outcome, says
    ):
        merge = merge_of(with_tables(tmp_path, TABLE, one, other))
        assert merge.outcome == outcome
        assert [each.outcome for each in merge.rests_on] == ["either", outcome]
        assert says in " ".join(filter(None, merge.refusals))
        assert merge.rests_on[1].tables == ("shop.Order",)

    def test_both_orders_end_apart_on_made_rows_alone(self, tmp_path):
        one, other = (python(f"Order.objects.update(total={n})") for n in (1, 2))
        merge = merge_of(with_tables(tmp_path, TABLE, one, other))
        assert merge.outcome == "other state"
        assert [pair.relation for pair in merge.pairs] == ["conflicts"]
        assert merge.differences

    def test_plainer_rows_where_a_branch_takes_no_others(self, tmp_path):
        """A field that must not be empty, and nothing that fills it: no such row is there, or no branch is right."""
        merge = merge_of(with_tables(tmp_path, TABLE, STRICT, NOTE))
        assert merge.outcome == "either"
        assert [each.made for each in merge.rests_on] == [None, ("equal values",)]

    def test_rows_that_no_branch_takes_show_nothing_and_that_is_said(self, capsys, tmp_path):
        no_rows = python("assert not Order.objects.exists(), 'there are rows'")
        folder = with_tables(tmp_path, TABLE, no_rows, NOTE)
        merge = merge_of(folder)
        assert (merge.outcome, len(merge.rests_on)) == ("either", 1)
        printed = run(capsys, "lift", "django", folder)[1]
        assert "so they show nothing (shop.0002_a: AssertionError: there are rows)" in printed
        assert "a merge migration is right" not in printed
        assert "give rows with --rows" in printed

    def test_a_step_that_changed_nothing_is_named_beside_the_verdict(self, capsys, tmp_path):
        fill = python("Order.objects.filter(total=99).update(total=0)")
        folder = with_tables(tmp_path, FIRST, fill, NOTE)
        printed = run(capsys, "lift", "django", folder)[1]
        assert "both orders run and end in one state\n" in printed
        assert "  1 changed nothing on these rows" in printed
        assert "a merge migration is right" not in printed
        document = json.loads(run(capsys, "lift", "django", folder, "--json")[1])["merges"][0]
        assert document["changed_nothing"] == [0]
        assert document["rests_on"][0]["made"] is None
        rows = tmp_path / "rows.sql"
        rows.write_text("INSERT INTO shop_order (total) VALUES (99)")
        printed = run(capsys, "lift", "django", folder, "--rows", rows)[1]
        assert "a merge migration is right, in either order" in printed

    def test_what_does_nothing_and_says_so_is_no_matter(self, tmp_path):
        noop = "migrations.RunPython(migrations.RunPython.noop), migrations.RunSQL('')"
        assert merge_of(with_tables(tmp_path, FIRST, noop, NOTE)).idle == ()

    def test_rows_fit_fields_keys_and_constraints(self, tmp_path):
        fields = {
            "code": "models.CharField(max_length=2, primary_key=True)",
            "kind": 'models.CharField(max_length=3, choices=[("a", "A"), ("B", [("b", "B")])])',
            "mail": "models.EmailField()",
            "price": "models.DecimalField(max_digits=2, decimal_places=2)",
            "day": "models.DateField(unique=True)",
            "at": "models.DateTimeField()",
            "key": "models.UUIDField()",
            "data": "models.JSONField()",
            "size": "models.PositiveIntegerField()",
            "up": 'models.ForeignKey("self", models.CASCADE, null=True)',
            "order": 'models.OneToOneField("shop.Order", models.CASCADE)',
            "many": 'models.ManyToManyField("shop.Order", related_name="+")',
        }
        made = ", ".join(f'("{name}", {field})' for name, field in fields.items())
        check = 'models.CheckConstraint(name="c", %s=models.Q(size__gt=0))'
        first = (
            f'{TABLE}, migrations.CreateModel("Line", [{made}]), migrations.AddConstraint("Line", {check})'
            % "**{C}"
        ).replace(
            "**{C}=", "**{'condition' if __import__('django').VERSION >= (5, 1) else 'check': "
        )
        first = first.replace("models.Q(size__gt=0))", "models.Q(size__gt=0)})")
        act = (
            "import collections; Line = apps.get_model('shop', 'Line')\n"
            "    lines = list(Line.objects.order_by('day'))\n"
            "    assert len(lines) in (0, 3, 4), lines\n"
            "    assert all(each.kind in ('a', 'b') and each.order.pk for each in lines)\n"
            "    assert not lines or sum(each.many.count() for each in lines) >= 3\n"
            "    Line.objects.update(size=7)"
        )
        merge = merge_of(with_tables(tmp_path, first, python(act), NOTE))
        assert merge.outcome == "either"
        assert merge.idle == ()
        assert merge.rests_on[-1].tables == ("shop.Line", "shop.Line_many", "shop.Order")

    def test_a_model_without_a_table_gets_none(self, tmp_path):
        made = 'migrations.CreateModel("Ghost", [("id", models.BigAutoField(primary_key=True))])'
        first = f"{TABLE}, migrations.SeparateDatabaseAndState(state_operations=[{made}])"
        merge = merge_of(with_tables(tmp_path, first, NOTE, STRICT))
        assert merge.rests_on[0].tables == ("shop.Order",)
        assert merge.unmade == ()

    def test_a_model_for_which_no_rows_can_be_made_is_named(self, capsys, tmp_path):
        first = (
            f'{TABLE}, migrations.CreateModel("Odd", [("id", models.BigAutoField(primary_key=True)), '
            '("size", models.IntegerField())], options={"constraints": [models.UniqueConstraint('
            'fields=["size"], name="u")]}), migrations.RunSQL("CREATE TRIGGER t BEFORE INSERT ON shop_odd '
            "BEGIN SELECT RAISE(ABORT, 'no rows here'); END\")"
        )
        folder = with_tables(tmp_path, first, NOTE, 'migrations.RenameField("Odd", "size", "n")')
        merge = merge_of(folder)
        ((model, why),) = merge.unmade
        assert model == "shop.Odd"
        assert "no rows here" in why
        printed = run(capsys, "lift", "django", folder)[1]
        assert "no rows could be made for shop.Odd" in printed
        assert "a merge migration is right" not in printed


COUNTED = """
import functools
@functools.lru_cache
def biggest():
    from django.db import connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(total) FROM shop_order")
        return cursor.fetchone()[0]
"""


class TestFreshProcesses:
    def test_what_a_function_keeps_is_of_one_order(self, tmp_path):
        one = python("Order.objects.filter(id=1).update(total=biggest())", before=COUNTED)
        other = python("Order.objects.create(total=50)")
        merge = merge_of(with_tables(tmp_path, FIRST, one, other))
        assert merge.outcome == "other state"
        assert [pair.relation for pair in merge.pairs] == ["conflicts"]
        assert merge.orders.ends == (1, 1)

    def test_what_a_module_keeps_is_of_one_order(self, tmp_path):
        """It is refused when it is run again in one process."""
        one = python(
            "DONE.append(1); assert len(DONE) == 1, DONE; Order.objects.update(total=7)",
            before="DONE = []",
        )
        merge = merge_of(with_tables(tmp_path, FIRST, one, NOTE))
        assert (merge.outcome, [pair.relation for pair in merge.pairs]) == ("either", ["commutes"])

    def test_what_stands_before_leaves_nothing_in_python(self, tmp_path):
        head = "import builtins\ndef mark(apps, editor): builtins.vcrt_seen = True\n"
        first = f"{FIRST}, migrations.RunPython(mark)"
        act = "import builtins; Order.objects.update(total=5 + hasattr(builtins, 'vcrt_seen'))"
        one = python(act)
        folder = with_tables(tmp_path, first, one, NOTE)
        file = folder / "shop" / "migrations" / "0001_first.py"
        file.write_text(head + file.read_text())
        add = python("Order.objects.filter(total=6).update(state='seen')")
        (folder / "shop" / "migrations" / "0002_b.py").write_text(add)
        merge = merge_of(folder)
        assert merge.outcome == "either"
        assert merge.idle == (1,)

    def test_what_work_gives_raises_and_how_it_ends(self):
        def fails():
            raise MalformedInputError("what is wrong", where="there")

        before = set(psutil.Process().children())
        assert in_fresh_process(lambda: os.getpid(), max_memory_mb=1e6) != os.getpid()
        with pytest.raises(MalformedInputError, match="what is wrong") as caught:
            in_fresh_process(fails, max_memory_mb=1e6)
        assert caught.value.where == "there"
        with pytest.raises(VerifierFailure, match="ZeroDivisionError"):
            in_fresh_process(lambda: 1 // 0, max_memory_mb=1e6)
        with pytest.raises(VerifierFailure, match="exit status 3"):
            in_fresh_process(lambda: os._exit(3), max_memory_mb=1e6)
        with pytest.raises(VerifierFailure, match="over the limit"):
            in_fresh_process(lambda: __import__("time").sleep(9), max_memory_mb=1)
        # Nor is any of them left to be waited for.
        assert set(psutil.Process().children()) <= before


NEEDS_TYPES = ', ("contenttypes", "0002_remove_content_type_name")'
NEEDS_AUTH = f'{NEEDS_TYPES}, ("auth", "0001_initial")'
MODELS = "from django.db import models\nclass Order(models.Model):\n    total = models.IntegerField(null=True)\n"


def with_models(folder):
    (folder / "shop" / "models.py").write_text(MODELS)
    return folder


class TestWhatMigrateLeaves:
    def test_a_content_type_is_there_and_renamed_with_its_model(self, tmp_path):
        types = "apps.get_model('contenttypes', 'ContentType').objects"
        look = python(f"{types}.get(app_label='shop', model='order')", needs=NEEDS_TYPES)
        look = look.replace('Order = apps.get_model("shop", "Order")', "pass")
        rename = 'migrations.RenameModel("Order", "Purchase")'
        merge = merge_of(with_models(with_tables(tmp_path, FIRST, look, rename, settings=BOTH)))
        assert merge.outcome == "first"
        assert "ContentType matching query does not exist" in merge.refusals[1]

    def test_a_permission_is_there_beside_a_new_field(self, tmp_path):
        give = python(
            "P = apps.get_model('auth', 'Permission').objects; "
            "Order.objects.update(total=P.get(codename='change_order').pk)",
            needs=NEEDS_AUTH,
        )
        merge = merge_of(with_models(with_tables(tmp_path, FIRST, give, NOTE, settings=BOTH)))
        assert merge.outcome == "either"
        assert {pair.relation for pair in merge.pairs} == {"commutes"}

    def test_what_new_models_are_given_has_no_order(self, tmp_path):
        one, other = (
            f'migrations.CreateModel("{name}", [("id", models.BigAutoField(primary_key=True))])'
            for name in ("Zebra", "Ape")
        )
        merge = merge_of(with_models(with_tables(tmp_path, FIRST, one, other, settings=BOTH)))
        assert merge.outcome == "either"

    def test_a_receiver_of_the_project_s_own(self, tmp_path):
        """What it does at the end of an order counts; one that fails is told, and undone."""
        receivers = (
            "from django.apps import AppConfig\nfrom django.db.models.signals import post_migrate\n"
            "def put(sender, apps, **more):\n"
            "    Order = apps.get_model('shop', 'Order')\n"
            "    for order in Order.objects.filter(state=None):\n"
            "        order.state = 'new'\n        order.save()\n"
            "def fail(sender, apps, **more):\n"
            "    apps.get_model('shop', 'Order').objects.all().delete()\n    raise ValueError('not yet')\n"
            "class C(AppConfig):\n    name = 'shop'\n    def ready(self):\n"
            "        post_migrate.connect(put, sender=self)\n        post_migrate.connect(fail, sender=self)\n"
        )
        folder = with_models(with_tables(tmp_path, FIRST, STRICT, NOTE))
        (folder / "shop" / "apps.py").write_text(receivers)
        merge = merge_of(folder)
        assert merge.outcome == "either"
        ((receiver, why),) = merge.failed
        assert (receiver, why) == ("shop.apps.fail", "ValueError: not yet")


class TestChance:
    @pytest.mark.parametrize(
        "drawn", ["secrets.token_hex(4)", "str(uuid.uuid4())[:9]", "random.choice('abcdefghi') * 3"]
    )
    def test_what_is_drawn_is_not_compared_and_named(self, capsys, tmp_path, drawn):
        """A row goes before or behind, so that the same row gets another draw."""
        fill = python(
            f"for each in Order.objects.order_by('id'):\n        each.state = {drawn}; each.save()",
            before="import random, secrets, uuid",
        )
        less = python("Order.objects.filter(id=1).delete()")
        folder = with_tables(tmp_path, FIRST, fill, less)
        merge = merge_of(folder)
        assert merge.outcome == "either"
        assert {pair.relation for pair in merge.pairs} == {"commutes"}
        assert merge.drawn == ('"shop_order", column "state"',)
        assert merge.orders.ends == (2,)
        printed = run(capsys, "lift", "django", folder)[1]
        assert (
            'not compared, as two runs of one order differ there: "shop_order", column' in printed
        )

    def test_what_is_not_drawn_is_compared_all_the_same(self, tmp_path):
        fill = python(
            "for each in Order.objects.filter(state=None):\n"
            "        each.state = secrets.token_hex(4); each.save()",
            before="import secrets",
        )
        fixed = python("Order.objects.filter(id=1, state=None).update(state='first')")
        merge = merge_of(with_tables(tmp_path, FIRST, fill, fixed))
        assert merge.outcome == "other state"
        assert [pair.relation for pair in merge.pairs] == ["conflicts"]

    def test_which_rows_share_what_was_drawn_is_compared(self, tmp_path):
        keys = "import secrets\nSAME = {}"
        fill = python(
            "for each in Order.objects.order_by('id'):\n"
            "        each.state = SAME.setdefault(each.total, secrets.token_hex(4)); each.save()",
            before=keys,
        )
        level = python("Order.objects.update(total=1)")
        merge = merge_of(with_tables(tmp_path, FIRST, fill, level))
        assert merge.outcome == "other state"

    def test_what_cannot_be_told_apart_is_refused(self, tmp_path):
        act = (
            "import os\n    n = int.from_bytes(os.urandom(8), 'big')\n"
            "    editor.execute(f'CREATE TABLE t{n} (a integer)')"
        )
        folder = with_tables(tmp_path, FIRST, python(act), NOTE)
        with pytest.raises(MalformedInputError, match="differently each time"):
            merge_of(folder)


class TestStates:
    @pytest.mark.parametrize("pragma", ["user_version", "application_id"])
    def test_a_pragma_that_stays(self, tmp_path, pragma):
        one, other = (f"migrations.RunSQL('PRAGMA {pragma} = {n}')" for n in (1, 2))
        assert merge_of(branches(tmp_path, one, other)).outcome == "other state"

    @pytest.mark.parametrize(
        ("one", "other"),
        [("1.5", '"1.5"'), ("int", '"builtins.int"')],
    )
    def test_a_default_is_no_text_of_it(self, tmp_path, one, other):
        fields = (
            f'migrations.AlterField("Order", "total", models.FloatField(default={default}))'
            for default in (one, other)
        )
        first = FIRST.replace("models.IntegerField(null=True)", "models.FloatField(default=0)")
        assert merge_of(with_tables(tmp_path, first, *fields)).outcome == "other state"

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("CAST(1 AS text)", "1"),
            ("'a' || char(0) || 'b'", "'a' || char(0) || 'c'"),
            ("1", "1.0"),
            ("x'61'", "'a'"),
        ],
    )
    def test_values_and_their_types(self, tmp_path, one, other):
        first = (
            f"{FIRST}, migrations.RunSQL('CREATE TABLE plain (a); INSERT INTO plain VALUES (0)')"
        )
        sql = (f'migrations.RunSQL("UPDATE plain SET a = {value}")' for value in (one, other))
        assert merge_of(with_tables(tmp_path, first, *sql)).outcome == "other state"


def test_orders_are_counted_by_the_states_that_they_end_in(capsys, tmp_path):
    """Three of six run, and none of them begins as the order that is refused."""
    fill = "migrations.RunSQL(\"UPDATE shop_order SET state = 'x' WHERE state IS NULL\")"
    longer = 'migrations.AlterField("Order", "total", models.BigIntegerField(null=True))'
    folder = branches(tmp_path, f"{longer}, {STRICT}", fill)
    printed = run(capsys, "lift", "django", folder)[1]
    assert "0002_b must come first" in printed
    assert (
        "orders of these 3 operations that are accepted: 3 of 6, which end in one state" in printed
    )
    document = json.loads(run(capsys, "lift", "django", folder, "--json")[1])["merges"][0]
    assert (document["accepted_orders"], document["orders_by_state"]) == (3, [3])
