"""Write the content of a database, by its own catalogue, and Django's project state, as canonical JSON.

The form of a table leaves out the order of columns, constraints and rows: Django names every column that it reads or
writes. It leaves out what vcrt or Django keep for themselves (``django_migrations``, names with the prefix
``sqlite_``). This module imports Django; :mod:`vcrt_django.postgresql_catalogue` reads PostgreSQL's catalogue.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter
from django.utils.functional import Promise

from vcrt.hashing import Json, json_digest

#: A function that sends a query to a database and returns the rows.
Query = Callable[[str], Sequence[Sequence[Any]]]
#: The most differences that are listed of each of two states.
MAX_DIFFERENCES = 1_000
OWN_TABLE = "django_migrations"
#: The name of a column without the quotes that Django writes when it makes the table anew.
_BARE_COLUMN = re.compile(
    r"^(?!(?:CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN)\b)([a-z_]\w*)(?=\s|$)", re.IGNORECASE
)
#: A declaration that a column may be null, which is the default.
_NULL = re.compile(
    r"""('(?:[^']|'')*'|"[^"]*"|`[^`]*`|\[[^\]]*\]|\b(?:NOT|SET|IS|DEFAULT) NULL\b)| ?\bNULL\b""",
    re.IGNORECASE,
)
_SPACE = re.compile(r"""('(?:[^']|'')*'|"[^"]*"|`[^`]*`)|\s+""")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_SQLITE_PARTS = {
    "columns": 'SELECT m.name, x.name, x.type, x."notnull", x.dflt_value, x.pk, x.hidden FROM sqlite_master m, '
    "pragma_table_xinfo(m.name) x WHERE m.type = 'table'",
    "keys": 'SELECT m.name, f.seq, f."table", f."from", f."to", f.on_update, f.on_delete FROM sqlite_master m, '
    "pragma_foreign_key_list(m.name) f WHERE m.type = 'table'",
    # Indexes of a table's own are numbered: the form has their columns, not their names.
    "unique": "SELECT m.name, i.origin, i.partial, group_concat(x.name) FROM sqlite_master m, "
    "pragma_index_list(m.name) i, pragma_index_info(i.name) x WHERE m.type = 'table' AND i.origin <> 'c' "
    "GROUP BY m.name, i.name",
}
#: A cell as a literal, which shows its type, without a converter. SQLite ends a text at a zero character.
_LITERAL = "CASE WHEN typeof({0}) = 'text' AND instr({0}, char(0)) THEN 'text ' || hex({0}) ELSE quote({0}) END"
#: The settings of a database besides tables, with their defaults. The journal mode is left out: that of a database in
#: memory cannot be changed.
_KEPT = (
    "SELECT user_version, application_id, auto_vacuum, encoding FROM pragma_user_version, pragma_application_id, "
    "pragma_auto_vacuum, pragma_encoding"
)
_PRAGMAS_OF_NEW = (0, 0, 0, "UTF-8")


def sqlite_form(query: Query) -> dict[str, Json]:
    """Return the content of an SQLite database."""
    form: dict[str, Json] = {
        name: sorted_rows(row for row in query(sql) if _is_told(row[0]))
        for name, sql in _SQLITE_PARTS.items()
    }
    made = list(query("SELECT type, name, tbl_name, sql FROM sqlite_master"))
    form["texts"] = sorted_rows(
        [kind, name, table, *(_parts(sql) if kind == "table" else [_plain(sql)])]
        for kind, name, table, sql in made
        if sql is not None and _is_told(table)
    )
    tables = [name for kind, name, _, _ in made if kind == "table" and _is_told(name)]
    columns: dict[str, list[str]] = {}
    for table, column, *_ in query(_SQLITE_PARTS["columns"]):
        columns.setdefault(table, []).append(quoted(column))
    form["rows"] = [
        table_rows(query, quoted(t), [_LITERAL.format(name) for name in sorted(columns[t])])
        for t in sorted(tables)
    ]
    kept = query(_KEPT)
    if tuple(kept[0]) != _PRAGMAS_OF_NEW:
        form["pragmas"] = sorted_rows(kept)
    if any(name == "sqlite_sequence" for _, name, _, _ in made):
        form["numbers"] = sorted_rows(query("SELECT name, seq FROM sqlite_sequence WHERE seq > 0"))
    return form


def table_rows(query: Query, table: str, columns: Sequence[str]) -> Json:
    """Return a table with its rows, sorted."""
    return [table, sorted_rows(query(f"SELECT {', '.join(columns)} FROM {table}"))]


def _cell(value: object) -> Json:
    return value if isinstance(value, str | int | None) else f"{type(value).__name__} {value!r}"


def quoted(name: str) -> str:
    """Return a name in SQL's quotes."""
    return '"' + name.replace('"', '""') + '"'


def _is_told(table: object) -> bool:
    return table != OWN_TABLE and not str(table).startswith("sqlite_")


def _plain(text: str) -> str:
    """Return the text without irrelevant white space, which is any outside of quotes."""
    return _SPACE.sub(lambda found: found[1] or " ", text).strip()


def sorted_rows(rows: Any) -> list[Json]:
    """Return the rows as JSON, sorted."""
    plain: list[Json] = [[_cell(cell) for cell in row] for row in rows]
    return sorted(plain, key=repr)


