"""The pages of the documentation as the tests read them: their blocks, links, references and tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Where the packages lie.
SOURCES = (ROOT / "src", ROOT / "train" / "src", *sorted(ROOT.glob("environments/*/src")))
DOCS = ROOT / "docs"
#: Those of the site; api/reference.md is for code hosts.
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.name != "reference.md")
_FENCE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r"\{py:\w+\}`~?([\w.]+)`")
#: In plain pages a dotted name in code; ``docs/_ext/importable_references.py`` makes it a link.
_NAME = re.compile(r"(?<!`)`(vcrt\w*(?:\.\w+)+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->$")
_FILE = re.compile(r"`([\w./-]+\.\w+)`:$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page, and the line of prose before it."""

    language: str
    body: str
    before: str

    @property
    def not_run(self) -> str | None:
        """Why a reader's machine may not run it: ``<!-- not run: REASON -->`` on the line before."""
        found = _NOT_RUN.search(self.before)
        return found and found[1]

    @property
    def fails(self) -> bool:
        """Whether its last command ends with an error, as the page shows: ``<!-- fails -->`` on the line before."""
        return self.before == "<!-- fails -->"

    @property
    def file(self) -> str | None:
        """The file that it is to be put into, if the prose ends in its name and a colon; a second time, at its end."""
        found = _FILE.search(self.before)
        return found and found[1]


def all_blocks(text: str) -> Iterator[Block]:
    """Every fenced block in its order."""
    end = 0
    for found in _FENCE.finditer(text):
        before = text[end : found.start()].rstrip().rpartition("\n")[2]
        yield Block(language=found[2].strip(), body=found[3], before=before)
        end = found.end()


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of a language."""
    return [block.body for block in all_blocks(text) if block.language == language]


def commands(text: str) -> list[str]:
    """Every command of the bash blocks, without comment and redirection; a line that ends in a backslash goes on."""
    joined = [block.replace("\\\n", " ") for block in blocks(text, "bash")]
    lines = [re.sub(r"(^|\s+)#.*", "", line) for block in joined for line in block.splitlines()]
    single = [part for line in lines for part in re.split(r"\s(?:&&|\|\|)\s", line)]
    return [re.sub(r"\s>\s.*", "", part).strip() for part in single if part.strip()]


def prose_links(text: str) -> list[str]:
    """Targets of links and pictures outside of blocks and of code."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return [link for link in _LINK.findall(prose) if "://" not in link]


def references(text: str) -> list[str]:
    """Every Python name that a role, or a dotted name in code, refers to."""
    return _ROLE.findall(text) + _NAME.findall(_FENCE.sub("", text))


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
    for length, source in product(range(len(parts), 0, -1), SOURCES):
        stem = source.joinpath(*parts[:length])
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
