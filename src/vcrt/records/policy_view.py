"""Hold, read and render the policy view: the anonymous record that a model sees.

A record holds pointers drawn afresh for each episode and typed relations between them, in a dataset's form (see
:mod:`vcrt.records.record_form`). It holds no environment, schema, verdict, message, mask or operation order. *Slots*
number a record's pointers in ascending order; orders of a record are orders of slots.

:mod:`vcrt_train.policy` writes text for language models with a tokenizer of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field, ValidationError
from pydantic import Strict as StrictOf

from vcrt.certificates.certificates import RelationType as RelationType
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.forms import Strict, in_a_line
from vcrt.hashing import Json
from vcrt.limits import MAX_ENUMERATED, MAX_OPERATIONS
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt.randomness import Draws

#: The pool of pointers of records of up to four operations.
POINTER_POOL = 8
#: The pool of records of 5 to 32 operations; a tokenizer with 52 letters has that many single tokens.
LARGE_POOL = 32
#: The pool of records of 33 to 64 operations, the most that an episode may have.
LARGEST_POOL = MAX_OPERATIONS
#: The most operations that each pool serves.
_SERVES = {MAX_ENUMERATED: POINTER_POOL, LARGE_POOL: LARGE_POOL, LARGEST_POOL: LARGEST_POOL}
#: The most distractors of a record: relations among operations that do not occur.
MAX_DISTRACTORS = 4
#: The most characters of a step's text, or of a task.
MAX_TEXT = 16_384

Serialisation: TypeAlias = Literal["sorted", "shuffled"]

#: The opaque token of each relation type, as (first before second, second before first).
RELATION_TOKENS: Mapping[RelationType, tuple[str, str]] = {
    "commutes": ("r0", "r0"),
    "precedes": ("r1", "r2"),
    "conflicts": ("r3", "r4"),
    # Both orders are accepted, and one is wrong: for a policy this is the same as a conflict.
    "observes": ("r3", "r4"),
}
#: The words of each of these tokens, as (between its two pointers, behind the second).
RELATION_WORDS: Mapping[str, tuple[str, str]] = {
    "r0": ("and", "in any order."),
    "r1": ("must come before", "."),
    "r2": ("must come after", "."),
    "r3": ("should come before", "."),
    "r4": ("should come after", "."),
}
POINTER_TOKENS: tuple[str, ...] = tuple(f"p{i}" for i in range(LARGEST_POOL))
BEGIN, POINTERS, RELATIONS, SEPARATOR, ANSWER = "<s>", "<pointers>", "<relations>", ";", "<order>"


def pointer_pool(num_operations: int) -> int:
    """Return the number of pointers from which a record of this many operations draws.

    Raise :class:`TooLargeError` for more operations than the largest pool has pointers.

    >>> [pointer_pool(n) for n in (2, 4, 5, 32, 33)]
    [8, 8, 32, 32, 64]
    """
    for most, pool in _SERVES.items():
        if num_operations <= most:
            return pool
    raise TooLargeError(
        "no record of that many operations",
        found=f"{counted(num_operations, 'operation')}",
        expected=f"at most {LARGEST_POOL}, one for each pointer",
        remedy="split the episode into shorter windows",
    )


@dataclass(frozen=True, order=True, slots=True)
class PointerRelation:
    """A typed relation between two slots; unless the kind is ``commutes``, the first stands before the second.

    A distractor is between two pointers of operations that do not occur, and says nothing about those that do.
    """

    first: int
    second: int
    kind: RelationType


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRecord:
    """The policy's view of one episode.

    ``pointers[slot]`` is the pointer of a slot (a number below ``pool``), ascending; ``relations`` and ``distractors``
    are sorted. A record of another view has neither; then ``steps[slot]`` is the text of a slot's step, and ``task``
    describes the start. ``pool`` is by default that of :func:`pointer_pool`. ``record_id`` is opaque and never
    rendered. Raises :class:`MalformedInputError` if its parts do not fit together, :class:`TooLargeError` for too many
    operations.
    """

    record_id: str
    pointers: tuple[int, ...]
    relations: tuple[PointerRelation, ...]
    distractors: tuple[PointerRelation, ...] = ()
    pool: int = 0
    task: str = ""
    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"policy record {self.record_id!r}"
        if list(self.pointers) != sorted(set(self.pointers)):
            raise MalformedInputError(
                "pointers must be distinct and ascending", where=where, found=str(self.pointers)
            )
        usual = pointer_pool(len(self.pointers))
        pool = self.pool or usual
        if pool not in _SERVES.values() or pool < usual:
            raise MalformedInputError(
                "a pool of pointers that this record cannot have",
                where=where,
                found=f"{pool} pointers for {counted(len(self.pointers), 'operation')}",
                expected=f"one of {', '.join(map(str, _SERVES.values()))}, {usual} at least",
            )
        object.__setattr__(self, "pool", pool)
        if self.pointers and not 0 <= self.pointers[0] <= self.pointers[-1] < pool:
            raise MalformedInputError(
                "a pointer is outside the pool",
                where=where,
                found=str(self.pointers),
                expected=f"0 to {pool - 1}",
            )
        slots, others = range(len(self.pointers)), set(range(pool)) - set(self.pointers)
        _require_relations(self.relations, set(slots), "the record's slots", where)
        _require_relations(
            self.distractors, others, "the pointers that are not the record's own", where
        )
        joined = {frozenset((d.first, d.second)) for d in self.distractors}
        if len(joined) != len(self.distractors) or len(self.distractors) > MAX_DISTRACTORS:
            raise MalformedInputError(
                "too many distractors, or two for one pair",
                where=where,
                found=str(self.distractors),
                expected=f"at most {MAX_DISTRACTORS}, each for a pair of its own",
            )
        _require_texts(self, where)

    @property
    def num_operations(self) -> int:
        """The number of slots in an order of this record."""
        return len(self.pointers)

    @property
    def order(self) -> PartialOrder:
        """The order of slots that the directed relations imply, without distractors."""
        pairs = [(r.first, r.second) for r in self.relations if r.kind != "commutes"]
        return PartialOrder.of(self.num_operations, pairs)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form, which :func:`record_from_json` reads. Distractors are relations between pointers.

        It leaves out the pool if that is the usual one.
        """
        value: dict[str, Json] = {
            "record_id": self.record_id,
            "pointers": list(self.pointers),
            "relations": [[r.first, r.second, r.kind] for r in self.relations],
        }
        if self.distractors:
            value["distractors"] = [[d.first, d.second, d.kind] for d in self.distractors]
        if self.pool != pointer_pool(self.num_operations):
            value["pool"] = self.pool
        if self.steps:
            value |= {"task": self.task, "steps": list(self.steps)}
        return value


