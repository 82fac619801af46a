"""Training items: supervised records turned into prompts and tensors once, before the first update.

Encoding is a function of the seed and the record alone, never of its place in a batch or of other records. Not
covered: which records are trained on and in which order.

Shapes: ``M`` orders, ``K`` swap histories of one record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vcrt.objective.orbit_mass import orbit_log_mass
from vcrt.orders import Order, order_columns
from vcrt.policy.backbone import PromptEncoder
from vcrt.policy.interface import Interface, tree_depth
from vcrt.policy.order_tree import order_tree
from vcrt.policy.scoring import Backend, CausalModel, Prompt, score_orders
from vcrt.randomness import generator
from vcrt.records.supervision import SupervisedRecord
from vcrt.training.methods import Method, Ratio


@dataclass(frozen=True, kw_only=True)
class EncodedItem:
    """One record as training sees it, on the CPU."""

    record_id: str
    prompt: Prompt
    #: ``[M]`` bool: the certified orbit; gives the reward, the margin and the retained mass.
    legal: Tensor
    #: ``[M]`` bool: the set whose mass is the ratio of a success; None for the sampled order alone.
    credit: Tensor | None
    #: ``[K, 2]``: tree rows after ab and after ba of each certified swap.
    histories: Tensor

    def is_legal(self, order: Order) -> bool:
        """Whether an order of slots is in the certified orbit."""
        return bool(self.legal[order_columns(len(order))[order]])


def encode_items(
    records: Sequence[SupervisedRecord], method: Method, *, seed: int, encode: PromptEncoder
) -> list[EncodedItem]:
    """Each record as ``method`` sees it; draws come from ``generator(seed, purpose, record_id)``."""
    return [_encode_item(record, method, seed, encode) for record in records]


def _encode_item(
    supervised: SupervisedRecord, method: Method, seed: int, encode: PromptEncoder
) -> EncodedItem:
    record = supervised.record
    num_operations = record.num_operations
    rows = order_tree(num_operations, tree_depth(num_operations, method.interface)).row_of
    return EncodedItem(
        record_id=record.record_id,
        prompt=encode(record, method.serialisation, generator(seed, "render", record.record_id)),
        legal=torch.tensor(supervised.legal),
        credit=_credit(supervised, method.ratio, seed),
        histories=torch.tensor(
            [[rows[ab], rows[ba]] for ab, ba in supervised.histories], dtype=torch.long
        ).reshape(-1, 2),
    )


def _credit(supervised: SupervisedRecord, ratio: Ratio, seed: int) -> Tensor | None:
    if ratio == "trajectory":
        return None
    if ratio == "orbit":
        return torch.tensor(supervised.legal)
    draw = generator(seed, "shuffled-orbit", supervised.record.record_id)
    return torch.tensor(draw.permutation(np.array(supervised.legal)))


@torch.no_grad()
def orbit_log_masses(
    model: CausalModel,
    items: Sequence[EncodedItem],
    *,
    interface: Interface,
    backend: Backend = "auto",
    batch_size: int = 64,
) -> Tensor:
    """Orbit log-mass ``[len(items)]`` of each item under ``model``, on the CPU.

    Called with the model before its first update, this is the frozen backbone's mass that
    :func:`vcrt.training.update.update` asks for, and no second copy of the model is needed. The last bits of a float
    depend on how prompts are padded together: to get the same bits again, pass the same list again.
    """
    model.eval()
    masses = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        scores = score_orders(
            model, [item.prompt for item in batch], interface=interface, backend=backend
        )
        log_probs = scores.order_log_probs.cpu()
        masses.append(orbit_log_mass(log_probs, torch.stack([item.legal for item in batch])))
    return torch.cat(masses) if masses else torch.zeros(0)
