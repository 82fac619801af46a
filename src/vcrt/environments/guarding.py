"""Guard an environment: every call ends with an answer or one named error, and is watched while it runs.

Any exception of an environment's own code, even ``SystemExit``, becomes :class:`vcrt.errors.EnvironmentFailure` with
the environment, the episode and the step. If the code forks and the child returns, the child is ended. The call's time
limit stands in the record of the process, for the process that watches it. Not covered: whether answers are right or
stable (see :mod:`vcrt.environments.conformance`).
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vcrt.environments.contract import (
    Accepted,
    BatchEnvironment,
    Environment,
    Episode,
    Footprint,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    StepEnvironment,
    Versions,
    operation_to_json,
)
from vcrt.environments.registry import make_environment, name_in_commands
from vcrt.environments.states.outside_states import Watch
from vcrt.environments.tool_calls import CallEnvironment, comes_from_logs
from vcrt.environments.written import UnreadableCompletion, WrittenStep, WrittenSteps, WrittenTrace
from vcrt.errors import EnvironmentFailure, MalformedInputError, VcrtError, VerifierFailure
from vcrt.hashing import Json, canonical_json
from vcrt.printable import counted
from vcrt.processes.watching import TIMEOUT, current_record
from vcrt.progress import counted_call

Result = TypeVar("Result")
_MARK = "_is_guarded"
#: Where vcrt's own code lies: what breaks there was handed over by the environment.
PACKAGE = Path(__file__).parents[1]


def guarded(environment: Environment) -> Environment:
    """Guard each method of the object from now on; its class and its overrides stay."""
    if not hasattr(environment, _MARK):
        guard = _Guard(environment)
        object.__setattr__(environment, _MARK, True)
        for name in _guarded_methods(environment):
            object.__setattr__(environment, name, getattr(guard, name))
    return environment


def _guarded_methods(environment: Environment) -> list[str]:
    names = ["versions", "sample", "cross_check", "guards", "describe", "task", "footprint"]
    kind = type(environment)
    # What the contract derives from other methods is guarded through these.
    derived = [("replay", StepEnvironment), ("cross_check_all", Environment)]
    if isinstance(environment, StepEnvironment):
        derived += [(name, StepEnvironment) for name in ("snapshot", "restore")]
        names += ["initial_state", "step", "canonical"]
    if isinstance(environment, WrittenSteps):
        names += ["parse", "solved"]
    names += [
        name for name, base in derived if getattr(kind, name) is not getattr(base, name, None)
    ]
    return names


def make_guarded(factory: Callable[[], object], *, thorough: bool = False) -> Environment:
    """Make a guarded environment; if ``thorough``, with every check that it can make.

    Raises the errors of :func:`vcrt.environments.registry.make_environment`, and :class:`EnvironmentFailure`.
    """
    name = getattr(factory, "name", None)
    named = name if isinstance(name, str) else getattr(factory, "__name__", repr(factory))
    record = current_record()
    if record is not None:
        record.begin(f"environment {named!r}", "when it is made", call_timeout(factory))
    try:
        environment = make_environment(named, factory)
        if thorough:
            guard = _Guard(environment)
            environment = guard.call("", "thorough", environment.thorough)
        return guarded(environment)
    finally:
        if record is not None:
            record.end()


def call_timeout(environment: object = None) -> float:
    """Return the time limit in seconds for a call of an environment, or for making it; the user may set another.

    Raises :class:`MalformedInputError` if that setting is no valid number.
    """
    own = getattr(environment, "call_timeout_s", Environment.call_timeout_s)
    text = os.environ.get(TIMEOUT)
    try:
        seconds = float(own if text is None else text)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise MalformedInputError(
            "the time limit is not a number of seconds above zero",
            where=f"{getattr(environment, '__qualname__', type(environment).__qualname__)}.call_timeout_s"
            if text is None
            else TIMEOUT,
            found=repr(own if text is None else text)[:80],
        )
    return seconds


def place_of(error: BaseException) -> str:
    """Return the last line of the environment's own code (not vcrt's) in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not Path(f.filename).is_relative_to(PACKAGE)] or frames
    last = theirs[-1]
    return f"{Path(last.filename).name}:{last.lineno}, in {last.name}"


def checks_advice(environment: Environment) -> str:
    """Say how to find what is wrong with an environment: by ``call`` itself, or by the command of the checks."""
    name = name_in_commands(environment)
    if comes_from_logs(environment):
        return (
            "what a tool refuses, `call` says by vcrt.CallRefused or an exception in `refusals`; vcrt.call_method "
            "refuses calls that no tool takes"
        )
    return f"`vcrt environments validate {name}` runs the environment's checks"


