"""The report on disk: one self-contained HTML page, and every table as CSV, as LaTeX and as text.

The page needs no network and no script. Equal contents give equal bytes: no clock, no host name, no path. Each file is
written whole or not at all, and the page last, so that a page is never newer than its tables.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vcrt.report.analysis import Analysis, analyse
from vcrt.report.anonymity import anonymity_sentences
from vcrt.report.assembly import all_tables
from vcrt.report.behaviour import behaviour_sentences
from vcrt.report.bounds import bound_sentences
from vcrt.report.checkpoints import update_figure
from vcrt.report.contents import ReportContents
from vcrt.report.estimates import Estimate
from vcrt.report.figures import (
    curve_figures,
    difference_figure,
    pass_rate_figure,
)
from vcrt.report.latex import to_document, to_latex
from vcrt.report.neighbours import REPORT_FILE
from vcrt.report.panels import Style, method_styles
from vcrt.report.provenance import CLOCKS
from vcrt.report.summary import sentences, verdict
from vcrt.report.table import Table, cell_text, to_csv, to_html, to_text
from vcrt.report.task import task_text
from vcrt.report.wording import counted, counted_range, interval_text, label, points
from vcrt.storage import make_directory, write_file

#: Quantities whose curves are shown at once; the others are one click away.
SHOWN_CURVES = 3


def write_report(
    contents: ReportContents, directory: Path, analysis: Analysis | None = None
) -> dict[str, Path]:
    """Write the report into ``directory`` and return its files by name; ``analysis`` is computed if it is not given.

    Names are ``report.html``, ``tables.txt``, ``tables.tex`` (a document) and, for each table, ``NAME.csv`` and
    ``NAME.tex`` (to be put into another document). All but ``report.html`` and the table of clocks are the same bytes
    each time the experiment is repeated. Files of an earlier report are replaced.
    """
    analysis = analysis or analyse(contents)
    tables = all_tables(contents, analysis)
    texts = {f"{table.name}.csv": to_csv(table) for table in tables}
    texts |= {f"{table.name}.tex": to_latex(table) for table in tables}
    repeatable = [table for table in tables if table.name != CLOCKS]
    texts["tables.txt"] = "\n\n".join(to_text(table) for table in repeatable)
    texts["tables.tex"] = to_document(repeatable)
    texts[REPORT_FILE] = render_page(contents, analysis, tables)
    make_directory(directory)
    for name, text in texts.items():
        write_file(directory / name, text.encode("utf-8"))
    return {name: directory / name for name in texts}


def render_page(contents: ReportContents, analysis: Analysis, tables: tuple[Table, ...]) -> str:
    """The HTML of the page."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(svg=Markup, text=cell_text)
    template = environment.from_string(
        files("vcrt.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    )
    curves = curve_figures(contents)
    return template.render(
        contents=contents,
        subtitle=_subtitle(contents),
        task=task_text(contents),
        sentences=sentences(contents, analysis),
        headline=_headline(analysis),
        difference=difference_figure(analysis),
        pass_rates=pass_rate_figure(contents, analysis),
        by_update=update_figure(contents, analysis.by_update) if analysis.by_update else None,
        behaviour=behaviour_sentences(),
        curves=curves[:SHOWN_CURVES],
        more_curves=curves[SHOWN_CURVES:],
        legend=[
            (label(method), _swatch(style))
            for method, style in method_styles(contents.methods).items()
        ],
        anonymity=anonymity_sentences(contents.anonymity) if contents.anonymity else [],
        tables={table.name: to_html(table) for table in tables},
    )


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
    """The headline number, what it is, and its interval."""
    headline = analysis.headline
    if headline is None or headline.macro is None:
        return None
    return {
        "value": points(headline.macro.value),
        "what": (f"points, {label(headline.method)} minus {label(headline.minus)}"),
        "items": interval_text(headline.macro.items),
        "both": interval_text(headline.macro.runs_and_items),
        "caveat": " ".join([*_caveat(headline.macro), *bound_sentences(analysis)]),
    }


def _swatch(style: Style) -> Markup:
    dash = Markup(' stroke-dasharray="{}"').format(" ".join(map(str, style.dash)))
    return Markup(
        '<svg class="swatch" width="28" height="8" aria-hidden="true">'
        '<line x1="0" y1="4" x2="28" y2="4" stroke="{}" stroke-width="{}"{}/></svg>'
    ).format(style.color, style.width, dash if style.dash else Markup(""))
