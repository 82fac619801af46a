"""Say which calls of a log may be made again after their result was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from vcrt.api.logs import read_and_run, require_versions, required_factory
from vcrt.calls.log_lifting import LiftedWindow
from vcrt.calls.retries import Retried, contradicted_hints, retry_again, retry_calls
from vcrt.calls.retries import Retries as Retries
from vcrt.certificates.certificates import UncertifiedError
from vcrt.environments.apart import apart
from vcrt.environments.contract import Environment, Versions
from vcrt.environments.isolation import ask, ask_all
from vcrt.environments.tool_calls import require_calls
from vcrt.processes import kept_processes
from vcrt.progress import SILENT, Progress
from vcrt.replay.shards import EnvironmentFactory

#: The cases of a part of a trace, or why there are none.
_Found: TypeAlias = list[Retried] | str


def retry(
    log: str | Path,
    *,
    environment: str | EnvironmentFactory | None = None,
    window: int | None = None,
    redact: bool = False,
    progress: Progress = SILENT,
) -> tuple[Retries, ...]:
    """Say which calls of a log may be made again after their result was lost, and what differs if they may not.

    Each call is made twice in a row: in the state where the log makes it, and in up to 15 more where other orders make
    it. Declared hints that this contradicts are named. Other calls between the two are not tried.

    Example: vcrt retry trace.jsonl --environment shop.py:Shop

    Args:
        log: A log of calls.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        window: Take each window of this many calls instead of whole traces.
        redact: Print and keep only the SHA-256 of outputs and refusals; arguments are not hidden.

    Returns:
        For each trace or window, each call's answer (:class:`vcrt.calls.retries.Retries`).

    Raises:
        VcrtError: Every error of :func:`vcrt.lift_log`.
    """
    factory = required_factory(environment, log)
    with kept_processes():
        runs, lifted, _ = read_and_run(factory, [log], window=window, redact=redact, least=1)
        task = progress.task(f"retry {lifted[0].episode.environment}", 2, "passes")
        ((versions, found),) = ask_all(factory, [partial(_all_made, lifted=lifted)], first=True)
        task.advance(1)
        again = partial(_all_told, lifted=lifted, found=found, versions=versions)
        told = iter(ask(factory, again))
        task.advance(1)
    made = [(run, [next(told) for _ in run.windows]) for run in runs]
    return tuple(
        replace(one, left_out=run.left_out)
        for run, some in made
        for one in some or [Retries(name=run.trace.name, problem="no call is left")]
    )


def _all_made(
    environment: Environment, lifted: Sequence[LiftedWindow]
) -> tuple[Versions, list[_Found]]:
    calls = require_calls(environment)
    found: list[_Found] = []
    for one in lifted:
        try:
            found.append(retry_calls(calls, one.episode))
        except UncertifiedError as error:
            found.append(f"{error.kind}: {error}")
    return environment.versions(), found


def _all_told(
    environment: Environment,
    lifted: Sequence[LiftedWindow],
    found: Sequence[_Found],
    versions: Versions,
) -> list[Retries]:
    require_versions(environment, versions)
    return [
        apart(environment, one.episode, partial(_told, environment, one, some))
        for one, some in zip(lifted, found, strict=True)
    ]


def _told(environment: Environment, one: LiftedWindow, found: _Found) -> Retries:
    calls, episode = require_calls(environment), one.episode
    part = range(one.first, one.first + episode.num_operations)
    made = Retries(
        name=f"{one.trace.name}, calls {part.start} to {part.stop - 1}",
        names=tuple(operation.signature for operation in episode.operations),
        ids=tuple(one.trace.calls[place].identifier for place in part),
        ignored=tuple(sorted(calls.ignored)),
    )
    if isinstance(found, str):
        return replace(made, problem=found)
    try:
        retried, asked = retry_again(calls, episode, found)
    except UncertifiedError as error:
        return replace(made, problem=f"{error.kind}: {error}")
    hints = contradicted_hints(calls, episode, retried)
    return replace(made, calls=retried, asked=asked, contradicted=hints)