def required_episode(episode: object, where: str) -> Episode:
    """Return an episode in canonical form; raises :class:`EnvironmentFailure` naming the part that is not JSON."""
    if not isinstance(episode, Episode):
        raise _unfit("an episode that is none", where, repr(episode)[:120], "Episode(...)")
    parts: list[tuple[str, Any]] = [
        ("its names", [episode.environment, episode.schema, episode.provenance.source]),
        ("its generator", [episode.provenance.generator, episode.provenance.seed]),
        ("its initial state", episode.initial),
    ]
    parts += [
        (f"step {number} ({operation.signature!r:.80})", operation_to_json(operation))
        for number, operation in enumerate(episode.operations)
    ]
    for name, part in parts:
        _require_json(part, f"{where}, {name}")
    return episode


def _require_json(value: Any, where: str) -> None:
    try:
        canonical_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unfit(
            "something that JSON in UTF-8 cannot hold",
            where,
            f"{type(error).__name__}: {str(error)[:200]}",
            "finite numbers, text without lone surrogates, lists and objects with text as keys",
        ) from error


def _is_step(step: object) -> bool:
    return (
        isinstance(step, WrittenStep)
        and all(isinstance(place, int) for place in (step.start, step.end))
        and isinstance(step.signature, str | None)
    )


def _unfit(
    what: str,
    where: str,
    found: str,
    expected: str,
    remedy: str = "`vcrt environments validate NAME` runs the environment's checks",
) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"an environment gave {what}", where=where, found=found, expected=expected, remedy=remedy
    )


def _nothing(state: object) -> None:
    """Stand for the note of a new state if nothing is watched."""


