"""Make a few rows for the empty tables of a project state, from its models and within their constraints.

Values depend on the field and the number of the row alone. Django inserts each row in a savepoint; a row that the
database refuses is left out. This module imports Django, which must be configured. Requirements of the project's code
alone are unknown to it.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.migrations.state import ProjectState

from vcrt_django.catalogue import message

#: Kinds of rows: empty values where a field allows them, and values of another row where duplicates are allowed.
WITH_EMPTY, WITH_EQUAL = "empty values", "equal values"
_NUMBERS = (1, 2, 3)
_WHOLE = frozenset(
    (
        "IntegerField",
        "BigIntegerField",
        "SmallIntegerField",
        "PositiveIntegerField",
        "PositiveBigIntegerField",
        "PositiveSmallIntegerField",
    )
)
_TEXT = frozenset(("CharField", "TextField", "SlugField", "FileField", "FilePathField"))


class _Unmade(Exception):
    """There is no value for a field; the text says why."""


def empty_models(state: ProjectState) -> list[Any]:
    """Return the models whose tables are empty, by their labels."""
    found = list[Any]()
    for model in state.apps.get_models(include_auto_created=True):
        options = model._meta
        if options.managed and not options.proxy and not options.swapped:
            # A state may have a model without a table.
            with suppress(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
                table = connection.ops.quote_name(options.db_table)
                cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
                found += [model] * (cursor.fetchone() is None)
    return sorted(found, key=lambda model: str(model._meta.label))


def make_rows(state: ProjectState, kinds: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the models that got rows, and those that got none, each with the reason."""
    waiting, made, unmade = empty_models(state), list[str](), list[list[str]]()
    while waiting:
        empty = {model._meta.label for model in waiting}
        model = next(
            (
                each
                for only_needed in (False, True)
                for each in waiting
                if not empty & _referred(each, only_needed=only_needed)
            ),
            waiting[0],
        )
        waiting.remove(model)
        why = _fill(model, kinds)
        if why is None:
            made.append(model._meta.label)
        else:
            unmade.append([model._meta.label, why])
    return sorted(made), unmade


def _referred(model: Any, *, only_needed: bool) -> set[str]:
    """Return the other models that its keys refer to."""
    labels = {
        str(field.related_model._meta.label)
        for field in model._meta.concrete_fields
        if field.is_relation and not (only_needed and field.null)
    }
    return labels - {model._meta.label}


def _fill(model: Any, kinds: Sequence[str]) -> str | None:
    """Insert rows into a table; return the reason if there is none."""
    reason, number_made = "", 0
    plans = [(number, number, False) for number in _NUMBERS]
    if WITH_EMPTY in kinds:
        plans.insert(0, (len(_NUMBERS) + 1, 0, True))
    if WITH_EQUAL in kinds:
        plans.append((len(_NUMBERS) + 2, _NUMBERS[-1], False))
    for own, shared, is_empty in plans:
        try:
            with transaction.atomic():
                values = {
                    field.attname: value
                    for field in model._meta.concrete_fields
                    for value in _values(field, own, shared or own, is_empty=is_empty)
                }
                model(**values).save_base(using=connection.alias, force_insert=True)
                connection.check_constraints()
            number_made += 1
        except MemoryError:
            raise
        except _Unmade as error:
            return None if number_made else str(error)
        except (Exception, SystemExit) as error:
            reason = reason or message(error)
    return None if number_made else f"the database takes none: {reason}"


def _values(field: Any, own: int, shared: int, *, is_empty: bool) -> list[Any]:
    """Return the value of a field in a list, empty if the database or Django gives it."""
    parents = field.model._meta.parents.values()
    if getattr(field, "generated", False) or field in parents or _kind(field).endswith("AutoField"):
        return []
    is_own = field.unique or field.primary_key
    if is_empty and field.null:
        return [None]
    if field.is_relation:
        return [_key(field, own if is_own else shared)]
    if is_empty and field.blank and not is_own and _kind(field) in _TEXT:
        return [""]
    return [value_of(field, own if is_own else shared)]


def _key(field: Any, number: int) -> Any:
    target = field.target_field
    known = field.related_model._base_manager.using(connection.alias).order_by("pk")
    keys = list(known.values_list(target.attname, flat=True)[: len(_NUMBERS) + 2])
    if keys:
        # A row refers to the row of the same number, so keys that must differ do.
        return keys[(number - 1) % len(keys)]
    if field.null:
        return None
    raise _Unmade(f"{field.name} needs a row of {field.related_model._meta.label}, which has none")


def _kind(field: Any) -> str:
    return str(field.get_internal_type())


def value_of(field: Any, number: int) -> Any:
    """Return a field's value for the row of a number, different for each; raise :class:`_Unmade` without one."""
    choices = [
        key
        for value, label in field.choices or ()
        for key in ([each[0] for each in label] if isinstance(label, list | tuple) else [value])
        if key not in (None, "")
    ]
    if choices:
        return choices[(number - 1) % len(choices)]
    kind, named = _kind(field), field.name
    zone = datetime.UTC if settings.USE_TZ else None
    makers: dict[str, Callable[[], Any]] = {
        "BooleanField": lambda: number % 2 == 0,
        "NullBooleanField": lambda: number % 2 == 0,
        "FloatField": lambda: number + 0.5,
        "DecimalField": lambda: decimal.Decimal(number).scaleb(
            -field.decimal_places if field.decimal_places == field.max_digits else 0
        ),
        "DateField": lambda: datetime.date(2001, 1, number),
        "DateTimeField": lambda: datetime.datetime(2001, 1, number, 12, tzinfo=zone),
        "TimeField": lambda: datetime.time(number),
        "DurationField": lambda: datetime.timedelta(hours=number),
        "UUIDField": lambda: uuid.UUID(int=number, version=4),
        "GenericIPAddressField": lambda: f"192.0.2.{number}",
        "JSONField": lambda: {named: number},
        "BinaryField": lambda: bytes([number]),
        "SlugField": lambda: _text(f"{named}-", number, field.max_length),
        "ArrayField": lambda: [value_of(field.base_field, number)],
    }
    if kind in makers:
        return makers[kind]()
    if kind in _WHOLE:
        return number
    if kind in _TEXT:
        if any("mail" in type(one).__name__ for one in field.validators):
            return f"a{number}@example.org"[-(field.max_length or 99) :]
        if any("URL" in type(one).__name__ for one in field.validators):
            return f"http://example.org/{number}"[: field.max_length]
        return _text(f"{named.capitalize()} ", number, field.max_length)
    raise _Unmade(f"{named} is a field of kind {type(field).__name__}")


def _text(name: str, number: int, longest: int | None) -> str:
    return str(number) if longest == 1 else f"{name[: (longest or 99) - 1]}{number}"
