"""Load the public names of a package when they are first used, so that importing it is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy(
    package: str, places: Mapping[str, str]
) -> tuple[dict[str, str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the module of each name, and the package's ``__getattr__`` and ``__dir__``.

    ``places`` maps each module to its public names, separated by spaces.
    """
    place_of = {name: module for module, names in places.items() for name in names.split()}

    def getattr_(name: str) -> object:
        if name not in place_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(place_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *place_of})

    return place_of, getattr_, dir_
