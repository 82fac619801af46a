"""An environment whose every call ends in an answer or in one named error, and is watched while it lasts.

Whatever an environment's own code raises, ``SystemExit`` and its like among it, becomes
:class:`vcrt.errors.EnvironmentFailure` with the environment, the episode and the step; a child that it forked and that
comes back is ended; the call's time limit stands in the record of the process, for whoever watches it to keep. Not
covered: whether answers are right or stable (see :mod:`vcrt.environments.conformance`).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vcrt.call_record import current_record
from vcrt.environments.contract import (
    BatchEnvironment,
    CrossCheck,
    Environment,
    Episode,
    Guards,
    Operation,
    PrefixState,
    Rejected,
    Replay,
    ReplayRequest,
    Schema,
    StepEnvironment,
    Transition,
    Versions,
    operation_to_json,
)
from vcrt.environments.registry import make_environment
from vcrt.errors import EnvironmentFailure, MalformedInputError, VcrtError, VerifierFailure
from vcrt.hashing import canonical_json

Result = TypeVar("Result")
#: The environment variable that replaces the limit of every environment, in seconds.
TIMEOUT = "VCRT_VERIFIER_TIMEOUT"
#: Where vcrt's own code lies: what breaks there was handed over by the environment.
PACKAGE = Path(__file__).parents[1]


def guarded(environment: Environment) -> Environment:
    """The same environment behind a guard, in the same form (steps, batches or neither)."""
    if isinstance(environment, _Guard):
        return environment
    if isinstance(environment, StepEnvironment):
        return _GuardedSteps(environment)
    if isinstance(environment, BatchEnvironment):
        return _GuardedBatches(environment)
    return _Guard(environment)


def make_guarded(factory: Callable[[], object]) -> Environment:
    """Make an environment and guard it; raises what :func:`vcrt.environments.registry.make_environment` raises."""
    name = getattr(factory, "name", None)
    named = name if isinstance(name, str) else getattr(factory, "__name__", repr(factory))
    record = current_record()
    if record is not None:
        record.begin(f"environment {named!r}", "when it is made", call_timeout())
    try:
        return guarded(make_environment(named, factory))
    finally:
        if record is not None:
            record.end()


def call_timeout(environment: Environment | None = None) -> float:
    """Seconds that one call of an environment may take: its own, unless the user has set another for all.

    Raises :class:`MalformedInputError` for a setting that is no such number.
    """
    own = Environment.call_timeout_s if environment is None else environment.call_timeout_s
    text = os.environ.get(TIMEOUT)
    try:
        seconds = float(own if text is None else text)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise MalformedInputError(
            "a time limit that is no number of seconds above zero",
            where=f"{type(environment).__qualname__}.call_timeout_s" if text is None else TIMEOUT,
            found=repr(own if text is None else text)[:80],
        )
    return seconds


def place_of(error: BaseException) -> str:
    """The last line of the environment's own code (not of vcrt's) that an error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not Path(f.filename).is_relative_to(PACKAGE)] or frames
    last = theirs[-1]
    return f"{last.filename}:{last.lineno}, in {last.name}"


def required_episode(episode: object, where: str) -> Episode:
    """Give back an episode in due form; raises :class:`EnvironmentFailure` naming the part that is not JSON."""
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


def _unfit(what: str, where: str, found: str, expected: str) -> EnvironmentFailure:
    return EnvironmentFailure(
        f"an environment gave {what}",
        where=where,
        found=found,
        expected=expected,
        remedy="`vcrt environments validate NAME` runs the environment's checks",
    )


