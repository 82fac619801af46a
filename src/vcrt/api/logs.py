"""Certify the calls in a log, and make schedules of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vcrt import processes
from vcrt.calls.call_logs import read_traces
from vcrt.calls.data_flow import DataFlow
from vcrt.calls.log_lifting import (
    LEAST,
    Departure,
    LeftOut,
    LiftedWindow,
    RunTrace,
    run_trace,
    with_own_names,
)
from vcrt.calls.log_traces import Trace
from vcrt.calls.scheduled import Scheduled
from vcrt.calls.schedules import Schedule, checked_schedule
from vcrt.calls.settling import settle
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.episodes import ANY_PRESET, CertifiedEpisode, Exclusion
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.probes import are_told_apart, probed_pairs, require_not_told_apart
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.apart import apart
from vcrt.environments.conformance import Finding, validate_episodes
from vcrt.environments.conformance_checks import (
    DETERMINISTIC,
    REMEDIES,
    SINGLE_STEPS,
    restored_states_agree,
)
from vcrt.environments.contract import (
    CrossCheck,
    Environment,
    Episode,
    ReplayRequest,
    StepEnvironment,
    Versions,
)
from vcrt.environments.isolation import ask, ask_ahead, ask_all, prepare_again
from vcrt.environments.registry import sendable_factory
from vcrt.environments.shared_prefixes import state_after
from vcrt.environments.states.object_states import first_difference, form_of, without_keys
from vcrt.environments.states.outside_states import named_part
from vcrt.environments.tool_calls import CallEnvironment, is_redacted, unseen_by
from vcrt.errors import MalformedInputError, VcrtError, VerifierFailure
from vcrt.limits import MAX_COMPLETE, MAX_OPERATIONS
from vcrt.printable import counted, duration
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, call_progress, tell
from vcrt.replay.config import given
from vcrt.replay.evidence import Evidence
from vcrt.replay.run import CertifiedSchema, certify
from vcrt.replay.shards import EnvironmentFactory, evidence_of, probes_of, replays_of
from vcrt.replay.store import remove_store
from vcrt.storage import require_new

if TYPE_CHECKING:
    from vcrt.records.dataset import Dataset

#: Seconds of replay for each trace of a log.
WITHIN_S = 60.0
#: Exclusions after which the replays say nothing.
_NO_SCHEDULE = ("nondeterministic", "version_disagreement", "unequal_futures")
#: What is said of states that differ in an order alone, and where.
_KEY_ORDER = (
    "the two states differ in the order of keys at {}: say `key_order = True` in the environment's class, or "
    "vcrt.tools_environment(..., key_order=True)"
)
_SET_ORDER = (
    "the two states differ in the order of a set at {}: let tools sort what they take of it, or hold a mapping and say "
    "`key_order = True` in the environment's class"
)
#: Seconds in which the cause is looked for if two replays of the trace were seen to differ.
_FOR_A_CAUSE_S = 1.0
#: How many episodes of a log the checks of conformance are run on.
_CHECKED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledCalls:
    """Calls of a trace that were replayed in other orders, and which of them wait for which.

    ``first`` is the place of the first call in the trace. There is no ``schedule`` if the verifier refuses the trace
    itself, or if two replays of it differ: ``problem`` then gives the reason.
    """

    trace: Trace
    first: int
    replays: EpisodeReplays
    flows: tuple[DataFlow, ...]
    schedule: Schedule | None
    problem: str | None = None

    @property
    def episode(self) -> Episode:
        """The calls as an episode."""
        return self.replays.episode

    @property
    def was_replayed_once(self) -> bool:
        """Whether no second process replayed the same again."""
        return True


#: What is said of a trace or window.
Told = TypeVar("Told", ScheduledCalls, Scheduled)


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedCalls(ScheduledCalls):
    """Calls of a trace that were replayed in other orders, and what this certifies, or why it certifies nothing."""

    outcome: CertifiedEpisode | Exclusion

    @property
    def was_replayed_once(self) -> bool:
        """Whether no second process replayed the same again."""
        return isinstance(self.outcome, Exclusion)


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedLog:
    """The result for a log: its traces as they ran, the certified episodes, and the checks that did not pass."""

    traces: tuple[RunTrace, ...]
    calls: tuple[LiftedCalls, ...]
    failed_checks: tuple[Finding, ...]
    dataset: Dataset | None = None

    @property
    def departures(self) -> tuple[tuple[Trace, Departure], ...]:
        """The traces whose replay departs from the log, and where."""
        return tuple((run.trace, run.departure) for run in self.traces if run.departure is not None)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The calls that are neither certified nor scheduled."""
        return tuple(one for run in self.traces for one in run.left_out)


