"""Measure what a backbone can do before any training, for its card: reading, format and chance-level orders.

A good backbone answers look-ups, rarely leaves the format, and passes about half of the records that ask for one pair
in one order: it can read and has not learned the rule. Not covered: anything after training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from vcrt.hashing import Json
from vcrt.records.policy_view import (
    ANSWER,
    RELATION_TOKENS,
    PointerRelation,
    PolicyRecord,
    RelationType,
    Serialisation,
    render,
)
from vcrt_research.pretraining_data import (
    SERIALISATIONS,
    printed_statements,
    random_pointers,
    random_record,
)
from vcrt_train.config import Interface
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.policy.scoring import greedy_orders, score_orders
from vcrt_train.policy.tokenizer import QUESTION, encode_record, token_ids
from vcrt_train.randomness import generator

DIRECTED_KINDS: tuple[RelationType, ...] = ("precedes", "conflicts")
INTERFACES: tuple[Interface, ...] = get_args(Interface)
#: The paper's number of operations; the card is measured on records of this size.
NUM_OPERATIONS = 4


def measure_backbone(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    num_records: int = 400,
) -> dict[str, Json]:
    """The card's measurements, each a share between 0 and 1, on ``num_records`` fresh records a cell."""
    return {
        "num_records": num_records,
        "look_up_accuracy": {
            serialisation: look_up_accuracy(
                model,
                tokenizer,
                serialisation=serialisation,
                num_records=num_records,
                draw=generator(seed, "look-up", serialisation),
            )
            for serialisation in SERIALISATIONS
        },
        "one_anti_diamond": {
            kind: {
                serialisation: untrained_answers(
                    model,
                    tokenizer,
                    kind=kind,
                    serialisation=serialisation,
                    num_records=num_records,
                    draw=generator(seed, "one anti-diamond", kind, serialisation),
                )
                for serialisation in SERIALISATIONS
            }
            for kind in DIRECTED_KINDS
        },
    }


def one_anti_diamond_record(
    kind: RelationType, draw: np.random.Generator, num_operations: int = NUM_OPERATIONS
) -> tuple[PolicyRecord, tuple[int, int]]:
    """A record in which every pair commutes but one, and that pair's slots, the one that stands before first."""
    first, second = (int(slot) for slot in draw.permutation(num_operations)[:2])
    pairs = [(a, b) for a in range(num_operations) for b in range(a + 1, num_operations)]
    commuting = [PointerRelation(a, b, "commutes") for a, b in pairs if {a, b} != {first, second}]
    record = PolicyRecord(
        record_id="",
        pointers=random_pointers(draw, num_operations),
        relations=tuple(sorted([*commuting, PointerRelation(first, second, kind)])),
    )
    return record, (first, second)


def untrained_answers(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    kind: RelationType,
    serialisation: Serialisation,
    num_records: int,
    draw: np.random.Generator,
) -> dict[str, Json]:
    """Greedy pass rate by interface, and mean malformed probability, on records with one anti-diamond."""
    items = [one_anti_diamond_record(kind, draw) for _ in range(num_records)]
    prompts = [encode_record(tokenizer, record, serialisation, draw) for record, _ in items]
    result: dict[str, Json] = {}
    for interface in INTERFACES:
        orders = greedy_orders(model, prompts, interface=interface)
        result[f"pass_rate_{interface}"] = share_of(
            order is not None and order.index(first) < order.index(second)
            for order, (_, (first, second)) in zip(orders, items, strict=True)
        )
    result["malformed_probability"] = round(_malformed_probability(model, prompts), 4)
    return result


def look_up_accuracy(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    serialisation: Serialisation,
    num_records: int,
    draw: np.random.Generator,
) -> dict[str, Json]:
    """Share of right answers to the two questions of pretraining, asked about directed relations only.

    ``relation_of_pair``: which relation stands between two pointers. ``pair_of_relation``: which two pointers a
    relation joins, in any order, asked of relations that stand in one statement only.
    """
    relation_questions, pair_questions = [], []
    relations: list[int] = []
    pairs: list[set[int]] = []
    while len(relations) < num_records:
        words = render(random_record(draw, NUM_OPERATIONS), serialisation, draw)
        statements = printed_statements(words)
        printed = Counter(relation for _, relation, _ in statements)
        askable = [
            statement
            for statement in statements
            if statement[1] not in RELATION_TOKENS["commutes"] and printed[statement[1]] == 1
        ]
        if not askable:
            continue
        statement = askable[draw.integers(len(askable))]
        left, relation, right = token_ids(tokenizer, statement)
        context = token_ids(tokenizer, [*words[: words.index(ANSWER)], QUESTION])
        relation_questions.append((*context, left, right))
        pair_questions.append((*context, relation))
        relations.append(relation)
        pairs.append({left, right})
    answers = next_tokens(model, relation_questions)
    firsts = next_tokens(model, pair_questions)
    seconds = next_tokens(
        model, [(*ids, first) for ids, first in zip(pair_questions, firsts, strict=True)]
    )
    answered = [{first, second} for first, second in zip(firsts, seconds, strict=True)]
    return {
        "relation_of_pair": share_of(a == b for a, b in zip(answers, relations, strict=True)),
        "pair_of_relation": share_of(a == b for a, b in zip(answered, pairs, strict=True)),
    }


def share_of(outcomes: Iterable[bool]) -> float:
    """The share of outcomes that are true, to four places."""
    return round(float(np.mean(list(outcomes))), 4)


@torch.no_grad()
def next_tokens(model: Qwen3ForCausalLM, sequences: Sequence[tuple[int, ...]]) -> list[int]:
    """The most probable next token of each sequence, which are scored in one batch."""
    # Under a causal mask, what is padded on the right cannot change what stands to its left.
    ids = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
    last = torch.tensor([len(sequence) - 1 for sequence in sequences])
    logits = model(input_ids=ids, use_cache=False).logits
    best: list[int] = logits[torch.arange(len(sequences)), last].argmax(-1).tolist()
    return best


@torch.no_grad()
def _malformed_probability(model: Qwen3ForCausalLM, prompts: Sequence[Prompt]) -> float:
    malformed = score_orders(model, prompts, interface="tokens").malformed_log_prob
    if malformed is None:
        raise AssertionError("the token interface always has a malformed mass")
    return float(malformed.exp().mean())
