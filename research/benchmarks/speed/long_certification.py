"""Transitions and CPU time of certification against the number of steps: every order, every context, a sample.

    python research/benchmarks/speed/long_certification.py --output research/benchmarks/results/long_certification.json
    python research/benchmarks/speed/long_certification.py --environments posets --most 10
    python docs/figures/plots.py

``exhaustive`` replays all orders one by one (to 7 steps), ``merged`` every step in every reachable context (to 10),
``reduced`` sampled contexts and one representative of every class of orders. A transition is one answer of the verifier
to one step; Lean goes on from what it has reached before, so that each sequence of an episode counts once there.
``posets`` is the test suite's synthetic environment, which has episodes of any number of steps; the others have those
of their schemas ``posets6``, ``posets8`` and so on. CPU time is as in ``certify.py``, of this process and of all that
it started, and includes the derivation of certificates from what was replayed; it is that of one replay, without the
second one and the second opinions that ``vcrt certify`` adds. Each figure is the median over the episodes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from functools import partial
from pathlib import Path
from statistics import median

from certify import commit, cpu_seconds

import vcrt
from vcrt.certificates.episodes import CertifiedEpisode, Preset, certify_episode
from vcrt.environments.contract import StepEnvironment
from vcrt.environments.registry import load_environment
from vcrt.limits import MAX_COMPLETE
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively

MAX_EXHAUSTIVE = 7
SYNTHETIC = (5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 48, 64)


class Counted:
    """Counts the answers to single steps that an environment gives, whichever way it is asked."""

    def __init__(self, environment):
        self.start()
        step, replay = getattr(environment, "step", None), environment.replay
        in_steps = isinstance(environment, StepEnvironment)

        def counted_replay(requests):
            answers = replay(requests)
            for answer in answers:
                steps = len(answer.state_hashes) - 1 + (not answer.accepted)
                decided = answer.sequence[:steps]
                if in_steps:
                    self._steps += len(decided)
                else:
                    self._reached.update(decided[: k + 1] for k in range(len(decided)))
            return answers

        def counted_step(state, operation):
            self._steps += 1
            return step(state, operation)

        if in_steps:
            environment.step = counted_step
        # A replay that asks step is counted there.
        if not in_steps or type(environment).replay is not StepEnvironment.replay:
            environment.replay = counted_replay

    def start(self):
        """Begin anew."""
        self._steps, self._reached = 0, set()

    @property
    def transitions(self):
        return self._steps + len(self._reached)


def episodes_of(environment, number, count):
    if environment.name == "posets":
        import poset_environment

        return [poset_environment.random_episode(number, seed) for seed in range(count)]
    schema = f"posets{number}"
    known = {s.name for s in environment.schemas}
    return [environment.sample(schema, seed) for seed in range(count)] if schema in known else []


def ways(number):
    """The ways in which episodes of so many steps are replayed, each a function of environment and episode."""
    if number <= MAX_EXHAUSTIVE:
        yield "exhaustive", lambda environment, e: replay_exhaustively(environment, [e])[0]
    if number <= MAX_COMPLETE:
        yield "merged", lambda environment, e: replay_lattices(environment, [e])[0]
    yield "reduced", lambda environment, e: replay_lattices(environment, [e], sampled=True)[0]


def measure(make, number, count):
    for way, replay in ways(number):
        environment = make()
        versions, counter = environment.versions(), Counted(environment)
        preset = Preset(num_operations=number, orbit_size=None, sampled=way == "reduced")
        seconds, transitions, certified = [], [], 0
        for episode in episodes_of(environment, number, count):
            counter.start()
            start = cpu_seconds()
            outcome = certify_episode(replay(environment, episode), versions, preset)
            seconds.append(cpu_seconds() - start)
            transitions.append(counter.transitions)
            certified += isinstance(outcome, CertifiedEpisode)
        if seconds:
            yield {
                "environment": environment.name,
                "steps": number,
                "way": way,
                "episodes": len(seconds),
                "certified": certified,
                "transitions": median(transitions),
                "cpu_seconds": median(seconds),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environments", nargs="*", default=["posets", "proofwriter", "clrs", "lean"]
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--most", type=int, default=24, help="the most steps")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows, verifiers = [], {}
    for name in options.environments:
        if name == "posets":
            sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "support"))
            from poset_environment import Posets

            make, numbers = Posets, SYNTHETIC
        else:
            make, numbers = partial(load_environment, name), (6, 8, 12, 16)
        warmed = make()
        verifiers[name] = warmed.versions().verifier
        # Start-up (Lean's prelude, a first import) belongs to no episode.
        replay_lattices(warmed, [warmed.sample("posets6", 1000)] if name != "posets" else [])
        for number in (n for n in numbers if n <= options.most):
            for row in measure(make, number, options.episodes):
                rows.append(row)
                print(
                    f"{row['environment']:12} {row['steps']:3} {row['way']:11} "
                    f"{row['transitions']:10,.0f} transitions {row['cpu_seconds']:9.4f} s  "
                    f"{row['certified']}/{row['episodes']} certified",
                    flush=True,
                )
    if options.output:
        result = {
            "what": "transitions and CPU seconds of certifying one episode; medians",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "vcrt": vcrt.__version__,
            "commit": commit(),
            "verifiers": verifiers,
            "rows": rows,
        }
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
