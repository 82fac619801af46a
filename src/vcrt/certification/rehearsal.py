"""Run the checks of an environment in a process of its own, and say early on what they will cost.

The cost is found by rehearsal: the same checks, on an environment of the same form that accepts everything at once. A
verifier that refuses needs fewer calls. What certifying a long episode costs is not known beforehand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from vcrt.certification.episodes import preset_named
from vcrt.certification.shards import EnvironmentFactory
from vcrt.certification.validation import Cost, is_long, look_at
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
from vcrt.progress import (
    MEASURED_S,
    Calls,
    Counting,
    Progress,
    Record,
    Silent,
    Task,
    observing,
    recording,
)

Done: TypeAlias = frozenset[str]


def look_in_a_process(
    factory: EnvironmentFactory, seeds: Sequence[int], progress: Progress, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    """The same in a process of its own, with calls, rate and time left shown, and an estimate after the first calls.

    Raises :class:`vcrt.errors.VerifierFailure` for an environment that ends the process or runs over its time limit.
    """
    with recording() as record:
        shown = _Shown(record, progress)
        found = ask(
            factory,
            lambda environment: _look_recorded(environment, seeds, record, quick=quick),
            on_wait=shown.show,
        )
        shown.show()
    return found


@dataclass(slots=True)
class _Shown:
    """Tells the progress what a worker has recorded: the task, how many checks are done, and the calls."""

    record: Record
    progress: Progress
    _task: Task = field(default_factory=Silent)
    _checks: int = 0

    def show(self) -> None:
        for what, *values in self.record.news():
            if what == "task" and isinstance(self._task, Silent):
                self._task = self.progress.task(*values)
            elif what == "checks":
                self._task.advance(values[0] - self._checks)
                self._checks = values[0]
            elif what == "calls":
                self._task.calls(*values)


def _look_recorded(
    environment: Environment, seeds: Sequence[int], record: Record, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    num_checks = 1 + len(environment.schemas) * (3 + len(CHECKS))
    what = f"validate {environment.name}{', quick' * quick}"
    record.write("task", what, num_checks, "checks")
    done = count(1)
    with observing(Counting(_Watched(record, environment, seeds, quick))):
        return look_at(
            environment, seeds, quick=quick, checked=lambda _: record.write("checks", next(done))
        )


@dataclass(slots=True)
class _Watched:
    """Records the calls, with how many are expected, once the checks have lasted a while."""

    record: Record
    environment: Environment
    seeds: Sequence[int]
    quick: bool
    began: float = field(default_factory=time.monotonic)
    expected: int | None = None
    expected_quick: int = 0

    def __call__(self, environment: str, calls: Calls) -> None:
        if time.monotonic() - self.began < MEASURED_S / 2:
            return
        if self.expected is None:
            # Only of what takes its time: the rehearsal takes some too.
            self.expected = rehearsed_calls(self.environment, self.seeds, quick=self.quick)
            self.expected_quick = rehearsed_calls(self.environment, self.seeds, quick=True)
        done, seconds = calls.number, calls.seconds
        expected = self.expected if done <= self.expected else None
        self.record.write("calls", done, seconds, expected, self._note(seconds / done))

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
