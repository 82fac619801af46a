"""Run migrations in Django, in a process of its own whose settings are this process's alone.

It reads one JSON value a line and answers each with one line, ``{"error": {...}}`` if it cannot. The first value
configures Django: with one database alone, or with the settings of a user's project, whose databases are replaced
before anything connects. The output of the user's code goes to this process's standard error. Without a project the
process confines itself (see :mod:`vcrt.environments.confinement`) before it reads an episode, and keeps its present
connections. It imports only those parts of vcrt that need the standard library and Django alone, so that a project's
own Python can run it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import IO, Any

from vcrt.processes.confinement import bounds_from, confine, refuse_calls, refuse_threads
from vcrt_django.fresh import error_form
from vcrt_django.toolchain import require_supported


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    handler: Callable[[Any], Any] | None = None
    for line in requests:
        request = json.loads(line)
        try:
            if handler is None:
                handler, answer = _started(request)
            else:
                answer = handler(request)
        except Exception as error:
            answer = {"error": error_form(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _started(request: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the handler of all later requests, and the first answer."""
    try:
        import django
    except ImportError:
        require_supported(None)
    require_supported(django.VERSION)
    if request["project"] is not None:
        from vcrt_django.project import Project

        (database,) = request["databases"] or [None]
        project = Project(database, **request["project"])
        return project.answer, {"label": project.label, "conflicts": project.conflicts()}
    from vcrt_django.episodes import Episodes, configure

    configure(request["databases"])
    # Connect before the process may open no connection any more.
    episodes = Episodes()
    report = confine(bounds_from(request["bounds"]))
    refuse_threads(report)
    refuse_calls(report, "client" if request["databases"] else "worker")
    label = f"Django {django.get_version()} on {episodes.database.label}"
    return episodes.answer, {"label": label, "guards": [report.in_force, report.absent]}


def main() -> None:
    """Serve standard input and output, which nothing else may read or write."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(requests, answers)
