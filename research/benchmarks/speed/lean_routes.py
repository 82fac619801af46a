"""Orders per second and core of each route to Lean, by schema, as JSON on standard output.

    python research/benchmarks/speed/lean_routes.py --episodes 40
    python research/benchmarks/speed/lean_routes.py --schemas cite tactic_siblings --output lean_routes.json

``in process``: every prefix of the 24 orders elaborated once, in a worker. ``command line``: every order by itself, to
its end. ``second opinion``: the same as it is used, up to the step that was refused. Seconds are CPU time of this
process and of Lean, so a busy machine does not slow the figures down by much; each figure is the median over turns of a
few episodes, in which the routes take their turns. All routes must give equal replays, else the benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from vcrt.environments.contract import ReplayRequest
from vcrt.orders import all_orders
from vcrt.processes.programs import resident_mb
from vcrt_lean.environment import LeanEnvironment
from vcrt_lean.inprocess import shared_elaborators
from vcrt_lean.judging import judge
from vcrt_lean.toolchain import find_toolchain

TURN = 10
TICKS = os.sysconf("SC_CLK_TCK")


class Clock:
    """CPU seconds of this process, of the commands that it ran and of its worker."""

    def __init__(self, elaborators):
        self.elaborators = elaborators

    def seconds(self):
        done = resource.getrusage(resource.RUSAGE_CHILDREN)
        fields = (
            Path(f"/proc/{self.elaborators.process}/stat").read_text().rpartition(")")[2].split()
        )
        worker = (int(fields[11]) + int(fields[12])) / TICKS
        return time.process_time() + done.ru_utime + done.ru_stime + worker


def by_command(environment, requests):
    jobs = environment._jobs(requests)
    size, toolchain = environment.preferred_batch, find_toolchain()
    batches = [jobs[start : start + size] for start in range(0, len(jobs), size)]
    return [replay for batch in batches for replay in judge(toolchain, batch, environment.limits)]


def measure(schema, num_episodes, elaborators):
    """Orders per second and core of each route, the median over turns."""
    plain = LeanEnvironment()
    clock = Clock(elaborators)
    rates = defaultdict(list)

    def timed(name, num_orders, function, *arguments):
        before, worker = clock.seconds(), elaborators.process
        result = function(*arguments)
        # A worker that was replaced took its times with it.
        if elaborators.process == worker:
            rates[name].append(num_orders / (clock.seconds() - before))
        return result

    for start in range(0, num_episodes, TURN):
        seeds = range(start, min(start + TURN, num_episodes))
        episodes = [plain.sample(schema, seed) for seed in seeds]
        orders = all_orders(episodes[0].num_operations)
        requests = [ReplayRequest(episode, order) for episode in episodes for order in orders]
        count = len(requests)
        found = timed("in process", count, plain.replay, requests)
        if timed("command line", count, by_command, plain, requests) != found:
            raise SystemExit(f"{schema}: the command line gives other replays")
        grouped = [found[k : k + len(orders)] for k in range(0, count, len(orders))]
        checks = timed("second opinion", count, plain.cross_check_all, episodes, grouped)
        if any(check.agreed != check.checked for (check,) in checks):
            raise SystemExit(f"{schema}: the second opinion differs")
    return {name: round(median(found), 1) for name, found in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--schemas", nargs="*")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    environment = LeanEnvironment()
    versions = environment.versions()
    elaborators = shared_elaborators(find_toolchain(), environment.limits)
    names = arguments.schemas or [
        schema.name for schema in environment.schemas if not schema.preset.startswith("posets")
    ]
    rows = {name: measure(name, arguments.episodes, elaborators) for name in names}
    routes = next(iter(rows.values())).keys()
    result = {
        "unit": "orders per second and core (CPU time)",
        "verifier": versions.verifier,
        "episodes a schema": arguments.episodes,
        "orders per second": rows,
        "mean": {r: round(sum(row[r] for row in rows.values()) / len(rows), 1) for r in routes},
        "worker MB": round(resident_mb(elaborators.process)),
        "load average": os.getloadavg()[0],
    }
    text = json.dumps(result, indent=2)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
