"""Write the report: one self-contained HTML page, every table as CSV, LaTeX and text, every figure as PDF and PNG.

The page needs no network and no script. Equal contents give equal bytes, because files hold no clock, host name or
path. Each file is written whole or not at all, and the page last, so that a page never has older tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vcrt.printable import counted
from vcrt.storage import make_directory, write_file
from vcrt.words.evidence_words import inner_values
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.charts import DARK, LIGHT, Figure, method_styles, swatch, to_files, to_svg
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.coverage import coverage_sentences
from vcrt_train.report.curve_figures import curve_figures, how_to_read, stem, update_figure
from vcrt_train.report.figures import difference_figure, pass_rate_figure, retention_figure
from vcrt_train.report.provenance import CLOCKS, data_sentences
from vcrt_train.report.summary import bound_sentences, conclusion, summary, warning_lines
from vcrt_train.report.table import Table, template, to_csv, to_document, to_html, to_latex, to_text
from vcrt_train.report.tables import report_tables
from vcrt_train.report.task import explained, task_text
from vcrt_train.report.wording import (
    counted_range,
    decisive_text,
    interval_text,
    label,
    percent,
    points,
)

REPORT_FILE = "report.html"
#: The folder of the figures, beside the page.
FIGURES = "figures"


def all_figures(analysis: Analysis) -> dict[str, Figure]:
    """Return the figures of a report by name, not yet drawn; figures without data are left out."""
    found = (
        difference_figure(analysis),
        pass_rate_figure(analysis),
        retention_figure(analysis),
        update_figure(analysis),
        *curve_figures(analysis.contents),
    )
    return {figure.name: figure for figure in found if figure is not None}


def write_report(
    analysis: Analysis, directory: Path, *, paper_figures: bool = True
) -> dict[str, Path]:
    """Write the report into ``directory`` and return its files by name.

    Names are ``report.html``, ``tables.txt``, ``tables.tex`` (a document), ``NAME.csv`` and ``NAME.tex`` (for use in
    another document) of each table, and with ``paper_figures`` also ``figures/NAME.pdf`` and ``figures/NAME.png`` of
    each figure that the page shows at once. When the experiment is repeated, all files but ``report.html`` and the
    table of clocks have the same bytes (figures: :mod:`vcrt_train.report.charts`). Files of an earlier report are
    replaced.
    """
    tables, figures = report_tables(analysis), all_figures(analysis)
    texts = {f"{table.name}.csv": to_csv(table) for table in tables}
    texts |= {f"{table.name}.tex": to_latex(table) for table in tables}
    repeatable = [table for table in tables if table.name != CLOCKS]
    texts["tables.txt"] = "\n\n".join(to_text(table) for table in repeatable)
    texts["tables.tex"] = to_document(repeatable)
    written = {name: text.encode("utf-8") for name, text in texts.items()}
    if paper_figures:
        drawn = to_files(figure for figure in figures.values() if figure.core)
        written |= {f"{FIGURES}/{name}": data for name, data in drawn.items()}
    written[REPORT_FILE] = render_page(analysis, tables, figures).encode("utf-8")
    make_directory(directory / FIGURES if paper_figures else directory)
    for name, data in written.items():
        write_file(directory / name, data)
    return {name: directory / name for name in written}


def render_page(analysis: Analysis, tables: Sequence[Table], figures: Mapping[str, Figure]) -> str:
    """Render the HTML of the page."""
    contents, headline = analysis.contents, _headline(analysis)
    # The headline and the lines above it already have these.
    said = [*warning_lines(contents), *(bound_sentences(analysis) if headline else [])]
    curves = [figure for name, figure in figures.items() if name.startswith(stem(""))]
    return template("vcrt_train.report", "page.html.jinja").render(
        svg=lambda panel: Markup(to_svg(panel)),
        contents=contents,
        subtitle=_subtitle(contents),
        task=task_text(contents),
        sentences=[line for line in summary(analysis) if line not in said],
        headline=headline,
        figures=figures,
        explained=explained(contents.methods),
        coverage=coverage_sentences(),
        data=data_sentences(contents),
        curves=[figure for figure in curves if figure.core],
        more_curves=[figure for figure in curves if not figure.core],
        how_to_read=how_to_read(contents),
        legend=[
            (label(method), Markup(swatch(style)))
            for method, style in method_styles(contents.methods).items()
        ],
        colors={"light": LIGHT, "dark": DARK},
        tables={table.name: to_html(table) for table in tables},
    )


def _subtitle(contents: ReportContents) -> str:
    """Name the backbone and the experiment's size: frozen episodes, runs, and updates of a run if any was logged."""
    schemas = inner_values(contents.dataset["counts"])
    episodes = counted(sum(schema["episodes"] for schema in schemas), "episode")
    runs = counted(len(contents.runs), "run")
    last = {int(max(row["update"] for row in run.curve)) for run in contents.runs if run.curve}
    updates = f" of {counted_range(last, 'update')}" if last else ""
    return f"{contents.backbone}; {episodes}; {runs}{updates}"


def _headline(analysis: Analysis) -> dict[str, Any] | None:
    """Return the texts of the headline: the two pass rates, the conclusion, the difference and its intervals."""
    headline = analysis.headline
    if headline is None or headline.macro is None:
        return None
    rates = {r.method: r.macro.value for r in analysis.results if r.macro is not None}
    found = conclusion(analysis)
    assert found is not None
    # A reason why nothing is concluded stands beside the conclusion already.
    reason = [f"{found.reason[0].upper()}{found.reason[1:]}."] if found.is_shown else []
    size = _subtitle(analysis.contents)
    reach = [f"Measured: {size}. Other backbones, records and lengths of training were not."]
    named = [name for name in (headline.method, headline.minus) if name in rates]
    return {
        "rates": ", ".join(f"{label(name)} {percent(rates[name]):.2f}%" for name in named),
        "value": points(headline.macro.value),
        "of": f"{label(headline.method)} minus {label(headline.minus)}",
        "what": f"points, the macro mean of {counted(len(headline.folds), 'held-out fold')}",
        "items": interval_text(headline.macro.items),
        "both": decisive_text(headline.macro.runs_and_items),
        "conclusion": found.text,
        "reason": found.reason,
        "shown": found.is_shown,
        "caveat": " ".join([*reason, *reach, *bound_sentences(analysis)]),
    }
