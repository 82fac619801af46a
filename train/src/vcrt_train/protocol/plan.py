"""Fix the plan of an experiment: everything that will be run, frozen and hashed before the first update.

Not covered: the choice of hyper-parameters (:mod:`vcrt_train.protocol.search`); the plan records what was chosen, and
how.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
)

import vcrt
from vcrt.documents import is_plain_name, read_limited, strict_json
from vcrt.errors import RunError, UnknownNameError
from vcrt.forms import in_a_line
from vcrt.hashing import Json, json_digest
from vcrt.printable import counted
from vcrt.randomness import derive_seed
from vcrt.records.dataset import Dataset, load_items
from vcrt.storage import write_file
from vcrt_train.config import RunConfig
from vcrt_train.config_files import checked
from vcrt_train.policy.model_provenance import EMBEDDED_PROVENANCE, UNKNOWN, ModelProvenance
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol.aliases import Alias, find_aliases, versions_of
from vcrt_train.protocol.further_sets import TestSet, possible_test_sets, require_pointers_interface
from vcrt_train.protocol.plan_remarks import plan_remarks, plan_warnings
from vcrt_train.protocol.search import RANGES, Search, SearchCheck, chosen_for
from vcrt_train.protocol.source_code import code_of
from vcrt_train.protocol.splits import source_split
from vcrt_train.training.methods import method
from vcrt_train.training.run import episode_order, num_draws

FORMAT = "vcrt-plan/8"
PLAN_FILE = "plan.json"
#: The most runs that a plan is read with.
MAX_RUNS = 10_000


class PlannedRun(BaseModel):
    """One run of the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    held_out: str
    seed: int

    @property
    def name(self) -> str:
        """``method/held-out/seed``, also its path below the experiment's ``runs``."""
        return f"{self.method}/{self.held_out}/{self.seed}"


class Plan(BaseModel):
    """What an experiment will run: methods x held-out environments x seeds, under matched controls."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: str
    dataset: str
    root_hash: str
    #: The backbone by name, its number format and what it is shown; where its files lie is not hashed.
    backbone: BackboneReference
    #: SHA-256 of the digests of all its files, and the revision that its lock names, if it names one.
    backbone_digest: str
    backbone_revision: str | None
    #: What the backbone was trained on, as far as is known.
    provenance: ModelProvenance
    methods: tuple[str, ...]
    #: What each method is: its row of the method table.
    definitions: dict[str, dict[str, Any]]
    #: The libraries that the last bits of a run depend on.
    versions: dict[str, str]
    #: The hash of the source files that decide a result, by package.
    code: dict[str, str]
    held_out: tuple[str, ...]
    environments: tuple[str, ...]
    #: The versions by which an environment is known under another name.
    environment_versions: dict[str, dict[str, str]]
    aliases: tuple[Alias, ...]
    seeds: tuple[int, ...]
    seed: int
    #: The settings of every run; the backbone's place is left out of them.
    config: RunConfig
    #: By method and held-out environment, the settings that a search chose for them; empty if it chose none.
    chosen: dict[str, dict[str, dict[str, float]]]
    how_chosen: str
    #: SHA-256 of the search that ``chosen`` is from.
    search: str | None
    #: The hash of the code that ran the search, and what of it was run again for this plan; None if nothing was.
    search_code: dict[str, str] | None
    search_check: SearchCheck | None
    episode_order_hashes: dict[str, str]
    #: Further datasets on whose held-out environments the finished runs are scored; left out of the file if none is.
    also_test: tuple[TestSet, ...] = ()

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked_for(
        self, handler: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        if not self.also_test:
            value.pop("also_test", None)
        return value

    @property
    def plan_hash(self) -> str:
        """SHA-256 of the plan's canonical JSON, the places of the datasets and the backbone left out."""
        return json_digest(self.without_places)

    @property
    def without_places(self) -> dict[str, Any]:
        """The plan in JSON's types, without where the datasets and the backbone lie."""
        places: dict[str, Any] = {
            "dataset": True,
            "backbone": {"folder": True, "lock": True},
            "also_test": {"__all__": {"dataset"}},
        }
        return self.model_dump(mode="json", exclude=places)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes a held-out environment less than held out, in sentences that every report repeats."""
        return plan_warnings(self)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the plan rests on and nobody has checked, in sentences."""
        return plan_remarks(self)

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Every planned run: by held-out environment, seed and method."""
        return tuple(
            PlannedRun(method=name, held_out=fold, seed=seed)
            for fold in self.held_out
            for seed in self.seeds
            for name in self.methods
        )

    def config_of(self, run: PlannedRun) -> RunConfig:
        """All settings of a run: the shared ones with those that were chosen for its method and fold."""
        return (
            self.config.override(self.chosen[run.method][run.held_out])
            if self.chosen
            else self.config
        )

    def identity(self, run: PlannedRun) -> str:
        """What a run's checkpoints call it: the plan's hash and the run's name."""
        return f"{self.plan_hash}/{run.name}"

    def run_seed(self, seed: int) -> int:
        """The seed of a planned run's draws, derived from the plan's; the same for all methods and folds."""
        return derive_seed(self.seed, "run", seed)

    def sources(self, held_out: str) -> tuple[str, ...]:
        """The environments that are trained on when one is held out."""
        return tuple(name for name in self.environments if name != held_out)


