"""Test whether an environment conforms and its episodes are certified: ``vcrt environments validate``.

Of episodes with few operations, every order of several is replayed. Of those with many, a single one is certified
unless the look is quick: it is replayed as in one of the two replays of ``vcrt certify``, and its cost is reported.

The checks run in a process of their own, which estimates their cost early by a rehearsal: the same checks on an
environment of the same form that accepts everything at once. A verifier that refuses needs fewer calls. The cost of
certifying a long episode is not estimated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from vcrt.certificates.certificates import ExclusionKind
from vcrt.certificates.episodes import (
    CertifiedEpisode,
    Exclusion,
    Preset,
    certify_episode,
    preset_named,
)
from vcrt.certificates.probes import probe
from vcrt.environments.conformance import ANSWERS, Finding, attempted, validate
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
from vcrt.environments.guarding import guarded
from vcrt.environments.isolation import Description, ask
from vcrt.environments.shared_prefixes import offers_snapshots, shares_prefixes
from vcrt.environments.tool_calls import comes_from_logs
from vcrt.hashing import sha256_hex
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.printable import counted, duration
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
from vcrt.replay.lattice_replay import replay_lattices, replay_merged
from vcrt.replay.replay import replay_exhaustively
from vcrt.replay.shards import EnvironmentFactory

Done: TypeAlias = frozenset[str]
#: Remedies for the exclusions that no check of the conformance kit explains.
_REMEDIES: dict[ExclusionKind, str] = {
    "outside_schema": "let one pair of four operations depend on each other and the other five pairs commute, or give "
    'the schema preset="any", which takes any relations and 2 to 64 operations',
    "unequal_futures": "canonical leaves out something that a later step can tell, or the verifier's answer depends "
    "on more than the state",
    "context_dependent": "take operations whose relation does not depend on what ran before them",
}
_LONG_REMEDIES: dict[ExclusionKind, str] = {
    **_REMEDIES,
    "outside_schema": "let some pairs depend on each other and others commute, the same in whatever context, and let "
    "the reference order be legal",
    "too_large": "let more steps commute, or take shorter episodes",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The cost of certifying one long episode, in seconds of wall-clock time, and the number of replays."""

    subject: str
    num_operations: int
    num_sequences: int
    seconds: float
    contexts: str


def look_at(
    environment: Environment,
    seeds: Sequence[int],
    *,
    quick: bool,
    checked: Callable[[Finding], None] = lambda finding: None,
    long: bool = True,
) -> tuple[list[Finding], list[Cost]]:
    """Return the findings of the conformance kit and of certifying a few episodes, and the costs of long ones.

    ``quick`` leaves out most sequences, all episodes but the first, and the certification of long ones; without
    ``long``, the certification of long ones alone is left out.
    """
    if comes_from_logs(environment):
        environment.sample(
            environment.schemas[0].name, seeds[0]
        )  # raises, and says which command has the checks
    findings = validate(environment, seeds, quick=quick, checked=checked)
    # A schema without an answer cannot be certified.
    silent = {found.subject for found in findings if found.check == ANSWERS and not found.passed}
    costs = []
    for schema in environment.schemas:
        if f"{environment.name}/{schema.name}" in silent or (
            is_long(schema) and (quick or not long)
        ):
            continue
        finding, cost = certifies(environment, schema, seeds[:1] if quick else seeds, quick=quick)
        checked(finding)
        findings.append(finding)
        costs += [] if cost is None else [cost]
    return findings, costs


def not_looked_at(environment: Description, num_episodes: int) -> str:
    """Return, in words, what a quick look leaves out."""
    long = ", ".join(schema.name for schema in environment.schemas if is_long(schema))
    return (
        f"A quick look: 1 of {counted(num_episodes, 'episode')} of each schema, and three orders of its steps with "
        "few prefixes; "
        "all others are known only as far as equal states are continued alike"
        + (f"; no episode of {long} was certified" if long else "")
        + ". Without --quick all of it is looked at; `vcrt certify` replays everything twice whatever was found here."
    )


def is_long(schema: Schema) -> bool:
    """Return whether a schema's episodes have many steps, or any number of steps."""
    return preset_named(schema.preset).is_long


