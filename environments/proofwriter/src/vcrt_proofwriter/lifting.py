"""Lift all episodes that are already in given theories, such as those of ProofWriter's own files.

Promised: of each theory, every choice of operations of which exactly one ordered pair must keep its order (each choice
once, in one of its legal orders), or at most so many of them; the same files give the same episodes. A line or theory
that cannot be used is reported with its place and reason and does not stop the others. Not covered: states beyond a
theory's own facts, and certification, which shows anew what is promised here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from pathlib import Path

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.randomness import derive_seed, generator
from vcrt_proofwriter.draws import Draws
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
from vcrt_proofwriter.theory import Assumption, Theory

#: Seeds stay below this, which even a reader that takes JSON numbers for doubles holds exactly.
_SEEDS = 2**53


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedTheory:
    """The episodes of one theory; ``limited`` names the schemas of which it holds more than were asked for."""

    where: str
    id: str
    episodes: tuple[Episode, ...]
    limited: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """What was lifted so far: theories by content, with their places, and seeds by schema, with their contents."""

    theories: dict[str, str] = field(default_factory=dict)
    seeds: dict[tuple[str, int], str] = field(default_factory=dict)


def lift_theories(
    sources: Iterable[Path | LabelledTheory],
    *,
    schemas: Sequence[str] | None = None,
    limit: int | None = None,
    num_operations: int = 4,
    assumption: Assumption | None = None,
) -> Iterator[LiftedTheory | Refused]:
    """Lift every theory of the files and theories given, at most ``limit`` episodes of a schema from each theory.

    Refused are lines that cannot be read, theories without a single model and theories that stood before (the same
    facts and rules). ``assumption`` replaces what the ids in the files say. An episode's ``provenance.source`` is the
    file's name and the theory's id, so that a split never divides a theory; its seed is 53 bits of a hash of its
    content, or of a further hash where another episode of its schema has that seed already. All schemas are lifted if
    none is named; raises :class:`UnknownNameError` for a name that is none.
    """
    known = {schema.name: schema for schema in SCHEMAS}
    for name in schemas or ():
        if name not in known:
            raise UnknownNameError.of("proofwriter schema", name, known)
    chosen = [known[name] for name in (known if schemas is None else schemas)]
    return _lift_rows(_rows(sources, assumption), chosen, limit, num_operations)


def _lift_rows(
    rows: Iterable[tuple[str, Row]],
    schemas: Sequence[Schema],
    limit: int | None,
    num_operations: int,
) -> Iterator[LiftedTheory | Refused]:
    seen = _Seen()
    for dataset, row in rows:
        if isinstance(row, Refused):
            yield row
            continue
        try:
            yield _lift(row, f"{dataset}#{row.id}", schemas, limit, num_operations, seen)
        except MalformedInputError as error:
            yield Refused(where=row.where, id=row.id, error=error.within(row.where))


def _rows(
    sources: Iterable[Path | LabelledTheory], assumption: Assumption | None
) -> Iterator[tuple[str, Row]]:
    for source in sources:
        if isinstance(source, LabelledTheory):
            yield "theories", source
        else:
            for row in read_rows(source, assumption=assumption):
                yield source.name, row


def _lift(
    row: LabelledTheory,
    source: str,
    schemas: Sequence[Schema],
    limit: int | None,
    num_operations: int,
    seen: _Seen,
) -> LiftedTheory:
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
    for schema in schemas:
        found = choices(schema, space, num_operations, content)
        for number, keys in enumerate(found):
            if number == limit:
                limited.append(schema.name)
                break
            episodes.append(_episode(schema, row.theory, keys, source, content, seen))
    return LiftedTheory(
        where=row.where, id=row.id, episodes=tuple(episodes), limited=tuple(limited)
    )


def choices(
    schema: Schema, space: SearchSpace, num_operations: int, name: str
) -> Iterator[list[ActionKey]]:
    """Every choice of a pair and of operations beside it; takes the pairs in turn, in an order that ``name`` fixes."""
    draws = Draws(generator(0, "proofwriter.lift", schema.name, name))
    enabled = enabled_operations(schema, space)
    waiting = [
        _choices_with(schema, space, pair, draws.shuffled(others), num_operations)
        for pair in draws.shuffled(pairs(schema, space))
        if len(others := commuting_with(space, pair, enabled)) >= num_operations - 2
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
    schema: Schema, space: SearchSpace, pair: Pair, others: Sequence[ActionKey], num_operations: int
) -> Iterator[list[ActionKey]]:
    for chosen in combinations(others, num_operations - 2):
        keys = [*pair, *chosen]
        if only_pair_matters(schema, space, keys):
            yield keys


def _episode(
    schema: Schema,
    theory: Theory,
    keys: Sequence[ActionKey],
    source: str,
    content: str,
    seen: _Seen,
) -> Episode:
    pair, others = keys[:2], sorted(keys[2:], key=repr)
    name = repr((*pair, *others))
    draws = Draws(generator(0, "proofwriter.lift", schema.name, content, name))
    order = random_legal_order([*pair, *others], draws)
    draft = Provenance(source=source, generator=f"proofwriter.lift.{schema.name}", seed=0)
    episode = episode_of(schema, theory, order, draft)
    seed = _free_seed(schema, episode.content_hash(), seen)
    return replace(episode, provenance=replace(draft, seed=seed))


def _free_seed(schema: Schema, identity: str, seen: _Seen) -> int:
    for attempt in count():
        seed = derive_seed(attempt, identity) % _SEEDS
        if seen.seeds.setdefault((schema.name, seed), identity) == identity:
            return seed
    raise AssertionError("count() does not end")
