"""Find the modules that an environment's code can reach, and the names in them that it uses.

The source files are read, not run; where a file may compute names, any name counts.
:mod:`vcrt.environments.states.outside_states` compares what these modules hold.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from vcrt.plugins import OWN_PACKAGES


def names_in(value: Any) -> set[str]:
    """Return the names in the code of a function, or of a class's methods."""
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
    """Return whether a class belongs to Python or to vcrt itself."""
    name = kind.__module__
    return needs_no_look(name) or name.partition(".")[0] in sys.stdlib_module_names


def needs_no_look(module: str) -> bool:
    """Return whether a module belongs to vcrt; no other package can exempt itself."""
    return module.partition(".")[0] in OWN_PACKAGES


@dataclass(frozen=True, slots=True)
class _Source:
    """The names in a Python file (None means any, as it may compute them), and the modules that it may import.

    ``texts`` are those that may name a module, with the names that follow it in them, "" for none. ``is_any`` says that
    the file may import what it, or another file, names by a text.
    """

    names: frozenset[str] | None
    imports: frozenset[str]
    texts: Mapping[str, Collection[str]]
    is_any: bool

    def has_text_of(self, name: str, space: Mapping[str, Any], *, by_words: bool) -> bool:
        """Return whether a text names a module, or something in it; a single word counts only ``by_words``."""
        after = self.texts.get(name, ())
        if "" in after and (by_words or "." in name):
            return True
        return any(each in space and type(space[each]) is not ModuleType for each in after)


#: Names by which code reaches other names, or modules, under computed names; and those of them that methods have too.
_MAKE_UP = frozenset({"globals", "vars", "exec", "eval", "compile", "__dict__", "modules"})
_MAKE_UP_MODULES = frozenset(
    {"import_module", "__import__", "modules", "exec", "eval", "compile", "resolve_name"}
    | {"run_module", "run_path", "exec_module", "load_module"}
)
_METHODS_TOO = frozenset({"exec", "eval", "compile"})
_ANYTHING = _Source(None, frozenset(), {}, is_any=True)


@lru_cache(maxsize=1024)
def _source(path: str, changed: int) -> _Source:
    """Return the names in a file, as it was at the time ``changed``."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return _ANYTHING
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    nodes = list(ast.walk(tree))
    names = set().union(*(_named(node) for node in nodes if isinstance(node, functions)))
    imports, texts = set[str](), dict[str, set[str]]()
    for node in nodes:
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = f"{node.module}." if node.module else ""
            imports |= {node.module or "", *(base + alias.name for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A text may name a global, or a module to import.
            names |= set(node.value.split("."))
            words = node.value.replace(":", ".").split(".")
            for number in range(1, len(words) + 1 if all(map(str.isidentifier, words)) else 0):
                following = "".join(words[number : number + 1])
                texts.setdefault(".".join(words[:number]), set()).add(following)
    anywhere = _named(tree)
    if "builtins" not in imports | texts.keys() and "__builtins__" not in anywhere:
        # A method such as `re.compile` is not Python's function.
        anywhere -= _METHODS_TOO - _named(tree, attributes=False)
    parts = {name.rsplit(".", number)[0] for name in imports for number in range(4)}
    return _Source(
        None if anywhere & _MAKE_UP else frozenset(names),
        frozenset(parts - {""}),
        texts,
        is_any=bool(anywhere & _MAKE_UP_MODULES),
    )


def _named(tree: ast.AST, *, attributes: bool = True) -> set[str]:
    """Return the names in a piece of code, and those of attributes."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and attributes:
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found |= {node.name.rpartition(".")[2], node.asname or ""}
        elif isinstance(node, ast.Global):
            found |= set(node.names)
    return found


def _source_of(space: Mapping[str, Any]) -> _Source:
    path = space.get("__file__")
    try:
        return _source(path, os.stat(path).st_mtime_ns) if isinstance(path, str) else _ANYTHING
    except OSError:
        return _ANYTHING


