"""Run the self-check on records that a model will really score: some of the first, and the longest.

The longest is checked by itself unless one of the first is as long, because a model may see all of a short record and
not all of a long one, and because another backend may be chosen for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.progress import stage
from vcrt.randomness import generator
from vcrt.records.policy_view import PolicyRecord
from vcrt_train.config import Backend
from vcrt_train.policy.backbone import PromptEncoder
from vcrt_train.policy.scoring import CausalModel, Prompt
from vcrt_train.policy.self_check import self_check
from vcrt_train.training.methods import Method

#: How many of the first records are checked.
_FIRST = 2


def check_scoring(
    model: CausalModel,
    encode: PromptEncoder,
    records: Sequence[PolicyRecord],
    chosen: Method,
    *,
    backend: Backend,
    seed: int,
    gradients: bool = True,
) -> None:
    """Compare the backend's scores of a few records with those of the naive one; nothing is asked of what is legal.

    Raises :class:`vcrt.errors.BackboneError` if they differ. ``gradients`` compares those of the trainable parameters
    too.
    """
    prompts = [
        encode(record, chosen.serialisation, generator(seed, "self-check", record.record_id))
        for record in [*records[:_FIRST], max(records, key=_size)]
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
        if not any(_covers(prompt, prompts[-1]) for prompt in prompts[:-1]):
            self_check(
                model, prompts[-1:], interface=chosen.interface, backend=backend, gradients=False
            )


def _covers(checked: Prompt, longest: Prompt) -> bool:
    """Whether a prompt that was checked is as long as the longest."""
    return checked.num_operations == longest.num_operations and len(checked.token_ids) >= len(
        longest.token_ids
    )


def _size(record: PolicyRecord) -> tuple[int, int]:
    """What the length of a record's text grows with."""
    return record.num_operations, len(record.relations)