def _require_texts(record: PolicyRecord, where: str) -> None:
    if not record.steps and not record.task:
        return
    if len(record.steps) != record.num_operations or not all(map(str.strip, record.steps)):
        raise MalformedInputError(
            "a record needs a text for each of its steps, or none at all",
            where=where,
            found=f"{counted(len(record.steps), 'text')}, "
            f"{sum(not text.strip() for text in record.steps)} of them blank",
            expected=f"{record.num_operations}",
        )
    if record.relations or record.distractors:
        raise MalformedInputError("a record of steps states no relations", where=where)
    longest = max(map(len, (record.task, *record.steps)))
    if longest > MAX_TEXT:
        raise TooLargeError(
            "a step, or a task, whose text is too long for a record",
            where=where,
            found=f"{longest:,} characters",
            expected=f"at most {MAX_TEXT:,}",
            remedy="let the environment's describe and task give shorter texts",
        )


def _require_relations(
    relations: Iterable[PointerRelation], places: Collection[int], of_what: str, where: str
) -> None:
    for relation in relations:
        if relation.kind not in RELATION_TOKENS:
            raise MalformedInputError(
                "unknown relation type",
                where=where,
                found=relation.kind,
                expected=f"one of {', '.join(RELATION_TOKENS)}",
            )
        ends = {relation.first, relation.second}
        if len(ends) != 2 or not ends <= set(places):
            raise MalformedInputError(
                f"a relation must join two of {of_what}",
                where=where,
                found=str(relation),
                expected=f"two of {', '.join(map(str, sorted(places)))}",
            )


#: JSON has lists alone; the record itself checks the kind.
_Triple: TypeAlias = Annotated[tuple[int, int, str], StrictOf(strict=False)]


class _Form(Strict):
    """The output of :meth:`PolicyRecord.to_json`."""

    record_id: str
    pointers: list[int]
    relations: list[_Triple]
    #: Left out if there are none.
    distractors: Annotated[list[_Triple], Field(min_length=1)] | None = None
    #: Left out if it is the usual one.
    pool: int | None = None
    #: Left out if records have relations.
    task: str | None = None
    steps: list[str] | None = None


def record_from_json(value: object) -> PolicyRecord:
    """Read a record; raise :class:`MalformedInputError` for anything that ``to_json`` does not write."""
    try:
        form = _Form.model_validate(value)
    except ValidationError as error:
        raise _not_a_record(in_a_line(error)) from error
    record = PolicyRecord(
        record_id=form.record_id,
        pointers=tuple(form.pointers),
        relations=_relations_of(form.relations),
        distractors=_relations_of(form.distractors or ()),
        pool=form.pool or 0,
        task=form.task or "",
        steps=tuple(form.steps or ()),
    )
    if form.model_dump(exclude_unset=True).keys() != record.to_json().keys():
        raise _not_a_record("a field that is left out where it says nothing")
    return record


