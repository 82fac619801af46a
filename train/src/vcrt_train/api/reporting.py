"""Write the report of an experiment, the page of a dataset's episodes, and its records for other trainers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vcrt.api.certifying import Environments, as_dataset, place_of
from vcrt.api.datasets import require_apart
from vcrt.errors import RunError
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset, open_dataset, require_agreement
from vcrt.storage import make_directory, require_new, write_file
from vcrt_train.api.experimenting import as_experiment, names_of
from vcrt_train.integrations.text import Form, Rendering

if TYPE_CHECKING:
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.report.analysis import Analysis
    from vcrt_train.report.contents import ReportContents
    from vcrt_train.report.explorer.explorer_contents import ExplorerContents


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A written report: its folder, its files by name, and their contents."""

    directory: Path
    files: Mapping[str, Path]
    contents: ReportContents
    analysis: Analysis


def write_report(experiment: Experiment | str | Path, output: str | Path | None = None) -> Report:
    """Write the tables, figures and page of an evaluated experiment: ``vcrt report``.

    ``output`` is a new folder; by default it is ``report`` in the experiment, where an earlier report is replaced.
    Raises :class:`vcrt.errors.RunError` if the experiment was not evaluated.
    """
    opened = as_experiment(experiment)
    if output is not None:
        require_new(Path(output), RunError)
    return report_in(opened, Path(output or opened.path / "report"))


def report_in(experiment: Experiment, directory: Path) -> Report:
    """Write the report to a folder, which may exist; if the folder has an explorer, the report links to it."""
    from vcrt_train.report import page
    from vcrt_train.report.analysis import analyse
    from vcrt_train.report.explorer.explorer_page import EXPLORER_FILE
    from vcrt_train.report.gather import gather

    address = _if_there(directory, EXPLORER_FILE)
    analysis = analyse(replace(gather(experiment), explorer=address))
    files = page.write_report(analysis, directory)
    return Report(directory=directory, files=files, contents=analysis.contents, analysis=analysis)


def _if_there(folder: Path, name: str) -> str | None:
    """Return the relative address of a page in ``folder``; None if the page does not exist."""
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

    With an experiment on the dataset, the page also shows the exact probability of each order before training and after
    every kept update. Episodes that a run holds out are scored only after `vcrt evaluate`.

    Example: vcrt explore runs/data --experiment runs/experiment --output runs/explorer.html

    Args:
        dataset: A dataset made by `vcrt certify`.
        output: The page; an earlier one is replaced.
        experiment: An experiment with finished runs.
        run: Runs as METHOD/HELD-OUT/SEED; by default the first seed for each method and held-out environment.
        episode: Episodes to show, by name; without names, the first of each schema.
        episodes: How many episodes of each schema, 8 by default; fewer if the page would not stay under 5 MB.
        environments: Environments that are not registered: each name with a class, or with a function that makes one.

    Returns:
        The contents of the page.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The number of written records, and the root hash of their dataset."""

    num_records: int
    root_hash: str


def export(
    dataset: Dataset | str | Path,
    output: str | Path,
    *,
    environments: Sequence[str] = (),
    held_out: str | None = None,
    form: Form = "words",
    chat: bool = False,
    serialisation: Literal["sorted", "shuffled"] = "sorted",
    seed: int = 0,
) -> Exported:
    """Write a verified dataset's records, with orbits, as one Parquet file for the library `datasets`, and so for TRL.

    Example: vcrt export runs/data --output runs/source.parquet --held-out lean

    Args:
        dataset: A directory made by `vcrt certify` and verified by `vcrt verify`.
        output: The new file.
        environments: Environments to export; all if none is given.
        held_out: An environment to leave out; its files stay unopened.
        form: Write records in words, or as the tokens that the embedded backbone reads.
        chat: Write each prompt as a user's message, for chat templates, instead of as plain text.
        serialisation: Sort the relations, or shuffle them and state each in either direction.
        seed: Seed of the shuffled serialisation.

    Raises:
        UnavailableError: ``datasets`` is not installed.
        VcrtError: `output` exists.
    """
    # This import needs an extra, so it comes first: it fails before anything is done.
    from vcrt_train.integrations.datasets import to_dataset

    path, output = place_of(dataset), Path(output)
    require_apart(output, path, "elsewhere")
    opened = open_dataset(path, without=[] if held_out is None else [held_out])
    require_agreement(opened)
    exported = to_dataset(
        opened,
        environments=tuple(environments) or None,
        held_out=held_out,
        rendering=Rendering(form=form, serialisation=serialisation, seed=seed),
        chat=chat,
    )
    table = BytesIO()
    exported.to_parquet(table)
    make_directory(output.parent)
    write_file(output, table.getvalue())
    return Exported(num_records=len(exported), root_hash=opened.manifest.root_hash)
