"""List every command of ``vcrt`` by chapter, each with one line of description.

Packages add commands (entry-point group ``vcrt.commands``, :mod:`vcrt.plugins`). They are loaded for the list of
commands, and for a command that the certifier itself does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from vcrt.cli.commands import Command, Group, Part
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.plugins import (
    COMMANDS,
    LIFTERS,
    distribution_of,
    known_names,
    load,
    not_installed,
    plugins,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Chapters: TypeAlias = dict[str, dict[str, Command | Group]]

_SHARDS = (".shards", "what was certified is kept")
_OF_CLASSES = {"environments": "environment"}
_ENVIRONMENTS = {
    "list": Command(
        function="vcrt:list_environments",
        summary="the registered ones, with their schemas",
        view="vcrt.cli.environments:print_environments",
    ),
    "validate": Command(
        function="vcrt:validate_environment",
        summary="run the conformance kit on one",
        view="vcrt.cli.environments:print_validation",
        asks_verifier=True,
        quick=True,
        cost_first=True,
    ),
}
_LOG = Command(
    function="vcrt:lift_log",
    summary="calls in logs: which commute, which do not, and why",
    view="vcrt.cli.log_view:print_log",
    asks_verifier=True,
    quick=True,
)


def lifters() -> dict[str, Part]:
    """Return the commands of ``vcrt lift`` by name; a command that cannot be loaded is replaced by the error."""
    found: dict[str, Part] = {"log": _LOG}
    found |= {name: cast(Part, _loaded(point)) for name, point in plugins(LIFTERS).items()}
    for name in known_names(LIFTERS):
        if name not in found:
            found[name] = not_installed(LIFTERS, name, "the lifter")
    return found


def _loaded(point: EntryPoint) -> object:
    """Load what an entry point names, or return the error."""
    try:
        return load(point)
    except VcrtError as error:
        return error


CHAPTERS: Chapters = {
    "certify": {
        "schedule": Command(
            function="vcrt:schedule",
            summary="which calls or steps may run at once, and why",
            view="vcrt.cli.schedule:print_schedules",
            one_of=("json", "mermaid", "dot"),
            asks_verifier=True,
            quick=True,
        ),
        "retry": Command(
            function="vcrt:retry",
            summary="which calls may be made again, if a result is lost",
            view="vcrt.cli.schedule:print_retries",
            asks_verifier=True,
            quick=True,
        ),
        "reuse": Command(
            function="vcrt:reuse",
            summary="which calls a cache could answer, by the state",
            view="vcrt.cli.schedule:print_reuse",
            asks_verifier=True,
            quick=True,
        ),
        "annotate": Command(
            function="vcrt:annotate",
            summary="what calls show of each tool and pair of tools",
            view="vcrt.cli.schedule:print_annotations",
            names={"target": "for"},
            one_of=("json", "target"),
            asks_verifier=True,
            quick=True,
        ),
        "environments": Group(
            summary="what can be certified here",
            help="List the registered environments, or validate one; without a name from below, they are listed.",
            parts=lambda: _ENVIRONMENTS,
            default="list",
        ),
        "certify": Command(
            function="vcrt:certify",
            summary="replay all orders of episodes, freeze a dataset",
            view="vcrt.cli.certify:print_dataset",
            asks_verifier=True,
            kept=_SHARDS,
        ),
        "lift": Group(
            summary="episodes from your logs, migrations, proofs",
            help="Find episodes in files of your own, and say which of their steps commute. Each command below\n"
            "reads one kind of file. Theories, and windows of four steps of runs, are certified like sampled\n"
            "episodes: every order is replayed by itself. For proofs, and for windows of another length,\n"
            "legal orders are counted by merged replay: when several orders reach equal states by the same\n"
            "steps, vcrt continues once for all of them.",
            parts=lifters,
            kept=_SHARDS,
        ),
        "verify": Command(
            function="vcrt.cli.verify:verify",
            summary="replay a dataset or one certificate again",
            view="vcrt.cli.verify:print_verified",
            names=_OF_CLASSES,
            asks_verifier=True,
            quick="certificate",
            public="verify verify_seal verify_certificate verify_proof",
        ),
        "show": Command(
            function="vcrt:show",
            summary="one episode: its steps, relations and evidence",
            view="vcrt.cli.certificate_view:print_shown",
            names=_OF_CLASSES,
            one_of=("brief", "full", "json", "pair"),
            asks_verifier=True,
            quick=True,
        ),
        "doctor": Command(
            function="vcrt:doctor",
            summary="what is installed, what is missing, what mends it",
            view="vcrt.cli.environments:print_findings",
        ),
    },
    "hand over": {
        "seal": Command(
            function="vcrt:seal",
            summary="sign a dataset",
            view="vcrt.cli.verify:print_signers",
        ),
        "prove": Command(
            function="vcrt:prove",
            summary="proof that a certificate is in a dataset",
            view="vcrt.cli.verify:print_proof",
        ),
    },
}


def chapters() -> Chapters:
    """Return the chapters of the certifier and of installed packages; chapters that cannot be loaded are left out."""
    every = {chapter: dict(commands) for chapter, commands in CHAPTERS.items()}
    for added in _added().values():
        if not isinstance(added, VcrtError):
            for chapter, commands in added.items():
                every.setdefault(chapter, {}).update(commands)
    return every


def _added() -> dict[EntryPoint, Chapters | VcrtError]:
    """Load the chapters that each installed package adds, or the error of loading them."""
    points = plugins(COMMANDS).values()
    return {point: cast("Chapters | VcrtError", _loaded(point)) for point in points}


def commands() -> dict[str, Command | Group]:
    """Return every command that can be used here, by name."""
    return {name: one for some in chapters().values() for name, one in some.items()}


def single_commands() -> Iterator[tuple[str, Command]]:
    """Return every command; the names of a group's commands begin with the group's name."""
    for name, one in commands().items():
        parts: Mapping[str, Part] = one.parts() if isinstance(one, Group) else {"": one}
        for part, each in parts.items():
            if isinstance(each, Command):
                yield f"{name} {part}".rstrip(), each


def command_named(name: str) -> Command | Group:
    """The command of that name.

    Raises :class:`UnknownNameError`, and :class:`vcrt.errors.UnavailableError` for a command of a package that is not
    installed or cannot be loaded.
    """
    for own in CHAPTERS.values():
        if name in own:
            return own[name]
    every = commands()
    if name in every:
        return every[name]
    for added in _added().values():
        if isinstance(added, VcrtError):
            raise added
    if name in known_names(COMMANDS):
        raise not_installed(COMMANDS, name, "the command")
    raise UnknownNameError.of("command", name, sorted({*every, *known_names(COMMANDS)}))


def contents() -> str:
    """Return the text of ``vcrt --help``, at most 80 columns wide."""
    lines = ["Certify by replay which steps commute, and which calls may run at once."]
    for chapter, some in chapters().items():
        for place, (name, command) in enumerate(some.items()):
            lines.append(f"{chapter if place == 0 else '':<15}{name:<14}{command.summary}")
    broken = [point for point, added in _added().items() if isinstance(added, VcrtError)]
    lines += [f"{distribution_of(one)} cannot be loaded: vcrt doctor says why" for one in broken]
    return "\n".join(
        [
            *lines,
            "vcrt COMMAND --help   its options, and an example        vcrt --version",
            "vcrt --tyro-print-completion bash|zsh   completion for your shell",
        ]
    )
