"""The frozen suites of long episodes: 6, 8, 12 and 16 steps in all three environments, and 12 statements of SQLite.

    make suites
    python research/benchmarks/length/suites.py --output build/suites --suites posets6 posets8

Each suite is certified unless it is whole already (what was interrupted goes on from there), and then replayed again
in fresh processes by ``vcrt verify``. With the default numbers all of them take some 80 minutes of processor time.
The SQLite suite needs the example package, which ``make suites`` puts beside it; without, it is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vcrt.environments.registry import environment_names


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A preset, whose schemas are certified, and how many episodes of each."""

    preset: str
    episodes: int
    environments: tuple[str, ...] = ("clrs", "lean", "proofwriter")


SUITES = {
    "posets6": Suite(preset="posets6", episodes=50),
    "posets8": Suite(preset="posets8", episodes=50),
    "posets12": Suite(preset="posets12", episodes=20),
    "posets16": Suite(preset="posets16", episodes=20),
    "sqlite12": Suite(preset="posets12", episodes=20, environments=("sqlite_changes",)),
}


def vcrt(*words: str) -> float:
    """Run a command to its end: the CPU seconds that it and all that it started took; ends with what it ends with."""
    before = os.times()
    ended = subprocess.run([sys.executable, "-m", "vcrt", *words], check=False).returncode
    if ended:
        sys.exit(ended)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def make(name: str, suite: Suite, folder: Path, jobs: list[str]) -> dict[str, object]:
    """Certify a suite unless it is there, and verify it: what it took and what came of it."""
    start = time.perf_counter()
    certified = 0.0
    if not (folder / "manifest.json").is_file():
        certified = vcrt(
            *("certify", "--preset", suite.preset, "--schemas", *suite.environments),
            *("--episodes", str(suite.episodes), "--output", str(folder), *jobs),
        )
    verified = vcrt("verify", str(folder), *jobs)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return {
        "suite": name,
        "root_hash": manifest["root_hash"],
        "bytes": sum(file["size"] for file in manifest["files"].values()),
        "certify_cpu_seconds": round(certified, 1),
        "verify_cpu_seconds": round(verified, 1),
        "wall_seconds": round(time.perf_counter() - start, 1),
        "counts": manifest["counts"],
    }


def main() -> None:
    """Make the suites that are asked for, the small ones first, and note them in ``suites.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("build/suites"))
    parser.add_argument("--suites", nargs="*", choices=SUITES, default=list(SUITES))
    parser.add_argument("--jobs", type=int, help="worker processes; one a core by default")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    jobs = ["--jobs", str(options.jobs)] if options.jobs else []
    made = []
    for name in options.suites:
        missing = {*SUITES[name].environments} - {*environment_names()}
        if missing:
            print(f"{name} is left out: {', '.join(sorted(missing))} is not installed", flush=True)
            continue
        made.append(make(name, SUITES[name], options.output / name, jobs))
        text = json.dumps(made, indent=2) + "\n"
        (options.output / "suites.json").write_text(text, encoding="utf-8")
    for suite in made:
        print(f"{suite['suite']:10} {suite['root_hash']}  {suite['bytes']:,} bytes")


if __name__ == "__main__":
    main()