def lift_log(
    logs: Sequence[str | Path],
    *,
    environment: str | EnvironmentFactory | None = None,
    window: int | None = None,
    redact: bool = False,
    output: str | Path | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    progress: Progress = SILENT,
) -> LiftedLog:
    """Certify which calls in logs of tool calls commute, which do not, and why.

    Example: vcrt lift log trace.jsonl --environment shop.py:Shop

    Args:
        logs: Files of JSON lines: messages with tool calls, MCP's tools/call, or plain names and arguments.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        window: Certify each window of this many calls instead of whole traces of 2 to 64 calls.
        redact: Print and keep only the SHA-256 of a log's outputs and refusals; arguments are not hidden.
        output: The directory of a new dataset of the certified episodes; without it, nothing is written.

    Raises:
        MalformedInputError: A log cannot be read.
        UnknownNameError: There is no such tool.
        VcrtError: Nothing is left to certify.
    """
    if output is not None:
        require_new(Path(output), VcrtError)
    factory = required_factory(environment, *logs)
    with processes.kept_processes():
        runs, lifted, failed = read_and_run(factory, logs, window=window, redact=redact)
        if window is None:
            _tell_lengths(lifted)
        calls, dataset = _certified(
            factory, lifted, output, processes.num_jobs(jobs), backend, progress
        )
    return LiftedLog(traces=runs, calls=calls, failed_checks=failed, dataset=dataset)


def required_factory(
    environment: str | EnvironmentFactory | None, *logs: str | Path
) -> EnvironmentFactory:
    """Return what makes the environment of logs; raise :class:`VcrtError` if there is none."""
    if environment is None:
        raise VcrtError(
            "the environment of the log's calls was not named",
            where=", ".join(map(str, logs)),
            expected="--environment FILE.py:CLASS, the name of a registered environment, or --mcp",
        )
    return sendable_factory(environment)


