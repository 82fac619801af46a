"""Define the plan of an experiment: everything that will be run, frozen and hashed before the first update.

The plan's warnings, which every report repeats, and its remarks follow from the plan alone. Not covered: how a plan is
made (:mod:`vcrt_train.protocol.planning`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcrt.documents import is_plain_name, read_limited, strict_json
from vcrt.errors import RunError, UnknownNameError
from vcrt.forms import ClosedModel
from vcrt.hashing import Json, json_digest
from vcrt.limits import MAX_ENUMERATED
from vcrt.printable import counted, printable
from vcrt.randomness import derive_seed
from vcrt.records.dataset import Dataset
from vcrt.storage import write_file
from vcrt_train.config import ResolvedConfig
from vcrt_train.policy.model_provenance import ModelProvenance
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol.search import RANGES, SearchCheck, changed, unreadable

FORMAT = "vcrt-plan/9"
PLAN_FILE = "plan.json"
#: The most runs of a plan that is read.
MAX_RUNS = 10_000
#: The name of the plan's own dataset among further test sets in reports.
OWN = "own"


class PlannedRun(ClosedModel):
    """One run of the plan."""

    method: str
    held_out: str
    seed: int

    @property
    def name(self) -> str:
        """``method/held-out/seed``, also its path below the experiment's ``runs``."""
        return f"{self.method}/{self.held_out}/{self.seed}"


class Alias(ClosedModel):
    """Two environments that may be the same: one is held out, and the runs that hold it out train on the other."""

    held_out: str
    source: str
    same_versions: bool
    #: How many of the held-out episodes equal one of the source's, apart from names.
    same_episodes: int


class TestSet(ClosedModel):
    """A further dataset to score on: its name (that of its folder), its place, and its root hash."""

    __test__ = False

    name: str
    dataset: str
    root_hash: str


class Plan(ClosedModel):
    """The runs of an experiment: methods x held-out environments x seeds, under matched controls."""

    left_out = ("also_test",)

    format: str
    dataset: str
    root_hash: str
    #: The backbone by name, its number format and what it is shown; the place of its files is not hashed.
    backbone: BackboneReference
    #: SHA-256 of the digests of all its files, and the revision that its lock names, if it names one.
    backbone_digest: str
    backbone_revision: str | None
    #: The known training of the backbone.
    provenance: ModelProvenance
    methods: tuple[str, ...]
    #: The definition of each method: its row of the method table.
    definitions: dict[str, dict[str, Any]]
    #: The versions of the libraries on which the last bits of a run depend.
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
    config: ResolvedConfig
    #: The settings that a search chose, by method and held-out environment; empty without a search.
    chosen: dict[str, dict[str, dict[str, float]]]
    how_chosen: str
    #: SHA-256 of the search that chose ``chosen``.
    search: str | None
    #: The hash of the code that ran the search, and a count of the trials that were repeated for this plan, or None.
    search_code: dict[str, str] | None
    search_check: SearchCheck | None
    episode_order_hashes: dict[str, str]
    #: Further datasets on whose held-out environments the finished runs are scored; left out of the file if empty.
    also_test: tuple[TestSet, ...] = ()

    @property
    def plan_hash(self) -> str:
        """SHA-256 of the plan's canonical JSON without the places of the datasets and the backbone."""
        return json_digest(self.without_places)

    @property
    def without_places(self) -> dict[str, Any]:
        """The plan in JSON's types, without the places of the datasets and the backbone."""
        places: dict[str, Any] = {
            "dataset": True,
            "backbone": {"folder": True, "lock": True},
            "also_test": {"__all__": {"dataset"}},
        }
        return self.model_dump(mode="json", exclude=places)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why a held-out environment may not be new to the model, as sentences that every report repeats."""
        return tuple(map(printable, (*_trained_on_held_out(self), *_possible_aliases(self))))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Unchecked assumptions of the plan, as sentences."""
        lines = []
        if not self.provenance.is_known:
            lines.append(
                f"The backbone {self.backbone.name} is {self.provenance.in_words()}: whether it was trained on a "
                "held-out environment is not known."
            )
        if self.search is not None and self.search_check is None:
            lines.append(
                "The search is unverified: none of its trials was run again when the plan was made, so the settings "
                "rest on the pass rates that its file states."
            )
        if self.search is not None and self.search_code != self.code:
            lines.append("The search was run by other code than the plan's.")
        return tuple(lines)

    @property
    def runs(self) -> tuple[PlannedRun, ...]:
        """Every planned run: by held-out environment, seed and method."""
        return tuple(
            PlannedRun(method=name, held_out=fold, seed=seed)
            for fold in self.held_out
            for seed in self.seeds
            for name in self.methods
        )

    def config_of(self, run: PlannedRun) -> ResolvedConfig:
        """Return all settings of a run: the shared ones, changed by those that were chosen for its method and fold."""
        if not self.chosen:
            return self.config
        return self.config.override(self.chosen[run.method][run.held_out])

    def identity(self, run: PlannedRun) -> str:
        """Return a run's identity in its checkpoints: the plan's hash and the run's name."""
        return f"{self.plan_hash}/{run.name}"

    def run_seed(self, seed: int) -> int:
        """Derive the seed of a planned run's draws from the plan's seed; all methods and folds have the same."""
        return derive_seed(self.seed, "run", seed)

    def sources(self, held_out: str) -> tuple[str, ...]:
        """Return the environments to train on when one is held out."""
        return tuple(name for name in self.environments if name != held_out)


