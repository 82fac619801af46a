"""A soak of Lean: does a worker that replays for hours grow?

    python research/benchmarks/trust/soak.py --long --output soak.json

One worker replays the orders of new episodes of every schema of Lean for so many minutes, and its memory, open files
and threads are sampled. Growth is a line fitted to the later two thirds, extrapolated to 48 hours.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "speed"))
from paper_scale import resident_mb
from parts import part_parser, write_figures

from vcrt.environments.registry import load_environment
from vcrt.replay.replay import replay_exhaustively

MINUTES = {"short": 0.4, "long": 30.0}
HOURS = 48
#: Growth in :data:`HOURS` that is called none.
FLAT = {"mb": 500.0, "open_files": 10.0, "threads": 10.0}
NOT_COVERED = {
    "short": "A few seconds show a leak of megabytes a call and no smaller one.",
    "long": "48 hours are a line through half an hour, not 48 hours.",
}


def soak(minutes: float) -> dict[str, Any]:
    """Replay Lean proofs in this process for so long, and sample what it holds every few seconds."""
    lean = load_environment("lean")
    schemas = [s.name for s in lean.schemas if not s.preset.startswith("posets")]
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
        f"growth_in_{HOURS}_hours": {n: round(HOURS * v, 1) for n, v in growth.items()},
        "orders_in_48_hours_at_this_rate": round(orders / float(table[-1, 0]) * 3600 * HOURS),
    }


def main() -> None:
    """Measure and write the results; the long form fails if something grows."""
    parser = part_parser(__doc__)
    parser.add_argument("--minutes", type=float)
    options = parser.parse_args()
    form = "long" if options.long else "short"
    result = soak(options.minutes or MINUTES[form])
    growth = result[f"growth_in_{HOURS}_hours"]
    grows = options.long and any(growth[name] > most for name, most in FLAT.items())
    write_figures({**result, "not_covered": [NOT_COVERED[form]]}, options.output)
    sys.exit(1 if grows else 0)


if __name__ == "__main__":
    main()
