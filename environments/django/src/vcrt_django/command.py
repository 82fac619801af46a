"""Run the command ``vcrt lift django``: branches of migrations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

import vcrt_django
from vcrt.cli.lifted_view import print_orders
from vcrt.cli.options import (
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
)
from vcrt.cli.progress import PATIENCE, showing_progress


def django(
    project: Annotated[Path, tyro.conf.Positional],
    settings: str | None = None,
    app: str | None = None,
    window: int | None = None,
    database: str | None = None,
    python: str | None = None,
    rows: Path | None = None,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Judge branches of migrations that `makemigrations --merge` would ask about: what commutes, which order is right.

    This runs the project's code (settings, apps, migrations) in a worker process. Its databases are never connected
    to: an empty SQLite in memory takes their place or, with --database, a new database on that server.

    Example: vcrt lift django myproject

    Args:
        project: The folder of manage.py.
        settings: The module of its settings; by default what DJANGO_SETTINGS_MODULE or manage.py says.
        app: This app alone.
        window: Judge consecutive operations of each migration, so many at a time, in place of branches.
        database: sqlite, or postgresql://USER@HOST/NAME of a server on which a database is made and dropped.
        python: The Python of the project's own environment, 3.11 or later, if vcrt is not installed there.
        rows: A file of SQL that puts rows where two branches begin; without it, empty tables get a few made ones.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console(aside=json)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        found = vcrt_django.lift_django(
            project,
            settings=settings,
            app=app,
            window=window,
            database=database,
            python=python,
            rows=rows,
            progress=progress,
        )
    from vcrt_django.view import django_document, django_lines

    if json:
        print_document(django_document(found))
        return
    say(console, *django_lines(found))
    for one in found.windows:
        if one.orders is not None:
            say(console, f"\n{one.window.steps[0].app}.{one.window.steps[0].migration}")
            print_orders(console, one.orders, [step.text for step in one.window.steps])
