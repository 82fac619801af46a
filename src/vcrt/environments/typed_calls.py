"""Convert a call's arguments by type hints, and outputs to JSON, with pydantic.

This is apart from :mod:`vcrt.environments.tool_calls`, since importing pydantic takes longer than most calls: tools
with neither type hints nor models need not wait for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError, validate_call
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from vcrt.forms import first_error
from vcrt.hashing import canonical_json


class UnfitArguments(Exception):
    """The arguments do not fit the type hints."""


def fitted(
    function: Callable[..., object], arguments: Mapping[str, Any], *, alone: bool
) -> Mapping[str, Any]:
    """Return the arguments converted by the function's type hints, or unchanged if pydantic cannot read the hints.

    ``alone`` means that the function takes no object before them. Omitted arguments keep the function's defaults. Raise
    :class:`UnfitArguments` for arguments that do not fit.
    """
    fit = _fitting(function)
    try:
        return arguments if fit is None else fit(arguments, alone)
    except ValidationError as error:
        raise UnfitArguments(first_error(error)) from error


def written_with_sets_sorted(output: object) -> Any:
    """Return an output as pydantic writes it for a model, with the members of sets in one order."""
    return _sets_sorted(to_jsonable_python(output), output)


@lru_cache(maxsize=1024)
def _fitting(
    function: Callable[..., object],
) -> Callable[[Mapping[str, Any], bool], Mapping[str, Any]] | None:
    """Return the conversion of arguments by a function's type hints; None if pydantic cannot read the hints."""

    @wraps(function)
    def taken(*_: object, **given: object) -> Mapping[str, object]:
        return given

    try:
        checked: Callable[..., Mapping[str, Any]] = validate_call(taken)
        parameters = inspect.signature(function).parameters
    except (PydanticUserError, NameError, TypeError, ValueError):
        return None

    def fitted(arguments: Mapping[str, Any], alone: bool) -> Mapping[str, Any]:
        given = checked(**arguments) if alone else checked(None, **arguments)
        return {
            name: value
            for name, value in given.items()
            if name in arguments or not _is_default(parameters.get(name), value)
        }

    return fitted


def _is_default(parameter: inspect.Parameter | None, value: object) -> bool:
    if parameter is None:
        return False
    default = parameter.default
    # pydantic copies mutable defaults.
    return value is default or (type(default) in (list, dict, set) and value == default)


def _sets_sorted(written: Any, value: object) -> Any:
    """Return a value's JSON form with the members of its sets in one order."""
    if isinstance(written, list) and isinstance(value, set | frozenset | list | tuple):
        each = [_sets_sorted(*pair) for pair in zip(written, value, strict=True)]
        return each if isinstance(value, list | tuple) else sorted(each, key=canonical_json)
    if isinstance(value, RootModel):
        return _sets_sorted(written, value.root)
    if not isinstance(written, dict):
        return written
    parts: dict[str, object] = {}
    if isinstance(value, Mapping):
        parts = dict(zip(written, value.values(), strict=True))
    elif isinstance(value, BaseModel):
        known = type(value).model_fields.items()
        parts = {each.serialization_alias or name: getattr(value, name) for name, each in known}
    elif is_dataclass(value):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
    return {key: _sets_sorted(each, parts.get(key)) for key, each in written.items()}
