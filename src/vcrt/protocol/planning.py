"""From a user's choices to a plan on a verified dataset."""

from __future__ import annotations

from pathlib import Path

from vcrt.policy.reference import EMBEDDED, BackboneReference
from vcrt.protocol.plan import Plan, make_plan
from vcrt.protocol.search import Search
from vcrt.records.dataset import open_dataset, require_agreement
from vcrt.training.run import RunConfig, require_trainable

#: How the library's default settings were chosen.
DEFAULTS_CHOSEN = (
    "The learning rate was chosen on source items of another dataset (seed 1), three runs a fold: of 1e-4, 3e-4, "
    "1e-3 and 3e-3, the third was best by mean source pass rate for Canonical-GRPO and for VCRT "
    "(benchmarks/results/source_search.json). Other settings are the library's defaults."
)


def frozen_plan(
    dataset_path: Path,
    *,
    methods: tuple[str, ...],
    held_out: tuple[str, ...],
    runs: int,
    run: RunConfig,
    seed: int,
    search: Search | None = None,
    backbone: BackboneReference = EMBEDDED,
    how_chosen: str = DEFAULTS_CHOSEN,
) -> Plan:
    """A plan on a verified dataset, with a backbone that was seen to be trainable as planned."""
    dataset = open_dataset(dataset_path)
    require_agreement(dataset)
    loaded = require_trainable(backbone, run)
    return make_plan(
        dataset,
        backbone=backbone,
        backbone_digest=loaded.digest,
        backbone_revision=loaded.revision,
        methods=methods,
        held_out=held_out,
        seeds=tuple(range(runs)),
        run=run,
        seed=seed,
        search=search,
        how_chosen=how_chosen,
    )
