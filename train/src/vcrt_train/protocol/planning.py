"""From a user's choices to a plan on a verified dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcrt.progress import SILENT, Progress, tell
from vcrt.records.dataset import open_dataset, require_agreement
from vcrt_train.config import (
    DEFAULTS,
    EMBEDDED_NAME,
    EMBEDDED_NAMES,
    WITHOUT_EFFECT,
    RunConfig,
    default_learning_rate,
    setting_names,
)
from vcrt_train.config_files import checked, how_settings_were_chosen, load_config, settings_names
from vcrt_train.policy.number_format import number_format
from vcrt_train.policy.reference import BackboneReference, reference_of
from vcrt_train.protocol.further_sets import require_readable
from vcrt_train.protocol.plan import Plan, make_plan
from vcrt_train.protocol.search import Search
from vcrt_train.protocol.trials import check_search as check_trials
from vcrt_train.training.run import require_trainable

#: How the library's default settings were chosen.
DEFAULTS_CHOSEN = (
    "The learning rate was chosen on source items of another dataset (seed 1), three runs a fold: of 1e-4, 3e-4, "
    "1e-3 and 3e-3, the third was best by mean source pass rate for Canonical-GRPO and for VCRT "
    "(research/benchmarks/results/source_search.json)."
)


def how_chosen(config: RunConfig) -> str:
    """How the settings of a plan without a search were chosen; every one that is not the library's is named."""
    config = config.resolved()
    same = [name for name in settings_names() if not _others(config, load_config(settings=name))]
    if same:
        return f"{how_settings_were_chosen(same[0])} (Preset {' or '.join(same)}.)"
    named = ", ".join(f"{name} {config.value(name)}" for name in _others(config, DEFAULTS))
    rest = f"the library's defaults, but for {named}" if named else "the library's defaults"
    return f"{_rate_chosen(config)} Other settings are {rest}."


def _rate_chosen(config: RunConfig) -> str:
    if config.learning_rate != default_learning_rate(config.model):
        return "The learning rate was given, not searched for."
    if config.model.backbone == EMBEDDED_NAME:
        return DEFAULTS_CHOSEN
    if config.model.backbone in EMBEDDED_NAMES:
        return f"The learning rate is the one that was chosen for the backbone {EMBEDDED_NAME}."
    return "The learning rate is the paper's."


def _others(config: RunConfig, base: RunConfig) -> list[str]:
    """The settings of a resolved ``config`` that differ from those of ``base``.

    Left out is what a plan says elsewhere or no result depends on: the model, when a run is kept and validated, how it
    saves memory; and the learning rate, which has a sentence of its own, unless a preset gives one.
    """
    base = base.resolved()
    out: tuple[str, ...] = ("model.", *WITHOUT_EFFECT)
    if base.optimiser.learning_rate == DEFAULTS.learning_rate:
        out = (*out, "optimiser.learning_rate")
    return [
        name
        for name in setting_names()
        if not name.startswith(out) and config.value(name) != base.value(name)
    ]


def chosen_reference(config: RunConfig) -> BackboneReference:
    """The backbone that the settings mean; where its number format was chosen here, people are told which and why."""
    backbone = reference_of(config)
    if config.model.dtype == "auto" and not backbone.is_embedded:
        chosen = number_format(config)
        tell(f"{backbone.name} is in {chosen.dtype}, {chosen.reason}")
    return backbone


def frozen_plan(
    dataset_path: Path,
    *,
    methods: tuple[str, ...],
    held_out: tuple[str, ...],
    runs: int,
    config: RunConfig,
    seed: int,
    search: Search | None = None,
    also_test: Sequence[Path] = (),
    check_search: int = 0,
    jobs: int = 1,
    progress: Progress = SILENT,
) -> Plan:
    """A plan on verified datasets, with a backbone that was seen to be trainable as planned and to read their records.

    Finished runs are scored on the held-out environments of the datasets at ``also_test`` too. Of the search's trials
    ``check_search`` are run again first, by so many ``jobs``.
    """
    config = checked(config)
    backbone = chosen_reference(config)
    dataset, *others = (open_dataset(path) for path in (dataset_path, *also_test))
    for one in (dataset, *others):
        require_agreement(one)
    loaded = require_trainable(backbone, config)
    for one in (dataset, *others):
        require_readable(one.manifest, loaded.num_pointers, where=one.path)
    search_check = None
    if search is not None and check_search:
        search.require(
            root_hash=dataset.manifest.root_hash,
            backbone_digest=loaded.digest,
            backbone_identity=backbone.identity,
        )
        search_check = check_trials(
            search,
            dataset,
            backbone=backbone,
            config=config,
            number=check_search,
            jobs=jobs,
            progress=progress,
        )
    return make_plan(
        dataset,
        backbone=backbone,
        backbone_digest=loaded.digest,
        backbone_revision=loaded.revision,
        provenance=loaded.provenance,
        methods=methods,
        held_out=held_out,
        seeds=tuple(range(runs)),
        config=config,
        seed=seed,
        search=search,
        search_check=search_check,
        how_chosen=how_chosen(config),
        also_test=others,
    )
