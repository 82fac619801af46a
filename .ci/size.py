"""Print the lines of each package beside its budget; exit 1 if one is above it.

    python .ci/size.py

A line of code is neither empty, nor a comment, nor in a docstring. Budgets are in budgets.toml and hold for all lines.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: What says nothing on a line of its own.
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def size_of(source: Path) -> tuple[int, int, int]:
    """Modules, lines and lines of code below a folder."""
    files = sorted(source.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in files]
    return len(files), sum(len(t.splitlines()) for t in texts), sum(map(code_lines, texts))


def code_lines(text: str) -> int:
    """The lines that hold code: no comment alone, no docstring, nothing empty."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in _BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            lines -= set(range(said.lineno, (said.end_lineno or 0) + 1))
    return len(lines)


def main() -> None:
    """Print the table."""
    budgets = tomllib.loads((HERE / "budgets.toml").read_text(encoding="utf-8"))
    found = {name: size_of(ROOT / one["source"]) for name, one in budgets["packages"].items()}
    limits = {name: one["lines"] for name, one in budgets["packages"].items()}
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))  # type: ignore[assignment]
    limits["all"] = budgets["all"]
    print(f"{'package':<18}{'modules':>8}{'lines':>8}{'code':>8}{'budget':>8}")
    for name, (modules, lines, code) in found.items():
        over = "  too large" if lines > limits[name] else ""
        print(f"{name:<18}{modules:>8}{lines:>8}{code:>8}{limits[name]:>8}{over}")
    if any(lines > limits[name] for name, (_, lines, _) in found.items()):
        sys.exit(
            "a package is above its budget: take something out, or raise the budget with a line in CHANGELOG.md"
        )


if __name__ == "__main__":
    main()
