"""Write a table as LaTeX with booktabs, and a document of several tables that compiles by itself.

Text from outside is inert: every character that LaTeX would act on is escaped, control characters are written as
escapes, and characters outside ASCII by their code points, since not every installation has them. Not covered: page
breaks within a table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vcrt_train.report.table import Cell, Table, cell_text, is_numeric

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


def to_latex(table: Table) -> str:
    """A floating table with its title and note as caption; columns beside the others for orientation in italics."""
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
    caption = " ".join(filter(None, (f"{_stopped(table.title)}", table.note)))
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
    """A document with the tables one after the other."""
    # A float for each page: LaTeX holds back only so many at a time.
    return _DOCUMENT % "\n\\clearpage\n".join(to_latex(table) for table in tables).rstrip()


def escape(text: str) -> str:
    """The text so that LaTeX sets it and does nothing else."""
    escaped = "".join(_ESCAPES.get(c, c if c.isascii() else f"U+{ord(c):04X}") for c in text)
    return _LIGATURES.sub(lambda match: "{}" + match.group(), escaped)


def _cell(cell: Cell) -> str:
    """Negative numbers with a minus sign; a bracket or star at its start is no option of the line before."""
    text = cell_text(cell)
    guard = "{}" if text[:1] in ("[", "*") else ""
    return guard + _MINUS.sub("$-$", escape(text))


def _row(cells: Sequence[Cell]) -> str:
    return " & ".join(map(_cell, cells)) + r" \\"


def _characters(table: Table) -> int:
    lines = [table.columns, *(tuple(cell_text(cell) for cell in row) for row in table.rows)]
    return sum(2 + max(len(line[i]) for line in lines) for i in range(len(table.columns)))


def _stopped(title: str) -> str:
    return title if title.endswith(".") else f"{title}."
