"""Hold a small table, and render it five ways: terminal, plain text, CSV, HTML and LaTeX with booktabs.

All renderings show the same text for a cell. Text from outside (schema names, messages) is inert in each of them:
control characters are written as escapes, terminal markup and HTML are not interpreted. Every special character of
LaTeX is escaped, and characters outside ASCII are written as code points, because some installations lack them. Not
covered: page breaks within a table.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeAlias

import rich.table
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from rich.text import Text

from vcrt.printable import counted, printable

Cell: TypeAlias = str | int | float
#: A table with more characters a line is scaled down to the width of the page.
FULL_WIDTH = 96
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
}
_LIGATURES = re.compile(r"(?<=-)-|(?<=,),")
_MINUS = re.compile(r"(?<![\w)\]}])-(?=\d)")
_DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{textcomp}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
%s
\end{document}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows under columns; ``name`` is the stem of the table's file, and ``note`` says how to read the table."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.name!r}: {counted(len(self.columns), 'column')}, row {row!r}"
                )


def cell_text(cell: Cell) -> str:
    """Return the text of a cell in every rendering: floats with two decimals, control characters as escapes."""
    return printable(f"{cell:.2f}" if isinstance(cell, float) else str(cell))


def to_rich(table: Table) -> rich.table.Table:
    """Render the table for a terminal."""
    drawn = rich.table.Table(
        title=Text(cell_text(table.title)),
        caption=Text(cell_text(table.note)) if table.note else None,
        title_justify="left",
        caption_justify="left",
    )
    for index, column in enumerate(table.columns):
        drawn.add_column(
            Text(cell_text(column)),
            justify="right" if is_numeric(table, index) else "left",
            overflow="fold",
            no_wrap=index == 0,
        )
    for row in table.rows:
        drawn.add_row(*(Text(cell_text(cell)) for cell in row))
    return drawn


def to_text(table: Table) -> str:
    """Render the table as fixed-width text, with its title above and its note below."""
    grid = [
        [cell_text(column) for column in table.columns],
        *([cell_text(cell) for cell in row] for row in table.rows),
    ]
    widths = [max(len(line[index]) for line in grid) for index in range(len(table.columns))]
    numeric = [is_numeric(table, index) for index in range(len(table.columns))]
    lines = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in grid
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    note = ["", cell_text(table.note)] if table.note else []
    return "\n".join([cell_text(table.title), "", *lines, *note, ""])


def to_csv(table: Table) -> str:
    """Render columns and rows as RFC 4180 CSV, without title and note."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow([cell_text(column) for column in table.columns])
    writer.writerows([cell_text(cell) for cell in row] for row in table.rows)
    return stream.getvalue()


def to_html(table: Table) -> Markup:
    """Render an HTML table whose first column holds the row headers; every text is escaped."""
    numeric = [is_numeric(table, index) for index in range(len(table.columns))]
    drawn = template("vcrt_train.report", "table.html.jinja")
    return Markup(drawn.render(table=table, numeric=numeric))


@cache
def template(package: str, name: str) -> Template:
    """Load a template of a package; it escapes its values, and its filter ``text`` writes a value as a cell."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["text"] = cell_text
    return environment.from_string(files(package).joinpath(name).read_text(encoding="utf-8"))


def is_numeric(table: Table, index: int) -> bool:
    """Return whether a column is right-aligned: all its cells are numbers, signed numbers, intervals or ``n/a``."""
    cells = [row[index] for row in table.rows]
    return bool(cells) and all(not isinstance(c, str) or _looks_numeric(c) for c in cells)


def _looks_numeric(text: str) -> bool:
    return text == "n/a" or (
        any(c.isdigit() for c in text) and not set(text) - set("+-.,[] 0123456789%")
    )


def to_latex(table: Table) -> str:
    """Render a floating table with its title and note as caption."""
    alignment = "".join("r" if is_numeric(table, i) else "l" for i in range(len(table.columns)))
    lines = [
        r"\toprule",
        _row(table.columns),
        r"\midrule",
        *(_row(row) for row in table.rows),
        r"\bottomrule",
    ]
    body = "\n".join([rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}", *lines, r"\end{tabular}"])
    if _characters(table) > FULL_WIDTH:
        body = "\\resizebox{\\textwidth}{!}{%\n" + body + "%\n}"
    stop = "" if table.title.endswith(".") else "."
    caption = f"{table.title}{stop} {table.note}".strip()
    return "\n".join(
        [
            r"\begin{table*}[!htbp]",
            r"\centering",
            r"\small",
            rf"\caption{{{escape(cell_text(caption))}}}",
            rf"\label{{tab:vcrt-{table.name}}}",
            body,
            r"\end{table*}",
            "",
        ]
    )


def to_document(tables: Iterable[Table]) -> str:
    """Render a document with the tables one after the other."""
    # Each page gets one float, because LaTeX can hold back only a limited number.
    return _DOCUMENT % "\n\\clearpage\n".join(to_latex(table) for table in tables).rstrip()


def escape(text: str) -> str:
    """Escape the text, so that LaTeX typesets it and does nothing else."""
    escaped = "".join(_ESCAPES.get(c, c if c.isascii() else f"U+{ord(c):04X}") for c in text)
    return _LIGATURES.sub(lambda match: "{}" + match.group(), escaped)


def _cell(cell: Cell) -> str:
    """Escape a cell; numbers get a minus sign, and LaTeX reads no first bracket or star as an option of a line end."""
    text = cell_text(cell)
    guard = "{}" if text[:1] in ("[", "*") else ""
    return guard + _MINUS.sub("$-$", escape(text))


def _row(cells: Sequence[Cell]) -> str:
    return " & ".join(map(_cell, cells)) + r" \\"


def _characters(table: Table) -> int:
    lines = [table.columns, *(tuple(cell_text(cell) for cell in row) for row in table.rows)]
    return sum(2 + max(len(line[i]) for line in lines) for i in range(len(table.columns)))
