"""Load a user's Django project in this process, which is the worker's, and replay the steps of its migrations.

This runs the user's code: settings, apps and migrations. Each order runs in a process forked from this one, which has
run none, so a migration's changes in Python vanish with it. On PostgreSQL the migrations before the orders run here.
``DATABASES`` is replaced before anything connects through Django, under every alias; routers and logging are left out,
and caches, mail and file storages of the settings stay in this process. What the user's code opens by itself is not
prevented.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

import django
from django.apps import apps
from django.conf import settings as live_settings
from django.db import connection, connections
from django.db.migrations import RunSQL
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.migrations.state import ProjectState

from vcrt.errors import MalformedInputError, UnavailableError, VcrtError
from vcrt.hashing import Json
from vcrt_django.catalogue import differences, digest
from vcrt_django.chance import Inseparable, Steady, separated
from vcrt_django.databases import (
    SQLITE,
    NotEmpty,
    opened,
    require_shareable,
    watched_others,
)
from vcrt_django.fresh import in_fresh_process
from vcrt_django.replaying import (
    Replayer,
    hashes_along,
    is_content_type,
    migration_of,
    with_content_types,
)
from vcrt_django.rows import empty_models, make_rows
from vcrt_django.signals import FILLED_APPS, send_post_migrate, send_pre_migrate

_ROWS = "rows that are given"
#: The second run of an order has other random numbers.
_LUCK = ("", " again")


class Project:
    """A handler of requests about one project; raises :class:`VcrtError` if it cannot be loaded."""

    def __init__(
        self,
        database: Mapping[str, Any] | None,
        *,
        folder: str,
        settings: str,
        now: str,
        max_memory_mb: float,
        rows: str = "",
    ) -> None:
        self._steady = Steady(now)
        self.engine = _configure(database, folder, settings)
        try:
            self.database = opened()
        except NotEmpty as error:
            if database is None:
                raise MalformedInputError(
                    "apps that write to the database while they load",
                    where=folder,
                    found=str(error),
                    expected="apps that leave an empty database empty",
                    remedy="name settings with --settings that leave them out",
                ) from error
            raise UnavailableError("a database that is not empty", found=str(error)) from error
        require_shareable()
        self.label = f"Django {django.get_version()} on {self.database.label}"
        self._replayer = Replayer(
            self.database, before=self._begin, others=watched_others(), fresh=self._fresh
        )
        self._max_memory_mb, self._by_chance = max_memory_mb, False
        self._loader, self._rows = _loaded(folder), rows
        self._start = self._synchronised()
        self._empty = self.database.snapshot()
        self._at: tuple[str, int] = "", 0
        self._state = self._start
        #: The report on the start of two branches.
        self._held: Json = None

    def conflicts(self) -> dict[str, Json]:
        """Return each pair of leaves of one app with its branches, the apps with migrations, and the engine."""
        found = self._loader.detect_conflicts()
        pairs: list[Json] = []
        for app, names in sorted(found.items()):
            leaves = sorted(names)
            for place, one in enumerate(leaves):
                for other in leaves[place + 1 :]:
                    base, *branches = self._branches((app, one), (app, other))
                    steps: list[Json] = [
                        {**_step_form(step), "branch": number}
                        for number, branch in enumerate(branches)
                        for node in branch
                        for step in self._steps(node)
                    ]
                    pairs.append(
                        {"app": app, "leaves": [one, other], "base": len(base), "steps": steps}
                    )
        apps = sorted({app for app, _ in self._loader.graph.nodes})
        return {"pairs": pairs, "apps": [*apps], "engine": self.engine}

    def answer(self, request: Any) -> Json:
        """Return the windows of some apps, or the replays of a pair of branches or of a window."""
        if request["do"] == "windows":
            return list(self._windows(request["app"], request["steps"], request["every"]))
        if request["do"] == "whole":
            one, other = request["leaves"]
            return self._whole(request["app"], one, other, request["rows"])
        if "leaves" in request:
            app, (one, other) = request["app"], request["leaves"]
            base, *branches = self._branches((app, one), (app, other))
            steps = [step for branch in branches for node in branch for step in self._steps(node)]
            self._go_before(app, one, other, base, request["rows"])
        else:
            first, number = request["first"], request["steps"]
            every = self._every()
            steps = every[first : first + number]
            self._go_to("windows", every, first)
        sequences = [tuple(sequence) for sequence in request["sequences"]]
        if request["do"] == "differences":
            return self._compared([[steps[index] for index in sequence] for sequence in sequences])
        if self._by_chance:
            return self._without_chance(steps, sequences)
        return list(self._replayer.replays(self._state, steps, sequences))

    def _begin(self, migration: Any) -> None:
        place = getattr(migration, "place", "")
        self._steady.begin(f"{migration.app_label} {migration.name} {place}")

    def _fresh(self, work: Callable[[], Any]) -> Any:
        return in_fresh_process(work, max_memory_mb=self._max_memory_mb)

    def _go_before(
        self, app: str, one: str, other: str, base: Sequence[Any], rows: Sequence[str] | None
    ) -> set[Any]:
        """Run the migrations before two branches, as ``migrate`` does, and insert rows; return these migrations.

        ``rows`` are kinds of rows to make where a table is empty; without them, the user's rows are inserted, if any.
        """
        nodes = dict.fromkeys([*self._filled(app, one, other), *base])
        units = [self._loader.graph.nodes[node] for node in nodes]
        name = f"{app} {one} {other} {len(base)} {rows}"
        self._go_to(name, units, len(units), partial(self._end_before, app, units, rows))
        return {*nodes}

    def _filled(self, app: str, one: str, other: str) -> Iterator[Any]:
        """Yield the migrations of Django's own apps that ``migrate`` fills, if they need neither branch.

        A database has them before the branches, whichever of those names them.
        """
        graph = self._loader.graph
        plans = [{*graph.forwards_plan((app, leaf))} for leaf in (one, other)]
        heads = {node for node in plans[0] ^ plans[1] if node[0] == app}
        for label in FILLED_APPS:
            for leaf in sorted(graph.leaf_nodes(label)) if label != app else ():
                for node in graph.forwards_plan(leaf):
                    if not heads.intersection(graph.forwards_plan(node)):
                        yield node

    def _end_before(
        self, app: str, units: Sequence[Any], rows: Sequence[str] | None, state: Any
    ) -> tuple[Any, Json]:
        failed = send_post_migrate(state, units, self.database.settle)
        made, unmade = list[str](), list[list[str]]()
        if rows is not None:
            self._steady.begin("rows")
            made, unmade = make_rows(state, rows)
        elif self._rows:
            # The last operation before the branches inserts the user's own rows.
            put = RunSQL(self._rows)
            state = self._applied(state, migration_of(app, [put], name=_ROWS))
        empty = [str(model._meta.label) for model in empty_models(state)]
        return state, {
            "failed": failed,
            "made": [*made],
            "unmade": [[*each] for each in unmade],
            "empty": [*empty],
        }

    def _whole(self, app: str, one: str, other: str, rows: Sequence[str] | None) -> dict[str, Json]:
        """Run both orders of two branches by the project's own migrations; return each final hash or refusal.

        If both run, return also the differences between their results.

        Migrations of another app that one branch alone needs run where Django runs them, with that branch; with the
        user's own rows, which may need them, they run before both.
        """
        graph = self._loader.graph
        plans = [graph.forwards_plan((app, leaf)) for leaf in (one, other)]
        common = [node for node in plans[0] if node in plans[1]]
        base = self._branches((app, one), (app, other))[0] if self._rows else common
        before = self._go_before(app, one, other, base, rows)
        orders = [
            [
                graph.nodes[node]
                for node in dict.fromkeys([*plans[a], *plans[b]])
                if node not in before
            ]
            for a, b in ((0, 1), (1, 0))
        ]
        held: Any = self._held
        return {**self._compared(orders, is_whole=True), **held}

    def _compared(
        self, orders: Sequence[Sequence[Any]], *, is_whole: bool = False
    ) -> dict[str, Json]:
        """Run each of two orders twice; return their results, and their differences apart from drawn values."""
        runs = [[self._run(order, luck, is_whole=is_whole) for luck in _LUCK] for order in orders]
        answers, forms, drawn = list[Json](), list[Any](), set[str]()
        is_same = [run[0] for run in runs[0]] == [run[0] for run in runs[1]]
        for first, again in runs:
            if first[1] is not None or again[1] is not None:
                if (first[1] or ())[:2] != (again[1] or ())[:2]:
                    raise _unsteady([f"{one[1]}" for one in (first, again)])
                answers.append({"hash": None, "refused": first[1]})
                continue
            form = first[0]
            try:
                form, columns = separated(first[0], again[0])
                drawn |= {*columns}
            except Inseparable as error:
                if not is_same:
                    raise _unsteady([str(each) for each in error.args]) from error
            # States that are equal under equal draws are equal.
            form = first[0] if is_same else form
            forms.append(form)
            answers.append({"hash": digest(*form), "refused": None})
        self._by_chance |= bool(drawn)
        differ: list[Json] = []
        if len(forms) == len(orders) == 2 and forms[0] != forms[1]:
            differ += differences(*forms)
        return {"orders": answers, "differences": differ, "drawn": sorted(drawn)}

    def _run(
        self, migrations: Sequence[Any], luck: str, *, is_whole: bool
    ) -> tuple[Any, list[Json] | None]:
        """Run an order in a process of its own; return the form of its final state, or its refusal."""
        kept = None if self.database.is_forked else self.database.snapshot()
        try:
            form, refused = self._fresh(lambda: self._along(migrations, luck, is_whole=is_whole))
            return None if form is None else tuple(form), refused
        finally:
            if kept is not None:
                self.database.restore(kept)

    def _along(self, migrations: Sequence[Any], luck: str, *, is_whole: bool) -> list[Any]:
        self._steady.luck = luck
        state, failed = self._state, list[Json]()
        if is_whole:
            self._steady.begin("pre_migrate")
            failed += send_pre_migrate(state, migrations, self.database.settle)
        for migration in migrations:
            after = self._replayer.apply(state, migration)
            if isinstance(after, str):
                return [None, [migration.app_label, migration.name, after]]
            state = after
        if is_whole:
            self._steady.begin("post_migrate")
            failed += send_post_migrate(state, migrations, self.database.settle)
        form, held = self._replayer.form(state)
        return [[form, held | ({"signals": failed} if failed else {})], None]

    def _without_chance(
        self, steps: Sequence[Any], sequences: Sequence[tuple[int, ...]]
    ) -> list[Json]:
        """Return the replays, with states that leave out drawn values: run each sequence twice."""
        runs = list[Any]()
        for luck in _LUCK:
            self._steady.luck = luck
            runs.append(self._replayer.answers(self._state, steps, sequences, self._replayer.form))
        self._steady.luck = _LUCK[0]
        one, other = runs
        answers: dict[tuple[int, ...], tuple[bool, Any]] = {}
        for sequence, (accepted, said) in one.items():
            if accepted != other.get(sequence, (None, None))[0]:
                raise _unsteady([f"step {sequence[-1] + 1} is refused in one of two runs"])
            if accepted:
                # If the drawn values cannot be separated, compare the states under equal draws.
                with suppress(Inseparable):
                    said, _ = separated(tuple(said), tuple(other[sequence][1]))
                said = digest(*said)
            answers[sequence] = accepted, said
        return hashes_along(sequences, answers)

    def _branches(self, one: Any, other: Any) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the migrations that must precede the branches, and those of each branch, in Django's order."""
        graph = self._loader.graph
        plans = [graph.forwards_plan(leaf) for leaf in (one, other)]
        common = set(plans[0]) & set(plans[1])
        heads = {node for plan in plans for node in plan if node[0] == one[0]} - common
        base, first, second = list[Any](), list[Any](), list[Any]()
        for plan, branch in zip(plans, (first, second), strict=True):
            for node in plan:
                if not heads.intersection(graph.forwards_plan(node)):
                    base += [node] * (node not in base)
                else:
                    branch.append(node)
        return base, first, second

    def _steps(self, node: Any) -> list[Any]:
        """Return the operations of a migration, each as a migration of its own that knows its ``place``."""
        migration = self._loader.graph.nodes[node]
        steps = list[Any]()
        for operation in migration.operations:
            if is_content_type(operation):
                steps[-1].operations.append(operation)
                continue
            made = migration_of(
                migration.app_label, [operation], atomic=migration.atomic, name=migration.name
            )
            made.place = len(steps)
            steps.append(made)
        return steps

    def _every(self) -> list[Any]:
        """Return all operations of the project in the order in which Django would run them."""
        plan = dict.fromkeys(
            node
            for leaf in sorted(self._loader.graph.leaf_nodes())
            for node in self._loader.graph.forwards_plan(leaf)
        )
        return [step for node in plan for step in self._steps(node)]

    def _windows(self, app: str | None, steps: int, every: int) -> Iterator[Json]:
        """Yield the windows of consecutive operations of one migration."""
        operations = self._every()
        for first in range(len(operations) - steps + 1):
            window = operations[first : first + steps]
            head, last = window[0], window[-1]
            own = app in (None, head.app_label) and head.place % every == 0
            whole = last.app_label == head.app_label and last.place == head.place + steps - 1
            if own and whole:
                reduces = [
                    a.operations[0].reduce(b.operations[0], a.app_label) is True
                    for a, b in pairwise(window)
                ]
                yield {
                    "first": first,
                    "steps": [_step_form(step) for step in window],
                    "reduces": list(reduces),
                }

    def _go_to(
        self,
        name: str,
        units: Sequence[Any],
        place: int,
        end: Callable[[Any], tuple[Any, Json]] | None = None,
    ) -> None:
        """Run the migrations before a place, from the present place or from the beginning; ``end`` runs after them."""
        if self._at == (name, place):
            return
        if self._at[0] != name or self._at[1] > place:
            self.database.restore(self._empty)
            self._state, self._at = self._start, (name, 0)
        todo = units[self._at[1] : place]
        self._at = "", 0
        if self.database.is_forked:
            self._held, data = self._fresh(lambda: list(self._forward(todo, end)[1:]))
            self.database.take(b64decode(data))
            for unit in todo:
                self._state = unit.mutate_state(self._state)
        else:
            self._state, self._held, _ = self._forward(todo, end)
        self._at = name, place

    def _forward(
        self, units: Sequence[Any], end: Callable[[Any], tuple[Any, Json]] | None
    ) -> tuple[Any, Json, str]:
        """Return the state after some migrations, the report of ``end``, and the database if this process holds it."""
        state, held = self._state, None
        if end is not None:
            send_pre_migrate(state, units, self.database.settle)
        for unit in units:
            state = self._applied(state, unit)
        if end is not None:
            state, held = end(state)
        return state, held, b64encode(self.database.to_bytes()).decode()

    def _applied(self, state: Any, unit: Any) -> Any:
        after = self._replayer.apply(state, unit)
        if not isinstance(after, str):
            return after
        if unit.name == _ROWS:
            raise MalformedInputError(
                "rows that do not go into the database before the branches",
                found=after,
                expected=f"statements of SQL that {self.database.label} accepts",
            )
        raise MalformedInputError(
            "a migration before the ones to be judged is refused",
            where=f"{unit.app_label}.{unit.name}",
            found=after,
            expected=f"migrations that run on {self.database.label}",
            remedy="judge on the database that it needs, with --database, or on a part that does without",
        )

    def _synchronised(self) -> Any:
        """Return the state before all migrations, with tables for apps without any, as ``migrate --run-syncdb`` does.

        Django's own table of migrations exists and is empty: a migration may name it.
        """
        MigrationRecorder(connection).ensure_schema()

        state = ProjectState(real_apps=self._loader.unmigrated_apps)
        with connection.schema_editor() as editor:
            for model in state.apps.get_models(include_auto_created=False):
                options = model._meta
                if options.managed and not options.proxy and not options.swapped:
                    editor.create_model(model)
        return state


