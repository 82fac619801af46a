"""Say of which calls of logs a cached answer could have been served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vcrt.api.logs import read_and_run, require_versions, required_factory
from vcrt.calls.log_lifting import LiftedWindow, RunTrace
from vcrt.calls.reuse import Cache, Made, calls_made, unequal_answers
from vcrt.calls.reuse import Reuse as Reuse
from vcrt.environments.contract import Environment, ReplayRequest, Versions
from vcrt.environments.isolation import ask, ask_all
from vcrt.environments.tool_calls import require_calls
from vcrt.errors import EnvironmentFailure
from vcrt.processes import kept_processes
from vcrt.progress import SILENT, Progress
from vcrt.replay.replay import replay_all
from vcrt.replay.shards import EnvironmentFactory


def reuse(
    logs: Sequence[str | Path],
    *,
    environment: str | EnvironmentFactory | None = None,
    redact: bool = False,
    progress: Progress = SILENT,
) -> tuple[Reuse, ...]:
    """Say which calls of logs a cache could have answered, keyed by state and call, or by an identical history.

    Each of two processes makes all calls: one trace after another, each trace from its own start. Each answer that the
    cache would give is compared with the real one.

    Example: vcrt reuse trace.jsonl --environment shop.py:Shop

    Args:
        logs: Logs of calls; one cache serves them all, in their order.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        redact: Print and keep only the SHA-256 of outputs and refusals; arguments are not hidden.

    Returns:
        For each trace, each call with the earlier call whose answer could serve (:class:`vcrt.calls.reuse.Reuse`).

    Raises:
        EnvironmentFailure: Two calls with one key got different answers: the state's bytes leave something out.
        VcrtError: Every error of :func:`vcrt.lift_log`.
    """
    factory = required_factory(environment, *logs)
    with kept_processes():
        runs, lifted, _ = read_and_run(factory, logs, window=None, redact=redact, least=1)
        task = progress.task(f"reuse {lifted[0].episode.environment}", 2, "passes")
        make = partial(_all_made, lifted=lifted)
        ((versions, ignored, made),) = ask_all(factory, [make], first=True)
        task.advance(1)
        _, _, again = ask(factory, partial(make, versions=versions))
        task.advance(1)
    counts = Counter(run.trace.name for run in runs)
    # Traces of two logs may have one name.
    names = [
        run.trace.name
        if counts[run.trace.name] == 1 or not run.windows
        else f"{run.trace.name}, {run.trace.places[0]}"
        for run in runs
    ]
    once, twice = (_by_trace(runs, each) for each in (made, again))
    unequal = unequal_answers([*zip(names, once, strict=True), *zip(names, twice, strict=True)])
    if unequal is not None:
        raise EnvironmentFailure(
            "one call has different answers in states of one hash",
            where=" and ".join(f"{name}, call {number}" for name, number in unequal),
            expected="one answer: a call depends on its arguments and the state alone",
            remedy="let the state hold what the tool reads; fix clocks and chance in `reset`",
        )
    cache = Cache()
    return tuple(
        Reuse(
            name=name,
            names=tuple(o.signature for one in run.windows for o in one.episode.operations),
            ids=tuple(each.identifier for each in run.trace.calls[: len(calls)]),
            calls=cache.serve(name, calls),
            ignored=ignored if run.windows else (),
            problem=None if run.windows else "no call is left",
            left_out=run.left_out,
        )
        for name, run, calls in zip(names, runs, once, strict=True)
    )


def _by_trace(runs: Sequence[RunTrace], made: Sequence[tuple[Made, ...]]) -> list[tuple[Made, ...]]:
    """Return the calls of each trace, given those of its parts."""
    parts = iter(made)
    return [tuple(each for _ in run.windows for each in next(parts)) for run in runs]


def _all_made(
    environment: Environment, lifted: Sequence[LiftedWindow], versions: Versions | None = None
) -> tuple[Versions, tuple[str, ...], list[tuple[Made, ...]]]:
    if versions is not None:
        require_versions(environment, versions)
    episodes = [one.episode for one in lifted]
    requests = [ReplayRequest(one, tuple(range(one.num_operations))) for one in episodes]
    calls = require_calls(environment)
    made = map(partial(calls_made, drawing=[*calls.ids]), episodes, replay_all(calls, requests))
    return environment.versions(), tuple(sorted(calls.ignored)), list(made)
