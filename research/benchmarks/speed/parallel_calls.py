"""Does it pay to run tool calls in certified waves? Time, and equality of states and outputs, on asynchronous tools.

    TMPDIR=/dev/shm python research/benchmarks/speed/parallel_calls.py --certify build/parallel_calls
    python research/benchmarks/speed/parallel_calls.py --schedules build/parallel_calls \\
        --output research/benchmarks/results/parallel_calls.json

The tools, the conversations and the four ways to run one are those of `examples/parallel_calls.py`. The first command
can be interrupted, and goes on where it was. It takes those with the seeds 0, 1, 2, ..., `--traces` of them.
The second measures those that have a schedule.

The plan, as it was written before the first run:

- All conversations of these seeds count; none is left out. If one has no schedule, that is an error.
- The reference is one run of the log one by one. A run ends *otherwise* if its final state or any output differs.
- Each conversation is run in all four ways, in turn, `--repeats` times, from the same start on the disk, with a service
  that waits 20 ms, by tools that do each call as a whole and by tools that read and write in steps. A conversation
  counts as ending otherwise if any of the repeats does: races are chance.
- With whole tools, a certified way that ends otherwise is a fault of vcrt. With tools in steps it is the caveat that
  vcrt states (each call is taken as done as a whole); it is counted beside.
- Times are medians over conversations of the median over repeats, and the ratio is the median over conversations of
  one by one divided by the way. Only times of whole tools are compared: a wrong result that comes sooner is no gain.
- Certification asks a service that does not wait, in memory. It pays after as many runs of the same conversations as
  its time holds what a run saves: seconds of certification divided by seconds saved, in sum.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import parallel_calls as example

import vcrt
from vcrt.calls.schedules import Edge, Schedule

ROOT = Path(__file__).parents[3]
CHUNK = 2
TOOLS = {"whole": example.Desk, "in steps": example.DeskInSteps}


def certify(folder, traces):
    """Write the schedules of the conversations, a file for each chunk of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for first in range(0, traces, CHUNK):
        path = folder / f"{first:04}.json"
        if path.exists():
            continue
        seeds = range(first, min(first + CHUNK, traces))
        began, processor = time.perf_counter(), processor_seconds()
        found = example.scheduled([example.conversation(seed) for seed in seeds])
        made = {
            "seconds": time.perf_counter() - began,
            "processor_seconds": processor_seconds() - processor,
            "schedules": [
                {
                    "seed": seed,
                    "calls": one.num_steps,
                    "complete": one.complete,
                    "edges": [[edge.first, edge.second, edge.kind] for edge in one.edges],
                }
                for seed, one in zip(seeds, found, strict=True)
            ],
        }
        path.with_suffix(".tmp").write_text(json.dumps(made))
        path.with_suffix(".tmp").rename(path)
        print(path, f"{made['seconds']:.0f} s", flush=True)


def processor_seconds():
    """The processor time of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def read_schedule(one):
    edges = [Edge(first=first, second=second, kind=kind) for first, second, kind in one["edges"]]
    return Schedule(num_steps=one["calls"], edges=tuple(edges), complete=one["complete"])


def measured(schedules, repeats):
    """Run each conversation in all ways; give a row for each."""
    rows = []
    with example.service(example.LATENCY_S):
        for seed, schedule in schedules.items():
            sent = example.conversation(seed)
            ways = example.ways(sent, schedule)
            _, *reference = example.run(ways["one by one"], sent, example.Desk())
            took, other = defaultdict(list), defaultdict(int)
            for _ in range(repeats):
                for tools, made in TOOLS.items():
                    for way, rounds in ways.items():
                        seconds, *ended = example.run(rounds, sent, made())
                        took[tools, way].append(seconds)
                        other[tools, way] += ended != reference
            rows.append(
                {
                    "seed": seed,
                    "calls": schedule.num_steps,
                    "rounds": {way: len(rounds) for way, rounds in ways.items()},
                    "seconds": nested({key: median(each) for key, each in took.items()}),
                    "otherwise": nested(other),
                }
            )
    return rows


def nested(values):
    return {tools: {way: values[tools, way] for t, way in values if t == tools} for tools in TOOLS}


def summary(rows):
    found = {}
    for way in rows[0]["rounds"]:
        seconds = [row["seconds"]["whole"][way] for row in rows]
        ratios = [
            row["seconds"]["whole"]["one by one"] / row["seconds"]["whole"][way] for row in rows
        ]
        found[way] = {
            "rounds": median(row["rounds"][way] for row in rows),
            "milliseconds": round(1000 * median(seconds), 1),
            "seconds_in_sum": round(sum(seconds), 2),
            "times_as_fast": round(median(ratios), 2),
            "end_otherwise": {
                tools: sum(row["otherwise"][tools][way] > 0 for row in rows) for tools in TOOLS
            },
        }
    return found


def git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--certify", type=Path)
    parser.add_argument("--schedules", type=Path)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    if asked.certify:
        certify(asked.certify, asked.traces)
        return
    load = os.getloadavg()[0]
    chunks = [json.loads(path.read_text()) for path in sorted(asked.schedules.glob("*.json"))]
    made = [one for chunk in chunks for one in chunk["schedules"]]
    rows = measured(
        {one["seed"]: read_schedule(one) for one in made[: asked.traces]}, asked.repeats
    )
    ways = summary(rows)
    spent = {key: sum(chunk[key] for chunk in chunks) for key in ("seconds", "processor_seconds")}
    result = {
        "command": "the two at the top of research/benchmarks/speed/parallel_calls.py",
        "commit": git("rev-parse", "--short", "HEAD"),
        "versions": {
            "vcrt": vcrt.__version__,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "system": platform.system(),
        },
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "latency_of_the_service_s": example.LATENCY_S,
        "traces": len(rows),
        "calls": sum(row["calls"] for row in rows),
        "repeats": asked.repeats,
        "complete_schedules": sum(one["complete"] for one in made),
        "pairs_not_settled": sum(edge[2] == "not settled" for one in made for edge in one["edges"]),
        "certification": {
            **{key: round(value, 1) for key, value in spent.items()},
            "pays_after_runs": {
                way: round(
                    spent["seconds"]
                    / (ways["one by one"]["seconds_in_sum"] - ways[way]["seconds_in_sum"]),
                    1,
                )
                for way in ("message in waves", "waves")
            },
        },
        "ways": ways,
        "rows": rows,
    }
    asked.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=1))


if __name__ == "__main__":
    main()
