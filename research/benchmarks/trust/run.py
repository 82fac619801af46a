"""Everything that shows whether the evidence can be trusted, in one command, with its figures in one file.

    make trust        # the short form, under 15 minutes on 2 cores; CI has most of its parts
    make trust-long   # the full form, hours

Each part is a script of this folder that takes ``--short`` or ``--long`` and ``--output FILE``, and fails if what it
checks does not hold. A part that fails does not keep the others from running; the command then exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import vcrt

HERE = Path(__file__).parent
PARTS = (
    *("sealed", "protocol", "environments", "crash", "lean", "fuzz", "guided"),
    *("canaries", "supply_chain", "load", "soak"),
)


def run_part(name: str, form: str, folder: Path) -> dict[str, Any]:
    """One part's figures, with its seconds and how it ended; its output goes to the terminal."""
    output = folder / f"{name}.json"
    began = time.perf_counter()
    command = [sys.executable, str(HERE / f"{name}.py"), f"--{form}", "--output", str(output)]
    code = subprocess.run(command, check=False).returncode
    figures = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {}
    if code != 0:
        print(json.dumps(figures, indent=2, ensure_ascii=False), flush=True)
    return {
        "passed": code == 0,
        "exit_code": code,
        "seconds": round(time.perf_counter() - began, 1),
        **figures,
    }


def main() -> None:
    """Run the parts in turn; write after each, so that a time limit loses nothing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", dest="form", action="store_const", const="short", default="short")
    form.add_argument("--long", dest="form", action="store_const", const="long")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    commit = ["git", "rev-parse", "--short", "HEAD"]
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "vcrt": vcrt.__version__,
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "parts": {},
    }
    if options.output is not None and options.output.is_file():
        # Parts of an earlier call stay, each with the commit and the form that it was measured at.
        result["parts"] = json.loads(options.output.read_text(encoding="utf-8")).get("parts", {})
    failed = []
    with TemporaryDirectory(prefix="vcrt-trust-") as folder:
        for name in options.parts:
            print(f"== {name}", flush=True)
            part = run_part(name, options.form, Path(folder))
            result["parts"][name] = {"form": options.form, "commit": result["commit"], **part}
            if not part["passed"]:
                failed.append(name)
            if options.output is not None:
                options.output.parent.mkdir(parents=True, exist_ok=True)
                text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
                options.output.write_text(text, encoding="utf-8")
    for name in options.parts:
        part = result["parts"][name]
        print(f"{name:14} {'holds' if part['passed'] else 'FAILS'} {part['seconds']:8.1f} s")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
