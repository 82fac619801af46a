"""Which source items are trained on and which only measure retention: split by source, never within one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.randomness import generator
from vcrt.records.dataset import Item


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """The source items of one fold: those that training draws from, and those that it never sees."""

    training: tuple[Item, ...]
    retention: tuple[Item, ...]


def source_split(
    environments: Sequence[Sequence[Item]], retention_share: float, seed: int
) -> SourceSplit:
    """Set aside at least ``retention_share`` of each environment's items, whole sources at a time.

    The choice depends on the seed and the sources alone, so that it is the same for every method and run.
    """
    training: list[Item] = []
    retention: list[Item] = []
    for items in environments:
        sources = sorted({item.source for item in items})
        wanted = retention_share * len(items)
        set_aside: set[str] = set()
        num_items = 0
        for index in generator(seed, "retention", *sources).permutation(len(sources)):
            if num_items >= wanted:
                break
            set_aside.add(sources[index])
            num_items += sum(item.source == sources[index] for item in items)
        training.extend(item for item in items if item.source not in set_aside)
        retention.extend(item for item in items if item.source in set_aside)
    return SourceSplit(tuple(training), tuple(retention))
