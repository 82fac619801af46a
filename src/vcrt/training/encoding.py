"""What training does with records of either kind: few operations, all orders listed; or many, a partial order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torch import Tensor

from vcrt.errors import RunError
from vcrt.policy.backbone import PromptEncoder
from vcrt.policy.scoring import CausalModel
from vcrt.records.supervision import PosetRecord, SupervisedRecord
from vcrt.training.items import EncodedItem, encode_items, orbit_log_masses
from vcrt.training.methods import Method
from vcrt.training.poset_items import PosetItem, encode_poset_items
from vcrt.training.poset_masses import poset_log_masses
from vcrt.training.update import UpdateConfig

#: Records of one dataset, all of one kind.
Records: TypeAlias = Sequence[SupervisedRecord | PosetRecord]
AnyItem: TypeAlias = EncodedItem | PosetItem
Items: TypeAlias = Sequence[AnyItem]


def encode_records(records: Records, method: Method, *, seed: int, encode: PromptEncoder) -> Items:
    """Each record as ``method`` sees it; raises :class:`RunError` if they are of both kinds."""
    listed = [record for record in records if isinstance(record, SupervisedRecord)]
    posets = [record for record in records if isinstance(record, PosetRecord)]
    if listed and posets:
        raise RunError(
            "records of few and of many operations cannot be trained on together",
            found=f"{len(listed)} with all orders listed and {len(posets)} with a partial order",
            expected="records of one dataset",
        )
    if posets:
        return encode_poset_items(posets, method, seed=seed, encode=encode)
    return encode_items(listed, method, seed=seed, encode=encode)


def log_masses(
    model: CausalModel,
    items: Items,
    *,
    method: Method,
    config: UpdateConfig,
    seed: int,
    batch_size: int = 64,
) -> Tensor:
    """Orbit log-mass ``[len(items)]`` of each item under ``model``, on the CPU; ``seed`` is for estimates."""
    posets = [item for item in items if isinstance(item, PosetItem)]
    if posets:
        return poset_log_masses(
            model,
            posets,
            config=config.estimate,
            seed=seed,
            backend=config.backend,
            batch_size=batch_size,
        )
    listed = [item for item in items if isinstance(item, EncodedItem)]
    return orbit_log_masses(
        model, listed, interface=method.interface, backend=config.backend, batch_size=batch_size
    )
