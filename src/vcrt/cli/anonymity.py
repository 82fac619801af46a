"""What ``vcrt probe`` does: measure how anonymous a dataset's policy records are, print it, and keep it if asked."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.cli.progress import showing_progress
from vcrt.errors import DatasetError, VcrtError
from vcrt.protocol.anonymity.probe import probe_dataset
from vcrt.protocol.anonymity.result import AnonymityReport, report_bytes, require_anonymous
from vcrt.records.dataset import open_dataset
from vcrt.report.anonymity import anonymity_sentences, anonymity_table
from vcrt.report.table import to_rich
from vcrt.storage import require_new, write_file


def run_probe(
    console: Console, dataset_path: Path, output: Path | None, *, seed: int
) -> AnonymityReport:
    """Probe a dataset and write the report to ``output``; raises :class:`DatasetError` if anything leaks."""
    if output is not None:
        require_new(output, VcrtError)
        if output.resolve().is_relative_to(dataset_path.resolve()):
            raise DatasetError(
                "a dataset's directory holds nothing but the dataset",
                where=str(output),
                remedy="write elsewhere, for example anonymity.json in an experiment's directory",
            )
    dataset = open_dataset(dataset_path)
    with showing_progress(console) as progress:
        report = probe_dataset(dataset, seed=seed, progress=progress)
    console.print(to_rich(anonymity_table(report)))
    for sentence in anonymity_sentences(report):
        console.print(f"- {sentence}", highlight=False, markup=False)
    if output is not None:
        write_file(output, report_bytes(report))
        console.print(f"wrote {output}", highlight=False, soft_wrap=True)
    require_anonymous(report, str(dataset_path))
    return report