def make_plan(
    dataset: Dataset,
    *,
    backbone: BackboneReference,
    backbone_digest: str,
    backbone_revision: str | None = None,
    provenance: ModelProvenance | None = None,
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    config: RunConfig,
    held_out: tuple[str, ...] = (),
    seed: int = 0,
    how_chosen: str = "the defaults of the library",
    search: Search | None = None,
    search_check: SearchCheck | None = None,
    also_test: Sequence[Dataset] = (),
) -> Plan:
    """Plan ``methods`` x folds x ``seeds`` on a dataset; all its environments are held out in turn by default.

    Finished runs are scored on the held-out environments of the datasets ``also_test`` too.

    With a ``search``, each method and fold has the settings that it chose; it must be of this dataset, backbone and
    seed, and list every method and fold. ``search_check`` is what of it was run again.

    Without ``provenance``, an embedded backbone has its own and any other is of unknown training. The audit rows of all
    environments are read for the hashes of their episodes.

    Raises :class:`UnknownNameError` for an unknown method or environment, :class:`RunError` for an empty plan, and what
    :func:`vcrt_train.protocol.further_sets.possible_test_sets` raises.
    """
    config = backbone.named_in(checked(config)).resolved()
    environments = dataset.environments
    require_names(dataset, methods, held_out)
    if len(set(seeds)) < len(seeds):
        twice = sorted({str(seed) for seed in seeds if seeds.count(seed) > 1})
        raise RunError("a seed is named twice", found=", ".join(twice), expected="each one once")
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
        if not source.training or not source.retention:
            raise RunError(
                "too few source items to train on some and set others aside",
                where=f"{fold} held out",
                found=f"{len(source.training)} to train on, {len(source.retention)} set aside",
                expected="at least one of each",
                remedy="certify more episodes",
            )
        if all(item.all_legal for item in source.training):
            raise RunError(
                "nothing can be learnt from source items of which every order is legal",
                where=f"{fold} held out",
                found=f"{counted(len(source.training), 'item')} to train on, none with an anti-diamond",
                expected="steps of which some must keep their order",
                remedy="certify other schemas of the source environments, or hold out another environment",
            )
        identities = [item.episode_id for item in source.training]
        for seed_of_run in seeds:
            order = episode_order(len(identities), num_draws(config), plan.run_seed(seed_of_run))
            hashes[f"{fold}/{seed_of_run}"] = json_digest([identities[i] for i in order])
    return plan.model_copy(update={"episode_order_hashes": hashes})


