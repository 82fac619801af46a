"""Let an environment go wrong in every way, in every command: each must end in one named error, and nothing be left.

    python research/benchmarks/trust/environments.py --short --output environments.json

The plug-in and what must come are in `tests/support/environment_faults.py`. Each try is a command in its own process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

from parts import part_parser, write_figures  # noqa: E402

import environment_faults as faults  # noqa: E402

RAISED = (
    *("interrupt", "generator", "stop", "deep", "zero", "base", "picky", "memory", "file"),
    *("not_implemented", "broken_pipe", "input"),
)
ENDED = ("kill", "orphan")
CHILDREN = ("fork", "child", "daemon")
ENDLESS = ("hang", "spin")
NO_JSON = [
    f"{where}:{kind}" for where in ("initial", "payload") for kind in ("nan", "bytes", "surrogate")
]
NO_TEXT = [f"reason:{kind}" for kind in ("surrogate", "empty", "none")]
NOT_COVERED = [
    "An environment that means harm: it runs with the rights of whoever runs vcrt. A container is for that.",
    "A limit on memory: a worker that is killed for lack of it is tried again alone and then named.",
    "On a Ray or Dask cluster a call over its limit ends its worker, and the place stands in the cluster's log alone.",
]


def tries(*, long: bool) -> Iterator[tuple[str, str, str]]:
    """A command, a fault, and the form of the environment that meets it."""
    for command, places in faults.PLACES.items():
        for where in places:
            if where not in ("initial", "payload", "reason"):
                usual = where in ("import", "step", "versions")
                for kind in ("exit",) * usual + ("end",) * long:
                    yield command, f"{where}:{kind}", "steps"
    for kind in (*RAISED, *ENDED, *CHILDREN):
        yield "show", f"step:{kind}", "steps"
        if long:
            yield "certify", f"step:{kind}", "batches"
    replaying = [command for command, places in faults.PLACES.items() if "step" in places]
    for kind in ENDLESS:
        for command in replaying if long else ("verify",):
            yield command, f"step:{kind}", "steps"
    for fault in (*NO_JSON, *NO_TEXT):
        for command in ("certify", "validate") if long else ("show",):
            yield command, fault, "steps"


def measure(*, long: bool) -> dict[str, Any]:
    """Every try, and what was wrong with how it ended."""
    began = time.perf_counter()
    found: dict[str, str] = {}
    kinds = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        place = faults.made(Path(folder) / "plug-in")
        agreement = (place / "data" / "agreement.json").read_bytes()
        for command, fault, form in tries(long=long):
            for left in place.glob("new*"):
                shutil.rmtree(left)
            kinds[fault.partition(":")[2]] += 1
            name = f"{command}, {fault}, {form}"
            try:
                done = faults.run(
                    place, *faults.COMMANDS[command], fault=fault, form=form, timeout_s=10
                )
            except subprocess.TimeoutExpired:
                found[name] = "it did not end"
                continue
            flaw = faults.flaw(command, fault, done)
            if flaw is None and faults.left_over(place):
                flaw = "a process was left behind"
            if flaw is None and (place / "data" / "agreement.json").read_bytes() != agreement:
                flaw = "another agreement"
            if flaw is not None:
                found[name] = flaw
            print(f"{name}: {flaw or 'as it must be'}", flush=True)
    return {
        "tries": kinds.total(),
        "commands": len(faults.COMMANDS),
        "by_kind": dict(sorted(kinds.items())),
        "missed": found,
        "seconds_inside": round(time.perf_counter() - began, 1),
        "not_covered": NOT_COVERED,
    }


def main() -> None:
    options = part_parser(__doc__).parse_args()
    result = measure(long=options.long)
    write_figures(result, options.output)
    sys.exit(1 if result["missed"] else 0)


if __name__ == "__main__":
    main()
