"""Which public functions do what each command does, in whichever package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from vcrt.cli.contents import commands
from vcrt.plugins import COMMANDS as GROUP
from vcrt.plugins import LIFTERS, plugins

#: Every command that is installed.
COMMANDS = commands()
#: By command, the functions that do what it does.
FUNCTIONS = {name: command.functions() for name, command in COMMANDS.items()}
#: The packages whose public names they are.
PACKAGES = [
    import_module(name)
    for name in dict.fromkeys(
        (
            "vcrt",
            *(
                point.module.partition(".")[0]
                for group in (GROUP, LIFTERS)
                for point in plugins(group).values()
            ),
        )
    )
]


def function(name: str) -> Callable[..., Any]:
    """The public function of that name."""
    (package,) = (package for package in PACKAGES if name in package.__all__)
    found: Callable[..., Any] = getattr(package, name)
    return found
