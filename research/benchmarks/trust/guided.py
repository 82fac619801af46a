"""Coverage-guided fuzzing of every reader of text in turn, by :mod:`fuzz_atheris` in a process of its own.

    python research/benchmarks/trust/guided.py --long --output guided.json

Where atheris is not installed, nor in build/atheris (`make trust-long` puts it there), nothing is run and that is said.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parts import part_parser, write_figures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BESIDE = ROOT / "build" / "atheris"
#: Seconds for each reader.
SHORT, LONG = 5, 60
NOT_COVERED = [
    "Texts only, up to the 4,096 bytes that libFuzzer takes by itself; without valid inputs to start from",
    "gzip, SQLite and safetensors, whose readers are not Python that atheris can follow",
]


def atheris(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A call of fuzz_atheris.py, in a folder of its own."""
    path = [str(BESIDE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory(prefix="vcrt-guided-") as folder:
        return subprocess.run(
            [sys.executable, str(HERE / "fuzz_atheris.py"), *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
        )


def readers() -> list[str]:
    """The names that fuzz_atheris.py knows."""
    found = atheris("--readers")
    if found.returncode != 0:
        sys.exit(found.stderr)
    names: list[str] = json.loads(found.stdout)
    return names


def run(reader: str, seconds: int) -> dict[str, Any]:
    """How many inputs a reader was given, and what libFuzzer said if one ended in anything but a named error."""
    found = atheris(reader, f"-max_total_time={seconds}")
    done = re.search(r"Done (\d+) runs", found.stderr)
    crashed = found.returncode != 0 or done is None
    return {
        "reader": reader,
        "inputs": int(done[1]) if done else 0,
        "crashed": crashed,
        **({"said": found.stderr[-2000:]} if crashed else {}),
    }


def main() -> None:
    """Run all readers; exits with 1 if one crashed."""
    options = part_parser(__doc__).parse_args()
    if not BESIDE.is_dir() and find_spec("atheris") is None:
        write_figures({"skipped": "atheris is not installed"}, options.output)
        return
    results = [run(reader, LONG if options.long else SHORT) for reader in readers()]
    figures = {
        "inputs": sum(result["inputs"] for result in results),
        "crashes": sum(result["crashed"] for result in results),
        "seconds_a_reader": LONG if options.long else SHORT,
        "readers": results,
        "not_covered": NOT_COVERED,
    }
    write_figures(figures, options.output)
    sys.exit(1 if figures["crashes"] else 0)


if __name__ == "__main__":
    main()
