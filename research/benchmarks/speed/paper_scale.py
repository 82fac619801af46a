"""Freeze the paper-scale dataset with one command, and record how long it took and how much memory it needed.

    python research/benchmarks/speed/paper_scale.py runs/paper --output research/benchmarks/results/paper_scale.json

Runs `vcrt certify` and samples the resident memory of it and of every process that it started, four times a second.
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

import vcrt
from vcrt.records.dataset import open_dataset


def resident_mb(pid):
    """Resident memory of a process and of each of its descendants, in MB."""
    parents, resident = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parents[int(entry.name)] = int(
                (entry / "stat").read_text().rpartition(")")[2].split()[1]
            )
            pages = int((entry / "statm").read_text().split()[1])
        except OSError:
            continue
        resident[int(entry.name)] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    found, generation = {}, {pid}
    while generation:
        found |= {one: resident[one] for one in generation if one in resident}
        generation = {one for one, parent in parents.items() if parent in generation}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    command = [sys.executable, "-m", "vcrt", "certify", "--output", str(options.dataset)]
    command += ["--episodes", str(options.episodes), "--jobs", str(options.jobs)]
    began = time.perf_counter()
    process = subprocess.Popen(command)
    # The largest process in each quarter of the work: memory that grows with the episodes would show.
    samples = []
    while process.poll() is None:
        found = resident_mb(process.pid)
        samples.append((max(found.values(), default=0.0), found.get(process.pid, 0.0)))
        time.sleep(0.25)
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        sys.exit(process.returncode)
    manifest = open_dataset(options.dataset).manifest
    counts = [s for schemas in manifest.counts.values() for s in schemas.values()]
    quarters = [
        samples[len(samples) * q // 4 : len(samples) * (q + 1) // 4 or None] for q in range(4)
    ]
    commit = ["git", "rev-parse", "--short", "HEAD"]
    result = {
        "command": f"vcrt certify --output DIR --episodes {options.episodes} --jobs {options.jobs}",
        "seconds": round(seconds, 1),
        "schemas": len(counts),
        "candidates": sum(s.candidates for s in counts),
        "episodes": sum(s.episodes for s in counts),
        "orders": sum(s.orders for s in counts),
        "legal_orders": sum(s.legal_orders for s in counts),
        "conformance": {
            name: {checker: c.model_dump() for checker, c in checkers.items()}
            for name, checkers in manifest.conformance.items()
        },
        "root_hash": manifest.root_hash,
        "largest_process_mb_by_quarter": [
            round(max((one for one, _ in quarter), default=0.0)) for quarter in quarters
        ],
        "main_process_mb_by_quarter": [
            round(max((main for _, main in quarter), default=0.0)) for quarter in quarters
        ],
        "dataset_mb": round(sum(f.size for f in manifest.files.values()) / 1e6, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "vcrt": vcrt.__version__,
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
    }
    print(json.dumps(result, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
