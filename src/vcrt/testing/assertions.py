"""Assert that calls commute, and that declared hints on tools hold: failures show the replays that say otherwise.

What the environment cannot answer is an error with vcrt's own message, never a pass: calls that it does not take, two
replays that differ, states that look equal and are not. Each order runs in worker processes, so that nothing that a
replay leaves behind meets the test; what a test patches in its own process is not seen there.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.machinery import PathFinder
from math import factorial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from vcrt.api.annotating import annotate
from vcrt.api.logs import ScheduledCalls, departed, lift_log, schedule_log
from vcrt.calls.annotations import Annotations
from vcrt.calls.call_logs import read_traces
from vcrt.calls.differences import Differing, difference_of
from vcrt.calls.log_lifting import RunTrace
from vcrt.certificates.certificates import Certificate
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion
from vcrt.certificates.lattice import Lattice
from vcrt.environments.conformance import Finding
from vcrt.environments.contract import Environment
from vcrt.environments.isolation import ask
from vcrt.environments.registry import FromFile, sendable_factory
from vcrt.environments.tool_calls import Tool, require_calls
from vcrt.errors import EnvironmentFailure, MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.limits import MAX_EXHAUSTIVE, MAX_OPERATIONS
from vcrt.printable import counted, printable
from vcrt.processes import num_jobs
from vcrt.progress import SILENT
from vcrt.replay.shards import EnvironmentFactory
from vcrt.testing import sessions
from vcrt.testing.recorded import is_recorded, pass_over, record
from vcrt.words.annotation_words import declared_line, limit_lines
from vcrt.words.certificate_words import EXCLUSIONS
from vcrt.words.order_words import side_by_side

#: The environment's class or another factory, such as ``vcrt.tools_environment`` gives, or ``FILE.py:NAME``.
GivenEnvironment: TypeAlias = str | EnvironmentFactory
#: Calls, each a tool's name and its arguments; or the path of a log.
GivenCalls: TypeAlias = str | Path | Sequence[tuple[str, Mapping[str, Any]]]

#: Exclusions after which the replays say nothing.
_NO_EVIDENCE = ("nondeterministic", "version_disagreement", "unequal_futures", "second_opinion")
#: Which calls test a hint.
_TESTED_BY = {
    "readOnlyHint": "make a call that is accepted; a hint that is false is borne out by a call that changes something",
    "idempotentHint": "make a call that changes something twice; a hint that is false is borne out by a second change",
    "sequential": "call two such tools; a hint that is true is borne out by two calls whose order matters",
}
#: What each kind of exclusion means.
_MEANINGS: Mapping[str, str] = {str(kind): text for kind, text in EXCLUSIONS.items()}
#: The most pairs that a failure names beside the one that it shows.
_MAX_NAMED = 10
_Apart: TypeAlias = tuple[tuple[Certificate, ...], tuple[Differing, ...]]


class VcrtWarning(UserWarning):
    """What an assertion passed without: nothing changed that vcrt can see, or a declaration was not tested."""


def assert_commutes(
    environment: GivenEnvironment, calls: GivenCalls, *, initial: Json = None
) -> None:
    """Assert that every order of the calls ends in the same state and gives each call the same output.

    With up to 5 calls, every order is replayed twice. More calls are compared in the contexts that orders reach, as
    :func:`vcrt.schedule` does; with more than about 10, only in some of these. With pytest, ``--vcrt-update`` records
    the certificate; the test fails if a recorded one no longer holds.

    Example: assert_commutes("shop.py:SHOP", [("look", {"item": "tea"}), ("look", {"item": "rice"})])

    Args:
        environment: The environment's class or factory, or ``FILE.py:NAME``.
        calls: 2 to 64 calls, each a tool's name and its arguments; or a log's path: the calls of each of its traces.
        initial: What the environment's ``reset`` receives. A log states its own.

    Raises:
        AssertionError: Two orders differ (the error shows both), or the recorded certificate differs.
        VcrtError: The environment or the calls give no answer.
    """
    __tracebackhide__ = True
    said = _outcome(_require_commuting, environment, [calls], initial)
    if isinstance(said, Exception):
        raise said from None
    for text in said:
        warnings.warn(text, VcrtWarning, stacklevel=2)


def assert_declared(
    environment: GivenEnvironment, logs: GivenCalls | Sequence[str | Path], *, initial: Json = None
) -> None:
    """Assert that replay of calls contradicts no hint on a tool (``read_only``, ``idempotent``, ``sequential``).

    A hint that these calls do not test gives a :class:`VcrtWarning`.

    Args:
        environment: The environment's class or factory, or ``FILE.py:NAME``; its ``tools()`` have the hints.
        logs: A log's path, or several; or calls, each a tool's name and its arguments.
        initial: For calls, what the environment's ``reset`` receives. A log states its own.

    Raises:
        AssertionError: A hint is contradicted; the error names the calls that show this.
        VcrtError: The environment or the calls give no answer, or no hint is declared.
    """
    __tracebackhide__ = True
    said = _outcome(_require_declared, environment, _several(logs), initial)
    if isinstance(said, Exception):
        raise said from None
    for text in said:
        warnings.warn(text, VcrtWarning, stacklevel=2)


def _outcome(
    require: Callable[[EnvironmentFactory, Sequence[Path]], list[str]],
    environment: GivenEnvironment,
    logs: Sequence[GivenCalls],
    initial: Json,
) -> list[str] | AssertionError | VcrtError:
    """Return what to warn of, or a failure without the frames inside of vcrt."""
    try:
        with ExitStack() as stack:
            paths = [stack.enter_context(_log_of(each, initial)) for each in logs]
            factory = _factory(environment)
            folder = str(Path(factory.path).parent) if isinstance(factory, FromFile) else None
            own = not isinstance(environment, str)
            return sessions.in_processes(partial(_sound, require, factory, paths, own), folder)
    except (AssertionError, VcrtError) as error:
        return error.with_traceback(None)


def _sound(
    require: Callable[[EnvironmentFactory, Sequence[Path]], list[str]],
    factory: EnvironmentFactory,
    paths: Sequence[Path],
    own: bool,
) -> list[str]:
    """Return what to warn of; raise an error in any case if an object of the test's ``own`` met other modules."""
    try:
        said: list[str] | Exception = require(factory, paths)
    except (AssertionError, VcrtError) as error:
        said = error
    files = ask(factory, _files_of_modules)
    if sessions.session is not None:
        sessions.session.note(files.values())
    here = _files_of_modules() if own else {}
    for name in sorted({*files} & {*here}):
        one, other = files[name], here[name]
        if one != other and os.path.realpath(one) != os.path.realpath(other):
            raise VcrtError(
                "a worker process imports another module than the test",
                where=f"module {name!r}",
                found=one,
                expected=other,
                remedy="rename one of the two files; or put the folders of tests into packages, with `__init__.py`",
            )
    if isinstance(said, Exception):
        raise said
    return said


