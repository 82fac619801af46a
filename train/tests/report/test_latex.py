"""LaTeX: text from outside does nothing, what is written compiles, and a whole report is as it was.

The golden files of an invented report hold under the versions of constraints.txt; renew them with
`PYTHONPATH=tests/support python train/tests/report/test_latex.py` when the report changes, and read the difference.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from report_support import EVIL, invented, synthetic_contents
from vcrt_train.report.analysis import analyse
from vcrt_train.report.page import write_report
from vcrt_train.report.summary import summary
from vcrt_train.report.table import Table, escape, to_csv, to_document, to_latex, to_text
from vcrt_train.report.tables import report_tables

GOLDEN = Path(__file__).parents[3] / "tests" / "support" / "golden_report"
#: The tables that the paper has, too, and the passes by update.
KEPT = ("main", "difference", "mechanism", "by-update")
NUMPY = "2.4.6"
PDFLATEX = shutil.which("pdflatex")
HOSTILE = (
    r"\input{/etc/passwd}",
    r"\end{tabular}\end{document}",
    r"$x^2$ & 50% of #1 _ ~ ^ {a} \\ b",
    "[red] *star*",
    "a--b---c ,,d",
    "\"quoted\" 'single' `back` <tag> |bar|",
    "∀ x, é",
    "line\nbreak\x1b[31m",
    EVIL,
)


def golden_files() -> dict[str, str]:
    """The kept tables of the invented report in each form, and its sentences."""
    contents = invented()
    tables = {table.name: table for table in report_tables(analyse(contents))}
    files = {"tables.txt": "\n\n".join(to_text(tables[name]) for name in KEPT)}
    files["summary.txt"] = "\n".join(summary(analyse(contents))) + "\n"
    for name in KEPT:
        files[f"{name}.csv"] = to_csv(tables[name])
        files[f"{name}.tex"] = to_latex(tables[name])
    return files


@pytest.mark.skipif(np.__version__ != NUMPY, reason=f"draws are those of numpy {NUMPY}")
def test_an_invented_report_is_as_it_was() -> None:
    files = golden_files()
    assert {path.name for path in GOLDEN.iterdir()} == set(files)
    for name, text in files.items():
        # Bytes, since CSV ends its lines otherwise.
        assert text.encode() == (GOLDEN / name).read_bytes(), name


def hostile_table() -> Table:
    return Table(
        name="hostile",
        title=HOSTILE[0],
        columns=tuple(f"{text} {k}" for k, text in enumerate(HOSTILE)),
        rows=(HOSTILE, HOSTILE[::-1], tuple("[" + text for text in HOSTILE)),
        note=HOSTILE[2],
    )


def structure(text: str) -> list[str]:
    """The commands and characters on which LaTeX acts, without those that escape."""
    text = re.sub(r"\\[\\{}$&#%_]", lambda m: m.group() if m.group() == r"\\" else "", text)
    return re.findall(r"\\[A-Za-z]+|\\\\|[{}$&#%_~^]", text)


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_has_no_command_but_names_of_characters(text: str) -> None:
    allowed = {
        rf"\text{name}"
        for name in (
            "backslash",
            "asciitilde",
            "asciicircum",
            "less",
            "greater",
            "bar",
            "quotedbl",
            "quotesingle",
            "asciigrave",
        )
    }
    assert set(structure(escape(text))) <= allowed | {"{", "}"}
    assert escape(text).isascii()


def test_every_row_has_as_many_cells_as_there_are_columns() -> None:
    tables = (*report_tables(analyse(invented())), hostile_table())
    for table in tables:
        lines = to_latex(table).splitlines()
        begin = next(line for line in lines if line.startswith(r"\begin{tabular}"))
        alignment = re.fullmatch(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", begin)
        assert alignment is not None
        assert len(alignment.group(1)) == len(table.columns)
        first, last = lines.index(r"\toprule") + 1, lines.index(r"\bottomrule")
        rows = [line for line in lines[first:last] if line != r"\midrule"]
        assert len(rows) == 1 + len(table.rows), table.name
        for row in rows:
            assert row.endswith(r" \\")
            assert len(re.findall(r"(?<!\\)&", row)) == len(table.columns) - 1
            assert not re.match(r"[\[*]", row)


def test_groups_and_environments_close() -> None:
    document = to_document([*report_tables(analyse(invented())), hostile_table()])
    stack: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", document):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert stack == []
    depth = 0
    for symbol in re.findall(r"\\.|[{}]", document, flags=re.DOTALL):
        depth += {"{": 1, "}": -1}.get(symbol, 0)
        assert depth >= 0
    assert depth == 0


def test_numbers_have_a_minus_sign_and_names_keep_their_hyphens() -> None:
    table = Table(
        name="t",
        title="T",
        columns=("Name", "Value"),
        rows=(("No-Anti", "-0.58 [-3.38, +2.36]"), ("5e-06", "[-1.00, -0.50]")),
    )
    text = to_latex(table)
    assert r"No-Anti & $-$0.58 [$-$3.38, +2.36] \\" in text
    assert r"5e-06 & {}[$-$1.00, $-$0.50] \\" in text


@pytest.mark.skipif(PDFLATEX is None, reason="needs pdflatex")
def test_the_document_of_a_report_compiles(tmp_path: Path) -> None:
    assert PDFLATEX is not None
    contents = synthetic_contents(
        rates={"vcrt": (0.9,), **dict.fromkeys(HOSTILE, (0.5,))},
        folds=(EVIL,),
        schema=HOSTILE[1],
        num_runs=2,
        num_resamples=50,
    )
    write_report(
        analyse(replace(contents, title=EVIL, backbone=HOSTILE[2])), tmp_path, paper_figures=False
    )
    single = (
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{textcomp,booktabs,graphicx}"
    )
    (tmp_path / "other.tex").write_text(
        single + r"\begin{document}\input{main}\input{mechanism}\end{document}"
    )
    (tmp_path / "hostile.tex").write_text(to_document([hostile_table()]))
    for name in ("tables", "hostile", "other"):
        done = subprocess.run(
            [PDFLATEX, "-draftmode", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Missing character" not in (tmp_path / f"{name}.log").read_text(errors="replace")


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.iterdir():
        old.unlink()
    for file_name, content in golden_files().items():
        (GOLDEN / file_name).write_bytes(content.encode())
    sys.exit(0)
