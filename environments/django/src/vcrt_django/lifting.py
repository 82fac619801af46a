"""Ask a worker about a user's Django project: branches that a merge would join, and windows of its migrations.

The worker runs the project's own code on databases that it makes; this process never imports it.
:mod:`vcrt_django.branches` interprets the replays.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from vcrt.documents import read_limited
from vcrt.environments.contract import (
    BatchEnvironment,
    Episode,
    Operation,
    Provenance,
    Replay,
    ReplayRequest,
    Schema,
    Versions,
)
from vcrt.environments.shared_prefixes import replay_by_episode
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.hashing import Json
from vcrt.orders import Order
from vcrt.replay.lifted_files import LIFT_SCHEMA
from vcrt_django.environment import as_replays
from vcrt_django.session import Limits, Session

MAX_ROWS_BYTES = 10_000_000
_SETTINGS = re.compile(
    r"""^[^#\n]*DJANGO_SETTINGS_MODULE["']\s*(?:,|\]\s*=)\s*["']([\w.]+)["']""", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DjangoStep:
    """An operation in a project: its migration, its place in it and Django's description of it."""

    app: str
    migration: str
    index: int
    text: str
    kind: str
    irreversible: bool
    branch: int = 0

    @property
    def is_noop(self) -> bool:
        """Whether it declares that it does nothing forwards."""
        return self.text in ("RunPython RunPython.noop", "RunSQL ")

    @property
    def label(self) -> str:
        """The migration and a description of the operation."""
        note = " (cannot be reversed)" if self.irreversible else ""
        own = self.migration if not self.app else f"{self.app}.{self.migration}"
        return f"{own}: {self.text}{note}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Branches:
    """Two leaves of one app, after ``base`` migrations that both need; steps know their branch, 0 or 1."""

    app: str
    leaves: tuple[str, str]
    base: int
    episode: Episode
    steps: tuple[DjangoStep, ...]

    def on_made_rows(self, kinds: Sequence[str]) -> Branches:
        """Return the same with rows in empty tables, made from their models, of these kinds besides plain ones."""
        initial: Any = self.episode.initial
        return replace(
            self, episode=replace(self.episode, initial={**initial, "rows": list(kinds)})
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Consecutive operations of one migration.

    ``reduces`` says of each operation and the next whether Django's own ``Operation.reduce`` finds that they may be
    swapped.
    """

    episode: Episode
    steps: tuple[DjangoStep, ...]
    reduces: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeOrder:
    """An order of whole branches: the hash of its final state, or the app, migration and reason of a refusal."""

    hash: str | None
    refused: tuple[str, str, str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeOrders:
    """Both orders of two branches by the unchanged migrations: the first branch first, and the second branch first.

    ``differences`` are those between their results, if both run, and ``drawn`` the columns that were not compared,
    since two runs of one order differ there. ``empty`` names the models whose tables were empty where the branches
    begin, ``made`` those for which rows were made, ``unmade`` those for which none could be, with the reason;
    ``failed`` names the receivers of signals that failed there, with the reason.
    """

    orders: tuple[WholeOrder, WholeOrder]
    differences: tuple[str, ...]
    drawn: tuple[str, ...]
    empty: tuple[str, ...]
    made: tuple[str, ...]
    unmade: tuple[tuple[str, str], ...]
    failed: tuple[tuple[str, str], ...]


class DjangoProject(BatchEnvironment):
    """The operations of one project, judged by Django; its episodes can be replayed here and nowhere else.

    ``settings`` is the module of its settings; by default ``DJANGO_SETTINGS_MODULE``, or the one that ``manage.py``
    names. ``rows`` is a file of SQL that runs before two branches. ``python`` runs the project if Django and the
    project's imports are not installed beside vcrt. Raises :class:`MalformedInputError` for a folder that is no
    project, and, from the first question on, :class:`vcrt.errors.UnavailableError` without a fit Django or server.
    """

    name: ClassVar[str] = "django"
    schemas: ClassVar[tuple[Schema, ...]] = ()
    call_timeout_s: ClassVar[float] = 3600.0

    def __init__(
        self,
        folder: Path,
        *,
        settings: str | None = None,
        server: str | None = None,
        python: str | None = None,
        rows: Path | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.folder = folder.resolve()
        if not self.folder.is_dir():
            raise _no_project(folder, "no folder")
        self.has_rows, self._server = rows is not None, server
        self._begun: dict[str, Any] | None = None
        named = {
            "folder": str(self.folder),
            "settings": settings or _settings_of(self.folder),
            "now": datetime.now(UTC).isoformat(),
            "rows": "" if rows is None else _text_of(rows),
        }
        self._session = Session(
            limits or Limits(), server=server, project=named, python=python or sys.executable
        )

    def close(self) -> None:
        """End the worker."""
        self._session.close()

    def versions(self) -> Versions:
        """Return the versions of Django and database; raise what loading the project raises."""
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="4",
            verifier=self._session.first()["label"],
        )

    @property
    def apps(self) -> tuple[str, ...]:
        """The apps that have migrations."""
        return tuple(self._session.first()["conflicts"]["apps"])

    @property
    def engine(self) -> str:
        """The database that the settings name, which is not used."""
        return str(self._session.first()["conflicts"]["engine"])

    def sample(self, schema: str, seed: int) -> Episode:
        """Raise :class:`UnknownNameError`: a project has no sampler."""
        raise UnknownNameError.of("schema", schema, ())

    def branches(self) -> list[Branches]:
        """Return each pair of leaves of an app that has several, on the present rows."""
        return [
            Branches(
                app=pair["app"],
                leaves=(pair["leaves"][0], pair["leaves"][1]),
                base=pair["base"],
                steps=_steps(pair["steps"]),
                episode=self._episode(
                    {"app": pair["app"], "leaves": pair["leaves"], "rows": None},
                    pair["steps"],
                    number,
                ),
            )
            for number, pair in enumerate(self._session.first()["conflicts"]["pairs"])
        ]

    def whole(self, branches: Branches) -> WholeOrders:
        """Run both orders by the unchanged migrations, each twice in processes of their own.

        Raise :class:`MalformedInputError` if a migration before them is refused, or if two runs of an order differ in
        more than drawn values.
        """
        found = self._asked("whole", branches, app=branches.app, leaves=list(branches.leaves))
        first, second = (WholeOrder(**order) for order in found.pop("orders"))
        return WholeOrders(orders=(first, second), **found)

    def differences(self, branches: Branches, orders: tuple[Order, Order]) -> tuple[str, ...]:
        """Return the differences between the results of two accepted orders of some of the steps, a line each.

        Return none if only drawn values differ.
        """
        found = self._asked("differences", branches, sequences=[list(one) for one in orders])
        differ: tuple[str, ...] = found["differences"]
        return differ

    def _asked(self, what: str, branches: Branches, **more: Json) -> Any:
        initial: Any = branches.episode.initial
        found = self._ask({"do": what, **initial, **more}, branches.episode.episode_id)
        return {name: _as_tuples(value) for name, value in found.items()}

    def _ask(self, request: dict[str, Any], where: str) -> Any:
        """Return the answer to a request; on a server, the start of other branches runs in another worker."""
        begins = {name: request.get(name) for name in ("app", "leaves", "rows")}
        if self._server is not None and self._begun not in (None, begins):
            self._session.close()
        self._begun = begins
        return self._session.ask(request, where=where)

    def windows(self, app: str | None, steps: int, *, every: int | None = None) -> list[Window]:
        """Return windows of ``steps`` operations in a migration, from each ``every``-th one (default: ``steps``)."""
        request = {"do": "windows", "app": app, "steps": steps, "every": every or steps}
        found = self._ask(request, str(self.folder))
        return [
            Window(
                steps=_steps(one["steps"]),
                reduces=tuple(one["reduces"]),
                episode=self._episode(
                    {"first": one["first"], "steps": steps}, one["steps"], one["first"]
                ),
            )
            for one in found
        ]

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return the project's answers; raise :class:`MalformedInputError` if a migration before them is refused."""
        return replay_by_episode(requests, self._replayed)

    def _replayed(self, episode: Episode, sequences: Sequence[Order]) -> list[Replay]:
        initial: Any = episode.initial
        asked = {"do": "replay", "sequences": [list(one) for one in sequences], **initial}
        return as_replays(sequences, self._ask(asked, episode.episode_id))

    def _episode(self, initial: Json, steps: Sequence[Any], number: int) -> Episode:
        return Episode(
            environment=self.name,
            schema=LIFT_SCHEMA,
            initial=initial,
            operations=tuple(
                Operation(signature=f"{place}. {step.label}", payload=step.text)
                for place, step in enumerate(_steps(steps), start=1)
            ),
            provenance=Provenance(source=self.folder.name, generator="django.lift", seed=number),
        )


def _as_tuples(found: Any) -> Any:
    """Return a worker's answer with tuples for lists."""
    if isinstance(found, dict):
        return {name: _as_tuples(value) for name, value in found.items()}
    return tuple(map(_as_tuples, found)) if isinstance(found, list) else found


def _steps(found: Sequence[Any]) -> tuple[DjangoStep, ...]:
    return tuple(DjangoStep(**step) for step in found)


def _text_of(file: Path) -> str:
    try:
        return read_limited(file, MAX_ROWS_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            "rows that cannot be read",
            where=str(file),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"SQL in UTF-8, at most {MAX_ROWS_BYTES:,} bytes",
        ) from error


def _no_project(folder: Path, found: str | None) -> MalformedInputError:
    return MalformedInputError(
        "no Django project there",
        where=str(folder),
        found=found,
        expected="the folder of manage.py",
        remedy="name the settings with --settings, where there is no manage.py",
    )


def _settings_of(folder: Path) -> str:
    """Return the settings module that the environment or ``manage.py`` names."""
    named = os.environ.get("DJANGO_SETTINGS_MODULE")
    if named:
        return named
    try:
        text = (folder / "manage.py").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _no_project(folder, error.strerror) from error
    match = _SETTINGS.search(text)
    if match is None:
        raise MalformedInputError(
            "a manage.py that names no settings",
            where=str(folder / "manage.py"),
            expected="DJANGO_SETTINGS_MODULE",
            remedy="name them with --settings",
        )
    return match[1]