def certifies(
    environment: Environment, schema: Schema, seeds: Sequence[int], *, quick: bool = False
) -> tuple[Finding, Cost | None]:
    """Check that a schema's episodes are certified with its declared anti-diamonds; return a long one's cost too.

    With ``quick``, merged replay assembles the orders of short episodes.
    """
    preset = preset_named(schema.preset)
    subject = f"{environment.name}/{schema.name}"
    check = f"certifies {preset.orbit_size or 'several'} legal orders"
    if preset.is_long:
        steps = "any number of" if preset.is_any else preset.num_operations
        check = f"certifies episodes of {steps} steps"
    problem, found = attempted(
        lambda: _certified(environment, schema.name, preset, seeds, quick=quick)
    )
    if found is None:
        return Finding(check, subject, problem, "mend what its message says"), None
    if isinstance(found, Exclusion):
        remedies = _LONG_REMEDIES if preset.is_long else _REMEDIES
        remedy = remedies.get(found.kind, "see what the checks above say of this schema")
        return Finding(check, subject, f"{found.kind}: {found.detail}", remedy), None
    kinds, cost = found
    fits = schema.designed(kinds) or (preset.is_any and not kinds)
    unlike = None if fits else f"{sorted(kinds)}, not {schema.relation!r}"
    declared = "either" if len(kinds) > 1 else "".join(kinds)
    return Finding(check, subject, unlike, f"declare relation={declared!r} in the schema"), cost


def _certified(
    environment: Environment, schema: str, preset: Preset, seeds: Sequence[int], *, quick: bool
) -> Exclusion | tuple[set[str], Cost | None]:
    """Return the kinds of anti-diamond in all short episodes and one long one, with its cost; or an exclusion."""
    episodes = [environment.sample(schema, seed) for seed in seeds]
    short = [each for each in episodes if each.num_operations <= MAX_EXHAUSTIVE]
    kinds: set[str] = set()
    replayed = (
        replay_merged(environment, short)
        if quick
        else replay_exhaustively(environment, short, sharing=True)
    )
    for evidence in replayed:
        probes = () if quick else probe(environment, evidence)
        checks = (*environment.cross_check(evidence.episode), *probes)
        outcome = certify_episode(evidence, environment.versions(), preset, checks)
        if isinstance(outcome, Exclusion):
            return outcome
        kinds |= outcome.kinds
    excluded: Exclusion | None = None
    # Of the long episodes, take the first that is certified; else keep the last exclusion.
    for episode in episodes:
        if episode.num_operations <= MAX_EXHAUSTIVE:
            continue
        start = time.perf_counter()
        (evidence,) = replay_lattices(environment, [episode])
        probes = probe(environment, evidence)
        outcome = certify_episode(evidence, environment.versions(), preset, probes)
        seconds = time.perf_counter() - start
        if isinstance(outcome, Exclusion):
            excluded = outcome
            continue
        cost = Cost(
            subject=f"{environment.name}/{episode.schema}",
            num_operations=episode.num_operations,
            num_sequences=len(evidence.tree),
            seconds=seconds,
            contexts=_contexts(outcome),
        )
        return kinds | outcome.kinds, cost
    return excluded or (kinds, None)


def _contexts(episode: CertifiedEpisode) -> str:
    if episode.complete:
        return "every reachable context"
    counts = [(pair.replayed, pair.contexts) for pair in episode.pairs]
    replayed, among = sum(done for done, _ in counts), [total for _, total in counts]
    known = [total for total in among if total is not None]
    of = f" of {sum(known):,}" if len(known) == len(among) else ""
    return f"a sample: {replayed:,}{of} contexts"


def look_in_a_process(
    factory: EnvironmentFactory, seeds: Sequence[int], progress: Progress, *, quick: bool
) -> tuple[list[Finding], list[Cost]]:
    """Call :func:`look_at` in a process of its own; show calls, rate and remaining time, and an early estimate.

    Raise :class:`vcrt.errors.VerifierFailure` for an environment that ends the process or exceeds its time limit.
    """
    with recording() as record:
        shown = _Shown(record, progress)

        def look(environment: Environment) -> tuple[list[Finding], list[Cost]]:
            num_checks = 1 + len(environment.schemas) * (3 + len(CHECKS))
            record.write(
                "task", f"validate {environment.name}{', quick' * quick}", num_checks, "checks"
            )
            done = count(1)
            with observing(Counting(_Watched(record, environment, seeds, quick))):
                return look_at(
                    environment,
                    seeds,
                    quick=quick,
                    checked=lambda _: record.write("checks", next(done)),
                )

        found = ask(factory, look, on_wait=shown.show)
        shown.show()
    return found


@dataclass(slots=True)
class _Shown:
    """A relay of a worker's records to the progress: the task, the number of finished checks, and the calls."""

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


@dataclass(slots=True)
class _Watched:
    """A recorder of calls, with their expected number, once the checks have lasted a while."""

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
            # Only for slow checks, as the rehearsal takes time too.
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
    """Return the calls of the checks on an environment that accepts everything, without certifying long episodes."""
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
    """An environment whose episodes have as many numbered operations as the schema's preset."""

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
