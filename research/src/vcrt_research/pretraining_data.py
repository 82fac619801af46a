"""Draw what the embedded backbone is pretrained on: random records, neutral questions about them, and random orders.

It teaches the format and how to read a record, never which orders are legal: relations are drawn without regard to
anything, completions are uniformly random orders drawn without regard to the relations, and a question that is
answered with two pointers names them in random order. No environment takes part. Not covered: other record formats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

import numpy as np

from vcrt.records.policy_view import (
    ANSWER,
    POINTER_POOL,
    POINTER_TOKENS,
    RELATIONS,
    SEPARATOR,
    PointerRelation,
    PolicyRecord,
    RelationType,
    Serialisation,
    render,
)
from vcrt_train.policy.tokenizer import QUESTION

#: How often a record has each number of operations.
OPERATION_COUNT_SHARES = {2: 0.1, 3: 0.2, 4: 0.5, 5: 0.15, 6: 0.05}
SERIALISATIONS: tuple[Serialisation, ...] = get_args(Serialisation)
QUESTIONS_PER_RECORD = 8
PAIR_QUESTION_SHARE = 0.35


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A sequence of words; ``is_answer`` marks those that answer a question or give an order."""

    words: tuple[str, ...]
    is_answer: tuple[bool, ...]


def draw_operation_count(generator: np.random.Generator) -> int:
    """A number of operations, by :data:`OPERATION_COUNT_SHARES`."""
    counts = list(OPERATION_COUNT_SHARES)
    return int(generator.choice(counts, p=list(OPERATION_COUNT_SHARES.values())))


def random_record(generator: np.random.Generator, num_operations: int) -> PolicyRecord:
    """A record with random pointers and random relations of random types between random pairs.

    Half of the records relate every pair. The share of directed relations varies from none to all, and directed
    relations may contradict each other: nothing makes a record satisfiable.
    """
    relates_all = generator.random() < 0.5
    related_share = 1.0 if relates_all else generator.random()
    directed_share = generator.random()
    relations = []
    for pair in combinations(range(num_operations), 2):
        if generator.random() >= related_share:
            continue
        kind: RelationType = "commutes"
        if generator.random() < directed_share:
            kind = "conflicts" if generator.random() < 0.5 else "precedes"
        first, second = pair if generator.random() < 0.5 else pair[::-1]
        relations.append(PointerRelation(first, second, kind))
    return PolicyRecord(
        record_id="",
        pointers=random_pointers(generator, num_operations),
        relations=tuple(sorted(relations)),
    )


def random_pointers(
    generator: np.random.Generator, num_operations: int, pool: int = POINTER_POOL
) -> tuple[int, ...]:
    """Distinct pointers of the pool, ascending."""
    drawn = generator.choice(pool, num_operations, replace=False)
    return tuple(sorted(int(pointer) for pointer in drawn))


def order_example(
    record: PolicyRecord, serialisation: Serialisation, generator: np.random.Generator
) -> Example:
    """The record, completed with a uniformly random order of its pointers."""
    prompt = render(record, serialisation, generator)
    order = [POINTER_TOKENS[pointer] for pointer in generator.permutation(record.pointers)]
    return Example(words=(*prompt, *order), is_answer=(False,) * len(prompt) + (True,) * len(order))


def question_example(
    record: PolicyRecord, serialisation: Serialisation, generator: np.random.Generator
) -> Example:
    """The record, followed by questions about its statements with their answers; it must have a relation.

    Some ask which relation stands between two pointers, named as printed. Others ask which two pointers a relation
    joins; they are asked of a relation that stands in one statement only, and answered in random order.
    """
    words = render(record, serialisation, generator)[:-1]
    statements = printed_statements(words)
    printed = Counter(relation for _, relation, _ in statements)
    unique = [statement for statement in statements if printed[statement[1]] == 1]
    is_answer = [False] * len(words)
    for _ in range(QUESTIONS_PER_RECORD):
        asks_pair = bool(unique) and generator.random() < PAIR_QUESTION_SHARE
        candidates = unique if asks_pair else statements
        left, relation, right = candidates[generator.integers(len(candidates))]
        if asks_pair:
            pair = [left, right] if generator.integers(2) else [right, left]
            words += [QUESTION, relation, *pair]
            is_answer += [False, False, True, True]
        else:
            words += [QUESTION, left, right, relation]
            is_answer += [False, False, False, True]
    return Example(words=tuple(words), is_answer=tuple(is_answer))


def printed_statements(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """The statements (pointer, relation, pointer) of a rendered record, as printed."""
    body = [word for word in words[words.index(RELATIONS) + 1 :] if word not in (SEPARATOR, ANSWER)]
    return list(zip(body[0::3], body[1::3], body[2::3], strict=True))


def random_batch(
    generator: np.random.Generator, size: int, *, question_share: float, share: float = 1.0
) -> list[Example]:
    """``size`` examples with one number of operations, which keeps their lengths close, at any ``share``."""
    num_operations = draw_operation_count(generator)
    examples = []
    for _ in range(size):
        record = random_record(generator, num_operations)
        serialisation = SERIALISATIONS[generator.integers(len(SERIALISATIONS))]
        asks = record.relations and generator.random() < question_share
        make = question_example if asks else order_example
        examples.append(make(record, serialisation, generator))
    return examples
