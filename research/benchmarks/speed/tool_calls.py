"""Calls per second of the environments of tool calls, and what becomes of the adjacent pairs of gold trajectories.

    python research/benchmarks/speed/tool_calls.py --output research/benchmarks/results/tool_calls.json

A call is what a replay from a snapshot takes: the state is restored, the tool called, and the state's canonical form
made; seconds are those of this process. Both orders of each pair of neighbours are run from the state in which they
occur. BFCL's pairs within one turn stand apart, as do those that differ in nothing but the order in which a tool lists
files or users. `--seeds N` counts, too, the distinct episodes among N seeds of each schema of four calls;
`--certify JOBS` certifies every gold trajectory of two or more calls, whole, in so many processes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path

from vcrt.certificates.episodes import ANY_PRESET
from vcrt.environments.contract import Provenance
from vcrt.environments.states.object_states import canonical_objects
from vcrt.environments.tool_calls import CallRefused, episode_of_calls, operations_of, output_text
from vcrt.replay.config import given
from vcrt.replay.run import certify
from vcrt_toolbench.agentdojo.environment import AgentDojoEnvironment
from vcrt_toolbench.bfcl import environment as bfcl


def answer(environment, state, call):
    """The output of a call, None if it is refused."""
    try:
        return output_text(environment.call(state, call.name, call.arguments))
    except CallRefused:
        return None


def unordered(state):
    """A form of BFCL's states in which the order of what tools list does not count."""
    draws = {k: s._random.words for k, s in state.items() if hasattr(s, "_random")}
    return canonical_objects((state, draws), ignored=bfcl._CONSTANT)


def verdict(environment, snapshot, one, other):
    """What becomes of two calls when they are swapped."""
    found = []
    for pair in ((one, other), (other, one)):
        state = environment.restore(snapshot)
        outputs = {call: answer(environment, state, call) for call in pair}
        found.append((state, None in outputs.values(), environment.canonical(state), outputs))
    (there, _, form, outputs), (back, refused, reversed_form, reversed_outputs) = found
    if refused:
        return "refused when reversed"
    if form != reversed_form:
        same = environment.name == "bfcl" and unordered(there) == unordered(back)
        return "listed in another order" if same else "another state"
    return "commute" if outputs == reversed_outputs else "other outputs"


class Named:
    """A call that is told from an equal one."""

    def __init__(self, call):
        self.name, self.arguments = call.name, call.arguments


def pairs(environment):
    """The verdicts of all neighbours, and of those within one turn."""
    all_of_them, in_turn, refused = Counter(), Counter(), 0
    for trajectory in environment.trajectories():
        state = environment.reset(trajectory.initial)
        calls = [Named(call) for call in trajectory.calls]
        for place, call in enumerate(calls):
            if place + 1 < len(calls):
                found = verdict(environment, environment.snapshot(state), call, calls[place + 1])
                all_of_them[found] += 1
                in_turn[found] += trajectory.turns[place] == trajectory.turns[place + 1]
            refused += answer(environment, state, call) is None
    return all_of_them, in_turn, refused


def seconds_by_part(environment, turns=3):
    """The least of a few turns' mean seconds of each part of a call, over all gold calls."""
    best = {}
    for _ in range(turns):
        spent, number = Counter(), 0
        for trajectory in environment.trajectories():
            state = environment.reset(trajectory.initial)
            for call in trajectory.calls:
                kept = environment.snapshot(state)
                times = [time.process_time()]
                state = environment.restore(kept)
                times.append(time.process_time())
                answer(environment, state, call)
                times.append(time.process_time())
                environment.canonical(state)
                times.append(time.process_time())
                for part, began, ended in zip(
                    ("restore", "call", "canonical form"), times, times[1:], strict=False
                ):
                    spent[part] += ended - began
                number += 1
        for part, seconds in spent.items():
            best[part] = min(best.get(part, seconds), seconds / number)
    return best


def episodes(environment, seeds):
    """How many distinct episodes so many seeds give, by schema and by how they were put together."""
    found = {}
    for schema in environment.schemas:
        if schema.preset != "paper":
            continue
        made = {}
        for seed in range(seeds):
            episode = environment.sample(schema.name, seed)
            made[episode.content_hash()] = episode.provenance.generator
        found[schema.name] = {"distinct": len(made), **Counter(made.values())}
        print(f"{environment.name}/{schema.name}: {found[schema.name]}", flush=True)
    return found


def certificates(environment, jobs):
    """What becomes of whole gold trajectories, each replayed twice, and how long that takes."""
    episodes = [
        episode_of_calls(
            environment.name,
            "trajectory",
            each.initial,
            operations_of(each.calls),
            Provenance(source=each.task, generator="gold", seed=number),
        )
        for number, each in enumerate(environment.trajectories())
        if len(each.calls) > 1
    ]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        (found,) = certify(given(episodes, preset=ANY_PRESET), Path(folder) / "shards", jobs=jobs)
        seconds = time.perf_counter() - began
        relations = Counter()
        for made in found.episodes():
            relations.update(each.kind for each in made.relations)
    row = {
        "trajectories": len(episodes),
        "most_calls": max(each.num_operations for each in episodes),
        "jobs": jobs,
        "seconds": round(seconds, 1),
        "certified": found.num_episodes,
        "excluded": dict(Counter(each.kind for each in found.exclusions)),
        "relations": dict(relations),
    }
    print(json.dumps(row, indent=2), flush=True)
    return row


def measured(environment, seeds, jobs):
    """All figures of one environment."""
    trajectories = environment.trajectories()
    every, in_turn, refused = pairs(environment)
    parts = seconds_by_part(environment)
    row = {
        "verifier": environment.versions().verifier,
        "trajectories": len(trajectories),
        "calls": sum(len(each.calls) for each in trajectories),
        "refused_calls": refused,
        "pairs": {"number": every.total(), **every},
        "microseconds": {part: round(1e6 * seconds) for part, seconds in parts.items()},
        "calls_per_second": round(1 / sum(parts.values())),
    }
    if in_turn != every:
        row["pairs_in_one_turn"] = {"number": in_turn.total(), **in_turn}
    print(json.dumps(row, indent=2), flush=True)
    if jobs:
        row["certificates"] = certificates(environment, jobs)
    if seeds:
        row["episodes"] = {"seeds": seeds, **episodes(environment, seeds)}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--certify", type=int, default=0, metavar="JOBS")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = {
        environment.name: measured(environment, options.seeds, options.certify)
        for environment in (bfcl.BfclEnvironment(), AgentDojoEnvironment())
    }
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
