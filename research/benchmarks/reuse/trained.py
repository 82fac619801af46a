"""How many answers a cache may serve on rollouts of trained policies, with the keys and counts of `measure.py`.

    vcrt certify --output build/reuse/data --episodes 60 --schemas clrs proofwriter bfcl agentdojo
    vcrt verify build/reuse/data
    vcrt plan build/reuse/data --output build/reuse/trained --held-out clrs --runs 3 --updates 200 \\
        --methods canonical-grpo vcrt
    vcrt train build/reuse/trained
    python research/benchmarks/reuse/trained.py build/reuse/trained \\
        --output research/benchmarks/results/reuse_trained.json

Written down before it was run:

- *Question.* A policy that learned repeats its orders, so its identical histories are served more often than those of
  orders drawn uniformly. How much is left for the state's key to gain? Does it matter whether the policy was trained on
  one sampled order (Canonical-GRPO) or on the whole orbit (VCRT)?
- *Runs.* For each of three seeds of both methods, the policy at each update that the plan kept, 0 being the frozen
  backbone: for the first four episodes of each schema of `bfcl` and `agentdojo` that the run trained on, eight orders
  drawn from the policy's exact probabilities of all 24, as a group of GRPO draws them. One cache for all groups of a
  policy. `clrs` is held out, so that both benchmarks are trained on.
- *Keys, counts, check.* As in `measure.py`.
- *Expected.* Before training as with uniform orders. After it, more by history, and still more by state; Canonical-GRPO
  nearer to one order for each episode than VCRT, so with less to gain.

The orders are drawn by named seeds; the same experiment gives the same file but for commit and version.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cache import Caller
from measure import GROUP, commit, in_order, measured

from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.environments.registry import load_environment
from vcrt.orders import all_orders
from vcrt.randomness import generator
from vcrt.records.anonymise import anonymise
from vcrt.records.dataset import certified_from_row, read_audit
from vcrt_train.protocol.experiment import Experiment, open_experiment, planned_dataset
from vcrt_train.report.explorer.masses import RunMasses, run_masses

NAMES = ("bfcl", "agentdojo")
#: Episodes of each schema, the first that the run trained on.
EPISODES = 4


def episodes_of(experiment: Experiment) -> dict[str, dict[str, tuple[CertifiedEpisode, Any]]]:
    """Return the episodes of both benchmarks, and the slots of their operations, by environment and name."""
    dataset = planned_dataset(experiment.plan, without=experiment.plan.held_out)
    manifest = dataset.manifest
    found: dict[str, dict[str, tuple[CertifiedEpisode, Any]]] = {}
    for name in NAMES:
        found[name] = {}
        for row in read_audit(dataset, name):
            one = certified_from_row(row, manifest.preset)
            slots = anonymise(one, manifest.seed, manifest.record_form).slot_of_operation
            found[name][row["episode_id"]] = one, slots
    return found


def drawn(masses: RunMasses, at: int, episodes: dict[str, Any], caller: Caller) -> Iterator[Any]:
    """Run the calls of the first episodes of each schema in orders that a policy draws, a group for each."""
    taken = defaultdict[str, int](int)
    for name, (certified, _) in episodes.items():
        schema = certified.episode.schema
        if masses.roles[name] != "trained on" or taken[schema] == EPISODES:
            continue
        taken[schema] += 1
        draw = generator(masses.run.seed, "rollouts of a policy", name)
        probabilities = masses.masses[name][at].probabilities
        orders = all_orders(certified.episode.num_operations)
        for _ in range(GROUP):
            point, column = draw.random(), 0
            while column < len(orders) - 1 and point >= probabilities[column]:
                point -= probabilities[column]
                column += 1
            yield in_order(caller, certified.episode, orders[column])


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    experiment = open_experiment(options.experiment)
    episodes = episodes_of(experiment)
    slots = {n: {name: of for name, (_, of) in some.items()} for n, some in episodes.items()}
    callers = {name: Caller(load_environment(name)) for name in NAMES}
    rows = []
    for masses in run_masses(experiment, experiment.plan.runs, slots, drawn=True):
        for at, update in enumerate(masses.updates):
            for name in NAMES:
                print(f"{masses.run.name}, update {update}, {name}:", flush=True)
                runs = [*drawn(masses, at, episodes[name], callers[name])]
                row = measured(callers[name], runs)
                rows.append({"run": masses.run.name, "update": update, "environment": name, **row})
    versions = {name: load_environment(name).versions().verifier for name in NAMES}
    report = {"verifiers": versions, "commit": commit(), "python": platform.python_version()}
    report |= {"plan": experiment.plan.plan_hash, "rows": rows}
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
