"""All tables of a report in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from vcrt.report import paper
from vcrt.report.analysis import Analysis, analyse
from vcrt.report.behaviour import behaviour_table
from vcrt.report.checkpoints import update_table
from vcrt.report.contents import ReportContents
from vcrt.report.differences import (
    backbone_table,
    by_fold_table,
    by_run_table,
    difference_table,
    mechanism_table,
    sign_table,
)
from vcrt.report.provenance import provenance_tables
from vcrt.report.running_text import text_table
from vcrt.report.table import Table, without_aside
from vcrt.report.tables import fold_table, main_table, retention_table, run_table
from vcrt.report.test_sets import tables_of_test_sets

#: The tables that a terminal shows, without the published values; the others are in the files.
SHOWN = ("main", "difference", "mechanism", "test-sets", "test-sets-differences")
#: Tables that are there for the comparison with the paper.
BESIDE_THE_PAPER = ("backbones", "signs")


def report_tables(contents: ReportContents) -> tuple[Table, ...]:
    """All tables of a report."""
    return all_tables(contents, analyse(contents))


def all_tables(contents: ReportContents, analysis: Analysis) -> tuple[Table, ...]:
    """As :func:`report_tables`, from an analysis that is already there."""
    return (
        *result_tables(contents, analysis),
        behaviour_table(),
        *_comparable(provenance_tables(contents), contents.folds),
    )


def result_tables(contents: ReportContents, analysis: Analysis) -> tuple[Table, ...]:
    """The tables of results. Differences are left out when there is nothing to compare."""
    tables = [main_table(contents, analysis), fold_table(analysis)]
    if analysis.headline is not None:
        tables.append(difference_table(analysis.headline, analysis.folds))
    if len(analysis.comparisons) > (2 if analysis.headline else 1):
        tables.append(mechanism_table(analysis))
    if analysis.comparisons:
        tables += [by_fold_table(analysis), by_run_table(analysis)]
        tables += [backbone_table(contents, analysis), sign_table(analysis)]
    tables.append(text_table(analysis))
    if analysis.by_update:
        tables.append(update_table(contents, analysis.by_update))
    tables += tables_of_test_sets(contents, analysis)
    tables += [run_table(analysis), retention_table(contents, analysis)]
    return _comparable(tables, analysis.folds)


def _comparable(tables: Iterable[Table], folds: tuple[str, ...]) -> tuple[Table, ...]:
    """The tables; where no environment is one of the paper's, without columns that could only say so."""
    if paper.has_any(folds):
        return tuple(tables)
    return tuple(without_aside(table) for table in tables if table.name not in BESIDE_THE_PAPER)
