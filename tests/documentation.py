"""The pages of the documentation as the tests read them: their blocks, links, references and tables."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))
_FENCE = re.compile(r"^(`{3,}|:{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r"\{py:\w+\}`~?([\w.]+)`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of a language, without their options."""
    return [
        re.sub(r"\A(:[\w-]+:[^\n]*\n)+\n?", "", body)
        for _, info, body in _FENCE.findall(text)
        if info.strip() == language
    ]


def commands(text: str) -> list[str]:
    """Every command of the console blocks, without its comment; a line that ends in a backslash goes on."""
    joined = [block.replace("\\\n", " ") for block in blocks(text, "console")]
    lines = [line for block in joined for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip() for line in lines]


def prose_links(text: str) -> list[str]:
    """Targets of links and pictures outside of blocks and of code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [link for link in _LINK.findall(prose) if "://" not in link]


def references(text: str) -> list[str]:
    """Every Python name that a role refers to."""
    return _ROLE.findall(text)


def first_cells(text: str, heading: str) -> list[str]:
    """The first cells, without their backticks, of the table whose head begins with ``| heading``."""
    _, _, table = text.partition(f"\n| {heading} |")
    rows = table.partition("\n\n")[0].splitlines()[2:]
    return [row.split("|")[1].strip().strip("`") for row in rows]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def exists(name: str) -> bool:
    """Whether a dotted name is in the source: a module, a class, a function, a method or a field. Imports nothing."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem = (ROOT / "src").joinpath(*parts[:length])
        path = (
            stem.with_suffix(".py") if stem.with_suffix(".py").is_file() else stem / "__init__.py"
        )
        if path.is_file():
            return _has(_tree(path).body, parts[length:])
    return False


def _has(body: list[ast.stmt], parts: list[str]) -> bool:
    if not parts:
        return True
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == parts[0]:
            return _has(node.body, parts[1:]) if isinstance(node, ast.ClassDef) else not parts[1:]
        if isinstance(node, ast.If) and _has(node.body, parts):
            return True
        if isinstance(node, ast.ImportFrom):
            names = {alias.asname or alias.name: alias.name for alias in node.names}
            if parts[0] in names:
                return exists(".".join((str(node.module), names[parts[0]], *parts[1:])))
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == parts[0] for t in targets):
            return not parts[1:]
    return False