class _Guard:
    """The guarded methods of an environment; ``call`` makes each call."""

    def __init__(self, environment: Environment) -> None:
        where = f"{type(environment).__module__}.{type(environment).__qualname__}"
        for name in ("name", "schemas", "preferred_batch"):
            try:
                getattr(environment, name)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
                expected = f"{name} = ... in the class"
                raise _unfit(f"no {name!r}", where, found, expected, "write it there") from error
        self._environment: Any = environment
        self._own = {
            name: getattr(environment, name)
            for name in dir(Environment) + dir(StepEnvironment) + dir(WrittenSteps)
            if not name.startswith("_") and hasattr(environment, name)
        }
        self._step: Any = self._own.get("step")
        self._begin: Callable[[object], None] = _nothing
        if isinstance(environment, CallEnvironment):
            watch = Watch(environment)
            self._step, self._begin = watch.step, watch.begin
        self._timeout_s = call_timeout(environment)
        self._episode = ""
        self._where = f"environment {environment.name!r}"

    def call(
        self,
        episode: str,
        call: str,
        function: Callable[..., Any],
        *arguments: Any,
        times: int = 1,
        number: int = 0,
    ) -> Any:
        """Make one call with ``times`` the time limit, if it stands for so many; it counts as ``number`` calls."""
        record = current_record()
        process = os.getpid()
        outer = (
            None
            if record is None
            else record.begin(episode or self._where, call, self._timeout_s * times)
        )
        try:
            return counted_call(self._environment.name, number, function, *arguments)
        except VcrtError as error:
            raise self._placed(error, episode, call) from error
        except BaseException as error:
            if record is None and isinstance(error, KeyboardInterrupt):
                raise  # whoever sits before this process
            advice = checks_advice(self._environment)
            if comes_from_logs(self._environment) and not call.startswith("step "):
                advice = ""
            raise EnvironmentFailure(
                "an environment's own code ended a call without an answer",
                where=f"{self._place(episode, call)}; {place_of(error)}",
                found=f"{type(error).__name__}: {str(error)[:300]}",
                expected="an answer; what a tool refuses is said by vcrt.CallRefused"
                if comes_from_logs(self._environment)
                else "Accepted, Rejected, or what else the method is to give",
                remedy="; ".join(filter(None, ("mend it there", advice))),
            ) from error
        finally:
            if os.getpid() != process:
                os._exit(1)  # a child that the environment forked has come back
            if record is not None:
                record.end(outer)

    def _place(self, episode: str, call: str) -> str:
        return ", ".join(filter(None, (self._where, episode, call)))

    def _placed(self, error: VcrtError, episode: str, call: str) -> VcrtError:
        """Add to a failure where it happened, unless it says so already."""
        if not isinstance(error, VerifierFailure) or (error.where and episode in error.where):
            return error
        return error.within(self._place(episode, call), "; ")

    def versions(self) -> Versions:
        versions = self.call("", "versions", self._own["versions"])
        where = f"{self._where}, versions"
        if not isinstance(versions, Versions):
            raise _unfit("no versions", where, repr(versions)[:120], "Versions(...)")
        _require_json(versions.to_json(), where)
        return versions

    def sample(self, schema: str, seed: int) -> Episode:
        name = f"{self._environment.name}/{schema}/{seed}"
        episode = self.call(name, "sample", self._own["sample"], schema, seed)
        return required_episode(episode, f"{self._where}, {name}, sample")

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        if not requests:
            return []
        times = 1 if isinstance(self._environment, BatchEnvironment) else len(requests)
        first, own = requests[0].episode.episode_id, self._own["replay"]
        call = f"replay of {counted(len(requests), 'sequence')}"
        if (number := len({id(request.episode) for request in requests})) > 1:
            call += f" of {number} episodes, of which it is the first"
        if len(requests) == 1:
            call = f"replay of steps {list(requests[0].sequence)}"
        try:
            answers: list[Replay] = self.call(
                first, call, own, requests, times=times, number=len(requests)
            )
        except EnvironmentFailure:
            # The one that breaks it is named if it breaks alone, too.
            for request in requests if len(requests) > 1 else ():
                self.replay([request])
            raise
        for answer in answers if isinstance(answers, list) else ():
            if isinstance(answer, Replay):
                self._require_reason(answer.rejection, f"replay of steps {answer.sequence!r:.80}")
        return answers

    def _require_reason(self, rejection: object, call: str) -> None:
        if isinstance(rejection, Rejected) and isinstance(rejection.reason, str):
            _require_json(rejection.reason, self._place(self._episode, call))

    def cross_check(self, episode: Episode) -> Any:
        own = self._own["cross_check"]
        return self.call(episode.episode_id, "second opinion", own, episode)

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> Any:
        if not episodes:
            return []
        return self.call(
            episodes[0].episode_id,
            f"second opinions on {counted(len(episodes), 'episode')}",
            self._own["cross_check_all"],
            episodes,
            replays,
            times=len(episodes),
        )

    def guards(self) -> Any:
        return self.call("", "guards", self._own["guards"])

    def describe(self, operation: Operation) -> str:
        call = f"description of step {operation.signature!r:.80}"
        return self._text(self._episode, call, "describe", operation)

    def task(self, episode: Episode) -> str:
        return self._text(episode.episode_id, "task", "task", episode)

    def _text(self, episode: str, call: str, method: str, *arguments: object) -> str:
        text = self.call(episode, call, self._own[method], *arguments)
        if not isinstance(text, str):
            raise _unfit("no text", self._place("", call), repr(text)[:120], "text")
        _require_json(text, self._place("", call))
        return text

    def footprint(self, episode: Episode, operation: Operation) -> Footprint | None:
        call = f"footprint of step {operation.signature!r:.80}"
        found = self.call(episode.episode_id, call, self._own["footprint"], episode, operation)
        if found is None:
            return None
        place = self._place(episode.episode_id, call)
        if not isinstance(found, Footprint):
            raise _unfit("no footprint", place, repr(found)[:120], "Footprint(reads, writes)")
        for names in (found.reads, found.writes):
            if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
                raise _unfit("a footprint of no names", place, repr(found)[:120], "tuples of texts")
        return found

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        def found() -> object:
            try:
                return self._own["parse"](task, completion)
            except UnreadableCompletion as reason:
                return reason

        call = f"reading of {completion[:60]!r}"
        trace = self.call("", call, found)
        if isinstance(trace, UnreadableCompletion):
            raise trace
        place = self._place("", call)
        if not isinstance(trace, WrittenTrace):
            raise _unfit("no trace", place, repr(trace)[:120], "WrittenTrace(initial, steps)")
        for step in trace.steps:
            if not _is_step(step):
                expected = "WrittenStep(start, end, payload) of integers, signature a text or None"
                raise _unfit("a step that is none", place, repr(step)[:120], expected)
        for part in (trace.initial, *(step.payload for step in trace.steps)):
            _require_json(part, place)
        return trace

    def solved(self, task: Json, state: Any) -> bool:
        call = "question whether it is solved"
        answer = self.call(self._episode, call, self._own["solved"], task, state)
        if not isinstance(answer, (bool, getattr(sys.modules.get("numpy"), "bool_", bool))):
            found = repr(answer)[:120]
            raise _unfit(
                "neither yes nor no",
                self._place(self._episode, call),
                found,
                "True or False",
                "end `solved` by `return` with one of them; there is no partial success",
            )
        return bool(answer)

    def initial_state(self, episode: Episode) -> Any:
        self._episode = episode.episode_id
        own = self._own["initial_state"]
        state = self.call(self._episode, "initial state", own, episode, number=1)
        self._begin(state)
        return state

    def step(self, state: Any, operation: Operation) -> Any:
        call = f"step {operation.signature!r:.80}"
        answer = self.call(self._episode, call, self._step, state, operation, number=1)
        self._require_reason(answer, call)
        if isinstance(answer, Accepted):
            _require_json(answer.output, self._place(self._episode, f"{call}, output"))
        return answer

    def canonical(self, state: Any) -> Any:
        return self.call(self._episode, "canonical form", self._own["canonical"], state, number=1)

    def snapshot(self, state: Any) -> Any:
        return self.call(self._episode, "snapshot", self._own["snapshot"], state, number=1)

    def restore(self, snapshot: Any) -> Any:
        return self.call(self._episode, "restoration", self._own["restore"], snapshot, number=1)
