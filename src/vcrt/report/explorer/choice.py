"""Which episodes are on the page: the first of each schema, or those that were named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import zip_longest

from vcrt.errors import DatasetError
from vcrt.limits import MAX_DRAWN
from vcrt.printable import counted
from vcrt.records.manifest import Manifest

#: Episodes of each schema, if no number is given.
PER_SCHEMA = 8

#: The names of a dataset's episodes by environment and schema.
Names = Mapping[tuple[str, str], Sequence[str]]


def in_turn(names: Names, per_schema: int) -> list[str]:
    """The first ``per_schema`` episodes of each schema, one of each schema at a time.

    Whatever room there is, schemas then share it.
    """
    rounds = zip_longest(*(some[:per_schema] for some in names.values()))
    return [name for some in rounds for name in some if name is not None]


def named(names: Names, wanted: Sequence[str], where: str) -> list[str]:
    """The episodes of these names, each once; raises :class:`DatasetError` for one that is not in the dataset."""
    known = [name for some in names.values() for name in some]
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.0)
            raise DatasetError(
                f"no episode {name!r} in the dataset",
                where=where,
                expected=f"one of its {counted(len(known), 'episode')}, such as {', '.join(near)}",
                remedy="`vcrt explore DATASET` without names takes the first of each schema",
            )
    return list(dict.fromkeys(wanted))


def drawn_steps(manifest: Manifest) -> int | None:
    """How many steps all episodes of a dataset have; None if they are too many to be drawn, or not equally many."""
    steps = manifest.num_operations
    return None if steps is None or steps > MAX_DRAWN else steps
