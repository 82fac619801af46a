"""Certification at ten times the paper's scale: is time linear, and is memory flat?

    python research/benchmarks/trust/load.py --short --output load.json
    python research/benchmarks/trust/load.py --long --output load.json

`vcrt certify` runs at several sizes on the schemas of CLRS and ProofWriter (long: up to 5,000 episodes of each of ten
schemas, the share of 75,000 episodes that is theirs) and on Lean's (long: as many as fit in about half an hour), each
in a process of its own; the slope is that of log CPU time over log episodes. CPU time, as the machine may be shared.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "speed"))
from paper_scale import resident_mb
from parts import part_parser, write_figures

from vcrt.records.dataset import open_dataset

SIZES = {"short": (2, 8), "long": (625, 1250, 2500, 5000)}
LEAN_SIZES = {"short": (1, 2), "long": (125, 250, 500)}
#: Least and largest slope that is called linear.
LINEAR = (0.95, 1.05)
#: How many times the smallest run's memory the largest may have and be called flat.
FLAT = 2.0


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


def scale(environments: tuple[str, ...], sizes: tuple[int, ...], jobs: int) -> dict[str, Any]:
    """Certify at each size; the slope between neighbouring sizes and over all of them.

    Each size but the largest runs once before it and once after it, and the mean of the two counts, so that a
    machine that grows slower or faster meanwhile does not tilt the slope.
    """
    runs = [certify(environments, size, jobs) for size in (*sizes, *reversed(sizes[:-1]))]
    seconds: dict[int, list[float]] = {}
    for run in runs:
        seconds.setdefault(run.episodes, []).append(run.cpu_seconds)
    logs = np.log([[episodes, np.mean(of)] for episodes, of in seconds.items()])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    between = np.diff(logs[:, 1]) / np.diff(logs[:, 0])
    return {
        "environments": list(environments),
        "runs": [asdict(run) for run in runs],
        "slope": round(slope, 3),
        "slopes_between": [round(float(one), 3) for one in between],
    }


def main() -> None:
    """Measure and write the results; the long form fails if time is not linear or memory not flat."""
    parser = part_parser(__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    form = "long" if options.long else "short"
    measured = {
        "scale": scale(("clrs", "proofwriter"), SIZES[form], options.jobs),
        "lean": scale(("lean",), LEAN_SIZES[form], options.jobs),
    }
    holds = {name: judged(one) for name, one in measured.items()} if options.long else {}
    result = {**measured, "holds": holds, "not_covered": [NOT_COVERED[form]]}
    write_figures(result, options.output)
    if not all(whether for one in holds.values() for whether in one.values()):
        sys.exit(1)


def judged(measured: dict[str, Any]) -> dict[str, bool]:
    """What must be true of the long form's figures, and whether it is."""
    first = measured["runs"][0]
    last = max(measured["runs"], key=lambda run: run["episodes"])
    return {
        "time is linear": LINEAR[0] <= measured["slope"] <= LINEAR[1],
        "memory is flat": last["largest_mb"] <= FLAT * first["largest_mb"],
    }


NOT_COVERED = {
    "short": "At this size starting costs more than certifying, so the slope says nothing; the long form measures it.",
    "long": "Lean's share of 75,000 episodes is certified as far as an hour allows, not in full.",
}


if __name__ == "__main__":
    main()
