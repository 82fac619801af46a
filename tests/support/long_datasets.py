"""Freeze datasets of two long episodes."""

from __future__ import annotations

from dataclasses import replace

import poset_environment as posets
from explorer_support import without_processes
from vcrt.certificates.episodes import PRESETS
from vcrt.datasets.freezing import make_dataset
from vcrt.replay.config import given

FACTORIES = {"posets": posets.Posets}


def made(path, preset, *, form=None, sampled=False):
    """A frozen dataset of two episodes."""
    asked = replace(PRESETS[preset], sampled=sampled)
    number = asked.num_operations
    episodes = [posets.random_episode(number, seed, schema=preset) for seed in (0, 1)]
    with without_processes():
        return make_dataset(
            given(episodes, preset=asked), path, jobs=1, factories=FACTORIES, form=form
        )