def _trained_on_held_out(plan: Plan) -> list[str]:
    lines = []
    for fold in plan.held_out:
        for one in plan.provenance.trainings:
            run = f"{one.run} of plan {one.plan_hash[:12]}"
            if fold in one.environments:
                lines.append(
                    f"The backbone {plan.backbone.name} was trained on {fold}, which is held out here: by {run}, on "
                    f"the dataset {one.dataset[:12]}{' (this one)' if one.dataset == plan.root_hash else ''}."
                )
                continue
            own = plan.environment_versions[fold]
            others = sorted(name for name, found in one.environments.items() if found == own)
            if others:
                lines.append(
                    f"The backbone {plan.backbone.name} was trained by {run} on {', '.join(others)}, with the "
                    f"verifier, adapter and canonicalizer of {fold}, which is held out here: they may be one."
                )
    return lines


def _possible_aliases(plan: Plan) -> list[str]:
    lines = []
    for one in plan.aliases:
        common = []
        if one.same_versions:
            common.append("the same verifier, adapter and canonicalizer")
        if one.same_episodes:
            common.append(
                f"{one.same_episodes} episode{'s' if one.same_episodes > 1 else ''} in common but for the names"
            )
        lines.append(
            f"{one.held_out} is held out while {one.source} is trained on, and they have {' and '.join(common)}: they "
            "may be one environment under two names."
        )
    return lines


def require_names(dataset: Dataset, methods: tuple[str, ...], held_out: tuple[str, ...]) -> None:
    """Raise an error that names the first method or environment that is unknown, named twice or impossible here."""
    from vcrt_train.training.methods import method

    for name in methods:
        method(name)
    require_pointers_interface(dataset, methods)
    require_certified_failures(dataset, methods, held_out)
    require_samples_of_terms(dataset, methods, held_out)
    require_once("method", methods)
    require_once("environment", held_out)
    for name in held_out:
        if name not in dataset.environments:
            raise UnknownNameError.of("environment of the dataset", name, dataset.environments)


def require_once(what: str, names: Sequence[str] | Sequence[int]) -> None:
    """Raise :class:`RunError`, which gives the names that occur twice, if there are any; ``what`` is their kind."""
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise RunError(f"a {what} is named twice", found=", ".join(twice), expected="each one once")


def require_pointers_interface(dataset: Dataset, methods: Sequence[str]) -> None:
    """Raise :class:`RunError` if a method answers in tokens and the dataset has too many operations for that."""
    from vcrt_train.training.methods import method

    manifest = dataset.manifest
    others = [name for name in methods if method(name).interface != "pointers"]
    if others and (manifest.preset.is_any or max(manifest.lengths) > MAX_ENUMERATED):
        longest = max(manifest.lengths)
        found = (
            "any number of operations" if manifest.preset.is_any else counted(longest, "operation")
        )
        raise RunError(
            "a method that answers in tokens cannot be trained or scored on so many operations",
            where=str(dataset.path),
            found=f"{', '.join(others)}, {found}",
            expected=f"at most {MAX_ENUMERATED} operations, or methods with the interface pointers",
            remedy=f"leave out {', '.join(others)}, or this dataset",
        )


def require_certified_failures(
    dataset: Dataset, methods: Sequence[str], held_out: Sequence[str]
) -> None:
    """Raise :class:`RunError` if a method takes a source's other orders for failures, and not all were replayed."""
    from vcrt_train.training.methods import method

    others = [name for name in methods if method(name).needs_certified_failures]
    counts = {
        name: [each for each in schemas.values() if each.evidence is not None]
        for name, schemas in dataset.manifest.counts.items()
        if tuple(held_out) != (name,)
    }
    sampled = {
        name: sum(each.episodes - each.evidence.complete for each in some if each.evidence)
        for name, some in counts.items()
    }
    found = [f"{number} of {name}" for name, number in sampled.items() if number]
    if others and found:
        raise RunError(
            "a method takes every order outside of the orbit for a failure, and not all were replayed",
            where=str(dataset.path),
            found=f"{', '.join(others)}, and episodes with sampled evidence: {', '.join(found)}",
            expected="episodes whose every reachable context was replayed",
            remedy=f"leave out {', '.join(others)}, or certify episodes of fewer steps without --sampled",
        )


