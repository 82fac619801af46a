"""Write ``reference.md`` beside this file, the reference that a code host can show: ``python docs/api/reference.py``.

It has what ``vcrt.md`` lists, under the same headings: signatures and docstrings as they stand in the code.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE / "reference.md"
LISTED = HERE / "vcrt.md"
INTRODUCTION = """# Reference

Each function with its parameters and errors. `python docs/api/reference.py` writes this page from the code;
`make docs` builds a site in which you can search.
"""
#: Characters of a line.
WIDTH = 118
#: What Python writes for an object that has no way of its own.
_OBJECT = re.compile(r"<[\w.]+\.(\w+) object at 0x[0-9a-f]+>")


def reference() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    listed = LISTED.read_text(encoding="utf-8")
    about = listed.partition("\n\n")[2].partition("\n\n")[0]
    yield _filled(re.sub(r"\{py:\w+\}`~?", "`", about)) + "\n"
    for line in listed.splitlines():
        if line.startswith("## "):
            yield f"{line}\n"
        elif found := re.fullmatch(r"\.\. autofunction:: ([\w.]+)", line):
            yield _entry(found[1])
        elif line.startswith("| ") and "{py:" in line:
            what, _, names = line.strip("| ").partition(" | ")
            yield f"**{what[0].upper()}{what[1:]}**\n"
            yield "\n".join(map(_line, re.findall(r"`~([\w.]+)`", names))) + "\n"


def _thing(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    found = getattr(import_module(module), attribute)
    file = inspect.getsourcefile(import_module(module.partition(".")[0]))
    if file is None or HERE.parents[1] not in Path(file).parents or "site-packages" in file:
        raise SystemExit(
            f"{file} is another copy of the code: install this folder's packages, each with its own -e"
        )
    return found


def _entry(name: str) -> str:
    function = _thing(name)
    signature = _signature(name, function)
    return f"### `{name}`\n\n```python\n{signature}\n```\n\n{_markdown(inspect.getdoc(function) or '')}\n"


def _line(name: str) -> str:
    """Name a thing that is no command, and the first sentence of its docstring."""
    first = re.split(r"(?<=\.)\s", inspect.getdoc(_thing(name)) or "", maxsplit=1)[0]
    return _filled(f"- `{name}`: {_inline(' '.join(first.split()))}", "  ")


def _signature(name: str, function: Callable[..., object]) -> str:
    """Write a signature as one would in Python, a parameter a line if it is long."""
    parameters: list[str] = []
    signature = inspect.signature(function)
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not any(one.startswith("*") for one in parameters):
            parameters.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        parameters.append(f"{stars}{each.name}: {each.annotation}{default}")
    whole = f"{name}({', '.join(parameters)}) -> {signature.return_annotation}"
    if len(whole) <= WIDTH:
        return whole
    lines = "".join(f"    {one},\n" for one in parameters)
    return f"{name}(\n{lines}) -> {signature.return_annotation}"


def _default(value: object) -> str:
    text = _OBJECT.sub(r"\1()", repr(value))
    return text if len(text) <= WIDTH // 2 else f"{type(value).__name__}(...)"


def _markdown(docstring: str) -> str:
    """Return a docstring as Markdown: its lists of parameters, examples and roles."""
    parts = []
    for block in re.split(r"\n\s*\n", docstring):
        head, _, rest = block.partition("\n")
        if head in ("Args:", "Raises:", "Returns:"):
            parts.append(f"{head.replace('Args', 'Parameters')}\n\n{_items(textwrap.dedent(rest))}")
        elif block.startswith(">>>"):
            parts.append(f"```pycon\n{block}\n```")
        elif block.startswith("Example: "):
            parts.append(f"Example: `{block.removeprefix('Example: ')}`")
        else:
            parts.append(_filled(_inline(" ".join(block.split()))))
    return "\n\n".join(parts)


def _items(text: str) -> str:
    """Return ``name: meaning`` entries, whose further lines are indented, as a list."""
    entries = re.split(r"\n(?=\S)", text)
    pairs = (" ".join(entry.split()).partition(": ")[::2] for entry in entries)
    lines = (
        f"- `{name}`: {_inline(meaning)}" if meaning else f"- {_inline(name)}"
        for name, meaning in pairs
    )
    return "\n".join(_filled(line, "  ") for line in lines)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _inline(text: str) -> str:
    """Return text with roles and literals of reStructuredText as code."""
    text = re.sub(r":\w+:`[~.]?(?:[\w.]+ <)?([\w.]+)>?`", r"`\1`", text)
    return text.replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