def schedule_log(
    log: str | Path,
    *,
    factory: EnvironmentFactory,
    window: int | None,
    redact: bool,
    within: float | None,
    jobs: int,
    progress: Progress,
    told: Callable[[Environment, ScheduledCalls], Told],
) -> tuple[tuple[RunTrace, ...], tuple[Told, ...], tuple[Finding, ...]]:
    """Run the traces of a log, and find which calls wait for which; nothing is certified.

    Return what is ``told`` of each trace or window, and the checks that did not pass.

    The contexts that the schedule allows are replayed in one process (:mod:`vcrt.calls.settling`), and then further
    calls are made there; at the same time, orders that the schedule allows, and both orders of each pair that waits,
    are replayed in another process from fresh states. Each of the three takes ``within`` seconds for each trace, or
    little more. Raises as :func:`lift_log` does.
    """
    runs, lifted, failed = read_and_run(factory, [log], window=window, redact=redact)
    name, episodes = lifted[0].episode.environment, [one.episode for one in lifted]
    # Of several traces it is not known whose replays differ.
    differs = [one for one in failed if one.check == DETERMINISTIC and len(lifted) == 1]
    within = min(within or _FOR_A_CAUSE_S, _FOR_A_CAUSE_S) if differs else within
    with call_progress() as calls:
        task = progress.task(
            f"schedule {name}: contexts that orders allow", len(lifted), "episodes"
        )
        calls.expect(name, task, len(lifted), None, limit_note(within))
        parts = [episodes[start::jobs] for start in range(min(jobs, len(episodes)))]
        is_one = len(parts) == 1
        settled = ask_all(
            factory,
            [
                calls.counted(partial(_settled, episodes=part, within=within, probing=not is_one))
                for part in parts
            ],
            jobs=jobs,
            first=True,
            on_wait=calls.show,
        )
        found = [part for part, _ in settled]
        calls.done(name, len(lifted), (found, sum(number for _, number in settled)))
        versions = found[0][0]
        by_episode = {item.episode.episode_id: item for _, part in found for item in part}
        evidence = [by_episode[one.episode_id] for one in episodes]

    def checked(
        environment: Environment, items: Sequence[tuple[LiftedWindow, Evidence]]
    ) -> tuple[Told, ...]:
        require_versions(environment, versions)
        scheduled = partial(_checked, environment, once=True, within=within)

        def one_told(one: LiftedWindow, item: Evidence) -> Told:
            return told(environment, scheduled(one, item.replays, item.cross_checks))

        # No trace meets what another one left behind.
        return tuple(
            apart(environment, one.episode, partial(one_told, one, item)) for one, item in items
        )

    with call_progress() as calls:
        task = progress.task(f"schedule {name}: orders from fresh states", len(lifted), "episodes")
        calls.expect(name, task, len(lifted), None, limit_note(within))
        probing = calls.counted(
            partial(_probed, items=[item.replays for item in evidence], within=within)
        )
        probed = ask_ahead(factory, probing, on_wait=calls.show) if is_one else None
        asked = partial(checked, items=list(zip(lifted, evidence, strict=True)))
        made, number = ask(factory, calls.counted(asked), on_wait=calls.show)
        if probed is not None:
            probes, more = probed()
            number += more
            made = tuple(map(_with_probes, made, probes))
            if differing := [k for k, checks in enumerate(probes) if are_told_apart(checks)]:
                # Of these there is no schedule; the environment says why.
                items = [
                    (lifted[k], replace(evidence[k], cross_checks=probes[k])) for k in differing
                ]
                again = dict(
                    zip(differing, ask(factory, partial(checked, items=items)), strict=True)
                )
                made = tuple(again.get(k, one) for k, one in enumerate(made))
        for finding in differs:
            made = tuple(
                _without_schedule(one, f"nondeterministic: {finding.problem}") for one in made
            )
        return runs, calls.done(name, len(lifted), (made, number)), failed


def require_versions(environment: Environment, versions: Versions) -> None:
    """Raise :class:`VerifierFailure` unless an environment has these versions, which it had in another process."""
    if environment.versions() != versions:
        raise VerifierFailure(
            "two processes have different versions of one environment",
            where=f"environment {environment.name!r}",
            found=str(environment.versions())[:300],
            expected=str(versions)[:300],
        )


def _probed(
    environment: Environment, items: Sequence[EpisodeReplays], within: float | None
) -> list[tuple[CrossCheck, ...]]:
    return [probes_of(environment, item, within) for item in items]


def _without_schedule(one: Told, problem: str) -> Told:
    if isinstance(one, Scheduled):
        one = replace(one, batches=(), differences={})
    return replace(one, schedule=None, problem=one.problem or problem)


def _with_probes(one: Told, checks: Sequence[CrossCheck]) -> Told:
    if one.schedule is None:
        return one
    return replace(one, schedule=replace(one.schedule, probes=probed_pairs(checks)))


def require_seconds(within: float) -> None:
    """Raise :class:`VcrtError` unless a time limit is a positive number of seconds."""
    if not within > 0:
        raise VcrtError(
            "a number out of range", found=f"within {within:g}", expected="seconds, more than 0"
        )


def limit_note(within: float | None) -> str:
    """Say how long each trace takes at most, after what is not known yet."""
    return "" if within is None else f", but at most {duration(within)} for each trace (--within)"


def _settled(
    environment: Environment, episodes: Sequence[Episode], within: float | None, *, probing: bool
) -> tuple[Versions, list[Evidence]]:
    found = evidence_of(
        environment, episodes, settle=partial(settle, within=within), within=within, probing=probing
    )
    return environment.versions(), found


