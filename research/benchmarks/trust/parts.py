"""What the parts of ``run.py`` have in common: a short and a long form, and figures as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def part_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of ``--short`` (the default), ``--long`` (then ``long`` is true) and ``--output``."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="a part of it; the default")
    form.add_argument("--long", action="store_true", help="all of it")
    parser.add_argument("--output", type=Path, help="where to write the figures")
    return parser


def write_figures(figures: Mapping[str, Any], output: Path | None) -> None:
    """Write the figures to a file, or print them where none was named."""
    text = json.dumps(figures, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
