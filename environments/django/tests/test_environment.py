"""Django as the verifier: verdicts, states, second opinions, what an episode may hold and what a worker may do."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import vcrt
import vcrt_django
from django_support import (
    KEY,
    KITE,
    ROWS,
    SecondOpinions,
    episode,
    needs_django,
    outcomes,
    replayed,
)
from vcrt.environments.contract import Schema
from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt_django import session
from vcrt_django.environment import DjangoEnvironment
from vcrt_django.session import Limits, Session
from vcrt_django.toolchain import require_supported, server_url

ADD = 'migrations.AddField("Kite", "{}", models.IntegerField(null=True))'


@pytest.fixture(scope="module")
def environment():
    return DjangoEnvironment()


@needs_django
class TestVerdicts:
    def test_a_field_before_its_model(self, environment):
        made = f'migrations.CreateModel("Box", [{KEY}])'
        added = 'migrations.AddField("Box", "lid", models.IntegerField(null=True))'
        found = outcomes(environment, episode(made, added))
        assert found[1, 0] == "KeyError: ('app', 'box')"
        assert len(found[0, 1]) == 64

    def test_the_database_s_own_message(self, environment):
        fill = 'migrations.RunPython(rows.fill("app.Kite", "size", 7))'
        strict = 'migrations.AlterField("Kite", "size", models.IntegerField())'
        found = outcomes(environment, episode(fill, strict))
        assert found[1, 0].startswith("IntegrityError: NOT NULL constraint failed")
        assert len(found[0, 1]) == 64

    def test_a_constraint_that_rows_do_not_meet(self, environment):
        constraint = 'models.UniqueConstraint(fields=["size"], name="only")'
        (replay,) = replayed(
            environment, episode(f'migrations.AddConstraint("Kite", {constraint})')
        )
        assert "UNIQUE constraint failed" in replay.rejection.reason
        alone = episode(f'migrations.AddConstraint("Kite", {constraint})', before=[KITE])
        assert replayed(environment, alone)[0].accepted

    def test_a_model_that_is_still_referred_to(self, environment):
        key = '("kite", models.ForeignKey("app.Kite", on_delete=models.CASCADE))'
        before = [KITE, f'migrations.CreateModel("Tail", [{KEY}, {key}])']
        (replay,) = replayed(environment, episode('migrations.DeleteModel("Kite")', before=before))
        assert "app.kite" in replay.rejection.reason

    def test_plain_sql(self, environment):
        made = """migrations.RunSQL(['CREATE TABLE "tails" (knots integer NULL)'])"""
        put = """migrations.RunSQL(['INSERT INTO "tails" (knots) VALUES (3)'])"""
        found = outcomes(environment, episode(made, put))
        assert found[1, 0] == "OperationalError: no such table: tails"

    def test_a_start_that_is_refused_is_malformed(self, environment):
        with pytest.raises(MalformedInputError, match="before the steps"):
            replayed(environment, episode(ADD.format("a"), before=[ROWS]))

    def test_what_one_episode_leaves_is_not_there_for_the_next(self, environment):
        one = episode(ADD.format("a"), ADD.format("b"))
        assert outcomes(environment, one) == outcomes(environment, one)
        environment.cross_check(one)
        assert len(outcomes(environment, one)[0, 1]) == 64


@needs_django
class TestStates:
    def test_the_order_of_columns_and_of_indexes_is_no_matter(self, environment):
        indexes = [
            f'migrations.AddIndex("Kite", models.Index(fields=["size"], name="{name}"))'
            for name in ("one", "two")
        ]
        one = episode(ADD.format("a"), ADD.format("b"), *indexes)
        assert len(set(outcomes(environment, one).values())) == 1

    @pytest.mark.parametrize(
        "steps",
        [
            ('rows.add("app.Kite", "size", 1)', 'rows.scale("app.Kite", "size", 2)'),
            ('rows.fill("app.Kite", "size", 1)', 'rows.fill("app.Kite", "size", 2)'),
        ],
    )
    def test_rows_count(self, environment, steps):
        one = episode(*(f"migrations.RunPython({step})" for step in steps))
        assert {len(end) for end in outcomes(environment, one).values()} == {64}
        assert len(set(outcomes(environment, one).values())) == 2
        empty = replace(one, initial={"app": "app", "before": [KITE]})
        assert len(set(outcomes(environment, empty).values())) == 1

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("models.IntegerField(null=True)", "models.BigIntegerField(null=True)"),
            ("models.IntegerField(null=True)", "models.IntegerField(null=True, unique=True)"),
            ("models.IntegerField(default=1)", "models.IntegerField(default=2)"),
        ],
    )
    def test_what_differs_is_told(self, environment, one, other):
        ends = {
            replayed(environment, episode(f'migrations.AddField("Kite", "a", {field})'))[
                0
            ].terminal_hash
            for field in (one, other)
        }
        assert len(ends) == 2

    def test_it_comes_from_the_database_and_not_from_the_text(self, environment):
        texts = ('CREATE INDEX i ON "app_kite" (size)', 'CREATE INDEX i ON "app_kite"   (size)')
        ends = [
            replayed(environment, episode(f"migrations.RunSQL([{text!r}])"))[0].terminal_hash
            for text in texts
        ]
        assert len(set(ends)) == 1
        assert None not in ends
        same = episode('migrations.RunSQL(["UPDATE app_kite SET size = 1 WHERE id = 1"])')
        (idle,) = replayed(environment, same)
        assert idle.state_hashes[0] == idle.state_hashes[1]


@needs_django
class TestReading:
    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os').system('true')",
            "migrations.RunPython(print)",
            "migrations.RunPython(rows.copy.__class__)",
            "migrations.SeparateDatabaseAndState()",
            "models.IntegerField()",
            "[migrations.DeleteModel('Kite') for _ in 'a']",
            "migrations.RunSQL(\"ATTACH 'x.db' AS y\")",
            "migrations.RunSQL('DELETE FROM a; DELETE FROM b')",
            "migrations.RunSQL(\"UPDATE a SET b = load_extension('x')\")",
            "migrations.RunSQL('UPDATE a SET b = \"pg_read_file\" (1)')",
            "migrations.RunSQL(['DELETE FROM a', 'PRAGMA foreign_keys'])",
            "migrations.RunSQL([('DELETE FROM a', [1])])",
            "migrations.AddField('Kite', 'a', models.CharField(max_length=object))",
            "migrations.AddField('Kite', 'a', models.CharField(max_length='9) NULL'))",
            "migrations.CreateModel('A', [], options={'db_table': 'z\" (a int)'})",
            "migrations.RunPython(rows.copy('app.Kite', 'size', 'size\", id = \"id'))",
            "migrations.RunPython(rows.copy('app.Kite', 'size', 'size], [id] = [id'))",
            "migrations.RunPython(rows.add('app.Kite', 'size', 1.5))",
            "migrations.RunSQL('CREATE TABLE pg_temp.x AS SELECT 1')",
            "migrations.RunSQL(\"UPDATE pg_settings SET setting = 'x' WHERE name = 'TimeZone'\")",
            "migrations.RunSQL('UPDATE a SET b = CURRENT_TIMESTAMP')",
            7,
        ],
    )
    def test_what_may_not_reach_django(self, environment, text):
        with pytest.raises(MalformedInputError, match="an operation that cannot be read"):
            replayed(environment, episode(text))

    @pytest.mark.parametrize(
        "initial", [None, {}, {"app": "a b", "before": []}, {"app": "a", "before": ""}]
    )
    def test_malformed_starts(self, environment, initial):
        with pytest.raises(MalformedInputError, match="a malformed episode of Django"):
            replayed(environment, replace(episode(ADD.format("a")), initial=initial))

    def test_steps_that_there_are_not(self, environment):
        with pytest.raises(MalformedInputError, match="a sequence of steps"):
            replayed(environment, episode(ADD.format("a")), (1,))


@needs_django
class TestSchemas:
    @pytest.mark.parametrize(
        "schema",
        [s for s in DjangoEnvironment.schemas if s.num_steps is None],
        ids=lambda s: s.name,
    )
    def test_twelve_of_24_orders_are_legal(self, environment, schema: Schema):
        replays = replayed(environment, environment.sample(schema.name, 1))
        ends = [replay.terminal_hash for replay in replays]
        assert ends.count(ends[0]) == 12

    def test_equal_seeds_give_equal_episodes(self, environment):
        assert environment.sample("posets12", 5) == environment.sample("posets12", 5)

    def test_long_episodes_may_use_up_the_fields_of_a_model(self, environment):
        assert environment.sample("posets16", 4).num_operations == 16
        assert environment.sample("models", 5) != environment.sample("models", 6)


@needs_django
class TestSecondOpinions(SecondOpinions):
    def test_a_row_that_refers_to_none_is_refused_by_both(self, environment):
        key = '("kite", models.ForeignKey("app.Kite", on_delete=models.CASCADE))'
        lost = """migrations.RunSQL(['INSERT INTO "app_tail" (kite_id) VALUES (99)'])"""
        one = episode(lost, before=[KITE, f'migrations.CreateModel("Tail", [{KEY}, {key}])'])
        assert "invalid foreign key" in replayed(environment, one)[0].rejection.reason
        found = outcomes(
            environment, replace(one, operations=episode(lost, ADD.format("a")).operations)
        )
        assert "invalid foreign key" in found[0, 1]
        assert "invalid foreign key" in found[1, 0]
        (check,) = environment.cross_check(one)
        assert (check.checked, check.agreed) == (1, 1)


@needs_django
class TestWorkers:
    def test_one_that_dies_is_replaced_and_asked_again(self):
        one = Session(Limits())
        request = {
            **{"where": "x", "app": "app", "before": [KITE], "steps": [], "sequences": [[]]},
            "second": False,
        }
        first = one.ask(request, where="x")
        os.kill(one._process.number, signal.SIGKILL)
        assert one.ask(request, where="x") == first
        one.close()

    def test_one_is_replaced_after_so_many_requests(self, monkeypatch):
        monkeypatch.setattr(session, "_REQUESTS_PER_WORKER", 1)
        one = Session(Limits())
        request = {"where": "x", "app": "a", "before": [], "steps": [], "sequences": [[]]}
        one.ask({**request, "second": False}, where="x")
        number = one._process.number
        one.ask({**request, "second": False}, where="x")
        assert one._process.number != number
        one.close()

    def test_a_limit_is_a_failure_and_no_refusal(self):
        with pytest.raises(VerifierFailure, match="no answer after"):
            Session(Limits(answer_seconds=0.001)).ask({}, where="x")

    def test_what_protects_is_named(self, environment):
        guards = environment.guards()
        assert "writes nothing" in guards.in_force.get("files", guards.absent.get("files", ""))

    def test_it_is_not_this_process_that_has_settings(self, environment):
        environment.versions()
        from django.conf import settings

        assert not settings.configured


class TestToolchains:
    @pytest.mark.parametrize("version", [None, (3, 2, 25, "final", 0), (7, 0, 0, "final", 0)])
    def test_versions_that_are_not_driven(self, version):
        with pytest.raises(UnavailableError, match="Django"):
            require_supported(version)

    def test_versions_that_are(self):
        require_supported((4, 2, 0, "final", 0))
        require_supported((6, 0, 1, "final", 0))

    def test_servers(self, monkeypatch):
        monkeypatch.delenv("VCRT_DJANGO_DATABASE", raising=False)
        assert server_url() is None
        assert server_url("sqlite") is None
        monkeypatch.setenv("VCRT_DJANGO_DATABASE", "postgresql://u@h/d")
        assert server_url() == "postgresql://u@h/d"

    @pytest.mark.parametrize("url", ["", "production.sqlite3", "mysql://u:secret@h/d", "/var/db"])
    def test_databases_that_are_not_judged_on(self, url):
        with pytest.raises(MalformedInputError) as caught:
            server_url(url)
        assert "secret" not in str(caught.value)

    @needs_django
    def test_a_server_that_is_not_there(self, monkeypatch):
        pytest.importorskip("psycopg")
        monkeypatch.setenv("VCRT_DJANGO_DATABASE", "postgresql://u:secret@127.0.0.1:1/d")
        with pytest.raises(UnavailableError, match="no database can be made") as caught:
            DjangoEnvironment(limits=Limits(answer_seconds=99)).versions()
        assert "secret" not in str(caught.value)

    def test_a_python_without_django(self, tmp_path, monkeypatch):
        # Where vcrt is installed beside Django, its folder has Django too.
        own = tmp_path / "own"
        own.mkdir()
        for package in (vcrt, vcrt_django):
            (own / package.__name__).symlink_to(Path(package.__file__).parent)
        monkeypatch.setattr(session, "_PLACES", str(own))
        bare = tmp_path / "python"
        bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
        bare.chmod(0o755)
        with pytest.raises(UnavailableError, match="Django is not installed"):
            Session(Limits(), python=str(bare)).first()

    def test_a_python_that_is_not_there(self, tmp_path):
        with pytest.raises(UnavailableError, match="a Python that cannot be run"):
            Session(Limits(), python=str(tmp_path / "none")).first()
