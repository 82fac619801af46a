"""Measure what the backbone for many operations can do before any training, by their number: reading, and chance.

A good one answers look-ups at every length and passes as many random posets as a random order would: it can read and
has not learned the rule. Not covered: anything after training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, factorial

import numpy as np
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from vcrt.hashing import Json
from vcrt.partial_orders import PartialOrder, num_linear_extensions
from vcrt.records.policy_view import (
    ANSWER,
    PointerRelation,
    PolicyRecord,
    Serialisation,
    pointer_pool,
    render,
)
from vcrt_research.backbone_card import DIRECTED_KINDS, next_tokens, share_of
from vcrt_research.pretraining_data import SERIALISATIONS, printed_statements, random_pointers
from vcrt_research.pretraining_long_data import BLANKS, Shape, long_record, named_alone
from vcrt_train.policy.scoring import greedy_orders
from vcrt_train.policy.tokenizer import QUESTION, encode_record, token_ids
from vcrt_train.randomness import generator

OPERATION_COUNTS = (4, 6, 8, 12, 16)
#: Directed relations of the random posets, all of them stated.
RELATION_COUNTS = (1, 3, 6)
BATCH_SIZE = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PosetCase:
    """A record of directed relations that can all be kept, and the order of its slots that they imply."""

    record: PolicyRecord
    order: PartialOrder

    @property
    def chance(self) -> float:
        """The share of all orders that keep every relation."""
        count = num_linear_extensions(self.order)
        return count / factorial(self.order.num_operations)


def measure_long_backbone(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    num_records: int = 400,
    operation_counts: Sequence[int] = OPERATION_COUNTS,
) -> dict[str, Json]:
    """The card's measurements, each a share between 0 and 1, on ``num_records`` fresh records a cell.

    ``look_up_accuracy``: by number of operations, for one to six relations and for one between every pair.
    ``random_posets``: by number of operations and of relations, in sorted records: the pass rate of greedy orders
    through pointers, that of random orders, and how many answers were orders.
    """
    return {
        "num_records": num_records,
        "look_up_accuracy": {
            str(count): {
                amount: {
                    serialisation: look_ups(
                        model,
                        tokenizer,
                        num_operations=count,
                        every_pair=amount == "every pair",
                        serialisation=serialisation,
                        num_records=num_records,
                        draw=generator(seed, "look-up", count, amount, serialisation),
                    )
                    for serialisation in SERIALISATIONS
                }
                for amount in ("few", "every pair")
            }
            for count in operation_counts
        },
        "random_posets": {
            str(count): {
                str(num_relations): untrained_passes(
                    model,
                    tokenizer,
                    num_operations=count,
                    num_relations=num_relations,
                    num_records=num_records,
                    draw=generator(seed, "random posets", count, num_relations),
                )
                for num_relations in RELATION_COUNTS
            }
            for count in operation_counts
        },
    }


def random_poset(draw: np.random.Generator, num_operations: int, num_relations: int) -> PosetCase:
    """Relations of random kinds between random pairs, directed by a random order of the operations."""
    places = draw.permutation(num_operations).tolist()
    pairs = list(combinations(places, 2))
    chosen = [pairs[i] for i in draw.choice(len(pairs), num_relations, replace=False).tolist()]
    relations = sorted(
        PointerRelation(first, second, DIRECTED_KINDS[int(draw.integers(2))])
        for first, second in chosen
    )
    record = PolicyRecord(
        record_id="",
        pointers=random_pointers(draw, num_operations, pointer_pool(num_operations)),
        relations=tuple(relations),
    )
    return PosetCase(record=record, order=PartialOrder.of(num_operations, chosen))


def untrained_passes(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    num_operations: int,
    num_relations: int,
    num_records: int,
    draw: np.random.Generator,
) -> dict[str, Json]:
    """How many greedy orders keep every relation, how many random ones would, and how many answers are orders."""
    cases = [random_poset(draw, num_operations, num_relations) for _ in range(num_records)]
    prompts = [encode_record(tokenizer, case.record, "sorted", draw) for case in cases]
    orders = greedy_orders(model, prompts, interface="pointers")
    everything = list(range(num_operations))
    return {
        "pass_rate": share_of(
            order is not None and case.order.allows(order)
            for order, case in zip(orders, cases, strict=True)
        ),
        "chance": round(float(np.mean([case.chance for case in cases])), 4),
        "orders": share_of(order is not None and sorted(order) == everything for order in orders),
    }


def look_ups(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    num_operations: int,
    every_pair: bool,
    serialisation: Serialisation,
    num_records: int,
    draw: np.random.Generator,
) -> dict[str, Json]:
    """Share of right answers by the word that a question leaves out, each asked of a record of its own.

    Records have one to six directed relations, or one between ``every_pair``.
    """
    pairs = comb(num_operations, 2)
    asked: dict[str, list[tuple[int, ...]]] = {blank: [] for blank in BLANKS}
    expected: dict[str, list[int]] = {blank: [] for blank in BLANKS}
    while any(len(answers) < num_records for answers in expected.values()):
        few = int(draw.integers(1, min(6, pairs) + 1))
        shape = Shape(
            num_operations=num_operations,
            num_relations=pairs if every_pair else few,
            has_commuting=False,
        )
        words = render(long_record(draw, shape), serialisation, draw)
        statements = printed_statements(words)
        for blank in BLANKS:
            questions = named_alone(statements, blank)
            if len(expected[blank]) == num_records or not questions:
                continue
            *given, answer = questions[draw.integers(len(questions))]
            asked[blank].append(
                token_ids(tokenizer, [*words[: words.index(ANSWER)], QUESTION, *given])
            )
            expected[blank] += token_ids(tokenizer, [answer])
    return {
        blank: share_of(
            found == right
            for start in range(0, num_records, BATCH_SIZE)
            for found, right in zip(
                next_tokens(model, asked[blank][start : start + BATCH_SIZE]),
                expected[blank][start : start + BATCH_SIZE],
                strict=True,
            )
        )
        for blank in BLANKS
    }