def read_and_run(
    factory: EnvironmentFactory,
    logs: Sequence[str | Path],
    *,
    window: int | None,
    redact: bool,
    least: int = LEAST,
) -> tuple[tuple[RunTrace, ...], list[LiftedWindow], tuple[Finding, ...]]:
    """Return the traces of logs as they ran, their windows, and the checks that did not pass.

    They run in the process that replays first; that which replays again starts meanwhile, and they leave nothing there.
    """
    if window is not None and not LEAST <= window <= MAX_OPERATIONS:
        raise VcrtError(
            "a number out of range",
            found=f"window {window}",
            expected=f"from 2 to {MAX_OPERATIONS}",
        )
    run_all = partial(_run, traces=_read(logs), window=window, redact=redact, least=least)
    prepare_again(factory, __name__)
    (runs,) = ask_all(factory, [run_all], first=True)
    lifted = [one for run in runs for one in run.windows]
    if not lifted:
        raise _nothing(runs)
    failed = _failed_checks(factory, lifted)
    for run in runs:
        if run.warning is not None:
            tell(run.warning)
    for finding in failed:
        tell(f"{finding.check}: {finding.problem}; to mend: {finding.remedy}")
    return runs, lifted, failed


def _certified(
    factory: EnvironmentFactory,
    lifted: Sequence[LiftedWindow],
    output: str | Path | None,
    jobs: int,
    backend: Backend,
    progress: Progress,
) -> tuple[tuple[LiftedCalls, ...], Dataset | None]:
    """Return the outcome of each window, and the dataset of the certified ones if one is requested."""
    config = given([one.episode for one in lifted], preset=ANY_PRESET)
    factories = {lifted[0].episode.environment: factory}
    with tempfile.TemporaryDirectory() as scratch:
        shards = Path(scratch)
        if output is not None:
            from vcrt.datasets.freezing import make_dataset, unfinished_path

            shards = unfinished_path(Path(output))
        shards.mkdir(parents=True, exist_ok=True)
        schemas = certify(
            config, shards, jobs=jobs, backend=backend, progress=progress, factories=factories
        )
        calls = _outcomes(factory, schemas, lifted, progress)
        if output is None:
            return calls, None
        if not any(isinstance(one.outcome, CertifiedEpisode) for one in calls):
            remove_store(shards)
            return calls, None
        dataset = make_dataset(
            config, Path(output), jobs=jobs, backend=backend, progress=progress, factories=factories
        )
    return calls, dataset


def _read(logs: Sequence[str | Path]) -> list[tuple[Trace, str]]:
    """Read the traces of all logs, each with its origin: the log's name and the trace's place in it."""
    if not logs:
        raise VcrtError("lift what?", expected="at least one log", remedy="vcrt lift log --help")
    return [
        (trace, f"{Path(log).name}, trace {place}")
        for log in logs
        for place, trace in enumerate(read_traces(Path(log)), start=1)
    ]


def _run(
    environment: Environment,
    traces: Sequence[tuple[Trace, str]],
    window: int | None,
    redact: bool,
    least: int,
) -> tuple[RunTrace, ...]:
    traces = [(with_own_names(environment, trace), source) for trace, source in traces]
    calls = [call for trace, _ in traces for call in trace.calls]
    run = partial(run_trace, environment, window=window, redact=redact, others=calls, least=least)
    return tuple(run(trace, n, source=source) for n, (trace, source) in enumerate(traces))


def _failed_checks(
    factory: EnvironmentFactory, lifted: Sequence[LiftedWindow]
) -> tuple[Finding, ...]:
    """Return the conformance checks that the shortest episodes do not pass.

    If snapshots do not keep states, raises that error, because it would make equal orders look different. Snapshots are
    not the cause if runs without a snapshot differ, too.
    """
    episodes = sorted((one.episode for one in lifted), key=lambda one: one.num_operations)
    check = partial(validate_episodes, schema=episodes[0].schema, episodes=episodes[:_CHECKED])
    (findings,) = ask_all(factory, [check], first=True)
    failed = tuple(finding for finding in findings if not finding.passed)
    for finding in failed:
        if finding.check == SINGLE_STEPS and all(one.check != DETERMINISTIC for one in failed):
            raise MalformedInputError(
                "single steps of the environment do not agree with replays",
                where=f"environment {episodes[0].environment!r}",
                found=finding.problem,
                expected="the same result, whether or not the state came from a snapshot (by default, a deep copy)",
                remedy=finding.remedy
                if finding.remedy != REMEDIES[SINGLE_STEPS]
                else "let snapshot and restore (or __deepcopy__, __getstate__ and __reduce__ of the state's classes) "
                "leave nothing out; let nothing outside of the state refer to a part of it; as a mark to compare by "
                "`is`, use a class or a member of an Enum, because copies keep these",
            )
    return failed


