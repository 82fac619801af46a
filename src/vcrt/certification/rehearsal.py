"""Run the checks of an environment in a process of its own, and say early on what they will cost.

The cost is found by rehearsal: the same checks, on an environment of the same form that accepts everything at once. A
verifier that refuses needs fewer calls. What certifying a long episode costs is not known beforehand.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from vcrt.certification.episodes import preset_named
from vcrt.certification.shards import EnvironmentFactory
from vcrt.certification.validation import Cost, is_long, look_at
from vcrt.environments.calls import Calls, TaskObserver, observing
from vcrt.environments.conformance import Finding
from vcrt.environments.conformance_checks import CHECKS
from vcrt.environments.contract import (
    Accepted,
    BatchEnvironment,
    Environment,
    Episode,
    Operation,
    Provenance,
    Replay,
    ReplayRequest,
    StepEnvironment,
    Versions,
)
from vcrt.environments.guarding import guarded
from vcrt.environments.isolation import ask
from vcrt.environments.shared_prefixes import offers_snapshots, shares_prefixes
from vcrt.hashing import sha256_hex
from vcrt.printable import duration
from vcrt.progress import MEASURED_S, Progress, Task

Done: TypeAlias = frozenset[str]
#: Where a worker writes how far it is, and after how many seconds anew.
_FILE = "progress.json"
_INTERVAL_S = 0.2


def look_in_a_process(
    factory: EnvironmentFactory, seeds: Sequence[int], progress: Progress, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    """The same in a process of its own, with calls, rate and time left shown, and an estimate after the first calls.

    Raises :class:`vcrt.errors.VerifierFailure` for an environment that ends the process or runs over its time limit.
    """
    with tempfile.TemporaryDirectory(prefix="vcrt-") as folder:
        shown = _RelayedProgress(Path(folder), progress)
        relaying = _RelayingProgress(shown.folder)
        found = ask(
            factory,
            lambda environment: _look_with_progress(environment, seeds, relaying, quick=quick),
            on_wait=shown.show,
        )
        shown.show()
    return found


def _look_with_progress(
    environment: Environment, seeds: Sequence[int], progress: Progress, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    num_checks = 1 + len(environment.schemas) * (3 + len(CHECKS))
    what = f"validate {environment.name}{', quick' * quick}"
    watched = _Watched(
        task=progress.task(what, num_checks, "checks"),
        environment=environment,
        seeds=seeds,
        quick=quick,
    )

    def checked(finding: Finding) -> None:
        watched.task.advance()

    with observing(watched):
        return look_at(environment, seeds, quick=quick, checked=checked)


@dataclass(slots=True, kw_only=True)
class _Watched(TaskObserver):
    """The same, with how many are expected, once the checks have lasted a while."""

    environment: Environment
    seeds: Sequence[int]
    quick: bool
    began: float = field(default_factory=time.monotonic)
    expected: int | None = None
    expected_quick: int = 0

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        self.calls.add(number, seconds)
        if not self.is_due() or time.monotonic() - self.began < MEASURED_S / 2:
            return
        if self.expected is None:
            # Only of what takes its time: the rehearsal takes some too.
            self.expected = rehearsed_calls(self.environment, self.seeds, quick=self.quick)
            self.expected_quick = rehearsed_calls(self.environment, self.seeds, quick=True)
        done, seconds = self.calls.number, self.calls.seconds
        expected = self.expected if done <= self.expected else None
        self.task.calls(done, seconds, expected, self._note(seconds / done))

    def _note(self, each: float) -> str:
        if self.quick:
            return ""
        long = [schema.name for schema in self.environment.schemas if is_long(schema)]
        more = f", and what certifying an episode of {', '.join(long)} takes" if long else ""
        quick = duration(self.expected_quick * each)
        return f"{more}; with --quick {self.expected_quick:,} calls: {quick}"


def rehearsed_calls(environment: Environment, seeds: Sequence[int], *, quick: bool) -> int:
    """The calls that the checks take of an environment that accepts everything, but for certifying long episodes."""
    calls = Calls()
    rehearsal = guarded(_rehearsal(environment))
    with observing(lambda name, number, seconds: calls.add(number, seconds)):
        look_at(rehearsal, seeds, quick=quick, long=False)
    return calls.number


def _rehearsal(environment: Environment) -> Environment:
    kind: type[_Steps | _Batches]
    if not isinstance(environment, StepEnvironment):
        kind = _Batches
    elif not shares_prefixes(environment):
        kind = _Whole
    else:
        kind = _Snapshots if offers_snapshots(environment) else _Steps
    made = kind()
    object.__setattr__(made, "name", environment.name)
    object.__setattr__(made, "schemas", environment.schemas)
    object.__setattr__(made, "max_probes", environment.max_probes)
    return made


@dataclass(slots=True)
class _RelayingProgress:
    """The worker's side: progress of one task, written to ``folder``."""

    folder: Path
    _state: dict[str, Any] = field(default_factory=dict)
    _written: float = 0.0

    def task(self, description: str, total: int, unit: str) -> Task:
        """Begin the task."""
        self._state = {"what": [description, total, unit], "units": 0, "calls": None}
        self._write(0.0)
        return self

    def advance(self, units: int = 1) -> None:
        """Note that ``units`` more are done."""
        self._state["units"] += units
        self._write(_INTERVAL_S)

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Note calls, as :meth:`vcrt.progress.Task.calls` says."""
        self._state["calls"] = [done, seconds, expected, note]
        self._write(_INTERVAL_S)

    def _write(self, interval_s: float) -> None:
        if time.monotonic() - self._written < interval_s:
            return
        self._written = time.monotonic()
        unfinished = self.folder / f"{_FILE}.new"
        unfinished.write_text(json.dumps(self._state))
        os.replace(unfinished, self.folder / _FILE)


@dataclass(slots=True)
class _RelayedProgress:
    """The waiting side: call :meth:`show` now and then, and once when the work is done."""

    folder: Path
    progress: Progress
    _task: Task | None = None
    _units: int = 0
    _calls: list[Any] | None = None

    def show(self) -> None:
        """Tell the progress what is new."""
        try:
            state = json.loads((self.folder / _FILE).read_text())
        except FileNotFoundError:
            return
        if self._task is None:
            self._task = self.progress.task(*state["what"])
        self._task.advance(state["units"] - self._units)
        self._units = state["units"]
        if state["calls"] not in (None, self._calls):
            self._calls = state["calls"]
            self._task.calls(*state["calls"])


class _Sampled(Environment):
    """As many operations as the schema's preset has, each by a number."""

    name = ""
    schemas = ()

    def versions(self) -> Versions:
        return Versions(environment=self.name, adapter="", canonicalizer="", verifier="")

    def sample(self, schema: str, seed: int) -> Episode:
        known = self.schema(schema)
        number = known.num_steps or preset_named(known.preset).num_operations or 4
        return Episode(
            environment=self.name,
            schema=schema,
            initial=seed,
            operations=tuple(Operation(signature=str(i), payload=i) for i in range(number)),
            provenance=Provenance(source=str(seed), generator="rehearsal", seed=seed),
        )


class _Steps(_Sampled, StepEnvironment[Done]):
    def initial_state(self, episode: Episode) -> Done:
        return frozenset()

    def step(self, state: Done, operation: Operation) -> Accepted[Done]:
        return Accepted(state | {operation.signature})

    def canonical(self, state: Done) -> bytes:
        return " ".join(sorted(state)).encode()


class _Snapshots(_Steps):
    def snapshot(self, state: Done) -> object:
        return state

    def restore(self, snapshot: object) -> Done:
        assert isinstance(snapshot, frozenset)
        return snapshot


class _Whole(_Steps):
    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        return [_accepted(request) for request in requests]


class _Batches(_Sampled, BatchEnvironment):
    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        return [_accepted(request) for request in requests]


def _accepted(request: ReplayRequest) -> Replay:
    names = [request.episode.operations[index].signature for index in request.sequence]
    forms = [" ".join(sorted(names[:length])).encode() for length in range(len(names) + 1)]
    return Replay(request.sequence, tuple(map(sha256_hex, forms)))
