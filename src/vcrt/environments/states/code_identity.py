"""Tell functions and classes apart: by name if a module has them under it, else by their code. Pure."""

from __future__ import annotations

import dis
import sys
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any
from uuid import UUID

from vcrt.environments.registry import own_module_name
from vcrt.hashing import sha256_hex

#: Classes of the objects that C makes for the body of a class.
MADE_BY_C = (
    *(GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType),
    ClassMethodDescriptorType,
)


def is_found(value: Any) -> bool:
    """Return whether a module has this function or class under its name.

    Count also what another process's program sent by value, and what a loader keeps to itself, if this process has
    nothing under that name.
    """
    found = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    sent = found is None and is_elsewhere(value) and "<" not in value.__qualname__
    return found is value or sent


def is_elsewhere(value: Any) -> bool:
    """Return whether this process may lack the module of a function or class: then its name does not identify it."""
    return value.__module__ == "__main__" or value.__module__ not in sys.modules


def is_fixed(value: Any) -> bool:
    """Return whether a value never changes and refers to nothing that does."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_fixed, value))
    if isinstance(value, FunctionType | type):
        return is_found(value)
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | None)
    return isinstance(value, Enum) or type(value) in _FIXED


_FIXED = {type(None), bool, int, float, complex, str, bytes, date, timedelta, Decimal, UUID}


def sets_variables(code: CodeType) -> bool:
    """Return whether a function sets a variable of an enclosing function."""
    return any(
        each.opname in ("STORE_DEREF", "DELETE_DEREF") and each.argval in code.co_freevars
        for each in dis.get_instructions(code)
    )


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a function's code, or of a class's body and bases; equal if it is sent by value."""
    if isinstance(value, FunctionType):
        return code_digest(value.__code__)
    parts: list[object] = [name_of(each) for each in value.__bases__]
    for name, each in sorted(vars(value).items()):
        inner = [getattr(each, part, None) for part in ("fget", "fset", "fdel", "__func__", "func")]
        codes = [getattr(one, "__code__", None) for one in (each, *inner)]
        parts += [name, *(code_digest(code) for code in codes if isinstance(code, CodeType))]
        if type(each) in _FIXED:
            parts.append(repr(each))
    return sha256_hex(repr(parts).encode())


def code_digest(code: CodeType) -> str:
    """Return the SHA-256 of a function's code, equal in every process of one Python."""
    constants = [
        code_digest(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts
    ]
    names: list[object] = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    names += [code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
    return sha256_hex(repr((code.co_code.hex(), constants, names)).encode())


def _constant(value: object) -> str:
    """Return a constant of code as text, with the members of sets sorted."""
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    return repr(value)


def name_of(value: Any) -> str:
    """Return the full name of a class or function; a built-in one has its short name."""
    module = getattr(value, "__module__", None)
    if module in (None, "builtins"):
        return str(value.__qualname__)
    return f"{own_module_name(value)}.{value.__qualname__}"