def _files_of_modules(environment: Environment | None = None) -> dict[str, str]:
    """Return the files of all modules of this process, by name."""
    found = [(k, getattr(m, "__dict__", {}).get("__file__")) for k, m in list(sys.modules.items())]
    return {name: os.path.abspath(file) for name, file in found if isinstance(file, str)}


def _require_commuting(factory: EnvironmentFactory, logs: Sequence[Path]) -> list[str]:
    (log,) = logs
    traces, session = read_traces(log), sessions.session
    longest = max(len(trace.calls) for trace in traces)
    if longest > MAX_EXHAUSTIVE and not is_recorded(session, len(traces)):
        runs = _settled(factory, log)
        if runs is not None:
            pass_over(session, len(traces))
            return _warnings(runs)
    lifted = lift_log(logs, environment=factory)
    _require_all(lifted.traces, lifted.failed_checks)
    told = ask(factory, partial(_all_apart, found=lifted.calls))
    for calls, (certificates, difference) in zip(lifted.calls, told, strict=True):
        outcome = calls.outcome
        if isinstance(outcome, Exclusion) and outcome.kind in _NO_EVIDENCE:
            raise _uncertified(calls, outcome.kind, outcome.detail)
        if certificates:
            raise AssertionError(_failure(calls, certificates, difference))
        if isinstance(outcome, Exclusion):
            raise _uncertified(calls, outcome.kind, outcome.detail)
        _require_every_order(outcome)
        record(outcome, session)
    return _warnings(lifted.traces)


