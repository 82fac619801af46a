"""Make a plan on verified datasets from a user's choices.

A held-out environment may be among the sources under another name; a plan names sources that have the same versions, or
episodes of the same content. Not covered: an environment whose author changes its versions and every episode; and the
choice of hyper-parameters (:mod:`vcrt_train.protocol.search`), whose result and method the plan records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vcrt.documents import is_plain_name
from vcrt.errors import BackboneError, RunError
from vcrt.hashing import json_digest
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress, tell
from vcrt.records.dataset import Dataset, load_items, open_dataset, read_audit, require_agreement
from vcrt.records.manifest import Manifest
from vcrt_train.config import (
    DEFAULTS,
    EMBEDDED_LEARNING_RATE,
    EMBEDDED_NAME,
    EMBEDDED_NAMES,
    WITHOUT_EFFECT,
    ResolvedConfig,
    RunConfig,
    default_learning_rate,
    setting_names,
)
from vcrt_train.config_files import checked, how_settings_were_chosen, load_config, settings_names
from vcrt_train.policy.model_provenance import EMBEDDED_PROVENANCE, UNKNOWN, ModelProvenance
from vcrt_train.policy.reference import BackboneReference, number_format, reference_of
from vcrt_train.protocol.plan import (
    FORMAT,
    OWN,
    Alias,
    Plan,
    TestSet,
    require_names,
    require_once,
    require_pointers_interface,
)
from vcrt_train.protocol.same_code import code_of, versions_of_training
from vcrt_train.protocol.search import Search, SearchCheck, chosen_for
from vcrt_train.protocol.splits import hash_of_order, source_split
from vcrt_train.protocol.trials import check_search as check_trials
from vcrt_train.training.methods import method
from vcrt_train.training.run import require_trainable

#: The versions that only the same environment under two names has in common.
COMPARED = ("verifier", "adapter", "canonicalizer")


#: How the library's default settings were chosen.
DEFAULTS_CHOSEN = (
    "The learning rate was chosen on source items of another dataset (seed 1), three runs a fold: of 1e-4, 3e-4, "
    "1e-3 and 3e-3, the third was best by mean source pass rate for Canonical-GRPO and for VCRT "
    "(research/benchmarks/results/source_search.json)."
)


def how_chosen(config: ResolvedConfig) -> str:
    """Say how the settings of a plan without a search were chosen, and name those that are not the library's."""
    same = [name for name in settings_names() if not _others(config, load_config(settings=name))]
    if same:
        return f"{how_settings_were_chosen(same[0])} (Preset {' or '.join(same)}.)"
    named = ", ".join(f"{name} {config.value(name)}" for name in _others(config, DEFAULTS))
    rest = f"the library's defaults, but for {named}" if named else "the library's defaults"
    return f"{_rate_chosen(config)} Other settings are {rest}."


def _rate_chosen(config: ResolvedConfig) -> str:
    if config.optimiser.learning_rate != default_learning_rate(config.model):
        return "The learning rate was given, not searched for."
    if config.model.backbone == EMBEDDED_NAME:
        return DEFAULTS_CHOSEN
    if config.model.backbone in EMBEDDED_NAMES:
        return f"The learning rate is the one that was chosen for the backbone {EMBEDDED_NAME}."
    return "The learning rate is the paper's."


def _others(config: ResolvedConfig, base: RunConfig) -> list[str]:
    """Return the names of the settings of ``config`` that differ from those of ``base``.

    This leaves out the model, which the plan states elsewhere, settings on which no result depends (when a run is kept
    and validated, how it saves memory), and the learning rate, which has its own sentence, unless a preset sets it.
    """
    filled = base.resolved()
    out: tuple[str, ...] = ("model.", *WITHOUT_EFFECT)
    if filled.optimiser.learning_rate == EMBEDDED_LEARNING_RATE:
        out = (*out, "optimiser.learning_rate")
    return [
        name
        for name in setting_names()
        if not name.startswith(out) and config.value(name) != filled.value(name)
    ]