def _parts(sql: str) -> list[str]:
    """Return the parts between the commas of CREATE TABLE, sorted, with the text before and after the brackets."""
    parts, depth, quote, start = list[str](), 0, "", 0
    for place, character in enumerate(sql):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'`":
            quote = character
        elif character == "(":
            depth += 1
            if depth == 1:
                start = place + 1
        elif character in "),":
            if depth == 1:
                part = _NULL.sub(lambda found: found[1] or "", _plain(sql[start:place]))
                parts.append(_BARE_COLUMN.sub(r'"\1"', part))
                start = place + 1
            depth -= character == ")"
    return [*sorted(parts), _plain(sql[start:])]


class StateForms:
    """A writer of project states; it keeps the forms of fields, as clones of a state share their fields."""

    def __init__(self) -> None:
        self._fields: dict[int, tuple[object, Json]] = {}

    def __len__(self) -> int:
        """Return the number of kept fields."""
        return len(self._fields)

    def form(self, state: ProjectState) -> Json:
        """Return each model with its fields, options, bases and managers."""
        return {
            ".".join(key): self._model(model)
            for key, model in sorted(state.models.items(), key=lambda item: item[0])
        }

    def _model(self, model: ModelState) -> Json:
        options = {name: _option(name, value) for name, value in sorted(model.options.items())}
        return [
            model.name,
            {name: self._field(field) for name, field in sorted(model.fields.items())},
            options,
            value_form(model.bases),
            [[name, value_form(manager)] for name, manager in model.managers],
        ]

    def _field(self, field: Any) -> Json:
        known = self._fields.get(id(field))
        if known is None or known[0] is not field:
            known = self._fields[id(field)] = field, value_form(field.deconstruct()[1:])
        return known[1]


def _option(name: str, value: Any) -> Json:
    """Return the form of a model's option; unordered ones, sets or lists, are sorted."""
    if name in ("unique_together", "index_together", "indexes", "constraints") and value:
        return sorted(map(value_form, value), key=repr)
    return value_form(value)


def value_form(value: Any) -> Json:
    """Return a value of a migration as JSON, in the form that Django would write."""
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, Promise):
        return str(value)
    if isinstance(value, list | tuple):
        return ["sequence", *map(value_form, value)]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(map(value_form, value), key=repr)]
    if isinstance(value, Mapping):
        pairs: list[Json] = [[value_form(key), value_form(one)] for key, one in value.items()]
        return ["mapping", *sorted(pairs, key=repr)]
    if isinstance(value, partial):
        return [
            "partial",
            value_form(value.func),
            value_form(value.args),
            value_form(value.keywords),
        ]
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        return ["named", f"{value.__module__}.{value.__qualname__}"]
    if hasattr(value, "deconstruct"):
        return ["object", *map(value_form, value.deconstruct())]
    try:
        # Marked, as a default may be such a text too.
        return ["value", str(MigrationWriter.serialize(value)[0])]
    except ValueError:
        return ["value", f"{type(value).__qualname__} {_ADDRESS.sub('', repr(value))}"]


def message(error: BaseException) -> str:
    """Return an error's message, the same in every process."""
    return _ADDRESS.sub("", f"{type(error).__name__}: {error}").strip()


def dangling(state: ProjectState) -> Iterator[str]:
    """Yield the models that fields or bases of the state name and that it does not have."""
    for (app, _), model in state.models.items():
        named = [base for base in model.bases if isinstance(base, str)]
        for field in model.fields.values():
            remote = getattr(field, "remote_field", None)
            named += [
                other
                for other in (getattr(remote, "model", None), getattr(remote, "through", None))
                if isinstance(other, str) and other != "self"
            ]
        for name in named:
            label, _, short = name.rpartition(".")
            if ((label or app).lower(), short.lower()) not in state.models:
                yield name


def differences(
    one: tuple[Json, Mapping[str, Json]], other: tuple[Json, Mapping[str, Json]]
) -> list[str]:
    """Return what one project state and database hold and the other do not, a line each; empty if they are equal.

    List at most ``MAX_DIFFERENCES`` of each, and then a line with the number of the others.
    """
    held = [Counter(_facts(state, database)) for state, database in (one, other)]
    names = ("the first order alone", "the second order alone")
    lines = list[str]()
    for name, mine, others in zip(names, held, held[::-1], strict=True):
        facts = sorted((mine - others).elements())
        lines += [f"{name}: {fact}" for fact in facts[:MAX_DIFFERENCES]]
        if len(facts) > MAX_DIFFERENCES:
            lines.append(f"{name}: {len(facts) - MAX_DIFFERENCES} more")
    return lines


def _facts(state: Any, database: Mapping[str, Any]) -> Iterator[str]:
    """Yield each fact in the state and the database."""
    for name, (_, fields, *others) in state.items():
        yield f"model {name} with {json.dumps(others)}"
        for field, form in fields.items():
            yield f"model {name}, field {field} {json.dumps(form)}"
    columns = columns_of(database)
    for part, rows in database.items():
        for row in rows:
            if part == "rows":
                table, of_table = row
                for cells in of_table:
                    named = zip(columns[table], cells, strict=True)
                    yield f"row of {table}: {', '.join(f'{name} {cell}' for name, cell in named)}"
            else:
                yield f"{part} {json.dumps(row)}"


def columns_of(database: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the columns of each table, in the order of their cells, quoted."""
    columns: dict[str, list[str]] = {}
    for first, second, _, fourth, *_ in database["columns"]:
        # PostgreSQL's have a schema before them.
        if "constraints" in database:
            columns.setdefault(f"{quoted(first)}.{quoted(second)}", []).append(quoted(fourth))
        else:
            columns.setdefault(quoted(first), []).append(quoted(second))
    return {table: sorted(names) for table, names in columns.items()}


def digest(state: Json, database: Mapping[str, Json]) -> str:
    """Return the SHA-256 of a project state and of the database's content."""
    return json_digest([state, dict(database)])