def _outcomes(
    factory: EnvironmentFactory,
    schemas: Sequence[CertifiedSchema],
    lifted: Sequence[LiftedWindow],
    progress: Progress,
) -> tuple[LiftedCalls, ...]:
    """Return the outcome of each episode; replay episodes that certify nothing once more to show what they do."""
    outcomes: dict[str, CertifiedEpisode | Exclusion] = {}
    for schema in schemas:
        outcomes |= {certified.episode.episode_id: certified for certified in schema.episodes()}
        outcomes |= {exclusion.episode_id: exclusion for exclusion in schema.exclusions}

    def schedules(environment: Environment) -> tuple[LiftedCalls, ...]:
        return tuple(
            _scheduled(environment, one, outcomes[one.episode.episode_id]) for one in lifted
        )

    name = lifted[0].episode.environment
    with call_progress() as calls:
        task = progress.task(f"schedule {name}: which calls wait", len(lifted), "episodes")
        calls.expect(name, task, len(lifted), None)
        made = ask(factory, calls.counted(schedules), on_wait=calls.show)
        return calls.done(name, len(lifted), made)


def _tell_lengths(lifted: Sequence[LiftedWindow]) -> None:
    """Say before the work which traces take long, and how windows would shorten it."""
    long = max(lifted, key=lambda one: one.episode.num_operations)
    number = long.episode.num_operations
    if number > MAX_COMPLETE:
        tell(
            f"{long.trace.name}: {number} of {counted(len(long.trace.calls), 'call')} are certified together, in "
            "sampled contexts, which may take minutes; --window 4 is quicker: it certifies each 4 calls that follow "
            "each other, and does not compare calls further apart"
        )


def _scheduled(
    environment: Environment, one: LiftedWindow, outcome: CertifiedEpisode | Exclusion
) -> LiftedCalls:
    once = isinstance(outcome, Exclusion)
    replays = (
        replays_of(environment, [one.episode])[0]
        if isinstance(outcome, Exclusion)
        else outcome.evidence
    )
    certain = None
    if isinstance(outcome, Exclusion) and outcome.kind in _NO_SCHEDULE:
        certain = UncertifiedError(outcome.kind, outcome.detail)
    found = _checked(environment, one, replays, outcome.cross_checks, once=once, certain=certain)
    kind, _, detail = (found.problem or "").partition(": ")
    if isinstance(outcome, Exclusion) and kind in _NO_SCHEDULE:
        known: Any = kind
        outcome = Exclusion(one.episode.episode_id, known, detail, outcome.cross_checks)
    return LiftedCalls(
        trace=found.trace,
        first=found.first,
        replays=found.replays,
        outcome=outcome,
        flows=found.flows,
        schedule=found.schedule,
        problem=found.problem,
    )


def _checked(
    environment: Environment,
    one: LiftedWindow,
    replays: EpisodeReplays,
    checks: tuple[CrossCheck, ...],
    *,
    once: bool,
    within: float | None = None,
    certain: UncertifiedError | None = None,
) -> ScheduledCalls:
    """Make the schedule of replays, and test it with orders from fresh states; ``certain`` says why there is none."""
    schedule, problem = None, None
    try:
        if certain is not None:
            raise certain
        if once:
            require_not_told_apart(checks)
        schedule = checked_schedule(environment, replays, one.flows, once=once, within=within)
        schedule = replace(schedule, probes=probed_pairs(checks), max_probes=environment.max_probes)
    except UncertifiedError as error:
        kind, detail = error.kind, error.detail
        if kind == "unequal_futures" and _differs_by_itself(environment, replays) is not None:
            kind = "nondeterministic"  # and not two states that look alike
        if kind in _NO_SCHEDULE:
            detail += _cause(environment, replays, kind)
        if once and kind == "outside_schema" and isinstance(environment, CallEnvironment):
            # The process that read the log ran it; what it left there was met again.
            named = named_part(environment, environment.initial_state(replays.episode))
            detail += "; it was accepted when the log was read" + (named and f"; {named}")
        problem = f"{kind}: {detail}"
    return ScheduledCalls(
        trace=one.trace,
        first=one.first,
        replays=replays,
        flows=one.flows,
        schedule=schedule,
        problem=problem,
    )


