"""Write the explorer: one page to look at certified episodes, and at what training makes of their orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vcrt.certification.shards import EnvironmentFactory
from vcrt.errors import VcrtError
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset
from vcrt.storage import make_directory, write_file
from vcrt_train.protocol.experiment import Experiment
from vcrt_train.report.explorer.explorer_contents import ExplorerContents, gather_explorer
from vcrt_train.report.explorer.explorer_page import render_explorer

__all__ = [
    "EXPLORER_FILE",
    "ExplorerContents",
    "gather_explorer",
    "render_explorer",
    "write_explorer",
]

EXPLORER_FILE = "explorer.html"
#: What every explorer's page begins with, and nothing else that is in the way of one.
_BEGINS = b"<!doctype html>\n<!-- made by `vcrt explore` -->\n"


def write_explorer(
    dataset: Dataset,
    output: Path | str,
    *,
    experiment: Experiment | None = None,
    runs: Sequence[str] = (),
    episodes: Sequence[str] = (),
    per_schema: int | None = None,
    report: str | None = None,
    factories: Mapping[str, EnvironmentFactory] | None = None,
    progress: Progress = SILENT,
) -> ExplorerContents:
    """Write the page of a dataset's episodes, under 5 MB, and return what is on it. An earlier page is replaced.

    ``episodes`` names those to show; without names they are the first ``per_schema`` (8) of each schema. With an
    ``experiment`` on the dataset, each order's exact probability is shown for the frozen backbone and for every kept
    update of ``runs`` (METHOD/HELD-OUT/SEED; by default the smallest seed of each method and fold). What a run holds
    out is scored only after the evaluation was opened and recorded. ``report`` is the relative address of a report.

    Raises :class:`VcrtError` if something else is at ``output``, :class:`vcrt.errors.DatasetError` for an episode that
    is not in the dataset, :class:`vcrt.errors.UnknownNameError` for a run that is not planned, and
    :class:`vcrt.errors.RunError` for one that is not finished or an experiment on another dataset.
    """
    path = Path(output)
    _require_replaceable(path)
    if path.resolve().is_relative_to(dataset.path.resolve()):
        raise VcrtError(
            "a dataset's folder holds the dataset alone",
            where=str(path),
            expected="a place outside of it",
            remedy=f"for example: --output {dataset.path.with_name('explorer.html')}",
        )
    contents = gather_explorer(
        dataset,
        experiment=experiment,
        runs=runs,
        episodes=episodes,
        per_schema=per_schema,
        report=report,
        factories=factories,
        progress=progress,
    )
    page = render_explorer(contents).encode("utf-8")
    make_directory(path.parent)
    write_file(path, page)
    return contents


def _begins(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_BEGINS))


def _require_replaceable(path: Path) -> None:
    if path.is_dir():
        found = "a folder"
    elif path.exists() and not (path.is_file() and _begins(path) == _BEGINS):
        found = "a file that is no explorer"
    else:
        return
    raise VcrtError(
        "something else is where the page is to be written",
        where=str(path),
        found=found,
        expected="nothing, or an earlier explorer",
        remedy="give another place with --output",
    )
