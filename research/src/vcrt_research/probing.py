"""Measure how anonymous the policy records of a dataset are."""

from __future__ import annotations

from pathlib import Path

from vcrt.api.certifying import as_dataset
from vcrt.api.datasets import require_apart
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset
from vcrt.storage import write_file
from vcrt_research.anonymity.probe import probe_dataset
from vcrt_research.anonymity.result import AnonymityReport, report_bytes


def probe(
    dataset: Dataset | str | Path,
    output: str | Path | None = None,
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> AnonymityReport:
    """Measure what classifiers can guess from a dataset's policy records: ``vcrt probe``.

    The report is kept in the new file ``output``, if one is given; ``seed`` draws subsamples and splits. A leak is a
    result here; the command makes it an error (:func:`vcrt_research.anonymity.result.require_anonymous`). Raises
    :class:`vcrt.errors.VcrtError` if ``output`` exists or lies in the dataset.
    """
    opened = as_dataset(dataset)
    if output is not None:
        require_apart(
            Path(output),
            opened.path,
            "elsewhere, for example beside the dataset",
        )
    report = probe_dataset(opened, seed=seed, progress=progress)
    if output is not None:
        write_file(Path(output), report_bytes(report))
    return report
