"""Reads pages as their reader does: commands, files and Python in order, in one folder and a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import venv
from itertools import pairwise
from pathlib import Path

import vcrt
from documentation import Block, all_blocks

_MARK = "@@ block {} @@"
#: Most updates of a run: more take minutes, and no page shows a figure that hangs on them.
_UPDATES = 12
#: What needs no network and no administrator: pip takes what `make setup` has installed.
_PIP = """#!{python}
import sys
from pip._internal.cli.main import main
offline = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
sys.exit(main([*sys.argv[1:], *offline]))
"""
_VCRT = """#!{python}
from vcrt.cli import main
main()
"""


_PYTEST = """#!{python}
import sys
import pytest
sys.exit(pytest.main())
"""


def fresh_environment(folder: Path) -> Path:
    """A virtual environment that sees what this one has installed, and into which a reader may install."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    source = Path(vcrt.__file__).parents[1]
    (site / "parent.pth").write_text(
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    _write_script(folder / "bin" / "vcrt", _VCRT.format(python=python))
    _write_script(folder / "bin" / "pytest", _PYTEST.format(python=python))
    return offline(folder)


def offline(folder: Path) -> Path:
    """The virtual environment, whose ``pip`` asks no index from now on."""
    _write_script(folder / "bin" / "pip", _PIP.format(python=folder / "bin" / "python"))
    return folder


def _write_script(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def read(pages: dict[str, str], folder: Path, environment: Path) -> None:
    """Do what the pages (texts by name) say, one after the other in a folder; fails where what they show is not so."""
    for name, text in pages.items():
        blocks = list(all_blocks(text))
        printed = _run(name, blocks, folder, environment)
        for number, lines in shown(blocks):
            missing = [line for line in lines if line not in printed[number]]
            assert not missing, f"{name} shows {missing[0]!r}, but:\n{printed[number]}"


def shown(blocks: list[Block]) -> list[tuple[int, list[str]]]:
    """What each block that runs prints, by the block's number, where a block of text follows it."""
    return [
        (number, [line.rstrip() for line in after.body.splitlines() if line.strip()])
        for number, (block, after) in enumerate(pairwise(blocks))
        if after.language == "text" and block.language in ("bash", "python") and not block.not_run
    ]


def script(blocks: list[Block]) -> str:
    """The page as one shell, so that folders and variables last as they do for a reader; runs are shorter."""
    lines = ["set -e"]
    made: set[str] = set()
    for number, block in enumerate(blocks):
        lines.append(f"echo {_MARK.format(number)!r}")
        if block.not_run:
            continue
        if block.file:
            into = ">>" if block.file in made else ">"
            made.add(block.file)
            lines.append(f"cat {into} {block.file} <<'END OF BLOCK'\n{block.body}END OF BLOCK")
        elif block.language == "bash":
            fewer = re.sub(
                r"--updates (\d+)", lambda n: f"--updates {min(int(n[1]), _UPDATES)}", block.body
            )
            lines.append(f"if ( {fewer} ); then false; fi" if block.fails else fewer)
        elif block.language == "python":
            lines.append(f"python - <<'END OF BLOCK'\n{block.body}END OF BLOCK")
    return "\n".join(lines)


def _run(name: str, blocks: list[Block], folder: Path, environment: Path) -> list[str]:
    """What each block printed."""
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    mine = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        ["bash", "-c", script(blocks)],
        cwd=folder,
        env=mine | {"PATH": path, "COLUMNS": "140", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    _, *printed = re.split(r"^@@ block \d+ @@\n", done.stdout, flags=re.MULTILINE)
    assert done.returncode == 0, f"{name}:\n{blocks[len(printed) - 1].body}\n{printed[-1][-3000:]}"
    return printed
