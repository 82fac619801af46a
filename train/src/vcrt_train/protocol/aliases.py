"""Find a held-out environment among the sources under another name: equal versions, or equal episodes.

Episodes are compared by a hash of their content without the environment's and the schema's name. Not covered: an
environment whose author changes its versions and every episode; no hash tells that from another environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from vcrt.forms import ClosedModel
from vcrt.hashing import json_digest
from vcrt.records.dataset import Dataset, read_audit

#: The versions that two environments have in common only if one stands for the other.
COMPARED = ("verifier", "adapter", "canonicalizer")


class Alias(ClosedModel):
    """Two environments that may be one: one is held out, and runs that hold it out train on the other."""

    held_out: str
    source: str
    same_versions: bool
    #: How many of the held-out episodes are among the source's, but for their names.
    same_episodes: int


def versions_of(dataset: Dataset) -> dict[str, dict[str, str]]:
    """The versions of each environment of a dataset that tell it from others."""
    return {
        name: {part: str(dataset.manifest.versions[name].get(part)) for part in COMPARED}
        for name in dataset.environments
    }


def find_aliases(
    dataset: Dataset, folds: Sequence[str], also_test: Sequence[Dataset] = ()
) -> tuple[Alias, ...]:
    """Every pair of a held-out environment and another one of ``dataset`` that have versions or episodes in common.

    The held-out episodes of the further test sets count too. Audit rows are read for their episodes alone.
    """
    versions = versions_of(dataset)
    sources = {name: _contents(dataset, name) for name in dataset.environments}
    found = []
    for fold in folds:
        held_out = sources[fold].union(*(_contents(other, fold) for other in also_test))
        found += [
            Alias(
                held_out=fold,
                source=name,
                same_versions=versions[name] == versions[fold],
                same_episodes=len(held_out & sources[name]),
            )
            for name in dataset.environments
            if name != fold
        ]
    return tuple(one for one in found if one.same_versions or one.same_episodes)


def same_under_another_name(
    fold: Mapping[str, str], trained_on: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Those of the environments ``trained_on`` (by name) that have the versions of the held-out one."""
    return tuple(sorted(name for name, versions in trained_on.items() if versions == fold))


def _contents(dataset: Dataset, environment: str) -> frozenset[str]:
    """The hashes of the environment's episodes without its name and the schema's."""
    hashes = set()
    for row in read_audit(dataset, environment):
        episode = json.loads(row["episode"])
        hashes.add(json_digest([episode["initial"], episode["operations"]]))
    return frozenset(hashes)
