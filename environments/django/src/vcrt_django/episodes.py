"""Answer requests about episodes: their orders, by Django on a database that holds nothing else. Runs in the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.hashing import Json
from vcrt_django.databases import SQLITE, NotEmpty, opened
from vcrt_django.reading import read_operation
from vcrt_django.recheck import SECOND, SecondOpinion
from vcrt_django.replaying import Replayer, migration_of


def configure(databases: Sequence[Mapping[str, Any]]) -> None:
    """Configure two databases, SQLite in memory by default, and no apps; the second is for second opinions."""
    import django
    from django.conf import settings

    settings.configure(
        DATABASES=dict(
            zip(("default", SECOND), databases or (dict(SQLITE), dict(SQLITE)), strict=True)
        ),
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[],
        USE_TZ=True,
    )
    django.setup()


class Episodes:
    """A handler of requests: an episode's ``initial``, ``steps`` and ``sequences``, and whether by the second route."""

    def __init__(self) -> None:
        try:
            self.database = opened()
        except NotEmpty as error:
            raise UnavailableError(
                "a database that is not empty", found=str(error), expected="one that vcrt has made"
            ) from error
        self._replayer = Replayer(self.database)
        self._second = SecondOpinion()
        self._empty = self.database.snapshot()

    def answer(self, request: Any) -> Json:
        """Return the replays as :meth:`Replayer.replays` does; raise :class:`MalformedInputError` for a bad episode."""
        where = request["where"]
        app, before = request["app"], list[Any]()
        for place, text in enumerate(request["before"]):
            before.append(read_operation(text, where=f"{where}, before, {place}"))
        read = [
            read_operation(text, where=f"{where}, step {n}")
            for n, text in enumerate(request["steps"])
        ]
        steps = [migration_of(app, [operation]) for operation in read]
        sequences = [tuple(sequence) for sequence in request["sequences"]]
        first = [migration_of(app, [operation]) for operation in before]
        try:
            if request["second"]:
                return list(self._second.replays(first, steps, sequences))
            return list(self._replayer.replays(self._begun(first, where), steps, sequences))
        finally:
            self.database.restore(self._empty)

    def _begun(self, before: Sequence[Migration], where: str) -> ProjectState:
        """Return the state before the first step."""
        state = ProjectState()
        for place, migration in enumerate(before):
            after = self._replayer.apply(state, migration)
            if isinstance(after, str):
                raise MalformedInputError(
                    "an operation before the steps of an episode is refused",
                    where=f"{where}, before, {place}",
                    found=after,
                    expected=f"operations that {self.database.label} accepts",
                )
            state = after
        return state