def namespaces(
    classes: list[Any],
) -> tuple[dict[int, tuple[str, dict[str, Any]]], frozenset[str] | None]:
    """Return, by identity, the globals of these classes' modules and of the user's own modules that these import.

    Return also the names that their functions use (no other global is compared), or None if that is unknown for one.
    """
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    for kind in classes:
        module = sys.modules.get(kind.__module__)
        spaces = [vars(module)] if module is not None else []
        # A class that was sent from another process by value has globals of its own.
        own = [getattr(value, "__func__", value) for value in vars(kind).values()]
        spaces += [each.__globals__ for each in own if isinstance(each, FunctionType)]
        for space in spaces:
            name = str(space.get("__name__", kind.__module__))
            if not needs_no_look(name):
                found.setdefault(id(space), (name, space))
        if module is not None:
            found |= _reached(module, found)
    names = set[str]()
    for _, space in found.values():
        source = _source_of(space)
        if source.names is None:
            return found, None
        names |= source.names
    return found, frozenset(names)


def _reached(
    module: ModuleType, known: Mapping[int, object], *, by_words: bool = False
) -> dict[int, tuple[str, dict[str, Any]]]:
    """Return the globals of the user's own modules that a module's code may import, but for those that are known.

    Single words name modules only ``by_words``, which is so where one of these files may import what another names.
    """
    beside, waiting = _beside(module), [vars(module)]
    modules, found = {**_of_the_user(module), **beside}, dict[int, tuple[str, dict[str, Any]]]()
    for space in waiting:
        source = _source_of(space)
        if source.is_any and not by_words:
            return _reached(module, known, by_words=True)
        for name, other in modules.items():
            if id(other) in known or id(other) in found:
                continue
            # Where a file may import any module, those in the folder count; but nobody imports tests by a made name.
            anyway = source.is_any and name in beside and not _is_of_pytest(other)
            named = _is_imported(name, source) or source.has_text_of(name, other, by_words=by_words)
            if anyway or named:
                found[id(other)] = name, other
                waiting.append(other)
    return found


def _is_of_pytest(space: dict[str, Any]) -> bool:
    """Return whether pytest has loaded a module as one of its tests."""
    name = Path(str(space.get("__file__"))).stem
    is_named = name.startswith("test_") or name.endswith("_test")
    return is_named and type(space.get("__loader__")).__name__ == "AssertionRewritingHook"


def _is_imported(name: str, source: _Source) -> bool:
    """Return whether a file may import a module, also under a name relative to its own package."""
    parts = name.split(".")
    return any(".".join(parts[number:]) in source.imports for number in range(len(parts)))


def _of_the_user(module: ModuleType) -> dict[str, dict[str, Any]]:
    """Return the globals of the modules that are not installed; none for an installed module."""
    if _is_installed(getattr(module, "__file__", None)):
        return {}
    return {
        name: vars(other)
        for name, other in list(sys.modules.items())
        if isinstance(other, ModuleType)
        and name.partition(".")[0] not in sys.stdlib_module_names
        and not needs_no_look(name)
        and not _is_installed(vars(other).get("__file__"))
    }


def is_of_library(name: str) -> bool:
    """Return whether an imported module is Python's, vcrt's, or one of an installed package."""
    if name.partition(".")[0] in sys.stdlib_module_names or needs_no_look(name):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and _is_installed(file)


@lru_cache(maxsize=65536)
def _is_installed(file: Any) -> bool:
    """Return whether a file is one of an installed package; what has no file counts as one."""
    return not isinstance(file, str) or not _INSTALLED.isdisjoint(Path(file).parts)


#: Names of folders that packages are installed in.
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def _beside(module: ModuleType) -> dict[str, dict[str, Any]]:
    """Return the globals of the modules in the folder of this one, or in the user's whole package, by name.

    There are none for a module that is installed by itself.
    """
    file, found = getattr(module, "__file__", None), dict[str, dict[str, Any]]()
    if file is None or Path(file).parent.name in _INSTALLED:
        return found
    parent, package = Path(file).parent, getattr(module, "__package__", None) or ""
    folders = package.split(".")
    if not _is_installed(file) and parent.parts[-len(folders) :] == tuple(folders):
        parent, package = parent.parents[len(folders) - 2] if folders[1:] else parent, folders[0]
    folder, prefix = f"{parent}{os.sep}", f"{package}." if package else ""
    for name, other in list(sys.modules.items()):
        space = getattr(other, "__dict__", {})
        path = space.get("__file__")
        if isinstance(path, str) and path.startswith(folder):
            inner = path[len(folder) :].removesuffix(".py").replace(os.sep, ".")
            if f"{name}.__init__" == prefix + inner or name == prefix + inner:
                found[name] = space
    return found
