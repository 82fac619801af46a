"""Lift all episodes that are already in ProofWriter theories, and certify them: ``vcrt lift proofwriter``.

An episode is a choice of operations of which exactly one ordered pair must keep its order. Each theory gives every
choice once, in one of its legal orders, or at most a given number; equal files give equal episodes. A line or theory
that cannot be used is reported with its place and reason and does not stop the others. Episodes start from a theory's
own facts alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from pathlib import Path

from vcrt.api.lifting import Lifted, certified, require_within, some
from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, tell
from vcrt.randomness import derive_seed, generator
from vcrt.storage import require_new
from vcrt_proofwriter.files import LabelledTheory, Refused, Row, read_rows
from vcrt_proofwriter.operations import ActionKey
from vcrt_proofwriter.search import (
    SCHEMAS,
    Pair,
    SearchSpace,
    commuting_with,
    enabled_operations,
    episode_of,
    only_pair_matters,
    pairs,
    random_legal_order,
    search_space,
)
from vcrt_proofwriter.vocabulary import Draws

#: Operations of an episode besides the pair whose order matters.
_OTHERS = 2
#: Seeds stay below this bound; even a reader that takes JSON numbers for doubles holds them exactly.
_SEEDS = 2**53
#: The most refused lines that are listed; the rest are counted.
SHOWN_REFUSALS = 20


def lift_proofwriter(
    files: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    limit: int | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    progress: Progress = SILENT,
) -> Lifted:
    """Certify episodes of four steps from ProofWriter theories; every order is replayed by itself.

    Example: vcrt lift proofwriter theories.jsonl

    Args:
        files: JSON lines, each an official structured row or an English theory with its questions.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished work
            lies in OUTPUT.shards.
        limit: Take at most this many episodes of a schema from one theory.

    Raises:
        VcrtError: Nothing was found, or a file is missing or empty; or, before anything is read, `output` exists.
    """
    if limit is not None:
        require_within("limit", limit, 1)
    paths = [Path(file) for file in some(files)]
    for file in paths:
        _require_material(file)
    if output is not None:
        require_new(Path(output), VcrtError)
    rows = ((file.name, row) for file in paths for row in read_rows(file))
    found = list(lift_theories(rows, limit))
    theories = [one for one in found if not isinstance(one, Refused)]
    refusals = [one for one in found if isinstance(one, Refused)]
    episodes = [episode for theory in theories for episode in theory.episodes]
    for refusal in refusals[:SHOWN_REFUSALS]:
        detail = f": {refusal.error.found}" if refusal.error.found else ""
        tell(f"refused: {refusal.where}: {refusal.error.what}{detail}")
    tell(
        f"{counted(len(theories), 'theory', 'theories')} read, {len(refusals)} refused, "
        f"{counted(len(episodes), 'candidate')}"
    )
    if not theories:
        raise MalformedInputError(
            "no theory could be read",
            where=", ".join(map(str, paths)),
            expected="JSON lines: ProofWriter's structured rows, or English theories with their questions",
            remedy="the lines above say what is wrong with each",
        )
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found="no theory with four steps of which exactly one pair must keep its order",
            remedy="give more theories, or theories with more rules that apply",
        )
    return certified(episodes, output, jobs, backend, progress)


def _require_material(file: Path) -> None:
    found = None
    if not file.exists():
        found = "no such file"
    elif file.is_dir():
        found = "a directory"
    elif not os.access(file, os.R_OK):
        found = "a file that you may not read"
    elif file.is_file() and file.stat().st_size == 0:
        found = "an empty file"
    if found is not None:
        raise MalformedInputError(
            "no theories there",
            where=str(file),
            found=found,
            expected="a file of JSON lines, one theory each",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedTheory:
    """The episodes of one theory; ``limited`` names the schemas of which it has more than the limit."""

    where: str
    id: str
    episodes: tuple[Episode, ...]
    limited: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """The theories lifted so far by content, with their places, and the seeds by schema, with their contents."""

    theories: dict[str, str] = field(default_factory=dict)
    seeds: dict[tuple[str, int], str] = field(default_factory=dict)


def lift_theories(
    rows: Iterable[tuple[str, Row]], limit: int | None = None
) -> Iterator[LiftedTheory | Refused]:
    """Lift every theory of rows, each with its file's name; at most ``limit`` episodes of a schema from each theory.

    Refuse lines that cannot be read, theories without a single model and repeated theories (the same facts and rules).
    An episode's ``provenance.source`` is the file's name and the theory's id, so that a split never divides a theory;
    its seed is 53 bits of a hash of its content, or of a further hash if another episode of its schema has that seed
    already.
    """
    seen = _Seen()
    for file, row in rows:
        if isinstance(row, Refused):
            yield row
            continue
        try:
            yield _lift(row, f"{file}#{row.id}", limit, seen)
        except MalformedInputError as error:
            yield Refused(where=row.where, id=row.id, error=error.within(row.where))


def _lift(row: LabelledTheory, source: str, limit: int | None, seen: _Seen) -> LiftedTheory:
    content = row.theory.content_hash()
    if content in seen.theories:
        raise MalformedInputError(
            "the same theory stood before",
            found=f"the facts and rules of {seen.theories[content]}",
            expected="each theory once: a copy gives the same episodes under another source",
        )
    space = search_space(row.theory)
    seen.theories[content] = row.where
    episodes: list[Episode] = []
    limited = []
    for schema in SCHEMAS:
        for number, keys in enumerate(_choices(schema, space, content)):
            if number == limit:
                limited.append(schema.name)
                break
            pair, others = keys[:2], sorted(keys[2:], key=repr)
            name = repr((*pair, *others))
            draws = Draws(generator(0, "proofwriter.lift", schema.name, content, name))
            order = random_legal_order([*pair, *others], draws)
            made = Provenance(source=source, generator=f"proofwriter.lift.{schema.name}", seed=0)
            episode = episode_of(schema, row.theory, order, made)
            seed = _free_seed(schema, episode.content_hash(), seen)
            episodes.append(replace(episode, provenance=replace(made, seed=seed)))
    return LiftedTheory(
        where=row.where, id=row.id, episodes=tuple(episodes), limited=tuple(limited)
    )


def _choices(schema: Schema, space: SearchSpace, name: str) -> Iterator[list[ActionKey]]:
    """Yield every choice of a pair and operations beside it, pairs in turn, in an order that ``name`` fixes."""
    draws = Draws(generator(0, "proofwriter.lift", schema.name, name))
    enabled = enabled_operations(schema, space)
    waiting = [
        _choices_with(schema, space, pair, draws.shuffled(others))
        for pair in draws.shuffled(pairs(schema, space))
        if len(others := commuting_with(space, pair, enabled)) >= _OTHERS
    ]
    while waiting:
        left = []
        for found in waiting:
            keys = next(found, None)
            if keys is not None:
                left.append(found)
                yield keys
        waiting = left


def _choices_with(
    schema: Schema, space: SearchSpace, pair: Pair, others: Sequence[ActionKey]
) -> Iterator[list[ActionKey]]:
    for chosen in combinations(others, _OTHERS):
        keys = [*pair, *chosen]
        if only_pair_matters(schema, space, keys):
            yield keys


def _free_seed(schema: Schema, identity: str, seen: _Seen) -> int:
    for attempt in count():
        seed = derive_seed(attempt, identity) % _SEEDS
        if seen.seeds.setdefault((schema.name, seed), identity) == identity:
            return seed
    raise AssertionError("count() does not end")
