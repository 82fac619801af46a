"""Orders and operations per second and core, exhaustively and merged, of every default schema; whether both agree.

    make bench-certify
    python research/benchmarks/speed/certify.py --episodes 500 --output research/benchmarks/results/certify.json

Of environments that run the common beginnings of an episode's orders once, operations are counted, too: a step that was
run, accepted or refused.
CPU time is that of this process and of everything it started (Lean is a process of its own), so that a busy machine
does not slow the figures down; wall-clock time stands beside it. The routes take turns within each schema, a few
episodes at a time, and the median over the turns is what is printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from statistics import median

import vcrt
from vcrt.certificates.lattice import Lattice
from vcrt.environments.contract import BatchEnvironment
from vcrt.environments.registry import load_environment
from vcrt.replay.config import select_schemas
from vcrt.replay.lattice_replay import replay_merged
from vcrt.replay.replay import replay_exhaustively

#: Episodes in one turn, of environments that answer in batches and of those that answer step by step.
BATCH_TURN, STEP_TURN = 10, 20
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds():
    """User and system time of this process and all its descendants, living or reaped."""
    times, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        times[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    total, generation = 0.0, {os.getpid()}
    while generation:
        total += sum(times.get(pid, 0.0) for pid in generation)
        generation = {pid for pid, parent in parents.items() if parent in generation}
    # The kernel's ticks are coarse for a process that is quick; its own clock is fine.
    return total - times[os.getpid()] + time.process_time()


def timed(function):
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = function()
    return result, cpu_seconds() - cpu, time.perf_counter() - wall


def accepted(evidence):
    return [[(r.sequence, r.state_hashes, r.accepted) for r in e.replays] for e in evidence]


def num_operations(evidence):
    """How many steps were run: the orders' distinct beginnings, up to what was refused."""
    return len({r.sequence[:end] for r in evidence.replays for end in range(1, tried(r) + 1)})


def tried(replay):
    return min(len(replay.state_hashes) - replay.accepted, len(replay.sequence))


def measure(environment, schema, num_episodes):
    """One row of the result: medians over turns, and counts over all episodes."""
    episodes = [environment.sample(schema, seed) for seed in range(num_episodes)]
    # Certification holds a few episodes at a time; the others here must not slow the garbage collector down.
    gc.collect()
    gc.freeze()
    # Start-up (Lean's prelude, a first import) belongs to no turn.
    replay_exhaustively(environment, episodes[:1])
    rows, agreeing, transitions, orders = [], 0, 0, 0

    def fresh():
        """An environment that has seen no episode, so that neither way profits from what the other prepared."""
        return environment if isinstance(environment, BatchEnvironment) else type(environment)()

    turn = BATCH_TURN if isinstance(environment, BatchEnvironment) else STEP_TURN
    for start in range(0, num_episodes, turn):
        some = episodes[start : start + turn]
        exhaustive, cpu, wall = timed(lambda some=some: replay_exhaustively(fresh(), some))
        merged, merged_cpu, merged_wall = timed(lambda some=some: replay_merged(fresh(), some))
        num_orders = sum(len(e.replays) for e in exhaustive)
        orders += num_orders
        transitions += sum(len(Lattice.of(each.tree).transitions) for each in merged)
        pairs = zip(accepted(exhaustive), accepted(merged), strict=True)
        agreeing += sum(one == other for one, other in pairs)
        rows.append(
            [num_orders / seconds for seconds in (cpu, wall, merged_cpu, merged_wall)]
            + [sum(map(num_operations, exhaustive)) / cpu]
        )
    per_cpu, per_wall, merged_per_cpu, merged_per_wall, operations = map(
        median, zip(*rows, strict=True)
    )
    return {
        "environment": environment.name,
        "schema": schema,
        "episodes": num_episodes,
        "orders": orders,
        "exhaustive_orders_per_cpu_second": round(per_cpu, 1),
        "exhaustive_orders_per_wall_second": round(per_wall, 1),
        "exhaustive_operations_per_cpu_second": round(operations, 1)
        if isinstance(environment, BatchEnvironment)
        else None,
        "merged_orders_per_cpu_second": round(merged_per_cpu, 1),
        "merged_orders_per_wall_second": round(merged_per_wall, 1),
        "merged_over_exhaustive": round(merged_per_cpu / per_cpu, 3),
        "merged_transitions_per_episode": transitions / num_episodes,
        "equal_verdicts": agreeing,
    }


def commit():
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=100, help="of each schema")
    parser.add_argument("--schemas", nargs="*", default=["clrs", "lean", "proofwriter"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name, schemas in select_schemas(tuple(options.schemas)).items():
        environment = load_environment(name)
        for schema in schemas:
            rows.append(measure(environment, schema, options.episodes))
            print(json.dumps(rows[-1]), flush=True)
    by_environment = {
        name: round(
            median(r["exhaustive_orders_per_cpu_second"] for r in rows if r["environment"] == name),
            1,
        )
        for name in sorted({row["environment"] for row in rows})
    }
    result = {
        "what": "orders per second and core; medians over turns, exhaustive and merged one after the other",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "vcrt": vcrt.__version__,
        "commit": commit(),
        "median_exhaustive_orders_per_cpu_second": by_environment,
        "equal_verdicts": f"{sum(r['equal_verdicts'] for r in rows)} of {sum(r['episodes'] for r in rows)}",
        "schemas": rows,
    }
    print(json.dumps({k: v for k, v in result.items() if k != "schemas"}, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
