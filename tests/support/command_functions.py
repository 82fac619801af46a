"""Which public functions do what each command does, in whichever package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from vcrt.cli.contents import chapters
from vcrt.cli.lift import lifters
from vcrt.plugins import COMMANDS as GROUP
from vcrt.plugins import LIFTERS, plugins

#: Every command that is installed.
COMMANDS = {name: command for commands in chapters().values() for name, command in commands.items()}
#: By command, the functions that do what it does.
FUNCTIONS = {
    name: (command.functions or command.run.__name__).split() for name, command in COMMANDS.items()
}
FUNCTIONS["lift"] += [f"lift_{name}" for name in plugins(LIFTERS)]
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
KINDS = lifters()


def function(name: str) -> Callable[..., Any]:
    """The public function of that name."""
    (package,) = (package for package in PACKAGES if name in package.__all__)
    found: Callable[..., Any] = getattr(package, name)
    return found
