"""Print the numbers of an evaluated experiment beside those that the paper prints, and compare their signs.

``python -m vcrt_research.paper EXPERIMENT``. Sizes are not comparable: the paper's backbone and scale are others.
"""

from __future__ import annotations

import sys
from pathlib import Path

from vcrt.cli.options import plain_console
from vcrt.errors import VcrtError
from vcrt_research.paper.signs import comparison_sentences
from vcrt_research.paper.tables import paper_tables
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.report.analysis import Analysis, analyse
from vcrt_train.report.gather import gather
from vcrt_train.report.table import to_rich


def print_comparison(analysis: Analysis) -> None:
    """Print every table beside the paper, then what the signs say."""
    console = plain_console()
    for table in paper_tables(analysis):
        console.print(to_rich(table))
        console.print()
    for sentence in comparison_sentences(analysis):
        console.print(f"- {sentence}", highlight=False, markup=False)


def main(arguments: list[str]) -> None:
    """Compare one experiment; exits with an error's message and code."""
    if len(arguments) != 1:
        sys.exit("usage: python -m vcrt_research.paper EXPERIMENT")
    try:
        analysis = analyse(gather(open_experiment(Path(arguments[0]))))
    except VcrtError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print_comparison(analysis)


if __name__ == "__main__":
    main(sys.argv[1:])
