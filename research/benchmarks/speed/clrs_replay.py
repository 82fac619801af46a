"""CPU time of the CLRS environment, as JSON: exhaustive replay, sampling and cross-checks, by schema, on one core.

Each figure is the median of the repetitions of ``time.process_time``, with the best and the worst beside it. Replay
counts everything that :func:`vcrt.replay.replay.replay_exhaustively` does, the reading of the episodes included.

    python research/benchmarks/speed/clrs_replay.py --episodes 500 --repeat 9
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from vcrt.replay.replay import replay_exhaustively
from vcrt_clrs.environment import ClrsEnvironment


def cpu_seconds(work: Callable[[], Any], repeat: int) -> list[float]:
    taken = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return sorted(taken)


def rates(count: int, seconds: list[float]) -> dict[str, int]:
    slowest, fastest = seconds[-1], seconds[0]
    return {
        "median": round(count / median(seconds)),
        "best": round(count / fastest),
        "worst": round(count / slowest),
    }


def measure(
    environment: ClrsEnvironment, schema: str, episodes: int, repeat: int
) -> dict[str, Any]:
    environment.cross_check(environment.sample(schema, 0))  # imports are not what is measured
    start = time.process_time()
    sampled = [environment.sample(schema, seed) for seed in range(episodes)]
    sampling = time.process_time() - start
    start = time.process_time()
    checks = [check for e in sampled for check in environment.cross_check(e)]
    checking = time.process_time() - start
    orders = sum(len(found.replays) for found in replay_exhaustively(environment, sampled))
    replaying = cpu_seconds(lambda: replay_exhaustively(environment, sampled), repeat)
    return {
        "episodes": episodes,
        "orders": orders,
        "orders_per_second": rates(orders, replaying),
        "sample_seconds": round(sampling, 3),
        "cross_check_seconds": round(checking, 3),
        "cross_checks": {
            "checked": sum(c.checked for c in checks),
            "agreed": sum(c.agreed for c in checks),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--episodes", type=int, default=500, help="episodes of each schema")
    parser.add_argument("--repeat", type=int, default=9, help="repetitions of each replay")
    arguments = parser.parse_args()
    environment = ClrsEnvironment()
    schemas = {
        schema.name: measure(environment, schema.name, arguments.episodes, arguments.repeat)
        for schema in environment.schemas
        if not schema.preset.startswith("posets")
    }
    report = {
        "benchmark": "clrs replay",
        "clock": "process CPU time, one core",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "repeat": arguments.repeat,
        "total_sample_and_cross_check_seconds": round(
            sum(s["sample_seconds"] + s["cross_check_seconds"] for s in schemas.values()), 3
        ),
        "schemas": schemas,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
