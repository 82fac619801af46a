"""Fork a project's worker from a process that has Django, but for tests that are about processes."""

from __future__ import annotations

import sys

import pytest

from django_processes import ForkedProcess, Forks
from vcrt.processes.programs import BoundedProcess
from vcrt_django import session


@pytest.fixture(scope="session")
def forks():
    made = Forks()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def forked(request, forks, monkeypatch):
    """Only where a worker would be started for a project, with the Python of this process."""
    if request.node.get_closest_marker("processes") or sys.platform != "linux":
        return

    def made(command, **options):
        if command[:2] == [sys.executable, "-BP"]:
            return ForkedProcess(forks, command, **options)
        return BoundedProcess(command, **options)

    monkeypatch.setattr(session, "BoundedProcess", made)
