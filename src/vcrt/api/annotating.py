"""Annotate tools from replays of their calls in frozen datasets, in logs, or in sampled episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeAlias, TypeVar

from vcrt.api.logs import WITHIN_S, limit_note, read_and_run, require_seconds
from vcrt.calls.annotations import AfterRefusals, Annotations, Evidence
from vcrt.calls.data_flow import DataFlow
from vcrt.calls.retries import after_refusals
from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.probes import probe, require_not_told_apart
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.apart import apart
from vcrt.environments.contract import Environment, Episode, Schema, schema_named
from vcrt.environments.guarding import make_guarded
from vcrt.environments.isolation import ask
from vcrt.environments.registry import named_factory, sendable_factory
from vcrt.environments.tool_calls import Tool, require_calls
from vcrt.errors import DatasetError, VcrtError
from vcrt.printable import counted
from vcrt.processes import in_fresh_processes, kept_now, kept_processes, num_jobs
from vcrt.processes.work import KeptProcess
from vcrt.progress import SILENT, Progress, call_progress
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import Dataset, open_dataset, read_audit
from vcrt.replay.shards import EnvironmentFactory, replays_of
from vcrt.replay.twice import Once, Twice, replay_once, replay_twice

Item = TypeVar("Item")
Result = TypeVar("Result")
#: How many episodes a process replays at a time.
_AT_A_TIME = 5
#: A trace's two replays, and what its refused calls left.
_WithRefusals: TypeAlias = tuple[Twice, AfterRefusals | None]


def annotate(
    sources: Sequence[str | Path] = (),
    *,
    environment: str | EnvironmentFactory | None = None,
    schemas: Sequence[str] = (),
    episodes: int = 20,
    seed: int = 0,
    window: int | None = None,
    risk: float = 0.1,
    redact: bool = False,
    within: float = WITHIN_S,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Annotations:
    """Say whether each tool changes the state, and when the calls of each pair of tools commute.

    Every statement has counts of replayed calls, and an exact bound on the chance that the next source shows the
    opposite. It also names the relations between arguments that were never tried. Conditions on arguments are learned
    on some sources and tested on others. Declared hints that replay contradicts are listed.

    Example: vcrt annotate trace.jsonl --environment shop.py:Shop

    Args:
        sources: Frozen datasets, or logs of calls with their environment; without any, episodes are sampled, replayed
            twice, and not frozen.
        environment: The environment of the calls: a registered name, or FILE.py:CLASS (in Python, a class too).
        schemas: Without sources: the environment's schemas to sample, all by default.
        episodes: Without sources: sampled episodes of each schema.
        seed: Without sources: seed of the first episode.
        window: Replay each window of this many calls of a log instead of whole traces.
        risk: Call a hint true only if the bound on the chance that the next source shows the opposite is at most this.
        redact: Print and keep only the SHA-256 of a log's outputs and refusals; arguments are not hidden.
        within: Seconds for each trace of a log: for a first replay, for a second in another process, for further
            calls and for refused ones. Traces that take longer are named; what was not replayed twice by then is not
            counted.

    Raises:
        MalformedInputError: The environment's steps are not calls.
        DatasetError: The datasets are of several environments or versions.
        VcrtError: No episode says anything; also every error of :func:`vcrt.lift_log`.
    """
    if not 0 < risk <= 1:
        raise VcrtError("not a valid risk", found=f"risk {risk:g}", expected="above 0, at most 1")
    require_seconds(within)
    factory = None if environment is None else sendable_factory(environment)
    known = None if factory is None else ask(factory, _look)
    undeclared = None
    if schemas and sources:
        raise VcrtError(
            "schemas were given together with sources",
            found=f"schemas {', '.join(schemas)} beside {counted(len(sources), 'source')}",
            expected="datasets or logs, or schemas to sample",
        )
    if sources:
        datasets = [open_dataset(one) for one in sources if Path(one).is_dir()]
        logs = [one for one in sources if not Path(one).is_dir()]
        if logs and factory is None:
            raise _unsaid("a log of calls without its environment", logs[0])
        name = _only_environment(datasets) if known is None else known.name
        found = _of_datasets(datasets, name)
        if logs and factory is not None:
            with kept_processes():
                runs, lifted, _ = read_and_run(factory, logs, window=window, redact=redact)
                found.missing += (one for run in runs for one in run.left_out)
                traces = [one.episode for one in lifted]
                done = _of_logs(factory, traces, within, num_jobs(jobs), progress)
                for one, (each, left) in zip(lifted, done, strict=True):
                    _add(found, each, one.flows, left)
        if known is None:
            known, undeclared = _look_if_there(name)
    else:
        if factory is None or known is None:
            raise _unsaid("nothing to annotate")
        name = known.name
        wanted = [schema.removeprefix(f"{name}/") for schema in schemas]
        chosen = [schema_named(name, known.schemas, one) for one in wanted] or known.schemas
        seeds = range(seed, seed + episodes)
        found = _of_samples(factory, name, [one.name for one in chosen], seeds, jobs, progress)
    if not found.answers:
        raise VcrtError(
            "nothing is known of any tool",
            where=f"environment {name!r}",
            found=", ".join(f"{number} {kind}" for kind, number in sorted(found.left_out.items()))
            or "no episode",
            expected="an episode whose replays agree",
            remedy="run `vcrt environments validate NAME`: it shows what two replays of one call disagree about",
        )
    tools = () if known is None else known.tools
    ignored = None if known is None else known.ignored
    return found.annotations(name, tools, risk=risk, undeclared=undeclared, ignored=ignored)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """The description that an environment of calls gives of itself; ``tools`` include their declared hints.

    ``ignored`` names what the environment leaves out of its states' bytes.
    """

    name: str
    schemas: tuple[Schema, ...]
    tools: tuple[Tool, ...]
    ignored: tuple[str, ...]


def _look(environment: Environment) -> _Known:
    calls = require_calls(environment)
    return _Known(
        name=calls.name,
        schemas=tuple(calls.schemas),
        tools=tuple(calls.tools()),
        ignored=tuple(calls.ignored),
    )


def _look_if_there(name: str) -> tuple[_Known | None, str | None]:
    """Return a registered environment, or why it is not available."""
    try:
        return ask(named_factory(name), _look), None
    except VcrtError as error:
        return None, ": ".join(filter(None, (error.what, error.found)))


def _unsaid(what: str, log: str | Path | None = None) -> VcrtError:
    return VcrtError(
        what,
        where=None if log is None else str(log),
        found=None if log is None or Path(log).exists() else "no such file or directory",
        expected="datasets, or logs or schemas with --environment",
        remedy="name the environment: --environment NAME, or FILE.py:CLASS",
    )


def _only_environment(datasets: Sequence[Dataset]) -> str:
    """Return the one environment of the datasets; raises :class:`DatasetError` if there are several."""
    names = sorted({name for dataset in datasets for name in dataset.environments})
    if len(names) == 1:
        return names[0]
    raise DatasetError(
        "more than one environment",
        where=", ".join(str(dataset.path) for dataset in datasets),
        found=", ".join(names),
        expected="the tools of one",
        remedy="name it: --environment NAME",
    )


def _of_datasets(datasets: Sequence[Dataset], name: str) -> Evidence:
    found = Evidence()
    for dataset in datasets:
        version, first = (each.manifest.versions.get(name) for each in (dataset, datasets[0]))
        if version is None:
            raise DatasetError(
                f"a dataset without environment {name!r}",
                where=str(dataset.path),
                found=", ".join(dataset.environments),
                expected=name,
            )
        if version != first:
            raise DatasetError(
                "datasets of two versions of one environment",
                where=f"{datasets[0].path} and {dataset.path}",
                found=f"{version}",
                expected=f"{first}",
                remedy="annotate them one by one, or certify them again",
            )
        for row in read_audit(dataset, name):
            certified = certified_from_row(row, dataset.manifest.preset)
            found.add(certified.episode, certified.tree)
    return found


def _of_logs(
    factory: EnvironmentFactory,
    episodes: Sequence[Episode],
    within: float,
    jobs: int,
    progress: Progress,
) -> list[_WithRefusals]:
    """Replay the traces of logs twice, each time ``within`` so many seconds for each; see :mod:`vcrt.replay.twice`."""
    kept, name, note = kept_now(), episodes[0].environment, limit_note(within)
    # Two at least: that shows what one leaves behind for the next.
    size = max(2, min(_AT_A_TIME, len(episodes) // jobs))

    def replayed(
        what: str,
        function: Callable[[Sequence[Item]], list[Result]],
        items: Sequence[Item],
        expected: int | None,
        process: KeptProcess | None,
    ) -> list[Result]:
        pieces = [items[start : start + size] for start in range(0, len(items), size)]
        with call_progress() as calls:
            task = progress.task(f"replay {name} {what}", len(items), "episodes")
            calls.expect(name, task, len(items), expected, note)
            results = in_fresh_processes(
                calls.counted(function), pieces, jobs=jobs, on_wait=calls.show, kept=process
            )
            done = zip(pieces, results, strict=True)
            return [one for piece, some in done for one in calls.done(name, len(piece), some)]

    once = replayed(
        "in other orders", partial(_once, factory, within), episodes, None, kept and kept.first
    )
    expected = ceil(sum(each.num_calls for each in once) / len(once))
    again = partial(_twice, factory, within)
    return replayed("again in another process", again, once, expected, kept and kept.again)


def _once(factory: EnvironmentFactory, within: float, episodes: Sequence[Episode]) -> list[Once]:
    environment = make_guarded(factory)
    return [replay_once(environment, episode, within) for episode in episodes]


def _twice(
    factory: EnvironmentFactory, within: float, items: Sequence[Once]
) -> list[_WithRefusals]:
    """Replay the last episode first."""
    environment = make_guarded(factory)
    calls = require_calls(environment)

    def replayed(once: Once) -> _WithRefusals:
        each = replay_twice(environment, once, within)
        return each, None if each.problem else after_refusals(calls, each.replays, within)

    # No episode meets what another one left behind.
    return [apart(calls, once.episode, partial(replayed, once)) for once in reversed(items)][::-1]


def _add(
    found: Evidence, twice: Twice, flows: Sequence[DataFlow], left: AfterRefusals | None
) -> None:
    if twice.problem is not None:
        found.leave_out(twice.problem)
    else:
        replays, cut = twice.replays, twice.stopped
        found.add(replays.episode, replays.tree, cut=cut, flows=flows, after_refusals=left)


def _of_samples(
    factory: EnvironmentFactory,
    name: str,
    schemas: Sequence[str],
    seeds: range,
    jobs: int | None,
    progress: Progress,
) -> Evidence:
    if not seeds:
        raise VcrtError("too few episodes", found="0 episodes", expected="at least 1")
    work = [
        (schema, seeds[start : start + _AT_A_TIME])
        for schema in schemas
        for start in range(0, len(seeds), _AT_A_TIME)
    ]
    task = progress.task(f"replay {name}", len(seeds) * len(schemas), "episodes")
    found, replay = Evidence(), partial(_replayed, factory)
    results = in_fresh_processes(replay, work, jobs=num_jobs(jobs))
    for (_, some), replays in zip(work, results, strict=True):
        for once, problem, left in replays:
            if problem is None:
                found.add(once.episode, once.tree, after_refusals=left)
            else:
                found.leave_out(problem)
        task.advance(len(some))
    return found


def _replayed(
    factory: EnvironmentFactory, work: tuple[str, Sequence[int]]
) -> list[tuple[EpisodeReplays, str | None, AfterRefusals | None]]:
    """Replay sampled episodes; give each with its replays, or the reason why it says nothing."""
    schema, seeds = work
    environment = make_guarded(factory)
    episodes = [environment.sample(schema, seed) for seed in seeds]
    once, again = (
        replays_of(environment, episodes, backwards=backwards) for backwards in (False, True)
    )
    problems = [_problem(environment, a, b) for a, b in zip(once, again, strict=True)]
    return [
        (each, problem, None if problem else after_refusals(require_calls(environment), each))
        for each, problem in zip(once, problems, strict=True)
    ]


def _problem(environment: Environment, one: EpisodeReplays, other: EpisodeReplays) -> str | None:
    if one.tree.answers != other.tree.answers:
        return "nondeterministic"
    try:
        require_not_told_apart(probe(environment, one))
    except UncertifiedError as error:
        return error.kind
    return None
