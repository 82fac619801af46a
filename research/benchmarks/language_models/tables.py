"""Put the finished seeds and folds of each comparison together, in one set of tables.

    python research/benchmarks/language_models/tables.py

``research/benchmarks/results/language_models/COMPARISON/tables.txt`` has what ``vcrt report`` says of an experiment,
here of all seeds and folds that are there.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from experiment import COMPARISONS, FOLDS, RESULTS
from report_contents import CONTENTS, from_json, merged

from vcrt_train.report.analysis import analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.page import write_report


def finished(results: Path, comparison: str) -> list[ReportContents]:
    """The contents of every finished seed of a comparison."""
    found = [
        path
        for fold in FOLDS
        for path in sorted((results / f"{comparison}-{fold}").glob(f"seed-?/{CONTENTS}"))
    ]
    return [from_json(json.loads(gzip.decompress(path.read_bytes()))) for path in found]


def main() -> None:
    """Write the tables of each comparison of which a seed is finished."""
    for name in COMPARISONS:
        parts = finished(RESULTS, name)
        if not parts:
            continue
        place = RESULTS / name
        place.mkdir(exist_ok=True)
        with TemporaryDirectory() as folder:
            made = write_report(analyse(merged(parts)), Path(folder), paper_figures=False)
            shutil.copyfile(made["tables.txt"], place / "tables.txt")
        print(f"{place / 'tables.txt'}: {len(parts)} experiments of one seed and fold")


if __name__ == "__main__":
    main()
