"""Run the command lift: episodes in the user's own material, by the lifters that are installed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import tyro

import vcrt
from vcrt.cli.certify import print_dataset
from vcrt.cli.options import (
    Backend,
    Jobs,
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
    with_named_paths,
)
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.plugins import LIFTERS, known_names, load, not_installed, plugins


def log(
    inputs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    environment: str,
    window: int | None = None,
    redact: bool = False,
    output: Path | None = None,
    json: bool = False,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Certify the calls in logs of tool calls: which commute, which do not, and why.

    Example: vcrt lift log trace.jsonl --environment shop.py:Shop

    Args:
        inputs: Logs: JSON lines of messages with tool calls, of MCP's tools/call, or of plain names and arguments.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS.
        window: Certify each window of so many calls, in place of whole traces.
        redact: Print and keep the SHA-256 of a log's outputs and refusals in place of them; arguments are not hidden.
        output: A new dataset of the certified episodes; nothing is written without it.
        json: Print the report for machines.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console(aside=json)
    with showing_progress(plain_console(aside=True), after=PATIENCE) as progress:
        lifted = vcrt.lift_log(
            inputs,
            environment=environment,
            window=window,
            redact=redact,
            output=output,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
    from vcrt.cli.log_view import log_document, log_lines, require_all, require_some

    if json:
        print_document(log_document(lifted))
    else:
        say(console, *log_lines(lifted))
    if lifted.dataset is not None:
        print_dataset(console, lifted.dataset, environment)
    require_all(lifted.left_out)
    require_some(lifted, output, window)


def lifters() -> dict[str, Callable[..., None]]:
    """The lifters by name; one that is not installed, or cannot be loaded, raises the reason when it is called."""
    found: dict[str, Callable[..., None]] = {"log": log}
    for name, point in plugins(LIFTERS).items():
        try:
            found[name] = cast(Callable[..., None], load(point))
        except VcrtError as error:
            found[name] = _failing(name, error)
    for name in known_names(LIFTERS):
        if name not in found:
            found[name] = _failing(name, not_installed(LIFTERS, name, "the lifter"))
    return found


def _failing(name: str, error: VcrtError) -> Callable[..., None]:
    def command(inputs: Annotated[tuple[str, ...], tyro.conf.Positional] = ()) -> None:
        raise error

    command.__name__ = name
    command.__doc__ = f"Not to be used here: {error.what}. {error.remedy}"
    return command


def with_lifters(command: Callable[..., None], arguments: Sequence[str]) -> Callable[..., None]:
    """The command ``lift``, with a subcommand for each lifter; raises :class:`UnknownNameError` for another."""
    known = lifters()
    named = arguments[1] if len(arguments) > 1 else "-"
    if not named.startswith("-") and named not in known:
        raise UnknownNameError.of("lifter", named, known)
    kinds: Any = functools.reduce(
        operator.or_,
        (
            Annotated[Any, tyro.conf.subcommand(name, constructor=with_named_paths(function))]
            for name, function in known.items()
        ),
    )

    @functools.wraps(command)
    def run(source: Any) -> None:
        command(source)

    without_prefixes: Any = tyro.conf.OmitSubcommandPrefixes
    run.__annotations__ = {
        "source": Annotated[without_prefixes[kinds], tyro.conf.arg(name="")],
        "return": None,
    }
    del run.__wrapped__
    return run


def lift(source: Any) -> None:
    """Find episodes in your own logs, migrations, theories, Lean and Rocq files, and say which steps commute.

    Theories and windows of four steps of runs are certified like sampled episodes: every order is replayed by itself.
    For proofs, and for windows of another length, the numbers of legal orders come from merged replay: orders that
    reach equal states by the same steps are continued once for all of them.

    Example: vcrt lift log trace.jsonl --environment shop.py:Shop

    Args:
        source: The kind of material.
    """