def _settled(factory: EnvironmentFactory, log: Path) -> Sequence[RunTrace] | None:
    """Replay as a schedule does, which is quicker; return None if the calls may only commute but for a data flow."""
    runs, found, failed = schedule_log(
        log,
        factory=factory,
        window=None,
        redact=False,
        within=None,
        jobs=num_jobs(None),
        progress=SILENT,
        told=lambda _, calls: calls,
    )
    _require_all(runs, failed)
    told = ask(factory, partial(_all_apart, found=found))
    for calls, (certificates, difference) in zip(found, told, strict=True):
        kind, _, detail = (calls.problem or "").partition(": ")
        if kind in _NO_EVIDENCE:
            raise _uncertified(calls, kind, detail)
        if certificates:
            raise AssertionError(_failure(calls, certificates, difference))
        if calls.schedule is None or calls.schedule.edges:
            return None
    return runs


def _warnings(runs: Sequence[RunTrace]) -> list[str]:
    return [run.warning for run in runs if run.warning is not None]


def _require_all(runs: Sequence[RunTrace], failed: Sequence[Finding]) -> None:
    """Raise an error if a call is not replayed as it was logged, or if a check of the environment failed."""
    left_out = [one for run in runs for one in run.left_out]
    for one in left_out:
        raise departed(left_out) or MalformedInputError(
            "calls that are not replayed", found=one.text, expected="a log whose calls all run"
        )
    for run in runs:
        if len(run.windows) > 1:
            raise _number(len(run.trace.calls), run.trace.name)
    for finding in failed:
        raise VcrtError(
            f"the environment does not pass the check {finding.check!r}",
            found=finding.problem,
            remedy=finding.remedy,
        )


def _all_apart(environment: Environment, found: Sequence[ScheduledCalls]) -> list[_Apart]:
    return [_apart(environment, calls) for calls in found]


def _apart(environment: Environment, calls: ScheduledCalls) -> _Apart:
    """Return, for each pair whose order matters, the first context that shows it; and where the first ends apart."""
    lattice = Lattice.of(calls.replays.tree, calls.replays.reads)
    shown = [
        (number, pair)
        for pair, contexts in lattice.by_pair.items()
        for number in [n for n, (v, _) in contexts.items() if v not in ("diamond", "vacuous")][:1]
    ]
    certificates = tuple(lattice.certificate(number, pair) for number, pair in sorted(shown))
    if not certificates or lattice.unequal is not None:
        return certificates, ()
    difference = difference_of(require_calls(environment), calls.episode, certificates[0])
    return certificates, difference


def _require_every_order(certified: CertifiedEpisode) -> None:
    """Raise an error unless no relation is directed and, where orders were listed, all of them are legal."""
    orders = factorial(certified.episode.num_operations)
    if certified.order.pairs or (certified.exhaustive and certified.num_legal != orders):
        raise VcrtError(
            "the replays do not support every order of the calls",
            where=certified.episode.episode_id,
            found=f"legal: {certified.num_legal}; ordered pairs: {sorted(certified.order.pairs)}",
            expected="all orders, and no ordered pair",
        )


def _uncertified(calls: ScheduledCalls, kind: str, detail: str) -> VcrtError:
    return VcrtError(
        f"nothing can be said about the calls: {kind}",
        where=f"{calls.trace.name}, environment {calls.episode.environment!r}",
        found=detail,
        expected=f"an environment that answers alike each time; here, {_MEANINGS.get(kind, kind)}",
        remedy="fix clocks and chance in `reset`, and let the state hold all that a call sees",
    )


