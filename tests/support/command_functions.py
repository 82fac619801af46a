"""Which functions of ``vcrt`` do what each command does."""

from __future__ import annotations

from vcrt.cli.contents import CHAPTERS

#: By command, the functions that do what it does.
FUNCTIONS = {
    name: (command.functions or command.run.__name__).split()
    for chapter in CHAPTERS.values()
    for name, command in chapter.items()
}
