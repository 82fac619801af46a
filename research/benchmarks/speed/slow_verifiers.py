"""What a slow verifier is asked for: runs of the real git and seconds, by how an environment keeps its states.

    python research/benchmarks/speed/slow_verifiers.py --output research/benchmarks/results/slow_verifiers.json

The environment is `examples/git_commands.py`, in three forms: its state is the list of commands so far, all of which
run again for each step and each canonical form; its state is a repository that each order makes afresh; and its
repository is copied where orders part. Each replays every order of one episode once. Besides, the calls of `vcrt
environments validate`, in full and with `--quick`, by rehearsal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import git_commands

from vcrt import Accepted, Rejected
from vcrt.environments.contract import StepEnvironment
from vcrt.environments.guarding import guarded
from vcrt.progress import Calls, observing
from vcrt.replay.replay import replay_exhaustively
from vcrt.replay.validation import rehearsed_calls

RUNS = Calls()


def counted_git(repository, command, run=git_commands.git):
    """Git, with its runs counted."""
    began = time.perf_counter()
    found = run(repository, command)
    RUNS.add(1, time.perf_counter() - began)
    return found


class ByCommands(git_commands.Git):
    """A state is the commands so far, as values are."""

    snapshot, restore = StepEnvironment.snapshot, StepEnvironment.restore

    def initial_state(self, episode):
        return tuple(episode.initial)

    def step(self, state, operation):
        repository = made(state)
        code, _, message = git_commands.git(repository, operation.payload)
        return Rejected(message.strip()) if code else Accepted((*state, operation.payload))

    def canonical(self, state):
        return super().canonical(made(state))


def made(commands):
    """A repository in which these commands have run."""
    repository = git_commands.Repository()
    for command in commands:
        git_commands.git(repository, command)
    return repository


def measured(kind, episode, *, sharing):
    """The replays of all orders of an episode, and what they took."""
    calls = Calls()
    before, began = RUNS.number, time.perf_counter()
    with observing(lambda name, number, seconds: calls.add(number, seconds)):
        (evidence,) = replay_exhaustively(guarded(kind()), [episode], sharing=sharing)
    found = {
        "calls": calls.number,
        "runs_of_git": RUNS.number - before,
        "seconds": round(time.perf_counter() - began, 2),
    }
    return evidence, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    git_commands.git = counted_git
    rows = {}
    for schema in ("rename", "commit"):
        episode = git_commands.Git().sample(schema, seed=7)
        forms = {
            "commands run again, each order afresh": (ByCommands, False),
            "commands run again, prefixes shared": (ByCommands, True),
            "in place, each order afresh": (git_commands.Git, False),
            "in place, prefixes from snapshots": (git_commands.Git, True),
        }
        replays = set()
        for name, (kind, sharing) in forms.items():
            evidence, found = measured(kind, episode, sharing=sharing)
            replays.add(repr(evidence.replays))
            rows[f"{schema}: {name}"] = found
            print(f"{schema}: {name}: {found}")
        assert len(replays) == 1, "the forms disagree"
    for quick in (False, True):
        number = rehearsed_calls(git_commands.Git(), range(3), quick=quick)
        rows[f"validate{', quick' * quick}"] = {"calls": number}
        print(f"validate{', quick' * quick}: {number} calls at most")
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