def _failure(
    calls: ScheduledCalls, certificates: Sequence[Certificate], difference: Sequence[Differing]
) -> str:
    names = [operation.signature for operation in calls.episode.operations]
    pairs = [" and ".join(printable(names[k]) for k in each.pair) for each in certificates]
    lines = [
        f"{calls.trace.name}: two orders differ: {pairs[0]}",
        side_by_side(names, certificates[0], difference),
    ]
    if more := pairs[1:]:
        lines.append(f"{counted(len(more), 'further pair')} whose order matters:")
        lines += [f"  {pair}" for pair in more[:_MAX_NAMED]]
        lines += ["  ..."] if len(more) > _MAX_NAMED else []
    return "\n".join(lines)


def _require_declared(factory: EnvironmentFactory, logs: Sequence[Path]) -> list[str]:
    tools = ask(factory, _tools)
    hints = {
        (tool.name, hint)
        for tool in tools
        for hint, value in (
            ("readOnlyHint", tool.read_only),
            ("idempotentHint", tool.idempotent),
            ("sequential", tool.sequential),
        )
        if value is not None
    }
    if not hints:
        raise MalformedInputError(
            "no declaration that replay could contradict",
            found=", ".join(tool.name for tool in tools)[:200] or "no tool",
            expected="hints on tools: readOnlyHint and idempotentHint of an MCP server, sequential=True of a tool of "
            "pydantic-ai, or Tool(read_only=..., idempotent=..., sequential=...) in `tools()` of a "
            "vcrt.CallEnvironment",
        )
    found = annotate(logs, environment=factory)
    _require_sound(found)
    contradicted = [each for each in found.declared if each.standing == "contradicted"]
    if contradicted:
        lines = [declared_line(each) for each in contradicted]
        raise AssertionError("\n".join(["declared, and contradicted by replay:", *lines]))
    tested = {(e.tool, e.hint) for e in found.declared if e.standing == "not contradicted"}
    return [
        f"{tool}: {hint} is declared, and these calls do not test it: {_TESTED_BY[hint]}"
        for tool, hint in sorted(hints - tested)
    ] + limit_lines(found)


def _tools(environment: Environment) -> tuple[Tool, ...]:
    calls = require_calls(environment)
    try:
        tools = tuple(calls.tools())
        if others := [each for each in tools if not isinstance(each, Tool)]:
            raise TypeError(f"{others[0]!r} is no vcrt.environments.tool_calls.Tool")
        names = [tool.name for tool in tools]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"two tools have the name {twice[0]!r}")
        return tools
    except VcrtError:
        raise
    except Exception as error:
        raise EnvironmentFailure(
            "an environment that cannot list its tools",
            where=f"environment {calls.name!r}, tools()",
            found=f"{type(error).__name__}: {error}"[:300],
            expected="tools with their declared hints",
        ) from error


def _require_sound(found: Annotations) -> None:
    if found.missing:
        raise departed(found.missing) or MalformedInputError(
            "calls that are not replayed", found="; ".join(each.text for each in found.missing)
        )
    if found.left_out or found.num_disputed:
        raise VcrtError(
            "replays that contradict each other",
            where=f"environment {found.environment!r}",
            found=", ".join(f"{number} {kind}" for kind, number in found.left_out.items())
            or f"{counted(found.num_disputed, 'call')} with another answer in a state of the same hash",
            expected="an environment that answers alike each time",
            remedy="fix clocks and chance in `reset`, and let the state hold all that a call sees",
        )


