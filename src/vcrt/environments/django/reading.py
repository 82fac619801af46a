"""Read the operations of episodes, Python expressions as migrations have them, without running them as Python.

Only calls of the operations, fields and the like that are named here are made, with literals for arguments; a statement
of SQL is one of a few kinds and calls a few functions. So nothing in an episode is code. Imports Django; not covered:
migrations of a user's project, which Python imports.
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
#: What is quoted may stand before a bracket as the name of a table, never as that of a function.
_QUOTED_CALL = re.compile(r'(?<!INTO )(?<!TABLE )(?<!REFERENCES )(?<!ON )""\s*\(')
_CALL = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
_SQL_CALLS = _words(
    "values coalesce upper lower length abs check unique key varchar decimal references in and or not on "
    "as"
)


@dataclass(frozen=True, slots=True)
class RowChange:
    """A data migration that ``RunPython`` runs: one change of one field in all rows of a model."""

    kind: str
    model: str
    field: str
    argument: str | int

    def __call__(self, apps: Any, editor: Any) -> None:
        """Change the rows, by the models of the state that the migration starts from."""
        rows = apps.get_model(self.model).objects.using(editor.connection.alias)
        changes: dict[str, Callable[[], Any]] = {
            "fill": lambda: Coalesce(F(self.field), models.Value(self.argument)),
            "copy": lambda: F(str(self.argument)),
            "add": lambda: F(self.field) + self.argument,
            "scale": lambda: F(self.field) * self.argument,
        }
        rows.update(**{self.field: changes[self.kind]()})

    def sql(
        self, table: str, quotes: tuple[str, str], mark: str
    ) -> tuple[str, tuple[str | int, ...]]:
        """The same by SQL alone, for columns that go by the names of their fields.

        ``quotes`` are what stands before and behind a name, ``mark`` what stands for an argument.
        """
        before, behind = quotes
        field = f"{before}{self.field}{behind}"
        form = {
            "fill": f"coalesce({field}, {mark})",
            "copy": f"{before}{self.argument}{behind}",
            "add": f"{field} + {mark}",
            "scale": f"{field} * {mark}",
        }[self.kind]
        arguments = () if self.kind == "copy" else (self.argument,)
        return f"UPDATE {before}{table}{behind} SET {field} = {form}", arguments


_ROW_CHANGES = ("fill", "copy", "add", "scale")


def read_operation(text: object, *, where: str) -> Any:
    """The operation that an expression stands for; raises :class:`MalformedInputError`."""
    try:
        if not isinstance(text, str) or len(text) > 20_000:
            raise ValueError("no text of a common length")
        made = _value(ast.parse(text.strip(), mode="eval").body)
        if not isinstance(made, migrations.operations.base.Operation):
            raise ValueError("no operation")
        if isinstance(made, migrations.RunSQL):
            for statement in made.sql if isinstance(made.sql, list) else [made.sql]:
                _require_statement(statement)
        if isinstance(made, migrations.RunPython) and not isinstance(made.code, RowChange):
            raise ValueError("RunPython of something else than a change of rows")
        return made
    except (SyntaxError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedInputError(
            "an operation that cannot be read",
            where=where,
            found=f"{str(text)[:120]!r} ({error})",
            expected="migrations.OPERATION(...) with fields models.FIELD(...), SQL in single statements, or "
            "migrations.RunPython(rows.CHANGE(MODEL, FIELD, ARGUMENT))",
        ) from error


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(one) for one in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(one) for one in node.elts)
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
        arguments = [_value(one) for one in node.args]
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("arguments without names")
        keywords = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
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


def _require_statement(sql: object) -> None:
    if not isinstance(sql, str) or not _STATEMENT.fullmatch(sql):
        raise ValueError("SQL that is not one statement of a kind that is let through")
    bare = re.sub(r'"[^"]*"', '""', re.sub(r"'[^']*'", "''", sql))
    called = {name.lower() for name in _CALL.findall(bare)} - _SQL_CALLS
    if called or _QUOTED_CALL.search(bare) or any(mark in bare for mark in ("$", "--", "/*")):
        raise ValueError(f"SQL with calls or comments {sorted(called)}")
