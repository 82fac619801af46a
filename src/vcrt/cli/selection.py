"""From names on the command line to configurations."""

from __future__ import annotations

from pathlib import Path

from vcrt.environments.registry import load_environment, own_environment_names
from vcrt.protocol.plan import Plan, make_plan
from vcrt.records.dataset import open_dataset, require_agreement
from vcrt.training.run import RunConfig

HOW_CHOSEN = (
    "The learning rate was chosen on source items of another dataset (seed 1), three runs a fold: of 1e-4, 3e-4, "
    "1e-3 and 3e-3, the third was best by mean source pass rate for Canonical-GRPO and for VCRT "
    "(benchmarks/results/source_search.json). Other settings are the library's defaults."
)


def select_schemas(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Schemas by environment, from names like ``clrs`` or ``clrs/mst_kruskal``; vcrt's own environments for no names.

    An environment by itself stands for its default schemas.

    Raises :class:`vcrt.errors.UnknownNameError` for a name that is not registered.
    """
    chosen: dict[str, list[str]] = {}
    for name in names or own_environment_names():
        environment_name, _, schema = name.partition("/")
        environment = load_environment(environment_name)
        known = [s.name for s in environment.schemas if s.default]
        wanted = [environment.schema(schema).name] if schema else known
        listed = chosen.setdefault(environment_name, [])
        listed += [one for one in wanted if one not in listed]
    return {name: tuple(listed) for name, listed in sorted(chosen.items())}


def frozen_plan(
    dataset_path: Path,
    *,
    methods: tuple[str, ...],
    held_out: tuple[str, ...],
    runs: int,
    updates: int,
    learning_rate: float,
    seed: int,
) -> Plan:
    """A plan on a verified dataset with the embedded backbone."""
    from vcrt.policy.backbone import load_backbone

    dataset = open_dataset(dataset_path)
    require_agreement(dataset)
    return make_plan(
        dataset,
        backbone="embedded",
        backbone_digest=load_backbone("embedded").digest,
        methods=methods,
        held_out=held_out,
        seeds=tuple(range(runs)),
        run=RunConfig(
            num_updates=updates, learning_rate=learning_rate, checkpoint_every=min(100, updates)
        ),
        seed=seed,
        how_chosen=HOW_CHOSEN
        if learning_rate == RunConfig().learning_rate
        else "The learning rate was given on the command line.",
    )