def _relations_of(triples: Iterable[tuple[int, int, str]]) -> tuple[PointerRelation, ...]:
    # The record itself checks the kind.
    return tuple(PointerRelation(a, b, cast(RelationType, kind)) for a, b, kind in triples)


def _not_a_record(found: str) -> MalformedInputError:
    return MalformedInputError(
        "not a policy record",
        found=found,
        expected='{"record_id": str, "pointers": [int], "relations": [[slot, slot, type]]} and, if it has some, '
        '"distractors": [[pointer, pointer, type]], "pool": int, "task": str, "steps": [str]',
    )


def record_of_json(text: str, where: str) -> PolicyRecord:
    """Return the record in a row's text; raise :class:`MalformedInputError` if there is none."""
    try:
        return record_from_json(json.loads(text))
    except MalformedInputError:
        raise
    except (ValueError, RecursionError) as error:
        raise _not_a_record(str(error)[:300]).at(where) from error


def render(record: PolicyRecord, serialisation: Serialisation, generator: Draws) -> list[str]:
    """Return the record as tokens, up to the token after which the order is to be given.

    ``sorted``: relations sorted by pointer and always first-before-second. ``shuffled``: pointers and relations in
    random order and either direction, as a verifier may serialise them. Both print ``commutes`` in random direction, so
    that its direction means nothing. Distractors are printed among the relations, in the same way. Raise
    :class:`MalformedInputError` for a record of steps, which is text: see :func:`printed_slots`.
    """
    if record.steps:
        raise MalformedInputError(
            "a record of steps is text, and no sequence of a few known tokens",
            where=f"policy record {record.record_id!r}",
            expected="a record of relations",
            remedy="use a language model: --backbone smollm2-135m, for example",
        )
    slots = list(range(record.num_operations))
    own = record.pointers
    relations = [PointerRelation(own[r.first], own[r.second], r.kind) for r in record.relations]
    statements: list[tuple[int, str, int]] = []
    for relation in (*relations, *record.distractors):
        forward, backward = RELATION_TOKENS[relation.kind]
        either_way = relation.kind == "commutes" or serialisation == "shuffled"
        if either_way and generator.integers(2):
            statements.append((relation.second, backward, relation.first))
        else:
            statements.append((relation.first, forward, relation.second))
    if serialisation == "shuffled":
        generator.shuffle(slots)
        generator.shuffle(statements)
    else:
        statements.sort(key=lambda statement: (statement[0], statement[2]))
    tokens = [BEGIN, POINTERS, *(POINTER_TOKENS[own[slot]] for slot in slots), RELATIONS]
    for left, token, right in statements:
        tokens += [POINTER_TOKENS[left], token, POINTER_TOKENS[right], SEPARATOR]
    return [*tokens, ANSWER]


def printed_slots(
    record: PolicyRecord, serialisation: Serialisation, generator: Draws
) -> tuple[int, ...]:
    """Return the order in which a record's steps are printed: by pointer, which is drawn, or shuffled anew."""
    slots = list(range(record.num_operations))
    if serialisation == "shuffled":
        generator.shuffle(slots)
    return tuple(slots)


def in_words(tokens: Iterable[str]) -> Iterator[str]:
    """Return the ``tokens`` of :func:`render` with relations in words: a phrase between two pointers, one behind them.

    The second phrase replaces the separator, so the number of tokens is unchanged. Nothing is lost: different relations
    have different phrases.

    >>> " ".join(in_words(["p3", "r0", "p1", ";", "p1", "r2", "p5", ";"]))
    'p3 and p1 in any order. p1 must come after p5 .'
    """
    end = SEPARATOR
    for token in tokens:
        if token in RELATION_WORDS:
            between, end = RELATION_WORDS[token]
            yield between
        else:
            yield end if token == SEPARATOR else token


def vocabulary(num_pointers: int = POINTER_POOL) -> tuple[str, ...]:
    """Return every token that :func:`render` can produce with the first ``num_pointers`` pointers, in a fixed order.

    The tokens for fewer pointers are the first of those for more.
    """
    relation_tokens: Sequence[str] = sorted({t for pair in RELATION_TOKENS.values() for t in pair})
    structure = (BEGIN, POINTERS, RELATIONS, SEPARATOR, ANSWER)
    return (*structure, *relation_tokens, *POINTER_TOKENS[:num_pointers])
