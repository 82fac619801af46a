"""Judge the branches of a Django project's migrations: ``vcrt lift django``."""

from __future__ import annotations

from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, replay_merged_evidence, require_within
from vcrt.errors import VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.progress import SILENT, Counting, Progress, observing
from vcrt_django.branches import DjangoLift, lift_project
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

    This runs the project's code (settings, apps, migrations) in a worker process. Its databases are never connected to:
    an empty SQLite in memory takes their place or, with `database`, a new one on that server. They hold what migrations
    and `migrate` put there.

    Example: vcrt lift django myproject

    Args:
        project: The folder of manage.py.
        settings: The module of its settings; by default what DJANGO_SETTINGS_MODULE or manage.py says.
        app: This app alone.
        window: Judge consecutive operations of each migration, so many at a time, in place of branches.
        database: sqlite, or postgresql://USER@HOST/NAME of a server on which a database is made and dropped.
        python: The Python of the project's own environment, 3.11 or later, if vcrt is not installed there.
        rows: A file of SQL that puts rows where two branches begin; without it, empty tables get a few made ones.

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
            return lift_project(found, replay_merged_evidence, app=app, window=window)
    finally:
        found.close()
