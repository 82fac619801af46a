"""Run operations as migrations of their own by Django, each prefix of an order once, from snapshots of the database.

An error of Django or the database refuses an operation, and so does a project state of which Django cannot make models.
This module imports Django, which must be configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from django.db import DatabaseError, NotSupportedError, connection
from django.db.migrations.migration import Migration
from django.db.migrations.operations import RenameModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_django.catalogue import StateForms, dangling, digest, message
from vcrt_django.databases import Database

_Order: TypeAlias = tuple[int, ...]
#: For each sequence, whether its last step was accepted, and its result or the reason of the refusal.
Answers: TypeAlias = dict[_Order, tuple[bool, Any]]
#: PostgreSQL's errors for a statement that must not be in a transaction, ends one, or needs an earlier one to be
#: committed; and SQLite's for one that opens another file, as VACUUM does.
_OUTSIDE_STATES = ("25001", "2D000", "55P04")
_OUTSIDE_TEXTS = ("inside a transaction", "too many attached databases")
_DURABLE = "A durable atomic block cannot be nested"
#: Fields whose forms are kept at a time.
_MAX_FIELDS = 20_000


def migration_of(
    app: str, operations: Sequence[Any], *, atomic: bool = True, name: str = "step"
) -> Migration:
    """Return a migration of these operations alone."""
    made = Migration(name, app)
    made.operations, made.atomic = list(operations), atomic
    return made


def with_content_types(migration: Migration) -> Iterator[Operation]:
    """Yield its operations, and after each renamed model the renaming of its content type, as ``migrate`` does."""
    from django.contrib.contenttypes.management import RenameContentType

    for operation in migration.operations:
        yield operation
        if isinstance(operation, RenameModel):
            names = operation.old_name_lower, operation.new_name_lower
            rename = RenameContentType(migration.app_label, *names)
            rename.code = partial(_where_they_are, rename.code)
            yield rename


def is_content_type(operation: Operation) -> bool:
    """Return whether :func:`with_content_types` added an operation."""
    return getattr(getattr(operation, "code", None), "func", None) is _where_they_are


def _where_they_are(rename: Callable[[Any, Any], None], apps: Any, editor: Any) -> None:
    if "contenttype" in apps.all_models["contenttypes"]:
        rename(apps, editor)


class Replayer:
    """A replayer of operations on one database; it calls ``before`` with each migration before running it.

    ``others`` gets the names of other databases as they are queried. With ``fresh``, which does work in a process of
    its own, no step sees the changes in Python of a step outside of its sequence.
    """

    def __init__(
        self,
        database: Database,
        *,
        before: Callable[[Migration], None] = lambda migration: None,
        others: list[str] | None = None,
        fresh: Callable[[Callable[[], Any]], Any] | None = None,
    ) -> None:
        self.database, self._before, self._fresh = database, before, fresh
        self._others = [] if others is None else others
        self._forms = StateForms()

    def apply(self, before: ProjectState, migration: Migration) -> ProjectState | str:
        """Run a migration on the database; return the project state after it, or the reason of its refusal."""
        self._before(migration)
        where = f"{migration.app_label}.{migration.name}"
        try:
            with connection.schema_editor(atomic=migration.atomic) as editor:
                after = migration.apply(before.clone(), editor)
            if connection.run_on_commit and not migration.atomic:
                raise NotSupportedError(
                    "on_commit of a migration that is not atomic, inside a transaction"
                )
            self.database.settle()
            answer: ProjectState | str = renderable(after)
        except MemoryError:
            raise
        # An error of Django, the database, or the migration's own code fails the migration.
        except (Exception, SystemExit) as error:
            if _is_outside(error):
                raise MalformedInputError(
                    "a migration that runs outside of transactions, needs what they commit, or opens another file",
                    where=where,
                    found=message(error),
                    expected="operations that can be taken back",
                    remedy="judge on the other database, or with these operations left out",
                ) from error
            answer = message(error)
        if self._others:
            alias = self._others[0]
            self._others.clear()
            raise MalformedInputError(
                "a migration that asks another database than the one that is judged",
                where=where,
                found=f"the database {alias!r} of DATABASES",
                expected="migrations that use the connection of their schema editor, alias 'default'",
                remedy="judge with these operations left out",
            )
        return answer

    def form(self, state: ProjectState) -> tuple[Json, dict[str, Json]]:
        """Return the project state and the content of the database."""
        if len(self._forms) > _MAX_FIELDS:
            self._forms = StateForms()
        return self._forms.form(state), self.database.form()

    def digest(self, state: ProjectState) -> str:
        """Return the SHA-256 of the project state and of the database's content."""
        return digest(*self.form(state))

    def replays(
        self, start: ProjectState, steps: Sequence[Migration], sequences: Sequence[_Order]
    ) -> list[Json]:
        """Return the hashes along each sequence and its refusal, if any; leave the database as it was."""
        return hashes_along(sequences, self.answers(start, steps, sequences, self.digest))

    def answers(
        self,
        start: ProjectState,
        steps: Sequence[Migration],
        sequences: Sequence[_Order],
        tell: Callable[[ProjectState], Any],
    ) -> Answers:
        """Return, for each sequence and its prefixes, the result of ``tell`` on the state, or the reason of a refusal.

        Leave the database as it was.
        """
        tree: dict[int, Any] = {}
        for sequence in sequences:
            node = tree
            for step in sequence:
                node = node.setdefault(step, {})
        kept = self._kept()
        answers: Answers = {(): (True, tell(start))}
        self._walk((), start, tree, kept, steps, tell, answers)
        self._restore(kept)
        return answers

    def _walk(
        self,
        prefix: _Order,
        state: ProjectState,
        node: dict[int, Any],
        kept: Any,
        steps: Sequence[Migration],
        tell: Callable[[ProjectState], Any],
        answers: Answers,
    ) -> None:
        # Render once, for all continuations.
        state.apps  # noqa: B018
        for place, (index, following) in enumerate(node.items()):
            if place:
                self._restore(kept)
            onward = partial(self._onward, (*prefix, index), state, following, steps, tell)
            # The last continuation may use this process, since nothing else runs in it.
            is_last = bool(prefix) and place == len(node) - 1
            answers |= onward() if self._fresh is None or is_last else self._afresh(onward)

    def _onward(
        self,
        sequence: _Order,
        state: ProjectState,
        following: dict[int, Any],
        steps: Sequence[Migration],
        tell: Callable[[ProjectState], Any],
    ) -> Answers:
        """Run the last step of a sequence, and all its continuations."""
        after = self.apply(state, steps[sequence[-1]])
        if isinstance(after, str):
            return {sequence: (False, after)}
        answers: Answers = {sequence: (True, tell(after))}
        if following:
            kept = self._kept() if len(following) > 1 else None
            self._walk(sequence, after, following, kept, steps, tell, answers)
        return answers

    def _afresh(self, onward: Callable[[], Answers]) -> Answers:
        """Return the answers from a process of its own, by JSON."""
        assert self._fresh is not None
        found = self._fresh(
            lambda: [[list(sequence), *said] for sequence, said in onward().items()]
        )
        return {tuple(sequence): (accepted, said) for sequence, accepted, said in found}

    def _kept(self) -> Any:
        """Return what restores the database; None where a fresh process has its own."""
        is_own = self._fresh is not None and self.database.is_forked
        return None if is_own else self.database.snapshot()

    def _restore(self, kept: Any) -> None:
        if kept is not None:
            self.database.restore(kept)


def _is_outside(error: BaseException) -> bool:
    """Return whether a step fails only because it runs in a transaction here, or may not open other files."""
    own = isinstance(error, DatabaseError) and any(text in str(error) for text in _OUTSIDE_TEXTS)
    if connection.vendor == "postgresql":
        own |= isinstance(error, RuntimeError) and str(error).startswith(_DURABLE)
    return own or getattr(error.__cause__, "sqlstate", None) in _OUTSIDE_STATES


def renderable(state: ProjectState) -> ProjectState:
    """Return the state; raise Django's error if a field or a base names a missing model."""
    if next(dangling(state), None) is not None:
        fresh = state.clone()
        fresh.__dict__.pop("apps", None)
        fresh.apps  # noqa: B018
    return state


def hashes_along(sequences: Sequence[_Order], answers: Answers) -> list[Json]:
    """Return the hashes along each sequence, and its refusal, if any."""
    return [_replay(sequence, answers) for sequence in sequences]


def _replay(sequence: _Order, answers: Answers) -> Json:
    hashes = list[Json]()
    for length in range(len(sequence) + 1):
        accepted, said = answers[sequence[:length]]
        if not accepted:
            return [hashes, said]
        hashes.append(said)
    return [hashes, None]
