"""Episodes and projects of Django for tests, and the marks of those that need it or a server of PostgreSQL."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from itertools import permutations

import pytest

from vcrt.environments.contract import (
    Episode,
    Operation,
    Provenance,
    Rejected,
    ReplayRequest,
)
from vcrt_django.toolchain import REMEDY

_REQUIRED = os.environ.get("VCRT_DJANGO_TESTS") == "required"
#: A server on which databases may be made, for tests alone.
SERVER = os.environ.get("VCRT_TEST_POSTGRESQL", "")
needs_django = pytest.mark.skipif(
    not _REQUIRED and find_spec("django") is None, reason=f"no Django: {REMEDY}"
)
needs_postgresql = pytest.mark.skipif(
    not SERVER, reason="no server of PostgreSQL: VCRT_TEST_POSTGRESQL names none"
)
KEY = '("id", models.BigAutoField(primary_key=True))'
KITE = f'migrations.CreateModel("Kite", [{KEY}, ("size", models.IntegerField(null=True))])'
_UP = '("up", models.ForeignKey("app.Node", null=True, on_delete=models.CASCADE))'
#: A model that refers to itself.
NODE = f'migrations.CreateModel("Node", [{KEY}, {_UP}])'
ROWS = """migrations.RunSQL(['INSERT INTO "app_kite" (size) VALUES (1), (1), (NULL)'])"""


def episode(*steps, before=(KITE, ROWS), app="app"):
    return Episode(
        environment="django",
        schema="test",
        initial={"app": app, "before": list(before)},
        operations=tuple(Operation(signature=f"{n}", payload=t) for n, t in enumerate(steps)),
        provenance=Provenance(source="test", generator="test", seed=0),
    )


def replayed(environment, one, *sequences):
    sequences = sequences or tuple(permutations(range(one.num_operations)))
    return environment.replay([ReplayRequest(one, sequence) for sequence in sequences])


class SecondOpinions:
    """Tests of second opinions, the same on each database; a module gives its own ``environment``."""

    @pytest.mark.parametrize("schema", ["removes", "unique", "overwrites", "statements", "posets6"])
    def test_orders_are_asked_about_and_agree(self, environment, schema):
        (check,) = environment.cross_check(environment.sample(schema, 2))
        assert check.checked == check.agreed > 1

    def test_what_is_looked_up_is_there(self, environment):
        """A default with a percent sign; a model that refers to itself, whose step depends on its own statements."""
        one = episode(
            'migrations.RenameModel("Node", "Leaf")',
            'migrations.AddField("Kite", "share", models.CharField(max_length=9, default="10%"))',
            """migrations.RunSQL(['INSERT INTO "app_kite" (size, share) VALUES (5, 1)'])""",
            before=[KITE, ROWS, NODE],
        )
        assert sum(replay.accepted for replay in replayed(environment, one)) == 3
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (6, 6)

    @pytest.mark.parametrize("wrong", [{"rejection": Rejected("no")}, {"hash": "0" * 64}])
    def test_a_verdict_that_is_wrong_is_found(self, environment, wrong):
        one = environment.sample("backfills", 2)
        replays = replayed(environment, one)
        place = next(n for n, replay in enumerate(replays) if replay.accepted)
        hashes = replays[place].state_hashes[:-1]
        hashes += (wrong["hash"],) if "hash" in wrong else ()
        replays[place] = replace(
            replays[place], state_hashes=hashes, rejection=wrong.get("rejection")
        )
        ((check,),) = environment.cross_check_all([one], [replays])
        assert (check.checked, check.agreed) == (24, 23)


def outcomes(environment, one):
    """The digest that each order ends in, or why it is refused."""
    return {
        replay.sequence: replay.terminal_hash or replay.rejection.reason
        for replay in replayed(environment, one)
    }


MANAGE = """import os
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "its_settings")
"""
SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "production.sqlite3"}}
"""
HEAD = """from django.db import migrations, models
class Migration(migrations.Migration):
    dependencies = %r
    operations = [%s]
"""
FIRST = """migrations.CreateModel("Order", [("id", models.BigAutoField(primary_key=True)),
    ("total", models.IntegerField(null=True)), ("state", models.CharField(max_length=9, null=True))]),
    migrations.RunSQL("INSERT INTO shop_order (total) VALUES (1), (2)", migrations.RunSQL.noop)"""


def project(folder, *migrations, settings=SETTINGS, **files):
    """A project with the app ``shop``; migrations are (name, what it depends on, operations) or (name, text)."""
    place = folder / "shop" / "migrations"
    place.mkdir(parents=True)
    (folder / "manage.py").write_text(MANAGE, encoding="utf-8")
    (folder / "its_settings.py").write_text(settings, encoding="utf-8")
    for package in (place, place.parent):
        (package / "__init__.py").write_text("", encoding="utf-8")
    for name, *rest in (("0001_first", [], FIRST), *migrations):
        text = rest[0] if len(rest) == 1 else HEAD % ([("shop", d) for d in rest[0]], rest[1])
        (place / f"{name}.py").write_text(text, encoding="utf-8")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder


def branches(folder, one, other, **more):
    """A project of which two migrations, ``0002_a`` and ``0002_b``, are leaves."""
    return project(
        folder, ("0002_a", ["0001_first"], one), ("0002_b", ["0001_first"], other), **more
    )
