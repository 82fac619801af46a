"""Do work with an environment so that nothing which calls leave beside the state is met by later work."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import chain
from typing import TypeVar

from vcrt.environments.contract import Environment, Episode, Replay, ReplayRequest
from vcrt.environments.states.outside_states import alone, is_looked_at
from vcrt.environments.states.reachable_names import is_of_library
from vcrt.environments.tool_calls import CallEnvironment, initial_of
from vcrt.processes.copies import in_copy, may_copy, own_parts
from vcrt.progress import observed, report

Result = TypeVar("Result")
_BEGUN = "_is_begun"
#: Modules of calls that vcrt imports when they are needed.
_NEEDED = ("cloudpickle", "vcrt.environments.typed_calls", "vcrt.environments.awaited_calls")
#: So many copies more than an episode has steps begin without the libraries that only calls import.
_AS_STARTED = 2
#: What copies of this process have imported, by episode; and what was warned of.
_imported: dict[str, list[list[str]]] = {}
_told = set[str]()


def apart(environment: Environment, episode: Episode, work: Callable[[], Result]) -> Result:
    """Return the result of work, done in a copy of this process where an environment's calls may leave something.

    Elsewhere, or where this process cannot be copied (:func:`vcrt.processes.copies.own_parts`), it is done here.
    """
    if not _is_copied(environment, episode):
        return work()
    result, calls, _ = in_copy(partial(_done, work))
    report(calls)
    return result


def replay_apart(environment: Environment, requests: Sequence[ReplayRequest]) -> list[Replay]:
    """Return the environment's answers, each sequence replayed :func:`apart` from the others."""
    found: list[Replay] = []
    for request in requests:
        if not _is_copied(environment, request.episode):
            return environment.replay(requests)
        replay = partial(alone, partial(environment.replay, [request]))
        answers, calls, libraries = in_copy(partial(_done, replay))
        report(calls)
        _import_libraries(request.episode, libraries)
        if not isinstance(answers, list):
            return answers
        found += answers
    return found


def _is_copied(environment: Environment, episode: Episode) -> bool:
    if not isinstance(environment, CallEnvironment) or not is_looked_at(environment):
        return False
    if not may_copy():
        return False
    if not hasattr(environment, _BEGUN):
        # What the first start loads and keeps, each copy has; it may also begin what no copy can have.
        object.__setattr__(environment, _BEGUN, True)
        start = {**initial_of(episode), "before": ()}
        environment.initial_state(replace(episode, initial=start))
        for name in _NEEDED:
            import_module(name)
        gc.collect()
    found = own_parts()
    if found and found not in _told:
        _told.add(found)
        warnings.warn(
            f"environment {environment.name!r} has {found} of its own: orders are replayed in "
            "one process, and what a call leaves in memory beside the state may be met by others; start none in "
            "reset or on import",
            RuntimeWarning,
            stacklevel=2,
        )
    return not found


def _import_libraries(episode: Episode, libraries: list[str]) -> None:
    """Import what copies have imported, when each step came first in one, if they are of one episode alone."""
    every = _imported.setdefault(episode.episode_id, [])
    if len(_imported) > 1:
        return
    every.append(libraries)
    if len(every) == episode.num_operations + _AS_STARTED:
        for name in dict.fromkeys(chain.from_iterable(every)):
            with suppress(Exception):  # one that is imported only with others
                import_module(name)


def _done(work: Callable[[], Result]) -> tuple[Result, list[tuple[str, int, float]], list[str]]:
    """Return the result of work, the calls that it made, and the libraries that it imported."""
    before = set(sys.modules)
    result, calls = observed(work)
    new = [name for name in sys.modules if name not in before]
    return result, calls, [name for name in new if is_of_library(name)]
