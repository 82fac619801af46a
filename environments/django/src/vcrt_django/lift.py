"""Judge the branches of a Django project's migrations: ``vcrt lift django``."""

from __future__ import annotations

from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, require_within
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.progress import SILENT, Counting, Progress, observing
from vcrt_django.branches import (
    DjangoLift,
    JudgedBranches,
    JudgedWindow,
    judge_branches,
    judge_window,
)
from vcrt_django.lifting import DjangoProject
from vcrt_django.toolchain import server_url


def lift_django(
    project: str | Path,
    *,
    settings: str | None = None,
    app: str | None = None,
    window: int | None = None,
    database: str | None = None,
    python: str | None = None,
    rows: str | Path | None = None,
    progress: Progress = SILENT,
) -> DjangoLift:
    """Judge branches of migrations that `makemigrations --merge` would ask about: what commutes, which order is right.

    This runs the project's code (settings, apps, migrations) in a worker process. It never connects to the project's
    databases: an empty SQLite in memory takes their place or, with `database`, a new database on that server. These
    hold what migrations and `migrate` put there.

    Example: vcrt lift django myproject

    Args:
        project: The folder with manage.py.
        settings: The module of the project's settings; by default what DJANGO_SETTINGS_MODULE or manage.py says.
        app: Judge this app alone.
        window: Judge consecutive operations of each migration, this many at a time, instead of branches.
        database: sqlite, or postgresql://USER@HOST/NAME: on that server, a database is made and dropped.
        python: The Python of the project's own environment, 3.11 or later, if vcrt is not installed there.
        rows: A file of SQL that puts rows where two branches begin; without it, empty tables get a few made-up rows.

    Raises:
        VcrtError: The project does not load, has nothing to judge, or its migrations need another database.
    """
    if window is not None:
        require_within("window", window, MIN_STEPS, MAX_LIFTED)
    if rows is not None and window is not None:
        raise VcrtError("rows are for branches", found=f"window {window} with rows")
    found = DjangoProject(
        Path(project),
        settings=settings,
        server=server_url(database),
        python=python,
        rows=None if rows is None else Path(rows),
    )
    task = progress.task("lift", 1, "projects")
    try:
        with observing(Counting.for_task(task)):
            return _judged(found, app, window)
    finally:
        found.close()


def _judged(project: DjangoProject, app: str | None, window: int | None) -> DjangoLift:
    """Judge the pairs of leaves of each app, or of ``app`` alone, or windows of ``window`` operations instead.

    Raise :class:`MalformedInputError` if there is nothing to judge, or a migration before it is refused.
    """
    versions, apps, where = project.versions(), project.apps, str(project.folder)
    if app is not None and app not in apps:
        raise MalformedInputError(
            "an app without migrations",
            where=where,
            found=app,
            expected=", ".join(apps) or "a project with migrations",
        )
    merges, windows = list[JudgedBranches](), list[JudgedWindow]()
    if window is None:
        what = "nothing to judge: Django would not ask about any merge"
        none = f"one leaf in {'every app' if app is None else app}"
        for branches in project.branches():
            if app in (None, branches.app):
                merges.append(judge_branches(project, branches))
    else:
        what = "nothing to judge"
        none = f"no migration of {counted(window, 'operation')} or more"
        windows = [judge_window(project, one) for one in project.windows(app, window)]
    if not merges and not windows:
        raise MalformedInputError(
            what,
            where=where,
            found=none,
            expected="an app with several leaf migrations",
            remedy="--window 2 judges consecutive operations of ordinary migrations",
        )
    return DjangoLift(
        project=project.folder.name,
        verifier=versions.verifier,
        engine=project.engine,
        has_rows=project.has_rows,
        apps=apps,
        merges=tuple(merges),
        windows=tuple(windows),
    )
