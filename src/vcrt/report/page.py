"""The report on disk: one self-contained HTML page, every table as CSV, LaTeX and text, every figure as PDF and PNG.

The page needs no network and no script. Equal contents give equal bytes: no clock, no host name, no path. Each file is
written whole or not at all, and the page last, so that a page is never newer than its tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vcrt.report.analysis import Analysis, analyse
from vcrt.report.anonymity import anonymity_sentences
from vcrt.report.assembly import all_tables
from vcrt.report.behaviour import behaviour_sentences
from vcrt.report.bounds import bound_sentences
from vcrt.report.charts import DARK, LIGHT, Figure, Style, method_styles
from vcrt.report.checkpoints import update_figure
from vcrt.report.contents import ReportContents
from vcrt.report.curve_figures import curve_figures, how_to_read, is_core
from vcrt.report.data_words import data_sentences
from vcrt.report.drawing import to_svg
from vcrt.report.estimates import Estimate
from vcrt.report.figures import difference_figure, pass_rate_figure, retention_figure
from vcrt.report.latex import to_document, to_latex
from vcrt.report.method_words import explained
from vcrt.report.neighbours import REPORT_FILE
from vcrt.report.paper_figures import to_files
from vcrt.report.provenance import CLOCKS
from vcrt.report.summary import sentences, verdict, warning_lines
from vcrt.report.svg import element, group, line, marker
from vcrt.report.table import Table, cell_text, to_csv, to_html, to_text
from vcrt.report.task import task_text
from vcrt.report.wording import (
    counted,
    counted_range,
    decisive_text,
    interval_text,
    label,
    percent,
    points,
)
from vcrt.storage import make_directory, write_file

#: The folder of the figures, beside the page.
FIGURES = "figures"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """All figures of a report; None and empty where there is nothing to draw."""

    difference: Figure | None
    pass_rates: Figure
    retention: Figure
    by_update: Figure | None
    curves: tuple[Figure, ...]

    @property
    def for_a_paper(self) -> tuple[Figure, ...]:
        """Those that the page shows at once."""
        curves = (figure for figure in self.curves if is_core(figure))
        found = (self.difference, self.pass_rates, self.retention, self.by_update, *curves)
        return tuple(figure for figure in found if figure is not None)


def all_figures(contents: ReportContents, analysis: Analysis) -> Figures:
    """The figures of a report, not drawn yet."""
    return Figures(
        difference=difference_figure(analysis),
        pass_rates=pass_rate_figure(contents, analysis),
        retention=retention_figure(contents, analysis),
        by_update=update_figure(contents, analysis.by_update) if analysis.by_update else None,
        curves=curve_figures(contents),
    )


def write_report(
    contents: ReportContents,
    directory: Path,
    analysis: Analysis | None = None,
    *,
    paper_figures: bool = True,
) -> dict[str, Path]:
    """Write the report into ``directory`` and return its files by name; ``analysis`` is computed if it is not given.

    Names are ``report.html``, ``tables.txt``, ``tables.tex`` (a document), for each table ``NAME.csv`` and ``NAME.tex``
    (to be put into another document), and with ``paper_figures`` for each figure that the page shows at once
    ``figures/NAME.pdf`` and ``figures/NAME.png``. All but ``report.html`` and the table of clocks are the same bytes
    each time the experiment is repeated (figures: :mod:`vcrt.report.paper_figures`). Files of an earlier report are
    replaced.
    """
    analysis = analysis or analyse(contents)
    tables = all_tables(contents, analysis)
    figures = all_figures(contents, analysis)
    texts = {f"{table.name}.csv": to_csv(table) for table in tables}
    texts |= {f"{table.name}.tex": to_latex(table) for table in tables}
    repeatable = [table for table in tables if table.name != CLOCKS]
    texts["tables.txt"] = "\n\n".join(to_text(table) for table in repeatable)
    texts["tables.tex"] = to_document(repeatable)
    written = {name: text.encode("utf-8") for name, text in texts.items()}
    if paper_figures:
        drawn = to_files(figures.for_a_paper)
        written |= {f"{FIGURES}/{name}": data for name, data in drawn.items()}
    written[REPORT_FILE] = render_page(contents, analysis, tables, figures).encode("utf-8")
    make_directory(directory / FIGURES if paper_figures else directory)
    for name, data in written.items():
        write_file(directory / name, data)
    return {name: directory / name for name in written}


def render_page(
    contents: ReportContents, analysis: Analysis, tables: tuple[Table, ...], figures: Figures
) -> str:
    """The HTML of the page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(svg=lambda panel: Markup(to_svg(panel)), text=cell_text)
    template = environment.from_string(
        files("vcrt.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    )
    headline = _headline(analysis)
    return template.render(
        contents=contents,
        subtitle=_subtitle(contents),
        task=task_text(contents),
        sentences=_findings(contents, analysis, said=headline is not None),
        headline=headline,
        figures=figures,
        explained=explained(contents.methods),
        behaviour=behaviour_sentences(),
        data=data_sentences(contents),
        curves=[figure for figure in figures.curves if is_core(figure)],
        more_curves=[figure for figure in figures.curves if not is_core(figure)],
        how_to_read=how_to_read(contents),
        legend=[
            (label(method), _swatch(style))
            for method, style in method_styles(contents.methods).items()
        ],
        colors={"light": LIGHT, "dark": DARK},
        anonymity=anonymity_sentences(contents.anonymity) if contents.anonymity else [],
        tables={table.name: to_html(table) for table in tables},
    )


def _findings(contents: ReportContents, analysis: Analysis, *, said: bool) -> list[str]:
    """The sentences that the headline and the lines above it do not say already."""
    bounds = [*warning_lines(contents), *(bound_sentences(analysis) if said else [])]
    return [line for line in sentences(contents, analysis) if line not in bounds]


def _subtitle(contents: ReportContents) -> str:
    """The backbone and the size of the experiment: frozen episodes, runs, and updates of a run if any was logged."""
    schemas = (s for by_schema in contents.dataset["counts"].values() for s in by_schema.values())
    episodes = counted(sum(schema["episodes"] for schema in schemas), "episode")
    runs = counted(len(contents.runs), "run")
    last = {int(max(row["update"] for row in run.curve)) for run in contents.runs if run.curve}
    updates = f" of {counted_range(last, 'update')}" if last else ""
    return f"{contents.backbone}; {episodes}; {runs}{updates}"


def _caveat(difference: Estimate) -> list[str]:
    words = verdict(difference)
    return [f"{words[0].upper()}{words[1:]}."]


def _headline(analysis: Analysis) -> dict[str, str] | None:
    """The two pass rates, the headline number, what it is, and its interval."""
    headline = analysis.headline
    if headline is None or headline.macro is None:
        return None
    rates = {result.method: result.macro for result in analysis.results}
    return {
        "rates": ", ".join(
            f"{label(name)} {percent(rate.value):.2f}%"
            for name in (headline.method, headline.minus)
            if (rate := rates[name]) is not None
        ),
        "value": points(headline.macro.value),
        "of": f"{label(headline.method)} minus {label(headline.minus)}",
        "what": f"points, the macro mean of {counted(len(headline.folds), 'held-out fold')}",
        "items": interval_text(headline.macro.items),
        "both": decisive_text(headline.macro.runs_and_items),
        "caveat": " ".join([*_caveat(headline.macro), *bound_sentences(analysis)]),
    }


def _swatch(style: Style) -> Markup:
    stroke = line(0, 6, 30, 6, stroke_width=style.width)
    drawn = group(style, stroke, marker(style, 15, 6, 3.6))
    return Markup(element("svg", drawn, class_="swatch", width=30, height=12, aria_hidden="true"))
