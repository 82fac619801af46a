"""Make a command of a function: its parameters are the options, its docstring is the help, a view shows its result.

The function alone declares the command. Its first parameter is positional unless it is ``output``; all others
are options. Parameters that a shell cannot give, such as classes, are left to Python. Not covered: which
commands there are (see :mod:`vcrt.cli.contents`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from vcrt.errors import UnknownNameError, VcrtError

Function: TypeAlias = Callable[..., Any]
#: Options of a command by name: the type of each, and its default.
Options: TypeAlias = dict[str, tuple[Any, Any]]

#: What options of several commands mean. Some of them a function's docstring need not say again.
SHARED = {
    "jobs": "Worker processes; by default as many as there are cores, or one where they would share a GPU. "
    "The result does not depend on their number.",
    "backend": "Where the workers run: in local processes, or on a Ray or Dask cluster (the one of RAY_ADDRESS or "
    "DASK_SCHEDULER_ADDRESS, or else a local one).",
    "verifier_timeout": "The most seconds for one call of a verifier (a step, or a batch); by default the limit "
    "of each environment (60, or 600 for a batch).",
}
#: Types whose values a shell can give.
_PLAIN = (str, int, float, bool, Path, NoneType)
REQUIRED = inspect.Parameter.empty
#: What makes an environment of an MCP server; its first parameter is the option ``--mcp``.
_SERVER = "vcrt:mcp_server"


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A function that is a command, and how the shell shows what it returns.

    Functions are named as ``MODULE:NAME``, so that they are imported only when they are used.

    Attributes:
        function: The function: a public one, or an adapter where shell and Python differ for a reason.
        summary: What the command does, in at most 62 characters.
        view: The function that prints the result of ``function``, its first argument. Its keyword parameters without a
            default receive the arguments of ``function`` of the same name; those with a default are options of the
            shell alone. Without a view, ``function`` prints by itself.
        names: The names of options that differ from their parameter, by parameter.
        positional: The positional parameters; by default the first one.
        one_of: Options of which at most one may be given.
        asks_verifier: Whether it takes ``--verifier-timeout``.
        quick: Whether the command usually ends at once, or the option with which it does: progress then appears after a
            moment, on the standard error.
        cost_first: Whether a quick command's expected cost is printed first, as part of its output, not on the standard
            error.
        tells: Whether a function without ``progress`` still logs messages for the user.
        prepare: A function that returns the command for the arguments of one call; it replaces this command.
        public: The public functions that do the same, where ``function`` is an adapter.
        kept: What an interrupted command leaves beside its output: the folder's suffix, and a description of its
            content.
        interrupted: What the same command does when it is repeated after an interruption.
    """

    function: str
    summary: str
    view: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    positional: tuple[str, ...] | None = None
    one_of: tuple[str, ...] = ()
    asks_verifier: bool = False
    quick: bool | str = False
    cost_first: bool = False
    tells: bool = False
    prepare: str | None = None
    public: str | None = None
    kept: tuple[str, str] | None = None
    interrupted: str | None = None

    def functions(self) -> list[str]:
        """The names in Python of what does the same."""
        return (self.public or self.function.rpartition(":")[2]).split()