def chosen_reference(config: RunConfig) -> BackboneReference:
    """Return the backbone that the settings name; report its number format, and the reason, if it is chosen here."""
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
    """Make a plan on verified datasets, after a check that the backbone reads their records and trains as planned.

    Finished runs are scored on the held-out environments of the datasets at ``also_test`` too. First, ``check_search``
    of the search's trials are run again in ``jobs`` processes.
    """
    given = checked(config)
    backbone = chosen_reference(given)
    planned = backbone.resolved(given)
    dataset, *others = (open_dataset(path) for path in (dataset_path, *also_test))
    for one in (dataset, *others):
        require_agreement(one)
    loaded = require_trainable(backbone, planned)
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
            config=planned,
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
        config=planned,
        seed=seed,
        search=search,
        search_check=search_check,
        how_chosen=how_chosen(planned),
        also_test=others,
    )


def make_plan(
    dataset: Dataset,
    *,
    backbone: BackboneReference,
    backbone_digest: str,
    backbone_revision: str | None = None,
    provenance: ModelProvenance | None = None,
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    config: ResolvedConfig,
    held_out: tuple[str, ...] = (),
    seed: int = 0,
    how_chosen: str = "the defaults of the library",
    search: Search | None = None,
    search_check: SearchCheck | None = None,
    also_test: Sequence[Dataset] = (),
) -> Plan:
    """Plan ``methods`` x folds x ``seeds`` on a dataset; all its environments are held out in turn by default.

    Finished runs are scored on the held-out environments of the datasets ``also_test`` too. With a ``search``, each
    method and fold has the settings that the search chose; it must be of this dataset, backbone and seed, and cover
    every method and fold. Without ``provenance``, an embedded backbone has its own, and another has unknown training.

    Raises :class:`UnknownNameError` for an unknown method or environment, :class:`RunError` for an empty plan, and the
    errors of :func:`possible_test_sets`.
    """
    environments = dataset.environments
    require_names(dataset, methods, held_out)
    require_once("seed", seeds)
    if len(environments) < 2 or not methods or not seeds:
        raise RunError(
            "nothing to plan",
            found=f"{counted(len(environments), 'environment')}, {counted(len(methods), 'method')}, "
            f"{counted(len(seeds), 'seed')}",
            expected="at least two environments (one is held out), one method and one seed",
        )
    folds = held_out or environments
    chosen: dict[str, dict[str, dict[str, float]]] = {}
    if search is not None:
        search.require(
            root_hash=dataset.manifest.root_hash,
            backbone_digest=backbone_digest,
            backbone_identity=backbone.identity,
            seed=seed,
        )
        chosen = chosen_for(search, methods, folds)
        search.require_same_training(config, methods)
    test_sets = possible_test_sets(dataset, also_test, methods, folds)
    plan = Plan(
        format=FORMAT,
        dataset=str(dataset.path.resolve()),
        root_hash=dataset.manifest.root_hash,
        backbone=backbone,
        backbone_digest=backbone_digest,
        backbone_revision=backbone_revision,
        provenance=provenance or (EMBEDDED_PROVENANCE if backbone.is_embedded else UNKNOWN),
        methods=methods,
        definitions={name: method(name).definition() for name in methods},
        versions=versions_of_training(),
        code=code_of(environments),
        held_out=folds,
        environments=environments,
        environment_versions=versions_of(dataset),
        aliases=find_aliases(dataset, folds, also_test),
        seeds=seeds,
        seed=seed,
        config=config,
        chosen=chosen,
        how_chosen=how_chosen if search is None else search.in_words(search_check),
        search=None if search is None else search.digest,
        search_code=None if search is None else search.code,
        search_check=search_check,
        episode_order_hashes={},
        also_test=test_sets,
    )
    needed = sorted({name for fold in folds for name in plan.sources(fold)})
    items = {name: load_items(dataset, name) for name in needed}
    hashes = {}
    for fold in folds:
        source = source_split(
            [items[name] for name in plan.sources(fold)], config.data.retention_share, seed
        )
        source.require_both(fold, "train on some and set others aside", "set aside")
        if all(item.all_legal for item in source.training):
            raise RunError(
                "nothing can be learnt from source items of which every order is legal",
                where=f"{fold} held out",
                found=f"{counted(len(source.training), 'item')} to train on, none with an anti-diamond",
                expected="steps of which some must keep their order",
                remedy="certify other schemas of the source environments, or hold out another environment",
            )
        for each in seeds:
            hashes[f"{fold}/{each}"] = hash_of_order(source, config, plan.run_seed(each))
    return plan.model_copy(update={"episode_order_hashes": hashes})


def versions_of(dataset: Dataset) -> dict[str, dict[str, str]]:
    """Return the versions of each environment of a dataset that distinguish it from others."""
    return {
        name: {part: str(dataset.manifest.versions[name].get(part)) for part in COMPARED}
        for name in dataset.environments
    }


