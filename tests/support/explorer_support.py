"""Datasets for the explorer: any number of steps, text that would like to be alive, several required pairs."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from math import factorial

import pytest

import graph_environment as graphs
from one_process import at_once
from report_support import EVIL
from toy_environment import ToyEnvironment
from vcrt import processes
from vcrt.certificates.episodes import SEVERAL_PRESET, Preset
from vcrt.datasets import agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Episode, Operation, Provenance, Rejected, Schema
from vcrt.replay import shards
from vcrt.replay.config import sampled
from vcrt_train.protocol import evaluation, planned_training

#: Ends a script element, begins another, and turns the line around.
BREAKS_OUT = f"</script>{EVIL}<!--<script>\u2028\u202e\x1b[31m]]>"
MISSING = f"v0 is not defined {BREAKS_OUT}"


class Lines(ToyEnvironment):
    """Steps that write a variable each; the last one needs the first."""

    name = "lines"
    schemas = (Schema(name="needs", summary="a write that needs another", relation="precedes"),)
    num_operations = 4

    def sample(self, schema, seed):
        n = self.num_operations
        ops = [{"needs": [], "writes": f"v{i}", "value": 1000 * seed + i} for i in range(n)]
        ops[-1]["needs"] = ["v0"]
        return Episode(
            environment=self.name,
            schema=schema,
            initial={"start": seed},
            operations=tuple(
                Operation(signature=f"write v{i}", payload=op) for i, op in enumerate(ops)
            ),
            provenance=Provenance(source=f"lines/{seed}", generator="lines 1", seed=seed),
        )


class Two(Lines):
    num_operations = 2


class Three(Lines):
    num_operations = 3


class Five(Lines):
    num_operations = 5


class Six(Lines):
    num_operations = 6


OF_SIZE = {2: Two, 3: Three, 4: Lines, 5: Five, 6: Six}


class Evil(Lines):
    """Every text that it may choose is hostile."""

    name = "evil"

    def sample(self, schema, seed):
        made = super().sample(schema, seed)
        ops = tuple(replace(o, signature=f"{o.signature} {BREAKS_OUT}") for o in made.operations)
        provenance = replace(made.provenance, source=BREAKS_OUT + str(seed), generator=BREAKS_OUT)
        initial = {"start": seed, BREAKS_OUT: BREAKS_OUT * 1000}
        return replace(made, operations=ops, provenance=provenance, initial=initial)

    def describe(self, operation):
        return f"write\n  {BREAKS_OUT}" + "x" * 5000

    def step(self, state, operation):
        if "v0" in operation.payload["needs"] and "v0" not in state:
            return Rejected(MISSING)
        return super().step(state, operation)


def lines_of(num_operations, path, *, episodes=2):
    """A frozen dataset of episodes of so many steps, and how its environment is made."""
    factories = {"lines": OF_SIZE[num_operations]}
    preset = Preset(num_operations=num_operations, orbit_size=factorial(num_operations) // 2)
    config = sampled({"lines": ("needs",)}, episodes, preset=preset)
    return make_dataset(config, path, jobs=1, factories=factories), factories


def evil(path):
    factories = {"evil": Evil}
    return make_dataset(
        sampled({"evil": ("needs",)}, 2), path, jobs=1, factories=factories
    ), factories


def several(path, *, episodes=6):
    factories = {"graphs": graphs.SeveralGraphs}
    config = sampled({"graphs": ("graph",)}, episodes, preset=SEVERAL_PRESET)
    return make_dataset(config, path, jobs=1, factories=factories), factories


@contextmanager
def without_processes():
    """All work in this process: fresh ones, which other tests have, each import torch again."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (processes, agreement, evaluation, planned_training):
            patch.setattr(module, "in_fresh_processes", at_once)
        # A second replay insists on another process than the first.
        patch.setattr(shards, "_this_process", map(str, count()).__next__)
        yield
