"""Write policy records as plain text for models with their own tokenizer, and read answers back from text.

Both forms use the renderer of :mod:`vcrt.records.policy_view`. ``tokens`` joins its tokens by spaces, as the embedded
backbone reads them. ``words`` has a sentence for each relation, one a line: the sentences that a language model is
shown with ``model.relation_names = "words"``. An answer is the pointers of an order, separated by spaces. This module
also chooses the environments of a dataset to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vcrt.errors import DatasetError, MalformedInputError, UnknownNameError
from vcrt.orders import Order, all_orders
from vcrt.partial_orders import PartialOrder
from vcrt.records.dataset import Dataset
from vcrt.records.policy_view import (
    ANSWER,
    POINTER_TOKENS,
    RELATIONS,
    PolicyRecord,
    Serialisation,
    in_words,
    printed_slots,
    render,
)
from vcrt.records.supervision import SupervisedRecord
from vcrt_train.randomness import generator

Form: TypeAlias = Literal["words", "tokens"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """How records are written; random choices come from ``generator(seed, "render", record_id)``."""

    form: Form = "words"
    serialisation: Serialisation = "sorted"
    seed: int = 0


def prompt_text(record: PolicyRecord, rendering: Rendering) -> str:
    """Write the prompt of a record."""
    draw = generator(rendering.seed, "render", record.record_id)
    if record.steps and rendering.form == "words":
        slots = printed_slots(record, rendering.serialisation, draw)
        return "\n".join(
            [
                *([f"Task: {record.task}"] if record.task else []),
                "Steps:",
                *(f"{POINTER_TOKENS[record.pointers[s]]}: {record.steps[s]}" for s in slots),
                "Write every step once, separated by spaces, in an order in which all of them work and end as they "
                "should.",
                "Order:\n",
            ]
        )
    tokens = render(record, rendering.serialisation, draw)
    if rendering.form == "tokens":
        return " ".join(tokens)
    middle = tokens.index(RELATIONS)
    return "\n".join(
        [
            f"Steps: {' '.join(tokens[2:middle])}",
            "Relations:",
            *_statements(tokens[middle + 1 : tokens.index(ANSWER)]),
            "Write every step once, separated by spaces, in an order that the relations allow.",
            "Order:\n",
        ]
    )


def _statements(tokens: Sequence[str]) -> list[str]:
    sentences = " ".join(in_words(tokens)).split(".")
    return [f"{sentence.strip()}." for sentence in sentences if sentence.strip()]


def answer_text(record: PolicyRecord, order: Order) -> str:
    """Write the answer that gives the record's slots in ``order``."""
    return " ".join(POINTER_TOKENS[record.pointers[slot]] for slot in order)


def answers(supervised: SupervisedRecord) -> tuple[list[str], list[str]]:
    """Write the answers of the certified orbit, and all others, each in the order of :func:`vcrt.orders.all_orders`."""
    orbit: list[str] = []
    others: list[str] = []
    orders = all_orders(supervised.num_operations)
    for order, is_legal in zip(orders, supervised.legal, strict=True):
        (orbit if is_legal else others).append(answer_text(supervised.record, order))
    return orbit, others


def is_certified(
    text: str,
    orbit: Sequence[str] | None,
    partial_order: Sequence[Sequence[int]] | None,
    pointers: Sequence[int] | None,
) -> bool:
    """Return whether a text is an answer of the ``orbit``, for any white space.

    If no orbit is listed, it must give the ``pointers`` in an order that keeps the pairs of ``partial_order``.
    """
    if orbit and not isinstance(orbit[0], str):
        raise MalformedInputError(
            "the orbit holds token ids, so a text cannot be compared with it",
            where="orbit",
            found=f"{orbit[0]!r:.80}",
            expected="texts",
            remedy="give texts, or another reward function than certified_reward",
        )
    if orbit is not None or partial_order is None or pointers is None:
        return text.split() in [answer.split() for answer in orbit or ()]
    answer = read_answer(pointers, text)
    partial = PartialOrder.of(len(pointers), [(first, second) for first, second in partial_order])
    return answer is not None and partial.allows(answer)


def read_answer(pointers: Sequence[int], text: str) -> Order | None:
    """Read the order of slots from a text; None if it is anything but every pointer once.

    ``pointers[slot]`` is the pointer of a slot. Source: the malformed event of :mod:`vcrt_train.policy.scoring`.
    """
    slots = {POINTER_TOKENS[pointer]: slot for slot, pointer in enumerate(pointers)}
    words = text.split()
    if sorted(words) != sorted(slots):
        return None
    return tuple(slots[word] for word in words)


def certified_reward(
    completions: Sequence[Any],
    orbit: Sequence[Sequence[str] | None],
    partial_order: Sequence[Sequence[Sequence[int]] | None] | None = None,
    pointers: Sequence[Sequence[int]] | None = None,
    **_: Any,
) -> list[float]:
    """Reward each completion: 1 if its text is in its prompt's ``orbit`` (texts), else 0.

    If a prompt has too many orders to list, its ``orbit`` from :func:`vcrt_train.integrations.datasets.to_dataset` is
    None; the reward is then 1 for a completion that gives its ``pointers`` in an order that keeps the pairs of
    ``partial_order``. White space counts only as a separator. Completions may be texts or lists of messages.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    none: Sequence[None] = [None] * len(texts)
    pairs = none if partial_order is None else partial_order
    own = none if pointers is None else pointers
    return [float(is_certified(*row)) for row in zip(texts, orbit, pairs, own, strict=True)]


def chosen_environments(
    dataset: Dataset, environments: Sequence[str] | None, held_out: str | None
) -> list[str]:
    """Return ``environments`` (all by default) without ``held_out``.

    Raises :class:`UnknownNameError` for one that the dataset does not have, and :class:`DatasetError` if none is left.
    """
    chosen = list(dataset.environments if environments is None else environments)
    for name in [*chosen, *([] if held_out is None else [held_out])]:
        if name not in dataset.environments:
            raise UnknownNameError.of("environment of the dataset", name, dataset.environments)
    kept = [name for name in chosen if name != held_out]
    if not kept:
        raise DatasetError(
            "nothing is left to export",
            where=str(dataset.path),
            found=f"{', '.join(chosen) or 'no environment'}, without {held_out}",
            expected="at least one environment",
            remedy=f"choose from {', '.join(dataset.environments)}",
        )
    return kept
