"""Judge the branches of a Django project's migrations: ``vcrt lift django``."""

from __future__ import annotations

from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, replay_merged_evidence, require_within
from vcrt.environments.calls import TaskObserver, observing
from vcrt.errors import VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.progress import SILENT, Progress
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
    """Judge the branches of a Django project's migrations that a merge would join: ``vcrt lift django``.

    Runs the project's code in a worker, by ``python`` if it has one of its own, on databases of its own: an SQLite in
    memory or, with ``database``, one that it makes on a PostgreSQL server. They hold what migrations and ``migrate``
    put there, and before two branches the ``rows`` that a file of SQL adds or, where tables are empty, a few made from
    the models. ``window`` judges consecutive operations of
    ordinary migrations in place of branches. Raises :class:`vcrt.errors.VcrtError` for a project that does not load,
    that has nothing to judge, or whose migrations need another database.
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
        with observing(TaskObserver(task)):
            return lift_project(found, replay_merged_evidence, app=app, window=window)
    finally:
        found.close()