def require_samples_of_terms(
    dataset: Dataset, methods: Sequence[str], held_out: Sequence[str]
) -> None:
    """Raise :class:`RunError` if no record that a method would train on has what a term of its objective is about."""
    from vcrt_train.objective.terms import TERMS
    from vcrt_train.training.methods import method

    for fold in held_out:
        relations: Counter[str] = Counter()
        sources = [name for name in dataset.environments if name != fold]
        for name in sources:
            for schema in dataset.manifest.counts[name].values():
                relations.update(schema.relations)
        commuting = relations.pop("commutes", 0)
        missing = {
            "failures": None if relations.total() else "that must not be swapped",
            "commutations": None if commuting else "commutes",
            "swaps": None if commuting else "commutes",
        }
        if commuting and max(dataset.manifest.lengths) < 4:
            missing["swaps"] = "commutes with two more after it"
        found = {
            f"{term} of {name}": missing[needs]
            for name in methods
            for term in method(name).terms
            if (needs := TERMS[term].needs) is not None and missing[needs]
        }
        if sources and found:
            raise RunError(
                "the dataset has no samples for a term of the objective",
                where=f"{dataset.path}, {fold} held out",
                found=f"{', '.join(found)}, and no pair of steps of {', '.join(sources)} "
                f"{next(iter(found.values()))}",
                expected="four or more steps, with pairs that commute and pairs that must not be swapped",
                remedy="leave these methods out, or certify episodes that have both, as the preset `paper` does",
            )


def write_plan(plan: Plan, path: Path) -> None:
    """Write the plan with its hash, warnings and remarks; the latter two follow from the plan and are not read."""
    value: Json = {
        "warnings": list(plan.warnings),
        "remarks": list(plan.remarks),
        "plan": plan.model_dump(mode="json"),
        "plan_hash": plan.plan_hash,
    }
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_plan(path: Path) -> Plan:
    """Read a plan; raises :class:`RunError` if it is missing, malformed, or differs from its hash."""
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
        if (found := value["plan"]["format"]) != FORMAT:
            raise RunError(
                "a plan of another format",
                where=str(path),
                found=f"{found!s:.80}",
                expected=FORMAT,
                remedy="go on with the version of vcrt that made it, or make a new experiment with `vcrt plan`",
            )
        plan, sealed = Plan.model_validate(value["plan"]), value["plan_hash"]
        plan_hash = plan.plan_hash
    except RunError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable("plan", path, error, remedy) from error
    if plan_hash != sealed:
        raise changed("plan", path, f"hash {plan_hash}", f"hash {sealed!s:.80}", remedy)
    try:
        _require_possible(plan)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise unreadable("plan", path, error, remedy) from error
    return plan


def _require_possible(plan: Plan) -> None:
    """Raise an error for an impossible plan: a right hash does not prove that :func:`make_plan` made it."""
    test_sets = [one.name for one in plan.also_test]
    if len(set(test_sets)) < len(test_sets):
        raise ValueError("two test sets of one name")
    names = (*plan.methods, *plan.held_out, *plan.environments, *test_sets)
    odd = [name for name in names if not is_plain_name(name)]
    if odd:
        # These names are folders below the experiment.
        raise ValueError(f"a method or environment called {odd[0]!r:.80}")
    if not 0 < len(plan.methods) * len(plan.held_out) * len(plan.seeds) <= MAX_RUNS:
        raise ValueError(f"no runs, or more than {MAX_RUNS}")
    if set(plan.environment_versions) != set(plan.environments):
        raise ValueError("versions of other environments")
    folds = {f"{fold}/{seed}" for fold in plan.held_out for seed in plan.seeds}
    if folds != set(plan.episode_order_hashes) or not set(plan.held_out) <= set(plan.environments):
        raise ValueError("held-out environments and episode orders that do not belong together")
    for name in plan.methods:
        for fold in plan.held_out:
            if plan.chosen and plan.chosen[name][fold].keys() != RANGES.keys():
                raise ValueError("chosen settings that no search chooses")
            plan.config_of(PlannedRun(method=name, held_out=fold, seed=plan.seeds[0]))
