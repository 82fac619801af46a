"""Read the operations of episodes, Python expressions as in migrations, without running them as Python.

Only calls of the operations, fields and other classes that are named here are made, with literals as arguments; a
statement of SQL is of one of a few kinds and calls a few functions. So nothing in an episode is code. This module
imports Django. It does not read migrations of a user's project, which Python imports.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.db import migrations, models
from django.db.models import F
from django.db.models.functions import Coalesce

from vcrt.errors import MalformedInputError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATIONS = _words(
    "CreateModel DeleteModel RenameModel AlterModelTable AlterModelOptions AlterUniqueTogether AddField "
    "RemoveField AlterField RenameField AddIndex RemoveIndex RenameIndex AddConstraint RemoveConstraint "
    "RunSQL RunPython"
)
_MODELS = _words(
    "BigAutoField BooleanField CharField DateField DateTimeField DecimalField FloatField ForeignKey "
    "IntegerField BigIntegerField PositiveIntegerField SlugField TextField UUIDField Index "
    "UniqueConstraint OneToOneField"
)
_VALUES = frozenset(["CASCADE", "PROTECT", "SET_NULL", "DO_NOTHING"])
_STATEMENT = re.compile(
    r"(CREATE (UNIQUE )?INDEX|CREATE TABLE|CREATE VIEW|DROP (INDEX|TABLE|VIEW)|ALTER TABLE|INSERT INTO|UPDATE|"
    r"DELETE FROM) [^;]*",
    re.DOTALL,
)
#: A quoted name may stand before a bracket as the name of a table, never as that of a function.
_QUOTED_CALL = re.compile(r'(?<!INTO )(?<!TABLE )(?<!REFERENCES )(?<!ON )""\s*\(')
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
#: The database's own objects, and values that differ at another time, in another database or for other users.
_OWN = re.compile(
    r"\b(pg_\w+|information_schema|sqlite_\w+|current_\w+|localtime\w*|session_user|system_user)\b",
    re.IGNORECASE,
)
#: Arguments that Django writes into SQL unchanged, and characters that no name or value has.
_NUMBERS = frozenset(["max_length", "max_digits", "decimal_places"])
_BEYOND_NAMES = frozenset('";\\')
_SQL_CALLS = _words(
    "values coalesce upper lower length abs check unique key varchar decimal references in and or not on "
    "as"
)


@dataclass(frozen=True, slots=True)
class RowChange:
    """A data migration for ``RunPython``: one change of one field in all rows of a model."""

    kind: str
    model: str
    field: str
    argument: str | int

    def __call__(self, apps: Any, editor: Any) -> None:
        """Change the rows, by the models of the state before the migration."""
        rows = apps.get_model(self.model).objects.using(editor.connection.alias)
        changes: dict[str, Callable[[], Any]] = {
            "fill": lambda: Coalesce(F(self.field), models.Value(self.argument)),
            "copy": lambda: F(str(self.argument)),
            "add": lambda: F(self.field) + self.argument,
            "scale": lambda: F(self.field) * self.argument,
        }
        rows.update(**{self.field: changes[self.kind]()})


_ROW_CHANGES = ("fill", "copy", "add", "scale")


def read_operation(text: object, *, where: str) -> Any:
    """Return the operation of an expression; raise :class:`MalformedInputError` for another text."""
    try:
        if not isinstance(text, str) or len(text) > 20_000:
            raise ValueError("no text of a common length")
        made = _value(ast.parse(text.strip(), mode="eval").body)
        if not isinstance(made, migrations.operations.base.Operation):
            raise ValueError("no operation")
        if isinstance(made, migrations.RunSQL):
            for statement in made.sql if isinstance(made.sql, list) else [made.sql]:
                _require_statement(statement)
        if isinstance(made, migrations.RunPython):
            _require_change(made.code)
        return made
    except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedInputError(
            "an operation that cannot be read",
            where=where,
            found=f"{str(text)[:120]!r} ({error})",
            expected="migrations.OPERATION(...) with fields models.FIELD(...), SQL in single statements, or "
            "migrations.RunPython(rows.CHANGE(MODEL, FIELD, ARGUMENT))",
        ) from error


def _value(node: ast.expr, *, is_sql: bool = False) -> Any:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str) and not is_sql and _BEYOND_NAMES & set(node.value):
            raise ValueError(f"a text with one of {' '.join(sorted(_BEYOND_NAMES))}")
        return node.value
    if isinstance(node, ast.List):
        return [_value(one, is_sql=is_sql) for one in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(one, is_sql=is_sql) for one in node.elts)
    if isinstance(node, ast.Set):
        return {_value(one) for one in node.elts}
    if isinstance(node, ast.Dict):
        return {
            _value(key): _value(one)
            for key, one in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.Attribute):
        room, name = _named(node)
        if room == "models" and name in _VALUES:
            return getattr(models, name)
        raise ValueError(f"{room}.{name} is not for episodes")
    if isinstance(node, ast.Call):
        room, name = _named(node.func)
        is_sql = (room, name) == ("migrations", "RunSQL")
        arguments = [_value(one, is_sql=is_sql) for one in node.args]
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("arguments without names")
        keywords = {str(one.arg): _value(one.value, is_sql=is_sql) for one in node.keywords}
        for number in _NUMBERS & keywords.keys():
            if type(keywords[number]) is not int:
                raise ValueError(f"{number} that is no whole number")
        if room == "rows" and name in _ROW_CHANGES:
            return RowChange(name, *arguments, **keywords)
        if (room == "migrations" and name in _OPERATIONS) or (room == "models" and name in _MODELS):
            return getattr(migrations if room == "migrations" else models, name)(
                *arguments, **keywords
            )
        raise ValueError(f"{room}.{name} is not for episodes")
    raise ValueError(f"{type(node).__name__} is not for episodes")


def _named(node: ast.expr) -> tuple[str, str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    raise ValueError("a name is migrations.NAME, models.NAME or rows.NAME")


def _require_change(change: object) -> None:
    if not isinstance(change, RowChange):
        raise ValueError("RunPython of something else than a change of rows")
    names: list[object] = [*str(change.model).split("."), change.field]
    names += [change.argument] * (change.kind == "copy")
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ValueError("a change of rows whose model, field or copied field is no name")
    if type(change.argument) not in (int, str):
        raise ValueError("a change of rows by something else than a whole number or a text")


def _require_statement(sql: object) -> None:
    if not isinstance(sql, str) or not _STATEMENT.fullmatch(sql):
        raise ValueError("SQL that is not one statement of a kind that is let through")
    bare = re.sub(r'"[^"]*"', '""', re.sub(r"'[^']*'", "''", sql))
    called = {name.lower() for name in _CALL.findall(bare)} - _SQL_CALLS
    if called or _QUOTED_CALL.search(bare) or any(mark in bare for mark in ("$", "--", "/*")):
        raise ValueError(f"SQL with calls or comments {sorted(called)}")
    own = _OWN.search(sql)
    if own is not None:
        raise ValueError(f"SQL with {own[0]}: the database's own, or not always the same")