#: A command, or the error that says why it cannot be used here.
Part: TypeAlias = Command | VcrtError


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Commands that share a first word, as ``vcrt lift log`` and ``vcrt lift clrs``.

    ``help`` describes the group. ``default`` names the command that runs if none is given. ``parts`` gives the
    commands by name; for a command that cannot be used here it gives an error, raised when it is chosen.
    """

    summary: str
    help: str
    parts: Callable[[], Mapping[str, Part]]
    default: str | None = None
    kept: tuple[str, str] | None = None
    interrupted: str | None = None

    def functions(self) -> list[str]:
        """The names in Python of what does the same."""
        found = [one.functions() for one in self.parts().values() if isinstance(one, Command)]
        return [name for names in found for name in names]

    def chosen(self, kind: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
        """Return the name of the selected command, and its arguments; raises :class:`UnknownNameError`."""
        known = self.parts()
        if arguments and arguments[0] in known:
            return arguments[0], list(arguments[1:])
        if arguments and not arguments[0].startswith("-"):
            raise UnknownNameError.of(f"kind of {kind}", arguments[0], sorted(known))
        if self.default is None:
            raise VcrtError(
                f"which {kind}?",
                expected=f"one of {', '.join(sorted(known))}",
                remedy=f"vcrt {kind} --help",
            )
        return self.default, list(arguments)

    def page(self, name: str) -> str:
        """Return the text of ``--help``."""
        known = self.parts()
        lines = [
            f"{part:<16}{one.summary if isinstance(one, Command) else f'not here: {one.remedy}'}"
            for part, one in known.items()
        ]
        return "\n".join(
            [self.help, "", *lines, "", f"vcrt {name} NAME --help   its options, and an example"]
        )


def loaded(place: str) -> Function:
    """Import the function ``MODULE:NAME``."""
    module, _, name = place.partition(":")
    found: Function = getattr(import_module(module), name)
    return found


def in_the_shell(command: Command, arguments: Sequence[str] = ()) -> Callable[..., None]:
    """Return the command as a function of its options that checks them, calls the function and shows the result.

    ``arguments`` are the arguments of one call. Only the parser uses the signature, types and docstring of the returned
    function.
    """
    function = loaded(command.function)
    view = None if command.view is None else loaded(command.view)
    taken, shown = _options(function), {} if view is None else _own_options(view)
    options = {**taken, **shown}
    # What takes an environment takes the command of an MCP server in its place.
    place = next((name for name in taken if command.names.get(name, name) == "environment"), None)
    server = {} if place is None else {**_options(loaded(_SERVER)), "command": (str | None, None)}
    server.pop("name", None)
    options |= server
    if command.asks_verifier:
        options["verifier_timeout"] = (float | None, None)

    def run(**given: Any) -> None:
        from vcrt.cli.options import named_path, set_verifier_timeout

        given = {name: named_path(value) for name, value in given.items()}
        _require_one_of(command, given, options)
        own = {name: given.pop(name) for name in server}
        if place is not None and own != {name: default for name, (_, default) in server.items()}:
            given[place] = _with_server(given[place], own)
        set_verifier_timeout(given.pop("verifier_timeout", None))
        asked = {name: given[name] for name in taken}
        if view is None:
            function(**asked)
            return
        quick = bool(given[command.quick] if isinstance(command.quick, str) else command.quick)
        aside = bool(given.get("json")) or (quick and not command.cost_first)
        with _told(command, function, quick=quick, aside=aside) as progress:
            found = function(**asked, **progress)
            # What comes one by one is shown as it comes.
            if isinstance(found, Iterator):
                _show(view, found, given)
                return
        _show(view, found, given)

    described = [function, *([view] if view else []), *([loaded(_SERVER)] if server else [])]
    return _for_the_parser(run, command, options, described, arguments)


def _with_server(environment: Any, options: Mapping[str, Any]) -> Any:
    """Return the environments of a command with that of an MCP server, or this one alone."""
    if options["command"] is None or isinstance(environment, str):
        raise VcrtError(
            "options that do not go together",
            expected="--mcp COMMAND with its own options, or --environment",
            remedy='--mcp "server {state}" --state PATH',
        )
    server = loaded(_SERVER)(**options)
    return server if environment is None else (*environment, server)


def _show(view: Function, found: Any, given: Mapping[str, Any]) -> None:
    wanted = [*inspect.signature(view).parameters][1:]
    view(found, **{name: given[name] for name in wanted})


@contextmanager
def _told(
    command: Command, function: Function, *, quick: bool, aside: bool
) -> Iterator[dict[str, Any]]:
    """Pass ``progress`` to the function if it takes one, and show progress and messages meanwhile."""
    from vcrt.cli.options import plain_console
    from vcrt.cli.progress import PATIENCE, showing_progress, telling

    console = plain_console(aside=aside)
    if "progress" not in inspect.signature(function).parameters:
        with telling(console) if command.tells else nullcontext():
            yield {}
        return
    with showing_progress(console, after=PATIENCE if quick else 0.0) as progress:
        yield {"progress": progress}


def _require_one_of(command: Command, given: Mapping[str, Any], options: Options) -> None:
    if sum(given[name] != options[name][1] for name in command.one_of) > 1:
        *some, last = (f"--{command.names.get(name, name)}" for name in command.one_of)
        raise VcrtError(
            "options that do not go together", expected=f"one of {', '.join(some)} and {last}"
        )


def _options(function: Function) -> Options:
    """Return the parameters of a function that a shell can give."""
    hints = get_type_hints(function, localns=_Known(function))
    found: Options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name] if is_dataclass(hints[name]) else shell_type(hints[name])
        if kind is not None:
            default = parameter.default
            is_path = kind is Path and isinstance(default, str)
            found[name] = (kind, Path(default) if is_path else default)
    return found


def _own_options(view: Function) -> Options:
    """Return the options that a view adds."""
    parameters = inspect.signature(view).parameters
    return {
        name: option
        for name, option in _options(view).items()
        if parameters[name].default is not REQUIRED
    }


class _PythonAlone:
    """A stand-in for a type that a module imports only for type checkers; no shell can give it."""

    def __class_getitem__(cls, arguments: object) -> type:
        return cls


class _Known(dict[str, Any]):
    """The names that annotations of a function may use; names that are not loaded give :class:`_PythonAlone`."""

    def __init__(self, function: Function) -> None:
        import builtins

        super().__init__({**vars(builtins), **getattr(inspect.unwrap(function), "__globals__", {})})

    def __missing__(self, name: str) -> type:
        return _PythonAlone


def shell_type(kind: Any) -> Any:
    """Return the type of the values that a shell can give for a parameter; None if it can give none.

    For a union it is the path, else the sequence, else the plain type; a sequence becomes a tuple.

    >>> shell_type(Sequence[str | Path] | str)
    tuple[pathlib.Path, ...]
    """
    if get_origin(kind) in (Union, UnionType):
        given = [one for one in map(shell_type, get_args(kind)) if one is not None]
        sequences = [one for one in given if get_origin(one) is tuple]
        chosen = sequences or [one for one in given if one is not str or Path not in given]
        kept = [one for one in dict.fromkeys(chosen) if one is not NoneType]
        if NoneType in given and kept:
            kept.append(NoneType)
        return Union[tuple(kept)] if kept else None  # noqa: UP007 - of as many as there are
    if get_origin(kind) in (Sequence, Iterable):
        each = shell_type(get_args(kind)[0])
        return None if each is None else tuple[each, ...]  # type: ignore[valid-type]
    if get_origin(kind) in (tuple, Literal) or kind in _PLAIN:
        return kind
    return None


def _for_the_parser(
    run: Callable[..., None],
    command: Command,
    options: Options,
    described: Sequence[Function],
    arguments: Sequence[str],
) -> Callable[..., None]:
    import docstring_parser
    import tyro

    read = [docstring_parser.parse(inspect.getdoc(one) or "") for one in described]
    helps = {**SHARED, **{p.arg_name: p.description or "" for doc in read for p in doc.params}}
    positional = command.positional
    if positional is None:
        first = [*inspect.signature(described[0]).parameters][:1]
        positional = tuple(name for name in first if name != "output")
    types: dict[str, Any] = {}
    for name, (kind, _) in options.items():
        said = " ".join(helps.get(name, "").split())
        # The fields of a dataclass are options by their own names.
        renamed = {"command": "mcp", **command.names}
        own_name = "" if is_dataclass(kind) else renamed.get(name)
        about = tyro.conf.arg(name=own_name, help=said or None)
        marked = Annotated[kind, about]  # type: ignore[valid-type]
        types[name] = Annotated[marked, tyro.conf.Positional] if name in positional else marked
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, (_, default) in options.items()
    ]
    run.__doc__ = "\n\n".join(filter(None, (read[0].short_description, read[0].long_description)))
    run.__annotations__ = {**types, "return": None}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(annotation=types[one.name]) for one in parameters]
    )
    return run if command.prepare is None else loaded(command.prepare)(run, arguments)


def later(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """Wrap a command for the parser; calling it returns a function that runs it."""

    def call(**options: object) -> Callable[[], None]:
        return partial(command, **options)

    call.__doc__, call.__annotations__ = command.__doc__, command.__annotations__
    call.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    return call
