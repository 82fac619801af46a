"""The checks of ``vcrt environments validate``, what they cost, and what a quick look leaves out.

The cost is found by rehearsal: the same checks, on an environment of the same form that accepts everything at once. A
verifier that refuses needs fewer calls. What certifying a long episode costs is not known beforehand.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from vcrt.certification.episodes import preset_named
from vcrt.certification.shards import EnvironmentFactory
from vcrt.cli.certifies import Cost, certifies
from vcrt.cli.progress import MEASURED_S, in_words
from vcrt.environments.calls import Calls, Noting, counting, hearing
from vcrt.environments.conformance import ANSWERS, Finding, validate
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
    Schema,
    StepEnvironment,
    Versions,
)
from vcrt.environments.isolation import Description, ask
from vcrt.environments.shared_prefixes import offers_snapshots, shares_prefixes
from vcrt.hashing import sha256_hex
from vcrt.printable import counted
from vcrt.progress import Progress
from vcrt.relayed_progress import RelayedProgress, RelayingProgress

Done: TypeAlias = frozenset[str]


def look_at(
    environment: Environment,
    seeds: Sequence[int],
    *,
    quick: bool,
    checked: Callable[[Finding], None] = lambda finding: None,
    long: bool = True,
) -> tuple[list[Finding], list[Cost]]:
    """The findings of the conformance kit and of certifying a few episodes, and what long ones cost.

    ``quick`` leaves out most sequences, all episodes but the first and the certification of long ones; without
    ``long``, these alone are left out.
    """
    findings = validate(environment, seeds, quick=quick, checked=checked)
    # What does not answer cannot be certified.
    silent = {found.subject for found in findings if found.check == ANSWERS and not found.passed}
    costs = []
    for schema in environment.schemas:
        if f"{environment.name}/{schema.name}" in silent or (
            _is_long(schema) and (quick or not long)
        ):
            continue
        finding, cost = certifies(environment, schema, seeds[:1] if quick else seeds, quick=quick)
        checked(finding)
        findings.append(finding)
        costs += [] if cost is None else [cost]
    return findings, costs


def look_in_a_process(
    factory: EnvironmentFactory, seeds: Sequence[int], progress: Progress, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    """The same in a process of its own, with calls, rate and time left shown, and an estimate after the first calls.

    Raises :class:`vcrt.errors.VerifierFailure` for an environment that ends the process or runs over its time limit.
    """
    with tempfile.TemporaryDirectory(prefix="vcrt-") as folder:
        shown = RelayedProgress(Path(folder), progress)
        relaying = RelayingProgress(shown.folder)
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

    with hearing(watched):
        return look_at(environment, seeds, quick=quick, checked=checked)


def not_looked_at(environment: Description, num_episodes: int) -> str:
    """What a quick look leaves out, in words."""
    long = ", ".join(schema.name for schema in environment.schemas if _is_long(schema))
    return (
        f"A quick look: 1 of {counted(num_episodes, 'episode')} of each schema, and three orders of its steps with "
        "few prefixes; "
        "all others are known only as far as equal states are continued alike"
        + (f"; no episode of {long} was certified" if long else "")
        + ". Without --quick all of it is looked at; `vcrt certify` replays everything twice whatever was found here."
    )


def _is_long(schema: Schema) -> bool:
    return preset_named(schema.preset).is_long


@dataclass(slots=True, kw_only=True)
class _Watched(Noting):
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
        long = [schema.name for schema in self.environment.schemas if _is_long(schema)]
        more = f", and what certifying an episode of {', '.join(long)} takes" if long else ""
        quick = in_words(self.expected_quick * each)
        return f"{more}; with --quick {self.expected_quick:,} calls: {quick}"


def rehearsed_calls(environment: Environment, seeds: Sequence[int], *, quick: bool) -> int:
    """The calls that the checks take of an environment that accepts everything, but for certifying long episodes."""
    calls = Calls()
    rehearsal = counting(_rehearsal(environment))
    with hearing(lambda name, number, seconds: calls.add(number, seconds)):
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
