"""Split the source items into those to train on and those that only measure retention; never split one source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.errors import RunError
from vcrt.hashing import json_digest
from vcrt.records.dataset import Dataset, Item, load_items
from vcrt_train.config import ResolvedConfig
from vcrt_train.randomness import generator
from vcrt_train.training.run import episode_order, num_draws


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """The source items of one fold: those from which training draws, and those that it never sees."""

    training: tuple[Item, ...]
    retention: tuple[Item, ...]

    def require_both(self, held_out: str, purpose: str, use: str) -> None:
        """Raise :class:`RunError` unless there are items of both kinds; the error states their purpose."""
        if not self.training or not self.retention:
            raise RunError(
                f"too few source items to {purpose}",
                where=f"{held_out} held out",
                found=f"{len(self.training)} to train on, {len(self.retention)} {use}",
                expected="at least one of each",
                remedy="certify more episodes",
            )


def split_sources(
    dataset: Dataset, held_out: str, retention_share: float, seed: int
) -> SourceSplit:
    """Load and split the source items of a fold; no file of the environment ``held_out`` is opened.

    A process keeps the last fold, so as not to read it again. It never keeps two folds: the environment that one holds
    out would be in memory as a source of the other.
    """
    identity = (str(dataset.path), dataset.manifest.root_hash)
    key = (*identity, held_out, retention_share, seed)
    if key not in _LAST:
        _LAST.clear()
        names = [name for name in dataset.environments if name != held_out]
        loaded = [load_items(dataset, name) for name in names]
        _LAST[key] = source_split(loaded, retention_share, seed)
    return _LAST[key]


#: The fold that this process read last.
_LAST: dict[tuple[str, str, str, float, int], SourceSplit] = {}


def source_split(
    environments: Sequence[Sequence[Item]], retention_share: float, seed: int
) -> SourceSplit:
    """Set aside at least ``retention_share`` of each environment's items, in whole sources.

    The choice depends only on the seed and the sources, so it is the same for every method and run.
    """
    training: list[Item] = []
    retention: list[Item] = []
    for items in environments:
        aside = set_aside([item.source for item in items], retention_share, seed)
        training.extend(item for item in items if item.source not in aside)
        retention.extend(item for item in items if item.source in aside)
    return SourceSplit(tuple(training), tuple(retention))


def hash_of_order(source: SourceSplit, config: ResolvedConfig, run_seed: int) -> str:
    """Return the hash of the episodes that a run trains on, in the order in which it draws them."""
    identities = [item.episode_id for item in source.training]
    order = episode_order(len(identities), num_draws(config), run_seed)
    return json_digest([identities[i] for i in order])


def set_aside(source_of_item: Sequence[str], retention_share: float, seed: int) -> frozenset[str]:
    """Choose the sources of one environment that training never sees, given the source of each of its items."""
    sources, num_items_of = sorted(set(source_of_item)), Counter(source_of_item)
    wanted = retention_share * len(source_of_item)
    aside: set[str] = set()
    num_items = 0
    for index in generator(seed, "retention", *sources).permutation(len(sources)):
        if num_items >= wanted:
            break
        aside.add(sources[index])
        num_items += num_items_of[sources[index]]
    return frozenset(aside)
