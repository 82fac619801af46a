"""How long `vcrt schedule` takes for logs of 10, 25 and 64 calls, and what it settles, on tools of microseconds.

    python research/benchmarks/speed/schedules.py --output research/benchmarks/results/schedules.json

The tools are those of a shop in memory. A log is drawn by its seed: messages of one to five calls, half of which only
look. Each log is scheduled by a process of its own, as on the command line: starting Python is counted. Sizes and seeds
are taken in turn, `--repeats` times. Seconds are wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import vcrt

ROOT = Path(__file__).parents[3]
ITEMS = ("tea", "rice", "salt", "figs", "oats", "dill")
PEOPLE = ("ann", "bob", "cyd")
TOOLS = '''"""A shop in memory."""

import vcrt


class Tools:
    def __init__(self):
        self.stock = {item: 5 for item in ITEMS}
        self.orders = {}

    def look(self, item):
        return {"item": item, "left": self.stock[item]}

    def order(self, item, customer):
        if self.stock[item] < 1:
            raise vcrt.CallRefused(f"no {item} left")
        self.stock[item] -= 1
        number = 100 + sum(map(len, self.orders.values()))
        self.orders.setdefault(customer, []).append([number, item])
        return {"order": number}

    def deliver(self, item, amount):
        self.stock[item] += amount
        return "delivered"

    def orders_of(self, customer):
        return self.orders.get(customer, [])


class Shop(vcrt.CallEnvironment):
    name = "shop"

    def reset(self, initial):
        return Tools()

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)
'''.replace("in ITEMS", f"in {ITEMS!r}")


def conversation(seed, size):
    draw, messages, left = random.Random(seed), [], size
    while left:
        count = min(left, draw.randint(1, 5))
        messages.append([drawn_call(draw) for _ in range(count)])
        left -= count
    return messages


def drawn_call(draw):
    item, customer = draw.choice(ITEMS), draw.choice(PEOPLE)
    return draw.choice(
        [
            ("look", {"item": item}),
            ("orders_of", {"customer": customer}),
            ("order", {"item": item, "customer": customer}),
            ("deliver", {"item": item, "amount": draw.randint(1, 3)}),
        ]
    )


def log_of(messages):
    """Write messages in OpenAI's chat form, without results: what the tools gave is no part of the measurement."""
    numbers, sent = iter(range(1000)), []
    for message in messages:
        calls = [
            {
                "id": f"call_{next(numbers)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in message
        ]
        sent.append({"role": "assistant", "content": None, "tool_calls": calls})
    return json.dumps({"id": "shop", "messages": sent}) + "\n"


def scheduled(folder, name):
    """Schedule one log; give seconds, calls that were replayed, and the pairs that were not settled."""
    command = [Path(sys.executable).with_name("vcrt"), "schedule", name, "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--environment", "shop.py:Shop"], cwd=folder, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return seconds, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 25, 64])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    load, rows = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "shop.py").write_text(TOOLS)
        for repeat in range(asked.repeats):
            for size in asked.sizes:
                for seed in range(asked.seeds):
                    name = f"log-{size}-{seed}.jsonl"
                    (folder / name).write_text(log_of(conversation(seed, size)))
                    seconds, document = scheduled(folder, name)
                    rows.setdefault((size, seed), []).append((seconds, document))
                    print(f"{repeat} {name} {seconds:.2f} s", file=sys.stderr, flush=True)
    result = {
        "command": "python research/benchmarks/speed/schedules.py",
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip(),
        "versions": {"vcrt": vcrt.__version__, "python": platform.python_version()},
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "repeats": asked.repeats,
        "rows": [
            {
                "calls": size,
                "seed": seed,
                "seconds": round(median(one for one, _ in each), 2),
                "slowest": round(max(one for one, _ in each), 2),
                **settled(each[0][1]),
            }
            for (size, seed), each in sorted(rows.items())
        ],
    }
    text = json.dumps(result, indent=1) + "\n"
    if asked.output:
        asked.output.write_text(text)
    print(text)


def settled(document):
    """Say what was settled: waves, pairs that wait, and how it was tested."""
    (trace,) = document
    return {
        "messages": len(trace["rounds"]),
        "waves": len(trace["waves"]),
        "complete": trace["complete"],
        "orders_from_fresh_states": trace["checked_orders"],
        "stopped_after": trace["stopped_after"],
    }


if __name__ == "__main__":
    main()
