"""The self-check on the records that a model will really score: some of the first, and the longest.

The longest are checked by themselves, because a model may see all of a short record and not all of a long one, and
because another backend may be chosen for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.policy.backbone import PromptEncoder
from vcrt.policy.scoring import Backend, CausalModel
from vcrt.policy.self_check import self_check
from vcrt.progress import stage
from vcrt.randomness import generator
from vcrt.records.dataset import Item
from vcrt.training.methods import Method

#: How many of the first items are checked.
_FIRST = 4


def check_scoring(
    model: CausalModel,
    encode: PromptEncoder,
    items: Sequence[Item],
    chosen: Method,
    *,
    backend: Backend,
    seed: int,
    gradients: bool = True,
) -> None:
    """Compare the backend's scores of a few items with those of the naive one.

    Raises :class:`vcrt.errors.BackboneError` if they differ. ``gradients`` compares those of the trainable parameters
    too.
    """
    prompts = [
        encode(
            item.supervised.record,
            chosen.serialisation,
            generator(seed, "self-check", item.supervised.record.record_id),
        )
        for item in [*items[:_FIRST], max(items, key=_size)]
    ]
    with stage(f"self-check of the model's scores ({chosen.interface}) against naive ones"):
        # A batch of the check has one number of operations, in the order in which they occur.
        for number, count in enumerate(dict.fromkeys(p.num_operations for p in prompts[:-1])):
            self_check(
                model,
                [prompt for prompt in prompts[:-1] if prompt.num_operations == count],
                interface=chosen.interface,
                backend=backend,
                gradients=gradients and number == 0,
            )
        self_check(
            model, prompts[-1:], interface=chosen.interface, backend=backend, gradients=False
        )


def _size(item: Item) -> tuple[int, int]:
    """What the length of a record's text grows with."""
    record = item.supervised.record
    return record.num_operations, len(record.relations)
