"""Find episodes in material of the user's own, and say which of their steps commute.

Theories and windows of four steps of runs are certified like sampled episodes, each order replayed by itself. For
proofs and other windows, merged replay (:mod:`vcrt.certification.lattice_replay`) asks once for all orders that reach
equal states by the same steps. What is found on the way is told (:func:`vcrt.progress.tell`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vcrt.certification.config import given
from vcrt.certification.django_lifting import DjangoLift, lift_project
from vcrt.certification.episodes import PAPER_PRESET
from vcrt.certification.lattice_replay import replay_merged
from vcrt.certification.lifted_files import FileLift
from vcrt.certification.pairs import OrdersReport, report_orders
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.certification.rocq_lifting import lift_lean_project
from vcrt.certification.rocq_lifting import lift_rocq as lift_rocq_file
from vcrt.certification.run import CertifiedSchema, certify
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.calls import TaskObserver, observing
from vcrt.environments.clrs.lifting import MAX_SEED, MIN_STEPS, lift_windows
from vcrt.environments.clrs.reading import MAX_LENGTH
from vcrt.environments.contract import Environment, Episode
from vcrt.environments.django.lifting import DjangoProject
from vcrt.environments.django.toolchain import server_url
from vcrt.environments.guarding import guarded, make_guarded
from vcrt.environments.lean.project import find_project
from vcrt.environments.lean.project_environment import LeanProjectEnvironment
from vcrt.environments.proofwriter.files import Refused
from vcrt.environments.proofwriter.lifting import lift_theories
from vcrt.environments.registry import Registered, load_environment
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.jobs import num_jobs
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, tell
from vcrt.records.dataset import Dataset
from vcrt.storage import require_new

Input = TypeVar("Input")
Found = TypeVar("Found")
#: Refused lines that are told one by one; the rest are counted.
SHOWN_REFUSALS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """What lifted episodes gave: a new dataset; where none was asked for, what each schema would have had.

    Windows of another number of steps than four have ``orders``, what was found about each of them.
    """

    dataset: Dataset | None = None
    schemas: tuple[CertifiedSchema, ...] = ()
    orders: tuple[OrdersReport, ...] = ()


def lift_lean(
    files: Sequence[str | Path],
    *,
    project: str | Path,
    steps: int = 4,
    progress: Progress = SILENT,
) -> Iterator[FileLift | MalformedInputError]:
    """What windows of ``steps`` steps of the proofs in Lean files do in every order: ``vcrt lift lean``.

    The Lean of the ``project``, the folder of a Lake project, judges its own files with their imports. A file that
    cannot be read gives an error in its place and does not stop the others. Raises
    :class:`vcrt.errors.UnavailableError` without a fit Lean, and :class:`MalformedInputError` for a folder that is no
    project, both at once and not with the first file.
    """
    files = _given(files)
    _require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = LeanProjectEnvironment(find_project(Path(project)))
    guarded(environment)
    return _each(
        files,
        lambda file: lift_lean_project(file, environment, _merged, steps=steps),
        progress,
        end=environment.close,
    )


def lift_rocq(
    files: Sequence[str | Path], *, steps: int = 4, progress: Progress = SILENT
) -> Iterator[FileLift | MalformedInputError]:
    """What windows of ``steps`` steps of the proofs in Rocq files do in every order: ``vcrt lift rocq``.

    A file that cannot be read gives an error in its place and does not stop the others. Raises
    :class:`vcrt.errors.UnavailableError` without a fit Rocq, at once and not with the first file.
    """
    files = _given(files)
    _require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = make_guarded(Registered("rocq"))
    return _each(
        files, lambda file: lift_rocq_file(file, environment, _merged, steps=steps), progress
    )


def lift_django(
    project: str | Path,
    *,
    settings: str | None = None,
    app: str | None = None,
    window: int | None = None,
    database: str | None = None,
    python: str | None = None,
    rows: str | Path | None = None,
    progress: Progress = SILENT,
) -> DjangoLift:
    """Judge the branches of a Django project's migrations that a merge would join: ``vcrt lift django``.

    Runs the project's code in a worker, by ``python`` if it has one of its own, on databases of its own: an SQLite in
    memory or, with ``database``, one that it makes on a PostgreSQL server. They hold what migrations and ``migrate``
    put there, and before two branches the ``rows`` that a file of SQL adds or, where tables are empty, a few made from
    the models. ``window`` judges consecutive operations of
    ordinary migrations in place of branches. Raises :class:`vcrt.errors.VcrtError` for a project that does not load,
    that has nothing to judge, or whose migrations need another database.
    """
    if window is not None:
        _require_within("window", window, MIN_STEPS, MAX_LIFTED)
    if rows is not None and window is not None:
        raise VcrtError("rows are for branches", found=f"window {window} with rows")
    found = DjangoProject(
        Path(project),
        settings=settings,
        server=server_url(database),
        python=python,
        rows=None if rows is None else Path(rows),
    )
    task = progress.task("lift", 1, "projects")
    try:
        with observing(TaskObserver(task)):
            return lift_project(found, _merged, app=app, window=window)
    finally:
        found.close()


def _each(
    files: Sequence[str | Path],
    lift: Callable[[Path], Found],
    progress: Progress,
    *,
    end: Callable[[], None] = lambda: None,
) -> Iterator[Found | MalformedInputError]:
    """What is lifted from each file, or why it cannot be read; ``end`` is called behind the last."""
    task = progress.task("lift", len(files), "files")
    try:
        for place, file in enumerate(files):
            if place:
                task.advance()
            found: Found | MalformedInputError
            with observing(TaskObserver(task)):
                try:
                    found = lift(Path(file))
                except MalformedInputError as error:
                    found = error
            yield found
    finally:
        end()


def lift_proofwriter(
    files: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    limit: int | None = None,
    jobs: int | None = None,
    backend: Backend = "loky",
    progress: Progress = SILENT,
) -> Lifted:
    """Certify episodes of four steps from ProofWriter theories: ``vcrt lift proofwriter``.

    ``output`` is a new dataset; nothing is written without it. ``limit`` is the most episodes of a schema from one
    theory. Raises :class:`vcrt.errors.VcrtError` if nothing was found, if a file is not there or empty, and, before
    anything is read, if the output exists.
    """
    if limit is not None:
        _require_within("limit", limit, 1)
    paths = [Path(file) for file in _given(files)]
    for file in paths:
        _require_material(file)
    if output is not None:
        require_new(Path(output), VcrtError)
    found = list(lift_theories(paths, limit=limit))
    theories = [one for one in found if not isinstance(one, Refused)]
    refusals = [one for one in found if isinstance(one, Refused)]
    episodes = [episode for theory in theories for episode in theory.episodes]
    for refusal in refusals[:SHOWN_REFUSALS]:
        detail = f": {refusal.error.found}" if refusal.error.found else ""
        tell(f"refused: {refusal.where}: {refusal.error.what}{detail}")
    tell(
        f"{counted(len(theories), 'theory', 'theories')} read, {len(refusals)} refused, "
        f"{counted(len(episodes), 'candidate')}"
    )
    if not theories:
        raise MalformedInputError(
            "no theory could be read",
            where=", ".join(map(str, paths)),
            expected="JSON lines: ProofWriter's structured rows, or English theories with their questions",
            remedy="the lines above say what is wrong with each",
        )
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found="no theory with four steps of which exactly one pair must keep its order",
            remedy="give more theories, or theories with more rules that apply",
        )
    return _certified(episodes, output, jobs, backend, progress)


def lift_clrs(
    algorithms: Sequence[str],
    *,
    output: str | Path | None = None,
    runs: int = 20,
    length: int = 8,
    steps: int = 4,
    seed: int = 0,
    jobs: int | None = None,
    backend: Backend = "loky",
    progress: Progress = SILENT,
) -> Lifted:
    """Lift all windows of ``steps`` steps from genuine runs of algorithms: ``vcrt lift clrs``.

    Each of ``runs`` has an input of ``length``, the first from ``seed``. Windows of four steps are certified, and
    frozen as a new dataset ``output``; others are reported. Raises :class:`vcrt.errors.VcrtError` if there is no
    window, and, before anything is lifted, for a number out of range, an unknown algorithm or an output that exists.
    """
    _require_within("runs", runs, 1)
    _require_within("length", length, 2, MAX_LENGTH)
    _require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    _require_within("seed", seed, 0, MAX_SEED + 1 - runs)
    certifying = steps == PAPER_PRESET.num_operations
    if output is not None and not certifying:
        raise VcrtError(
            "only episodes of four steps can be frozen",
            found=f"steps {steps} with an output",
            remedy="leave out one of the two",
        )
    environment = load_environment("clrs")
    names = list(dict.fromkeys(environment.schema(name).name for name in _given(algorithms)))
    if output is not None:
        require_new(Path(output), VcrtError)
    episodes = list[Episode]()
    for name in names:
        windows = lift_windows(name, range(seed, seed + runs), length, num_operations=steps)
        tell(
            f"{counted(len(windows), 'window')} of {counted(steps, 'step')} in {counted(runs, 'run')} of "
            f"{name} on inputs of {length}"
        )
        episodes += windows
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found=f"no run of {counted(steps, 'step')} or more",
            remedy="give a longer input with --length, more runs with --runs, or fewer --steps",
        )
    if certifying:
        return _certified(episodes, output, jobs, backend, progress)
    orders = [report_orders(_merged(environment, [episode])[0]) for episode in episodes]
    return Lifted(orders=tuple(orders))


def _certified(
    episodes: Sequence[Episode],
    output: str | Path | None,
    jobs: int | None,
    backend: Backend,
    progress: Progress,
) -> Lifted:
    config, jobs = given(episodes), num_jobs(jobs)
    if output is not None:
        dataset = make_dataset(config, Path(output), jobs=jobs, backend=backend, progress=progress)
        return Lifted(dataset=dataset)
    with tempfile.TemporaryDirectory() as shards:
        schemas, _ = certify(config, Path(shards), jobs=jobs, backend=backend, progress=progress)
    return Lifted(schemas=tuple(schemas))


def _merged(environment: Environment, episodes: Sequence[Episode]) -> list[EpisodeReplays]:
    return [merged.evidence for merged in replay_merged(environment, episodes)]


def _given(inputs: Sequence[Input]) -> Sequence[Input]:
    if not inputs:
        raise VcrtError("lift what?", expected="at least one input", remedy="vcrt lift --help")
    return inputs


def _require_material(file: Path) -> None:
    found = None
    if not file.exists():
        found = "no such file"
    elif file.is_dir():
        found = "a directory"
    elif not os.access(file, os.R_OK):
        found = "a file that you may not read"
    elif file.is_file() and file.stat().st_size == 0:
        found = "an empty file"
    if found is not None:
        raise MalformedInputError(
            "no theories there",
            where=str(file),
            found=found,
            expected="a file of JSON lines, one theory each",
        )


def _require_within(name: str, value: int, low: int, high: int | None = None) -> None:
    if value < low or (high is not None and value > high):
        raise VcrtError(
            "a number out of range",
            found=f"{name} {value}",
            expected=f"at least {low}" if high is None else f"from {low} to {high}",
        )
