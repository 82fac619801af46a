"""How many answers a cache may serve: by the identical history, by its certified class, and by the canonical state.

    python research/benchmarks/reuse/measure.py --output research/benchmarks/results/reuse.json

Written down before it was run:

- *Question.* A cache of tool results that asks for the identical history of calls (what a cache of prefixes does)
  misses a history that differs in the order of calls that commute, or in calls that only read. How much more is served
  if the key is the history's class under swaps of neighbours that commute where they stand, or the state's bytes?
- *Runs.* (1) The gold trajectories of BFCL's multi-turn tasks and of AgentDojo's user tasks, in the order of their
  files, each once: an agent that solves all tasks, one after another, with one cache. All start from what their task
  says; the key begins with the start's state. (2) Rollouts of orders: for four sampled episodes of each
  schema of four calls, eight orders drawn uniformly, a group as GRPO draws it from a policy that knows nothing yet. One
  cache for all. A policy that is trained repeats its orders, so its identical histories are served more often. Those
  of trained policies: `trained.py`.
- *Keys.* `history`; `class`: the least of the orders that certified swaps lead to, each swap replayed in both orders in
  the state in which it stands; `class, without reads`: the same, calls that left the state as it is left out; `state`.
- *Counts.* Answers served, of all calls; those of calls that leave the state as it is (these may be served for good);
  calls that are really made if the cache keeps no states, so that served calls that change the state are made up for
  before the next call that is not served.
- *Check.* Every call of every run is really made, from its run's fresh start. A served answer whose output or next
  state differs from the real one counts as wrong.
- *Expected.* `history` <= `class` <= `class, without reads` <= `state`; no wrong answers; little gain on gold
  trajectories of BFCL, where each task has a start of its own, and more on AgentDojo, whose tasks share four.

Nothing is drawn but by named seeds; the same command gives the same file but for times.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cache import Caller, Made, by_class, by_history, by_state, saved

from vcrt.environments.contract import Episode, Provenance
from vcrt.environments.registry import load_environment
from vcrt.environments.tool_calls import episode_of_calls, operations_of
from vcrt.randomness import generator

GOLD = ("bfcl", "agentdojo")
#: Orders drawn for each episode, as a group of GRPO.
GROUP = 8
#: Sampled episodes of each schema of four calls.
EPISODES = 4


def gold(environment: Any) -> Iterator[Episode]:
    """Every gold trajectory as an episode."""
    for number, each in enumerate(environment.trajectories()):
        origin = Provenance(source=each.task, generator="gold", seed=number)
        operations = operations_of(each.calls)
        yield episode_of_calls(environment.name, "trajectory", each.initial, operations, origin)


def measured(caller: Caller, runs: Sequence[Sequence[Made]]) -> dict[str, Any]:
    """What each key saves over these runs."""
    keys = {
        "history": by_history,
        "class": by_class(caller),
        "class, without reads": by_class(caller, without_reads=True),
        "state": by_state,
    }
    found: dict[str, Any] = {"runs": len(runs), "starts": len({r[0].before for r in runs if r})}
    for name, key in keys.items():
        found[name] = asdict(saved(runs, key))
        print(f"  {name}: {found[name]}", flush=True)
    return found


def in_order(caller: Caller, episode: Episode, order: Sequence[int]) -> list[Made]:
    """The calls of an episode in another order."""
    moved = tuple(episode.operations[place] for place in order)
    return caller.run(
        Episode(
            environment=episode.environment,
            schema=episode.schema,
            initial=episode.initial,
            operations=moved,
            provenance=episode.provenance,
        )
    )


def rollouts(environment: Any, caller: Caller) -> Iterator[list[Made]]:
    """Calls of sampled episodes in orders drawn uniformly, a group for each episode."""
    for schema in environment.schemas:
        for seed in range(
            EPISODES if schema.num_steps in (None, 4) and schema.preset == "paper" else 0
        ):
            episode = environment.sample(schema.name, seed)
            draw = generator(0, "rollouts", episode.episode_id)
            for _ in range(GROUP):
                yield in_order(caller, episode, draw.permutation(episode.num_operations))


def commit() -> str:
    """Return the commit that is checked out here."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"gold": {}, "rollouts": {}}
    for name in GOLD:
        environment: Any = load_environment(name)
        caller, began = Caller(environment), time.perf_counter()
        runs = [caller.run(episode) for episode in gold(environment)]
        print(f"{name}:", flush=True)
        row = measured(caller, runs)
        verifier = environment.versions().verifier
        seconds = round(time.perf_counter() - began, 1)
        report["gold"][name] = {"verifier": verifier, **row, "seconds": seconds}
        print(f"{name}, rollouts of orders:", flush=True)
        report["rollouts"][name] = measured(caller, [*rollouts(environment, caller)])
    report |= {"commit": commit(), "python": platform.python_version()}
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