def find_aliases(
    dataset: Dataset, folds: Sequence[str], also_test: Sequence[Dataset] = ()
) -> tuple[Alias, ...]:
    """Find every pair of a held-out and another environment of ``dataset`` with common versions or episodes.

    The held-out episodes of the further test sets count too. Only the episodes of audit rows are read.
    """
    versions = versions_of(dataset)
    sources = {name: _contents(dataset, name) for name in dataset.environments}
    found = []
    for fold in folds:
        held_out = sources[fold].union(*(_contents(other, fold) for other in also_test))
        found += [
            Alias(
                held_out=fold,
                source=name,
                same_versions=versions[name] == versions[fold],
                same_episodes=len(held_out & sources[name]),
            )
            for name in dataset.environments
            if name != fold
        ]
    return tuple(one for one in found if one.same_versions or one.same_episodes)


def _contents(dataset: Dataset, environment: str) -> frozenset[str]:
    """Return the hashes of the environment's episodes without the names of environment and schema."""
    hashes = set()
    for row in read_audit(dataset, environment):
        episode = json.loads(row["episode"])
        hashes.add(json_digest([episode["initial"], episode["operations"]]))
    return frozenset(hashes)


def possible_test_sets(
    own: Dataset, others: Sequence[Dataset], methods: Sequence[str], folds: Sequence[str]
) -> tuple[TestSet, ...]:
    """Return the further datasets in the form of a plan, if every method can be scored on every fold of each.

    Raises :class:`RunError` for two of one name, for a name that is impossible, for the plan's own dataset, for a
    dataset without one of the folds, and if a method answers in tokens and there are too many operations.
    """
    found: list[TestSet] = []
    known = {own.manifest.root_hash: own.path}
    for dataset in others:
        path, root_hash = dataset.path.resolve(), dataset.manifest.root_hash
        if root_hash in known:
            raise RunError(
                "a test set is named twice, or is the plan's own dataset",
                where=str(dataset.path),
                found=f"root hash {root_hash}, as {known[root_hash]}",
                expected="other datasets than the plan's own, each one once",
                remedy="leave it out: the plan's own held-out folds are scored in any case",
            )
        if path.name in [one.name for one in found]:
            raise RunError(
                "two test sets of one name",
                where=str(path),
                found=f"a second {path.name!r}",
                expected="folders of different names: reports call them so",
                remedy="rename one, with the files beside it",
            )
        if not is_plain_name(path.name) or path.name == OWN:
            raise RunError(
                "the name of a test set is not possible",
                where=str(path),
                expected=f"a folder whose name is printable, does not begin with a dot, and is not {OWN!r}",
                remedy="rename it, with the files beside it",
            )
        if missing := [fold for fold in folds if fold not in dataset.environments]:
            raise RunError(
                "a test set lacks an environment that is held out",
                where=str(dataset.path),
                found=f"environments {', '.join(dataset.environments)}",
                expected=", ".join(folds),
                remedy=f"certify {', '.join(missing)} for it too, or name the folds with --held-out",
            )
        require_pointers_interface(dataset, methods)
        known[root_hash] = dataset.path
        found.append(TestSet(name=path.name, dataset=str(path), root_hash=root_hash))
    return tuple(found)


def require_readable(manifest: Manifest, num_pointers: int | None, *, where: Path) -> None:
    """Raise :class:`BackboneError` if a backbone that knows ``num_pointers`` (None: enough) cannot read the records.

    A backbone with a number of pointers is an embedded one, which reads no text.
    """
    if num_pointers is not None and manifest.record_form.is_text:
        raise BackboneError(
            "the backbone reads no text, and these records are text",
            where=str(where),
            found=f"records of {manifest.record_form.view}",
            expected="records of relations",
            remedy="plan with a language model, such as --backbone smollm2-135m",
        )
    most = max(manifest.lengths)
    needed = manifest.record_form.pool_of(most)
    if num_pointers is not None and num_pointers < needed:
        raise BackboneError(
            "the backbone does not know the pointers of so many operations",
            where=str(where),
            found=f"{counted(num_pointers, 'pointer')}",
            expected=f"{needed}: records of {counted(most, 'operation')} draw from so many here",
            remedy="plan with --backbone embedded-long, or with a language model",
        )
