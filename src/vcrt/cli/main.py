"""Entry point of the ``vcrt`` command: parse, run, and turn every named error into one message and its exit code."""

from __future__ import annotations

import errno
import functools
import gc
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from rich.console import Console

from vcrt import __version__
from vcrt.cli.commands import Group, in_the_shell, later
from vcrt.cli.contents import command_named, contents, single_commands
from vcrt.cli.options import last_given
from vcrt.errors import VcrtError
from vcrt.memory import is_out_of_memory, out_of_memory
from vcrt.printable import printable

_AGAIN = "and give the same command again"
#: What was expected and how to mend it, by the system's number for the error.
_WORDS = {
    errno.ENOSPC: ("space left on the disk", f"free some space, {_AGAIN}"),
    errno.EDQUOT: ("room in your quota", f"free some space, {_AGAIN}"),
    errno.EACCES: ("permission to use it", f"change its permissions {_AGAIN}, or choose another"),
    errno.EPERM: ("permission to use it", f"change its owner {_AGAIN}, or choose another"),
    errno.EROFS: ("a file system that can be written to", "choose another place"),
    errno.ENOENT: ("a file or folder of that name", "check the name"),
    errno.ENOTDIR: ("folders on the way, not a file", "choose another path"),
    errno.EISDIR: ("a file", "name a file in it"),
    errno.EEXIST: (
        "a folder, or a name that is not taken",
        "choose another, or move that one away",
    ),
    errno.ENAMETOOLONG: ("a shorter name", "choose another"),
    errno.EMFILE: (
        "fewer open files",
        f"raise the limit (ulimit -n) {_AGAIN}, or use fewer --jobs",
    ),
    errno.ENOMEM: ("more memory", f"free some memory, {_AGAIN}, or use fewer --jobs"),
}

NOTHING = "nothing was written"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits with the error's code after a named error and with 130 after an interruption."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # A termination is an interruption: workers are ended and nothing half-done is left.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # So is a terminal that is closed, but for what nohup has started.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, signal.default_int_handler)
    if given in (["--version"], ["--help"], ["-h"]):
        print(f"vcrt {__version__}" if given == ["--version"] else contents())
        return
    if not given:
        print(contents(), file=sys.stderr)
        sys.exit(VcrtError.exit_code)
    errors = Console(stderr=True)
    try:
        named = _run(given)
        if named is None:
            return
        errors.print(f"[bold red]error:[/] {_escape(str(named))}", highlight=False, soft_wrap=True)
        sys.exit(named.exit_code)
    except KeyboardInterrupt:
        # Of several processes that share a training, the first says it.
        if os.environ.get("RANK", "0") == "0":
            left = _escape(after_interruption(given))
            errors.print(f"interrupted; {left}", highlight=False, soft_wrap=True)
        sys.exit(130)


def _run(arguments: Sequence[str]) -> VcrtError | None:
    """Run one command; return the named error that ended it, if any."""
    try:
        command = _parsed(arguments)
        # What was imported stays: it is not looked through for what can go, now or at the end.
        gc.enable()
        gc.freeze()
        command()
    except VcrtError as error:
        return error
    except BrokenPipeError:
        # Whoever read the output has enough of it, as `head` does: what Python still holds goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        return named_error(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return out_of_memory(error)
    return None


def _parsed(arguments: Sequence[str]) -> Callable[[], None]:
    """Parse a command and its options without running it; raises the named error of an impossible setting."""
    import tyro

    if arguments[0].startswith("-"):
        every = {name: later(in_the_shell(one)) for name, one in single_commands()}
        parse = functools.partial(
            tyro.extras.subcommand_cli_from_dict, every, prog="vcrt", args=arguments
        )
    else:
        name, *options = arguments
        command = command_named(name)
        if isinstance(command, Group):
            if options in (["--help"], ["-h"]):
                return functools.partial(print, command.page(name))
            part, options = command.chosen(name, options)
            name, chosen = f"{name} {part}", command.parts()[part]
            if isinstance(chosen, VcrtError):
                raise chosen
            command = chosen
        run = later(in_the_shell(command, options))
        parse = functools.partial(tyro.cli, run, prog=f"vcrt {name}", args=options)
    said = _Held()
    try:
        with redirect_stderr(said):
            call: Callable[[], None] = parse()
            return call
    except SystemExit as leaving:
        cause: BaseException | None = leaving
        while cause is not None and not isinstance(cause, VcrtError):
            cause = cause.__context__
        if cause is not None:
            raise cause from None
        sys.stderr.write(said.getvalue())
        raise


class _Held(StringIO):
    """The parser's output, held back, in the colours of the stream that will show it."""

    def isatty(self) -> bool:
        return sys.__stderr__ is not None and sys.__stderr__.isatty()


def named_error(error: OSError) -> VcrtError:
    """Turn an exception into a named error: the system's message, the file if known, what was expected and a remedy."""
    expected, remedy = _WORDS.get(error.errno or 0, (None, None))
    return VcrtError(
        error.strerror or str(error) or type(error).__name__,
        where=None if error.filename is None else str(error.filename),
        expected=expected,
        remedy=remedy,
    )


def after_interruption(arguments: Sequence[str]) -> str:
    """Say what an interrupted command has left, and which command continues it."""
    again = f"`{shlex.join(['vcrt', *arguments])}`"
    try:
        command = command_named(arguments[0])
    except (IndexError, VcrtError):
        return NOTHING
    if command.kept is not None:
        ending, kept = command.kept
        output = _given_output(arguments)
        folder = None if output is None else output.with_name(output.name + ending)
        if folder is None or not folder.exists():
            return NOTHING
        return f"{kept} in {folder}; go on from there with {again}"
    return f"{command.interrupted} {again}" if command.interrupted is not None else NOTHING


def _given_output(arguments: Sequence[str]) -> Path | None:
    """Return the value of ``--output`` among a command's arguments, if it is given and its path has a name."""
    value = last_given(arguments, "--output")
    path = None if value is None else Path(value)
    return path if path is None or path.name not in ("", "..") else path.resolve()


def _escape(text: str) -> str:
    # A message may quote a file that anyone wrote: no terminal is to act on it.
    return "\n".join(map(printable, text.split("\n"))).replace("[", r"\[")