def require_names(dataset: Dataset, methods: tuple[str, ...], held_out: tuple[str, ...]) -> None:
    """Raise an error that names the first method or environment which is unknown, named twice or impossible here."""
    for name in methods:
        method(name)
    require_pointers_interface(dataset, methods)
    for what, names in (("method", methods), ("environment", held_out)):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RunError(
                f"a {what} is named twice", found=", ".join(twice), expected="each one once"
            )
    for name in held_out:
        if name not in dataset.environments:
            raise UnknownNameError.of("environment of the dataset", name, dataset.environments)


def versions_of_training() -> dict[str, str]:
    """The versions of everything that a run's bits depend on besides the machine."""
    return {
        "vcrt": vcrt.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan with its hash, and what it says of itself; that follows from the plan and is not read."""
    value: Json = {
        "warnings": list(plan.warnings),
        "remarks": list(plan.remarks),
        "plan": plan.model_dump(mode="json"),
        "plan_hash": plan.plan_hash,
    }
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_plan(path: Path) -> Plan:
    """Read a plan; raises :class:`RunError` if it is missing, malformed or not the one that was hashed."""
    if not path.is_file():
        raise RunError(
            "not an experiment",
            where=str(path.parent),
            found=f"no {path.name}",
            remedy="make one with `vcrt plan DATASET --output EXPERIMENT`",
        )
    remedy = "restore the original, or make a new experiment with `vcrt plan`"
    try:
        value = strict_json(read_limited(path))
        _require_format(value["plan"]["format"], path)
        plan, sealed = Plan.model_validate(value["plan"]), value["plan_hash"]
        plan_hash = plan.plan_hash
    except RunError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error, remedy) from error
    if plan_hash != sealed:
        raise RunError(
            "the plan was changed after it was made",
            where=str(path),
            found=f"hash {plan_hash}",
            expected=f"hash {sealed!s:.80}",
            remedy=remedy,
        )
    try:
        _require_possible(plan)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise _unreadable(path, error, remedy) from error
    return plan


def _require_format(found: object, path: Path) -> None:
    if found != FORMAT:
        raise RunError(
            "a plan of another format",
            where=str(path),
            found=f"{found!s:.80}",
            expected=FORMAT,
            remedy="go on with the version of vcrt that made it, or make a new experiment with `vcrt plan`",
        )


def _unreadable(path: Path, error: Exception, remedy: str) -> RunError:
    return RunError(
        "the plan cannot be read",
        where=str(path),
        found=f"{type(error).__name__}: {in_a_line(error)[:300]}",
        remedy=remedy,
    )


def _require_possible(plan: Plan) -> None:
    """Raise what is wrong with a plan whose hash holds: it may never have been made by :func:`make_plan`."""
    test_sets = [one.name for one in plan.also_test]
    if len(set(test_sets)) < len(test_sets):
        raise ValueError("two test sets of one name")
    names = (*plan.methods, *plan.held_out, *plan.environments, *test_sets)
    odd = [name for name in names if not is_plain_name(name)]
    if odd:
        # They are names of folders below the experiment.
        raise ValueError(f"a method or environment called {odd[0]!r:.80}")
    if not 0 < len(plan.methods) * len(plan.held_out) * len(plan.seeds) <= MAX_RUNS:
        raise ValueError(f"no runs, or more than {MAX_RUNS}")
    if set(plan.environment_versions) != set(plan.environments):
        raise ValueError("versions of other environments")
    folds = {f"{fold}/{seed}" for fold in plan.held_out for seed in plan.seeds}
    if folds != set(plan.episode_order_hashes) or not set(plan.held_out) <= set(plan.environments):
        raise ValueError("held-out environments and episode orders that do not belong together")
    if plan.config != plan.config.resolved():
        raise ValueError("settings that are not whole")
    for name in plan.methods:
        for fold in plan.held_out:
            if plan.chosen and plan.chosen[name][fold].keys() != RANGES.keys():
                raise ValueError("chosen settings that no search chooses")
            plan.config_of(PlannedRun(method=name, held_out=fold, seed=plan.seeds[0]))
