"""Every reader of outside bytes with valid inputs of it: what :mod:`fuzz` gives mutations to."""

from __future__ import annotations

from pathlib import Path

import torch
from fuzz_watch import Target

from readers.environments import episode_readers, lean_readers, proofwriter_readers
from readers.experiments import experiment_readers
from readers.models import model_readers
from readers.records import record_readers, table_readers
from readers.seals import seal_readers
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.records.dataset import Dataset
from vcrt.replay.config import sampled


def make_targets(place: Path) -> list[Target]:
    """All readers, over a small dataset, experiment and checkpoint that are made in ``place`` on real verifiers."""
    torch.set_num_threads(1)
    dataset = _dataset(place / "data")
    return [
        *proofwriter_readers(place),
        *lean_readers(),
        *episode_readers(dataset),
        *record_readers(place, dataset),
        *table_readers(place, dataset),
        *seal_readers(place, dataset),
        *experiment_readers(place, dataset),
        *model_readers(place),
    ]


def _dataset(path: Path) -> Dataset:
    schemas = {"clrs": ("bubble_sort",), "proofwriter": ("attribute_chain",)}
    dataset = make_dataset(sampled(schemas, 4), path, jobs=1)
    verify_agreement(dataset, jobs=1)
    return dataset
