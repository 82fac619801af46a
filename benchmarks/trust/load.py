"""Certification at ten times the paper's scale, and a soak of Lean: is time linear, and is memory flat?

    python benchmarks/trust/load.py --short --output load.json
    python benchmarks/trust/load.py --long --output load.json

``scale`` runs `vcrt certify` at several sizes on the schemas of CLRS and ProofWriter (long: up to 5,000 episodes of
each of ten schemas, the share of 75,000 episodes that is theirs) and on Lean's (long: as many as fit in about half an
hour), each in a process of its own, and fits the slope of log CPU time over log episodes. CPU time, as the machine may
be shared. ``soak`` replays Lean proofs in one worker for ``--soak-minutes`` and samples its memory, open files and
threads; growth is a line fitted to the later two thirds, extrapolated to 48 hours.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from paper_scale import resident_mb
from parts import part_parser, write_figures

from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.registry import load_environment
from vcrt.records.dataset import open_dataset

SIZES = {"short": (2, 8), "long": (625, 1250, 2500, 5000)}
LEAN_SIZES = {"short": (1, 2), "long": (125, 250, 500)}
MINUTES = {"short": 0.4, "long": 30.0}
#: Least and largest slope that is called linear.
LINEAR = (0.95, 1.05)
#: What is called flat: the largest run's memory against the smallest's, and the soak's growth in 48 hours.
FLAT = {"times": 2.0, "mb": 500.0, "open_files": 10.0, "threads": 10.0}
SOAK_HOURS = 48


@dataclass(frozen=True, kw_only=True)
class Certified:
    """One call of `vcrt certify`."""

    episodes: int
    cpu_seconds: float
    seconds: float
    #: Largest resident memory of the command's own process, and of any process that it started, in MB.
    main_mb: float
    largest_mb: float


def certify(environments: tuple[str, ...], episodes: int, jobs: int) -> Certified:
    """Freeze ``episodes`` of each schema of these environments, and throw the dataset away."""
    with TemporaryDirectory(prefix="vcrt-load-") as folder:
        output = Path(folder) / "data"
        command = [sys.executable, "-m", "vcrt", "certify", "--output", str(output)]
        command += ["--schemas", *environments, "--episodes", str(episodes), "--jobs", str(jobs)]
        before, began = _children_cpu(), time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        main_mb = largest_mb = 0.0
        while process.poll() is None:
            found = resident_mb(process.pid)
            main_mb = max(main_mb, found.get(process.pid, 0.0))
            largest_mb = max(largest_mb, max(found.values(), default=0.0))
            time.sleep(0.25)
        if process.returncode != 0:
            assert process.stderr is not None
            sys.exit(process.stderr.read().decode())
        counts = open_dataset(output).manifest.counts
        return Certified(
            episodes=sum(s.episodes for schemas in counts.values() for s in schemas.values()),
            cpu_seconds=round(_children_cpu() - before, 2),
            seconds=round(time.perf_counter() - began, 2),
            main_mb=round(main_mb, 1),
            largest_mb=round(largest_mb, 1),
        )


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def scale(environments: tuple[str, ...], sizes: tuple[int, ...], jobs: int) -> dict[str, object]:
    """Certify at each size; the slope between neighbouring sizes and over all of them."""
    runs = [certify(environments, size, jobs) for size in sizes]
    logs = np.log([[run.episodes, run.cpu_seconds] for run in runs])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    between = np.diff(logs[:, 1]) / np.diff(logs[:, 0])
    return {
        "environments": list(environments),
        "runs": [asdict(run) for run in runs],
        "slope": round(slope, 3),
        "slopes_between": [round(float(one), 3) for one in between],
    }


def soak(minutes: float) -> dict[str, object]:
    """Replay Lean proofs in this process for so long, and sample what it holds every few seconds."""
    lean = load_environment("lean")
    schemas = [schema.name for schema in lean.schemas]
    samples: list[tuple[float, float, int, int]] = []
    began, seed, orders = time.perf_counter(), 0, 0
    while (elapsed := time.perf_counter() - began) < 60 * minutes:
        episodes = [lean.sample(name, seed=seed) for name in schemas]
        orders += sum(len(evidence.replays) for evidence in replay_exhaustively(lean, episodes))
        seed += 1
        held = resident_mb(os.getpid())
        files = len(list(Path("/proc/self/fd").iterdir()))
        threads = len(list(Path("/proc/self/task").iterdir()))
        samples.append((elapsed, sum(held.values()), files, threads))
    table = np.array(samples)
    late = table[len(table) // 3 :]
    growth = {
        name: float(np.polyfit(late[:, 0] / 3600, late[:, column], 1)[0])
        for column, name in ((1, "mb"), (2, "open_files"), (3, "threads"))
    }
    return {
        "minutes": round(float(table[-1, 0]) / 60, 2),
        "orders": orders,
        "first_mb": round(float(table[0, 1]), 1),
        "last_mb": round(float(table[-1, 1]), 1),
        "largest_mb": round(float(table[:, 1].max()), 1),
        "open_files": [int(table[0, 2]), int(table[-1, 2])],
        "threads": [int(table[0, 3]), int(table[-1, 3])],
        "growth_per_hour": {name: round(value, 3) for name, value in growth.items()},
        f"growth_in_{SOAK_HOURS}_hours": {n: round(SOAK_HOURS * v, 1) for n, v in growth.items()},
        "orders_in_48_hours_at_this_rate": round(orders / float(table[-1, 0]) * 3600 * SOAK_HOURS),
    }


def main() -> None:
    """Measure and write the results; the long form fails if time is not linear or memory not flat."""
    parser = part_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--soak-minutes", type=float)
    parser.add_argument("--parts", nargs="+", default=["scale", "lean", "soak"])
    options = parser.parse_args()
    form_name = "long" if options.long else "short"
    result: dict[str, Any] = {"form": form_name, "not_covered": list(NOT_COVERED[form_name])}
    if "scale" in options.parts:
        result["scale"] = scale(("clrs", "proofwriter"), SIZES[form_name], options.jobs)
    if "lean" in options.parts:
        result["lean"] = scale(("lean",), LEAN_SIZES[form_name], options.jobs)
    if "soak" in options.parts:
        result["soak"] = soak(options.soak_minutes or MINUTES[form_name])
    if options.long:
        result["holds"] = {
            f"{name}: {what}": whether
            for name in options.parts
            for what, whether in judged(result[name])
        }
    write_figures(result, options.output)
    if not all(result.get("holds", {}).values()):
        sys.exit(1)


def judged(part: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What must be true of the long form's figures, and whether it is."""
    if "slope" in part:
        runs = part["runs"]
        yield "time is linear", LINEAR[0] <= part["slope"] <= LINEAR[1]
        yield "memory is flat", runs[-1]["largest_mb"] <= FLAT["times"] * runs[0]["largest_mb"]
    else:
        growth = part[f"growth_in_{SOAK_HOURS}_hours"]
        yield "nothing grows", all(growth[name] <= FLAT[name] for name in growth)


NOT_COVERED = {
    "short": (
        "load: at this size starting costs more than certifying, so the slope says nothing; the long form measures it",
        "soak: a few seconds show a leak of megabytes a call and no smaller one",
    ),
    "long": (
        "load: Lean's share of 75,000 episodes is certified as far as an hour allows, not in full",
        "soak: 48 hours are a line through half an hour, not 48 hours",
    ),
}


if __name__ == "__main__":
    main()
