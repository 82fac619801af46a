"""Write what was found: the report of an experiment, and the page of a dataset's episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.api.certifying import Environments, as_dataset
from vcrt.errors import RunError
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset
from vcrt.storage import require_new
from vcrt_train.api.experimenting import as_experiment, names_of

if TYPE_CHECKING:
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.report.analysis import Analysis
    from vcrt_train.report.contents import ReportContents
    from vcrt_train.report.explorer.explorer_contents import ExplorerContents


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A report that was written: its folder, its files by name, and what stands in them."""

    directory: Path
    files: Mapping[str, Path]
    contents: ReportContents
    analysis: Analysis


def write_report(experiment: Experiment | str | Path, output: str | Path | None = None) -> Report:
    """Write the tables, figures and page of an evaluated experiment: ``vcrt report``.

    ``output`` is a new folder; by default ``report`` in the experiment, where an earlier one is replaced. Raises
    :class:`vcrt.errors.RunError` if the experiment was not evaluated.
    """
    opened = as_experiment(experiment)
    if output is not None:
        require_new(Path(output), RunError)
    return report_in(opened, Path(output or opened.path / "report"))


def report_in(experiment: Experiment, directory: Path) -> Report:
    """Write the report to a folder that may be there; it links to an explorer that lies in it."""
    from vcrt_train.report import page
    from vcrt_train.report.analysis import analyse
    from vcrt_train.report.explorer.explorer_page import EXPLORER_FILE
    from vcrt_train.report.gather import gather

    address = _if_there(directory, EXPLORER_FILE)
    analysis = analyse(replace(gather(experiment), explorer=address))
    files = page.write_report(analysis, directory)
    return Report(directory=directory, files=files, contents=analysis.contents, analysis=analysis)


def _if_there(folder: Path, name: str) -> str | None:
    """The relative address of a page in ``folder``, if it is there."""
    return name if (folder / name).is_file() else None


def explore(
    dataset: Dataset | str | Path,
    output: str | Path = "explorer.html",
    *,
    experiment: Experiment | str | Path | None = None,
    run: Sequence[str] = (),
    episode: Sequence[str] = (),
    episodes: int | None = None,
    environments: Environments | None = None,
    progress: Progress = SILENT,
) -> ExplorerContents:
    """Write one self-contained page to look at episodes: steps, relations, evidence, and all orders as a solid.

    With an experiment on the dataset, also the exact probability of each order before training and after every kept
    update. What a run holds out is scored only after `vcrt evaluate`.

    Example: vcrt explore runs/data --experiment runs/experiment --output runs/explorer.html

    Args:
        dataset: A dataset made by `vcrt certify`.
        output: The page; an earlier one is replaced.
        experiment: An experiment with finished runs.
        run: Runs as METHOD/HELD-OUT/SEED; by default the first seed of each method and held-out environment.
        episode: Episodes to show, by name; without names, the first of each schema.
        episodes: How many episodes of each schema; 8 by default, and as many as stay under 5 MB.
        environments: Environments that are not registered, by name: the class, or what makes one.

    Returns:
        What is on the page.
    """
    from vcrt_train.report.explorer.explorer_contents import gather_explorer
    from vcrt_train.report.explorer.explorer_page import require_place, write_explorer
    from vcrt_train.report.page import REPORT_FILE

    opened, path = as_dataset(dataset), Path(output)
    require_place(path, opened)
    contents = gather_explorer(
        opened,
        experiment=None if experiment is None else as_experiment(experiment),
        runs=names_of(run),
        episodes=names_of(episode),
        per_schema=episodes,
        report=_if_there(path.parent, REPORT_FILE),
        factories=environments,
        progress=progress,
    )
    write_explorer(contents, path)
    return contents