def _cause(environment: Environment, replays: EpisodeReplays, kind: str) -> str:
    """Guess why states of one hash have different futures, or why two replays differ; "" if unknown."""
    if not isinstance(environment, CallEnvironment):
        return ""
    if (unseen := unseen_by(environment)) is not None:
        return f"; {unseen}"
    episode, said = replays.episode, list[str]()
    if kind == "unequal_futures" and replays.tree.contradiction is None:
        unequal = Lattice.of(replays.tree, replays.reads).unequal
        states = [state_after(environment, episode, order) for order in (unequal or ())[:2]]
        for set_order, advice in enumerate((_KEY_ORDER, _SET_ORDER) if states else ()):
            one, other = (form_of(state, set_order=bool(set_order)) for state in states)
            if (where := first_difference(one, other)) is not None:
                said.append(advice.format(without_keys(where) if is_redacted(episode) else where))
                break
    if kind == "nondeterministic":
        said.append(
            _differs_by_itself(environment, replays) or _cause_of_difference(environment, episode)
        )
    return "".join(f"; {each}" for each in said)


def _differs_by_itself(environment: Environment, replays: EpisodeReplays) -> str | None:
    """Find where states differ after two runs of the calls in one order, because of a clock or chance."""
    if not isinstance(environment, CallEnvironment) or unseen_by(environment) is not None:
        return None
    episode = replays.episode
    order = tuple(range(episode.num_operations))
    for length in range(len(order) + 1):
        one, other = (form_of(state_after(environment, episode, order[:length])) for _ in "ab")
        where = first_difference(one, other)
        if where is not None:
            where = without_keys(where) if is_redacted(episode) else where
            return f"{where} differs between two runs of {list(order[:length])}: fix clocks and chance in `reset`"
    return None


def _cause_of_difference(environment: Environment, episode: Episode) -> str:
    """Explain why two replays differ although the trace gave equal states twice: snapshots, if they still differ."""
    assert isinstance(environment, StepEnvironment)
    order = tuple(range(episode.num_operations))
    requests = [ReplayRequest(episode, each) for each in (order, order[::-1])]
    fresh = {replay.sequence: replay for replay in environment.replay(requests)}
    lost = restored_states_agree(environment, episode, fresh)
    if lost is not None and all(
        fresh[each.sequence] == each for each in environment.replay(requests)
    ):
        return f"{lost}: let snapshot and restore (by default, deep copies) keep all of the state"
    named = named_part(environment, environment.initial_state(episode))
    return named or (
        "two runs of the trace gave equal states now: look for a clock or chance, as in the times that a file's format "
        "holds, for what another process has in another order, such as a set, and for what a call leaves beside the "
        "state, in a global, a closure, a cache or a library: each order began in a process that had made no call"
    )


def _nothing(runs: Sequence[RunTrace]) -> VcrtError:
    missing = [one for run in runs for one in run.left_out]
    return departed(missing) or VcrtError(
        "no two calls of one trace to compare",
        where="; ".join(dict.fromkeys(run.trace.place_of(0) for run in runs if run.trace.calls)),
        found="; ".join(one.text for one in missing),
        expected="two calls or more in a trace, and no fewer than the window",
    )


def departed(missing: Sequence[LeftOut]) -> VcrtError | None:
    """Return the error of the first call that gave another output than the log; it and later calls are left out."""
    for one in missing:
        if one.departure is not None:
            return MalformedInputError(
                f"the environment is not the one that was logged: a call gives another output; {one.counted}",
                where=one.departure.where,
                found=one.departure.replayed[:300],
                expected=one.departure.logged[:300],
                remedy=one.departure.remedy,
            )
    return None
