"""The report on environments that the paper does not have: nothing is set beside values that are not there."""

from __future__ import annotations

import pytest

import toy_environment as toy
from command_line import run
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.replay.config import sampled
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.report.analysis import analyse
from vcrt_train.report.gather import gather
from vcrt_train.report.summary import summary
from vcrt_train.report.tables import report_tables

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A finished experiment of one method on one's own two environments."""
    path = tmp_path_factory.mktemp("own")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(frozen, jobs=1, factories=TWO_TOYS)
    from vcrt.cli import main

    options = ["--methods", "vcrt", "--held-out", "toy-b", "--runs", "1", "--updates", "2"]
    main(["plan", str(path / "data"), "--output", str(path / "experiment"), *options])
    for command in ("train", "evaluate"):
        main([command, str(path / "experiment"), "--jobs", "1"])
    return path / "experiment"


def test_no_table_has_a_column_of_the_papers(evaluated):
    tables = report_tables(analyse(gather(open_experiment(evaluated))))
    for table in tables:
        assert "paper" not in " ".join(table.columns).lower(), table.name
        assert "published values" not in table.note
        for place, column in enumerate(table.columns):
            cells = [row[place] for row in table.rows]
            # A single run has no interval over runs.
            single = "over runs" in column
            assert single or table.name != "main" or "n/a" not in cells, column
    assert not [s for s in summary(analyse(gather(open_experiment(evaluated)))) if "published" in s]


def test_one_method_is_printed_on_one_screen(evaluated, capsys):
    code, out, _ = run(capsys, "report", evaluated)
    assert code == 0
    assert len(out.splitlines()) <= 40, out
    assert "paper" not in out.lower()
    assert "Held-out pass rate (%)" in out
    assert "VCRT changes" in out or "with VCRT changes" in out
    # What is not printed is named, and can be printed.
    assert "further tables, each with --table NAME: rates, " in out
    code, out, _ = run(capsys, "report", evaluated, "--table", "retention")
    assert (code, "Source retention" in out) == (0, True)
    written = {path.name for path in (evaluated / "report").rglob("*.csv")}
    assert "retention.csv" in written