def _factory(environment: GivenEnvironment) -> EnvironmentFactory:
    """Return a factory for worker processes, which may not import a file of tests by the name that pytest gives it."""
    is_factory = isinstance(environment, str) or callable(environment)
    fits = issubclass(environment, Environment) if isinstance(environment, type) else is_factory
    if not fits:
        raise MalformedInputError(
            "something that is no environment",
            found=repr(environment)[:120],
            expected="the class of an environment, a factory of one, or FILE.py:NAME",
            remedy="if these are tools, give vcrt.tools_environment(tools, state=...); of an environment, the class "
            "and not an object",
        )
    factory = sendable_factory(environment)
    module = sys.modules.get(getattr(environment, "__module__", ""))
    name = getattr(environment, "__qualname__", "")
    if module is None or getattr(module, name, None) is not environment:
        return factory
    file = getattr(module, "__file__", None)
    return FromFile(file, name) if file and not _is_found(module, file) else factory


def _is_found(module: ModuleType, file: str) -> bool:
    """Tell whether another process with the same path can import a module by its name."""
    parts, places = module.__name__.split("."), None
    spec = None
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None:
            return False
        places = spec.submodule_search_locations
    return spec is not None and spec.origin == file


def _several(logs: Any) -> Sequence[GivenCalls]:
    """Return several logs, or one; a sequence of calls is one."""
    paths = [] if isinstance(logs, str | Path) else [e for e in logs if isinstance(e, str | Path)]
    return paths if paths and len(paths) == len(logs) else [logs]


@contextmanager
def _log_of(calls: GivenCalls, initial: Json) -> Iterator[Path]:
    """Give the path of a log of the calls, which errors name as ``calls``."""
    if isinstance(calls, str | Path):
        if initial is not None:
            raise MalformedInputError(
                "`initial` was given beside a log",
                found=f"initial={initial!r}"[:120],
                expected="a log, whose own `initial` says where it starts; or calls",
            )
        yield Path(calls)
        return
    document = _document(calls, initial)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.json"
        path.write_text(document, encoding="utf-8")
        try:
            yield path
        except VcrtError as error:
            raise _renamed(error, f"{path}:1, item 1", str(path)) from error


def _document(calls: object, initial: Json) -> str:
    """Return a log in which one message has all calls; raises :class:`MalformedInputError` naming what is no call."""
    if not isinstance(calls, Sequence):
        raise _no_call("calls", calls)
    if not 2 <= len(calls) <= MAX_OPERATIONS:
        raise _number(len(calls), "calls")
    made = []
    for place, call in enumerate(calls):
        match call:
            case (str(name), Mapping() as arguments):
                pass
            case _:
                raise _no_call(f"call {place}", call)
        try:
            text = json.dumps(dict(arguments), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise MalformedInputError(
                "arguments that are no JSON",
                where=f"call {place}, {name}",
                found=f"{type(error).__name__}: {error}"[:300],
                expected="texts, numbers, lists and mappings, as a model gives them",
            ) from error
        function = {"name": name, "arguments": text}
        made.append({"id": str(place), "type": "function", "function": function})
    messages = [{"role": "assistant", "content": None, "tool_calls": made}]
    try:
        return json.dumps(
            {"id": "calls", "initial": initial, "messages": messages}, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise _no_call("initial", initial, "JSON") from error


def _no_call(
    where: str,
    found: object,
    expected: str = "a pair of a tool's name and its arguments: (name, {...})",
) -> MalformedInputError:
    what = "an initial state that is no JSON" if where == "initial" else "something that is no call"
    return MalformedInputError(what, where=where, found=repr(found)[:120], expected=expected)


def _number(number: int, where: str) -> MalformedInputError:
    return MalformedInputError(
        "too few or too many calls to compare their orders",
        where=where,
        found=counted(number, "call"),
        expected=f"2 to {MAX_OPERATIONS} calls",
    )


def _renamed(error: VcrtError, *texts: str) -> VcrtError:
    """Return an error without the place of the log that was made of calls."""
    renamed = error.at(error.where)
    for name in ("what", "where", "found", "expected", "remedy"):
        value = getattr(error, name)
        for text in texts if value is not None else ():
            value = value.replace(text, "calls")
        setattr(renamed, name, value)
    renamed.args = (renamed.what,)
    return renamed