def _step_form(step: Any) -> dict[str, Json]:
    """Return a migration of one operation, in the form of :class:`vcrt_django.lifting.DjangoStep`."""
    (operation, *_) = step.operations
    text = operation.describe()
    code = getattr(operation, "code", None)
    if code is not None:
        text = f"RunPython {getattr(code, '__qualname__', code)}"
    elif type(operation).__name__ == "RunSQL":
        text = f"RunSQL {' '.join(str(operation.sql).split())[:80]}"
    return {
        "app": step.app_label,
        "migration": step.name,
        "index": step.place,
        "text": str(text),
        "kind": type(operation).__name__,
        "irreversible": not operation.reversible,
    }


def _unsteady(found: Sequence[str]) -> MalformedInputError:
    return MalformedInputError(
        "migrations that end differently each time they are run",
        found="; ".join(found[:4])[:500],
        expected="two runs of one order that differ only in values in rows",
        remedy="leave out what they take from the clock or at random",
    )


def _configure(database: Mapping[str, Any] | None, folder: str, settings: str) -> str:
    """Load the user's settings, replace their databases by ours, and set Django up; return their engine."""
    sys.path.insert(0, folder)
    os.chdir(folder)
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    where = f"{folder}, settings {settings}"
    try:
        theirs = dict(live_settings.DATABASES)
    except (Exception, SystemExit) as error:
        raise _unloadable("settings that do not import", where, error) from error
    if "settings" in vars(connections):
        raise MalformedInputError(
            "settings that look at their databases while they are imported",
            where=where,
            expected="settings that only say which databases there are",
            remedy="name other settings with --settings",
        )
    live_settings.DATABASES = {alias: dict(SQLITE) for alias in {*theirs, "default"}}
    if database is not None:
        live_settings.DATABASES["default"] = dict(database)
    live_settings.DATABASE_ROUTERS = []
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    live_settings.CACHES = dict.fromkeys({*getattr(live_settings, "CACHES", ()), "default"}, memory)
    live_settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    stored = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    storages = getattr(live_settings, "STORAGES", {})
    live_settings.STORAGES = {
        **storages,
        **dict.fromkeys({*storages, "default"} - {"staticfiles"}, stored),
    }
    # Handlers open files.
    live_settings.LOGGING_CONFIG = None
    try:
        django.setup()
        ours = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
    except (Exception, SystemExit) as error:
        raise _unloadable("a project whose apps do not load", where, error) from error
    expected = {alias: live_settings.DATABASES[alias]["NAME"] for alias in ours}
    if ours != expected or not all(n == ":memory:" or n.startswith("vcrt_") for n in ours.values()):
        raise VcrtError("a project replaces vcrt's databases", where=where, found=str(ours))
    return str(theirs.get("default", {}).get("ENGINE", "none"))


def _loaded(folder: str) -> Any:
    try:
        loader = MigrationLoader(None, ignore_no_migrations=True)
    except (Exception, SystemExit) as error:
        raise _unloadable("migrations that do not load", folder, error) from error
    if apps.is_installed("django.contrib.contenttypes"):
        for migration in loader.graph.nodes.values():
            migration.operations = list(with_content_types(migration))
    return loader


def _unloadable(what: str, where: str, error: BaseException) -> MalformedInputError:
    return MalformedInputError(
        what,
        where=where,
        found=f"{type(error).__name__}: {error}",
        expected="a project of which `python manage.py showmigrations` works with this Python",
        remedy="install what it imports beside vcrt; set what its settings read (and PYTHONPATH, if manage.py "
        "changes sys.path); or name other settings with --settings",
    )
