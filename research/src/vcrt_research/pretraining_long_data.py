"""Draw what the backbone for many operations is pretrained on: records of 2 to 64, questions, random orders.

As in :mod:`vcrt_research.pretraining_data`, whose forms these are: relations are drawn without regard to anything,
completions without regard to the relations, and a question leaves out one word of a printed statement that its other
two words name alone. Records grow during the first part of the pretraining, as reading long ones is learnt by way of
short ones. Not covered: legality, which nothing here computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from vcrt.records.policy_view import (
    PointerRelation,
    PolicyRecord,
    RelationType,
    Serialisation,
    pointer_pool,
    render,
)
from vcrt_research.pretraining_data import (
    SERIALISATIONS,
    Example,
    order_example,
    printed_statements,
    random_pointers,
)
from vcrt_train.policy.tokenizer import QUESTION

#: A batch has about as many tokens as this, whatever its records' length.
TOKENS_PER_BATCH = 3072
MIN_ROWS = 6
#: Records grow until this share of the pretraining.
GROWTH_SHARE = 0.35
#: How often a record has a number of operations in each range, ends included, once records have grown.
SIZE_SHARES = {(2, 4): 0.15, (5, 8): 0.35, (9, 16): 0.42, (17, 64): 0.08}
#: How often a record has up to so many relations, once records have grown.
RELATION_SHARES = {8: 0.7, 30: 0.2, 120: 0.1}
#: From this many operations on, records have no more than ``MANY_RELATIONS``, which is twice as many as any suite's.
MANY_OPERATIONS, MANY_RELATIONS = 17, 12
#: Up to this many operations, some records state the pairs that commute.
MAX_COMMUTING, COMMUTING_SHARE = 8, 0.2
QUESTIONS_PER_RECORD = 12
#: Which word of a statement (left pointer, relation, right pointer) a question leaves out.
BLANKS = {"left": 0, "relation": 1, "right": 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What the records of one batch have in common."""

    num_operations: int
    #: Directed relations, if pairs that commute are not stated; else the most of them.
    num_relations: int
    has_commuting: bool

    @property
    def num_tokens(self) -> int:
        """How many tokens a record of this shape has with its questions, about."""
        num_statements = comb(self.num_operations, 2) if self.has_commuting else self.num_relations
        questions = min(QUESTIONS_PER_RECORD, len(BLANKS) * num_statements)
        return 3 + self.num_operations + 4 * num_statements + 4 * questions


def draw_shape(draw: np.random.Generator, share: float) -> Shape:
    """A shape at a ``share`` (0 to 1) of the pretraining."""
    grown = min(1.0, share / GROWTH_SHARE)
    ranges = list(SIZE_SHARES)
    low, high = ranges[int(draw.choice(len(ranges), p=list(SIZE_SHARES.values())))]
    num_operations = int(draw.integers(low, high + 1))
    bounds = list(RELATION_SHARES)
    most = bounds[int(draw.choice(len(bounds), p=list(RELATION_SHARES.values())))]
    commuting = draw.random() < COMMUTING_SHARE
    # Numbers of operations shrink towards 2, of relations towards 3.
    num_operations = min(num_operations, 4 + round(60 * grown**2))
    most = min(most, 3 + round(117 * grown**2), comb(num_operations, 2))
    if num_operations >= MANY_OPERATIONS:
        most = min(most, MANY_RELATIONS)
    return Shape(
        num_operations=num_operations,
        num_relations=int(draw.integers(1, most + 1)),
        has_commuting=bool(commuting)
        and num_operations <= MAX_COMMUTING
        and comb(num_operations, 2) <= 3 + round(117 * grown**2),
    )


def long_record(draw: np.random.Generator, shape: Shape) -> PolicyRecord:
    """A record of this shape, with random pointers and relations of random types between random pairs.

    Directed relations may contradict each other: nothing makes a record satisfiable.
    """
    num_operations = shape.num_operations
    pairs = list(combinations(range(num_operations), 2))
    chosen = draw.choice(len(pairs), shape.num_relations, replace=False).tolist()
    directed = {pairs[place] for place in chosen}
    relations = []
    for pair in pairs if shape.has_commuting else sorted(directed):
        kind: RelationType = "commutes"
        if pair in directed:
            kind = "conflicts" if draw.random() < 0.5 else "precedes"
        first, second = pair if kind == "commutes" or draw.random() < 0.5 else pair[::-1]
        relations.append(PointerRelation(first, second, kind))
    return PolicyRecord(
        record_id="",
        pointers=random_pointers(draw, num_operations, pointer_pool(num_operations)),
        relations=tuple(sorted(relations)),
    )


def named_alone(
    statements: Sequence[tuple[str, str, str]], blank: str
) -> list[tuple[str, str, str]]:
    """``(word, word, answer)`` for each printed statement whose other words name the one at ``blank`` alone.

    The two words stand in the order in which they are printed.
    """
    place = BLANKS[blank]
    given = Counter(_without(statement, place) for statement in statements)
    return [
        (*_without(statement, place), statement[place])
        for statement in statements
        if given[_without(statement, place)] == 1
    ]


def blank_example(
    record: PolicyRecord, serialisation: Serialisation, draw: np.random.Generator
) -> Example:
    """The record, followed by different questions of :func:`named_alone` with their answers."""
    words = render(record, serialisation, draw)[:-1]
    statements = printed_statements(words)
    questions = [question for blank in BLANKS for question in named_alone(statements, blank)]
    is_answer = [False] * len(words)
    for place in draw.permutation(len(questions))[:QUESTIONS_PER_RECORD].tolist():
        words += [QUESTION, *questions[place]]
        is_answer += [False, False, False, True]
    return Example(words=tuple(words), is_answer=tuple(is_answer))


def long_batch(
    draw: np.random.Generator, num_tokens: int, *, question_share: float, share: float
) -> list[Example]:
    """Examples of one shape and about ``num_tokens`` tokens, at a ``share`` of the pretraining."""
    shape = draw_shape(draw, share)
    examples = []
    for _ in range(max(MIN_ROWS, num_tokens // shape.num_tokens)):
        record = long_record(draw, shape)
        serialisation = SERIALISATIONS[draw.integers(len(SERIALISATIONS))]
        make = blank_example if draw.random() < question_share else order_example
        examples.append(make(record, serialisation, draw))
    return examples


def _without(statement: tuple[str, str, str], place: int) -> tuple[str, str]:
    first, second = (word for other, word in enumerate(statement) if other != place)
    return first, second
