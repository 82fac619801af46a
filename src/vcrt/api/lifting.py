"""Lift episodes out of the user's own material: the functions that the lifters of all verifiers share.

A lifter is a package's function (entry-point group ``vcrt.lifters``, :mod:`vcrt.plugins`). Theories and windows of four
steps are certified like sampled episodes: each order is replayed by itself. For theorems and other windows, merged
replay (:mod:`vcrt.replay.lattice_replay`) asks the verifier once for all orders that reach equal states by the same
steps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vcrt.certificates.pairs import OrdersReport
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Episode
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.processes import Backend, num_jobs
from vcrt.progress import Counting, Progress, observing
from vcrt.records.dataset import Dataset
from vcrt.replay.config import given
from vcrt.replay.run import CertifiedSchema, certify

Input = TypeVar("Input")
Found = TypeVar("Found")
#: The fewest steps of a window.
MIN_STEPS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """The result of lifting: a new dataset, or, if none was requested, the content that each schema would have had.

    ``orders`` holds the findings about each window whose number of steps is not four.
    """

    dataset: Dataset | None = None
    schemas: tuple[CertifiedSchema, ...] = ()
    orders: tuple[OrdersReport, ...] = ()


def each_file(
    files: Sequence[str | Path],
    lift: Callable[[Path], Found],
    progress: Progress,
    *,
    end: Callable[[], None] = lambda: None,
) -> Iterator[Found | MalformedInputError]:
    """Give what is lifted from each file, or why the file cannot be read; call ``end`` after the last file."""
    task = progress.task("lift", len(files), "files")
    try:
        for place, file in enumerate(files):
            if place:
                task.advance()
            found: Found | MalformedInputError
            with observing(Counting.for_task(task)):
                try:
                    found = lift(Path(file))
                except MalformedInputError as error:
                    found = error
            yield found
    finally:
        end()


def certified(
    episodes: Sequence[Episode],
    output: str | Path | None,
    jobs: int | None,
    backend: Backend,
    progress: Progress,
) -> Lifted:
    """Certify episodes, and freeze them as a new dataset if ``output`` names one."""
    config, jobs = given(episodes), num_jobs(jobs)
    if output is not None:
        dataset = make_dataset(config, Path(output), jobs=jobs, backend=backend, progress=progress)
        return Lifted(dataset=dataset)
    with tempfile.TemporaryDirectory() as shards:
        schemas = certify(config, Path(shards), jobs=jobs, backend=backend, progress=progress)
    return Lifted(schemas=tuple(schemas))


def some(inputs: Sequence[Input]) -> Sequence[Input]:
    """The inputs; raises :class:`VcrtError` if there is none."""
    if not inputs:
        raise VcrtError("lift what?", expected="at least one input", remedy="vcrt lift --help")
    return inputs


def require_within(name: str, value: int, low: int, high: int | None = None) -> None:
    """Raise :class:`VcrtError` for a number that is out of range."""
    if value < low or (high is not None and value > high):
        raise VcrtError(
            "a number out of range",
            found=f"{name} {value}",
            expected=f"at least {low}" if high is None else f"from {low} to {high}",
        )