class _Guard(Environment):
    """Guards an environment that is neither of steps nor of batches, and is the base for those that are."""

    def __init__(self, inner: Environment) -> None:
        self._inner: Any = inner
        self._timeout_s = call_timeout(inner)
        self._episode = ""
        # The class's own attributes: certification and the kit read them.
        for name in ("name", "schemas", "preferred_batch", "call_timeout_s"):
            try:
                setattr(self, name, getattr(inner, name))
            except Exception as error:
                where = f"{type(inner).__module__}.{type(inner).__qualname__}"
                found = f"{type(error).__name__}: {error}"
                raise _unfit(f"no {name!r}", where, found, f"{name} = ... in the class") from error
        self._where = f"environment {inner.name!r}"

    def _call(
        self,
        episode: str,
        call: str,
        function: Callable[..., Result],
        *arguments: Any,
        times: int = 1,
    ) -> Result:
        record = current_record()
        process = os.getpid()
        if record is not None:
            record.begin(episode or self._where, call, self._timeout_s * times)
        try:
            return function(*arguments)
        except VcrtError as error:
            raise self._placed(error, episode, call) from error
        except BaseException as error:
            if record is None and isinstance(error, KeyboardInterrupt):
                raise  # whoever sits before this process
            raise EnvironmentFailure(
                "an environment's own code ended a call without an answer",
                where=f"{self._place(episode, call)}; {place_of(error)}",
                found=f"{type(error).__name__}: {str(error)[:300]}",
                expected="Accepted, Rejected, or what else the method is to give",
                remedy=f"mend it; `vcrt environments validate {self._inner.name}` runs the environment's checks",
            ) from error
        finally:
            if os.getpid() != process:
                os._exit(1)  # a child that the environment forked has come back
            if record is not None:
                record.end()

    def _place(self, episode: str, call: str) -> str:
        return ", ".join(filter(None, (self._where, episode, call)))

    def _placed(self, error: VcrtError, episode: str, call: str) -> VcrtError:
        """A failure that says where it happened, if it does not yet."""
        if not isinstance(error, VerifierFailure) or (error.where and episode in error.where):
            return error
        place = "; ".join(filter(None, (self._place(episode, call), error.where)))
        return type(error)(
            error.what,
            where=place,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        )

    def versions(self) -> Versions:
        versions: Versions = self._call("", "versions", self._inner.versions)
        if not isinstance(versions, Versions):
            raise _unfit(
                "no versions", f"{self._where}, versions", repr(versions)[:120], "Versions(...)"
            )
        _require_json(versions.to_json(), f"{self._where}, versions")
        return versions

    def sample(self, schema: str, seed: int) -> Episode:
        name = f"{self._inner.name}/{schema}/{seed}"
        episode = self._call(name, "sample", self._inner.sample, schema, seed)
        return required_episode(episode, f"{self._where}, {name}, sample")

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        if not requests:
            return []
        first = requests[0].episode.episode_id
        call = f"replay of {len(requests)} sequences"
        try:
            answers: list[Replay] = self._call(first, call, self._inner.replay, requests)
        except EnvironmentFailure:
            # The one that breaks it is named if it breaks alone, too.
            for request in requests if len(requests) > 1 else ():
                call = f"replay of steps {list(request.sequence)}"
                self._call(request.episode.episode_id, call, self._inner.replay, [request])
            raise
        for answer in answers if isinstance(answers, list) else ():
            rejection = answer.rejection if isinstance(answer, Replay) else None
            self._require_reason(rejection, f"replay of {answer!r:.80}" if rejection else "")
        return answers

    def _require_reason(self, rejection: object, call: str) -> None:
        if isinstance(rejection, Rejected) and isinstance(rejection.reason, str):
            try:
                rejection.reason.encode()
            except UnicodeEncodeError:
                _require_json(rejection.reason, self._place(self._episode, call))

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        return self._call(episode.episode_id, "second opinion", self._inner.cross_check, episode)

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> list[tuple[CrossCheck, ...]]:
        if not episodes:
            return []
        if type(self._inner).cross_check_all is Environment.cross_check_all:
            return [self.cross_check(episode) for episode in episodes]
        call = f"second opinions on {len(episodes)} episodes"
        return self._call(
            episodes[0].episode_id,
            call,
            self._inner.cross_check_all,
            episodes,
            replays,
            times=len(episodes),
        )

    def thorough(self) -> Environment:
        return guarded(self._call("", "thorough", self._inner.thorough))

    def guards(self) -> Guards:
        guards: Guards = self._call("", "guards", self._inner.guards)
        return guards

    def describe(self, operation: Operation) -> str:
        call = f"description of step {operation.signature!r:.80}"
        text = self._call(self._episode, call, self._inner.describe, operation)
        if not isinstance(text, str):
            raise _unfit("no text", self._place("", call), repr(text)[:120], "text")
        _require_json(text, self._place("", call))
        return text

    def schema(self, name: str) -> Schema:
        schema: Schema = self._inner.schema(name)
        return schema


class _GuardedSteps(_Guard, StepEnvironment[Any]):
    """Guards each step by itself, unless the environment replays sequences in a way of its own."""

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        if type(self._inner).replay is StepEnvironment.replay:
            return super(_Guard, self).replay(requests)
        return _Guard.replay(self, requests)

    def initial_state(self, episode: Episode) -> Any:
        self._episode = episode.episode_id
        return self._call(self._episode, "initial state", self._inner.initial_state, episode)

    def step(self, state: Any, operation: Operation) -> Transition[Any]:
        call = f"step {operation.signature!r:.80}"
        answer: Transition[Any] = self._call(
            self._episode, call, self._inner.step, state, operation
        )
        self._require_reason(answer, call)
        return answer

    def canonical(self, state: Any) -> bytes:
        form: bytes = self._call(
            self._episode, "canonical form of a state", self._inner.canonical, state
        )
        return form

    def _wrong(self, method: str, given: object, expected: str) -> MalformedInputError:
        wrong: MalformedInputError = self._inner._wrong(method, given, expected)
        return wrong


class _GuardedBatches(_Guard, BatchEnvironment):
    """Guards each batch; single steps are what the environment derives from batches."""

    def initial_state(self, episode: Episode) -> PrefixState:
        self._episode = episode.episode_id
        state: PrefixState = self._call(
            self._episode, "initial state", self._inner.initial_state, episode
        )
        return state

    def step(self, state: PrefixState, operation: Operation) -> Transition[PrefixState]:
        call = f"step {operation.signature!r:.80}"
        answer: Transition[PrefixState] = self._call(
            self._episode, call, self._inner.step, state, operation
        )
        return answer

    def canonical(self, state: PrefixState) -> bytes:
        form: bytes = self._call(
            self._episode, "canonical form of a state", self._inner.canonical, state
        )
        return form
