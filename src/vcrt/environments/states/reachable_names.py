"""Find which modules an environment's code can reach, and which names of theirs it has.

Read from the source files, without running them; where a file may make names up, any name counts. Not covered: what is
looked at in those modules (see :mod:`vcrt.environments.states.outside_states`).
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from vcrt.plugins import OWN_PACKAGES


def names_in(value: Any) -> set[str]:
    """The names that a function's code, or that of a class's methods, has."""
    if isinstance(value, type):
        return set().union(*(names_in(each) for each in list(vars(value).values())))
    value = getattr(value, "__func__", value)
    found, waiting = set[str](), [getattr(value, "__code__", None)]
    for code in waiting:
        if isinstance(code, CodeType):
            found.update(code.co_names)
            waiting += code.co_consts
    return found


def comes_along(kind: Any) -> bool:
    """Whether a class is of Python or of vcrt itself."""
    name = kind.__module__
    return needs_no_look(name) or name.partition(".")[0] in sys.stdlib_module_names


def needs_no_look(module: str) -> bool:
    """Whether a module comes with vcrt; no other package can ask to be spared."""
    return module.partition(".")[0] in OWN_PACKAGES


@dataclass(frozen=True, slots=True)
class _Source:
    """What a file of Python names: globals, and modules that it imports; None: any, as it may make their names up."""

    names: frozenset[str] | None
    imports: frozenset[str] | None


#: Names of what reaches others, or modules, by names that are made up.
_MAKE_UP = frozenset({"globals", "vars", "exec", "eval", "compile", "__dict__", "modules"})
_MAKE_UP_MODULES = frozenset({"import_module", "__import__", "modules", "exec", "eval", "compile"})


@lru_cache(maxsize=1024)
def _source(path: str, changed: int) -> _Source | None:
    """The names in a file, as it was then; None if it cannot be read as Python."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    nodes = list(ast.walk(tree))
    names = set().union(*(_named(node) for node in nodes if isinstance(node, functions)))
    imports = set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            imports |= {node.module or "", *(base + alias.name for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # For what reaches a global, or imports a module, by a text.
            names |= set(node.value.split("."))
            imports.add(node.value)
    parts = {name.rsplit(".", number)[0] for name in imports for number in range(4)}
    anywhere = _named(tree)
    return _Source(
        None if anywhere & _MAKE_UP else frozenset(names),
        None if anywhere & _MAKE_UP_MODULES else frozenset(parts - {""}),
    )


def _named(tree: ast.AST) -> set[str]:
    """Names and attributes in a piece of code."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= {node.name.rpartition(".")[2], node.asname or ""}
        elif isinstance(node, ast.Global):
            found |= set(node.names)
    return found


def _source_of(space: Mapping[str, Any]) -> _Source | None:
    path = space.get("__file__")
    try:
        return _source(path, os.stat(path).st_mtime_ns) if isinstance(path, str) else None
    except OSError:
        return None


def namespaces(
    classes: list[Any],
) -> tuple[dict[int, tuple[str, dict[str, Any]]], frozenset[str] | None]:
    """The globals of the modules of these classes, with those of modules beside them that these import, by identity.

    And the names that functions in them have: no other global is looked at. None if that cannot be said of one.
    """
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for kind in classes:
        module = sys.modules.get(kind.__module__)
        spaces = [vars(module)] if module is not None else []
        # A class that was sent to another process by value has globals of its own.
        spaces += [v.__globals__ for v in vars(kind).values() if isinstance(v, FunctionType)]
        for space in spaces:
            found.setdefault(id(space), (kind.__module__, space))
        if module is not None:
            beside = _beside(module)
            waiting: list[dict[str, Any]] = [vars(module)]
            for space in waiting:
                source = _source_of(space)
                for name, other in beside.items():
                    if id(other) in found or not (source is None or _is_imported(name, source)):
                        continue
                    found[id(other)] = name, other
                    waiting.append(other)
    names = set[str]()
    for _, space in found.values():
        source = _source_of(space)
        if source is None or source.names is None:
            return found, None
        names |= source.names
    return found, frozenset(names)


def _is_imported(name: str, source: _Source) -> bool:
    """Whether a module may be among those that a file imports, be it from its own package."""
    parts, imports = name.split("."), source.imports
    return imports is None or any(
        ".".join(parts[number:]) in imports for number in range(len(parts))
    )


def _beside(module: ModuleType) -> dict[str, dict[str, Any]]:
    """The globals of the modules that lie beside one, by name; none of those that are installed."""
    file, found = getattr(module, "__file__", None), dict[str, dict[str, Any]]()
    if file is None or Path(file).parent.name in ("site-packages", "dist-packages"):
        return found
    package = getattr(module, "__package__", None)
    folder, prefix = f"{Path(file).parent}{os.sep}", f"{package}." if package else ""
    for name, other in list(sys.modules.items()):
        space = getattr(other, "__dict__", {})
        path = space.get("__file__")
        if isinstance(path, str) and path.startswith(folder):
            inner = path[len(folder) :].removesuffix(".py").replace(os.sep, ".")
            if name == prefix + inner.removesuffix(".__init__"):
                found[name] = space
    return found
