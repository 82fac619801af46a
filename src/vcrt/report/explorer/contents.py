"""What is gathered for the explorer's page: episodes with evidence and pictures, and what trained runs say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import factorial

from vcrt.certification.shards import EnvironmentFactory
from vcrt.datasets.examination import Describe, description_of, factory_of
from vcrt.errors import DatasetError, RunError, UnavailableError, UnknownNameError, VcrtError
from vcrt.hashing import Json
from vcrt.limits import MAX_DRAWN
from vcrt.progress import SILENT, Progress
from vcrt.protocol.experiment import Experiment
from vcrt.protocol.plan import PlannedRun
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import certified_from_row, episode_of_json
from vcrt.records.dataset import Dataset, read_audit, require_agreement
from vcrt.records.manifest import AGREEMENT, Manifest
from vcrt.report.data_words import evidence_sentences
from vcrt.report.explorer.choice import PER_SCHEMA, drawn_steps, in_turn, named
from vcrt.report.explorer.embedding import embedded
from vcrt.report.explorer.episodes import episode_json, required_pairs, shown_text
from vcrt.report.explorer.geometry import Drawing, drawing
from vcrt.report.explorer.masses import (
    RunMasses,
    default_runs,
    named_runs,
    recorded_agreement,
    run_masses,
)
from vcrt.report.wording import counted, label

#: Bytes of the page that episodes may take; the page as a whole stays under 5 MB.
ROOM = 4_500_000
#: Bytes that the probability of one order takes, at most.
_A_PROBABILITY = 8
#: Bytes that a picture takes, at most: one of five steps.
BYTES_OF_A_DRAWING = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplorerContents:
    """Everything that the page says. ``schemas`` has, for each, the episodes on the page and in the dataset."""

    root_hash: str
    #: None where episodes may have several numbers of steps, those of ``lengths``; none of them is drawn then.
    num_operations: int | None
    lengths: tuple[int, ...]
    schemas: Mapping[tuple[str, str], tuple[int, int]]
    episodes: tuple[dict[str, Json], ...]
    #: The episodes' own names, which may hold what is not printed.
    names: tuple[str, ...]
    drawings: Mapping[str, Drawing]
    runs: tuple[RunMasses, ...] = ()
    #: What a reader has to know about where this comes from and what is not in it.
    notes: tuple[str, ...] = ()
    #: The address of a report to link to.
    report: str | None = None

    @property
    def num_in_dataset(self) -> int:
        """The episodes of the dataset."""
        return sum(there for _, there in self.schemas.values())


def gather_explorer(
    dataset: Dataset,
    *,
    experiment: Experiment | None = None,
    runs: Sequence[str] = (),
    episodes: Sequence[str] = (),
    per_schema: int | None = None,
    report: str | None = None,
    factories: Mapping[str, EnvironmentFactory] | None = None,
    progress: Progress = SILENT,
) -> ExplorerContents:
    """Gather a page; raises as :func:`vcrt.report.explorer.write_explorer` does."""
    if per_schema is not None and per_schema < 1:
        raise VcrtError(
            "too few episodes of each schema", found=str(per_schema), expected="1 or more"
        )
    if per_schema is not None and episodes:
        raise VcrtError(
            "which episodes?",
            found="names, and a number of each schema",
            expected="one of them",
        )
    if runs and experiment is None:
        raise VcrtError(
            "runs of which experiment?", found=", ".join(runs), expected="an experiment with them"
        )
    chosen = [] if experiment is None else _runs(experiment, dataset, runs)
    rows = {name: read_audit(dataset, name) for name in dataset.environments}
    names: dict[tuple[str, str], list[str]] = {}
    for environment, some in rows.items():
        for row in some:
            names.setdefault((environment, row["schema"]), []).append(row["episode_id"])
    wanted = (
        named(names, episodes, str(dataset.path))
        if episodes
        else in_turn(names, PER_SCHEMA if per_schema is None else per_schema)
    )
    made = _that_fit(
        dataset,
        wanted,
        rows,
        bytes_of_scores=_bytes_of_scores(experiment, len(chosen), dataset.manifest),
        describe={name: _descriptions(name, factories, some) for name, some in rows.items()},
    )
    scored: list[RunMasses] = []
    if experiment is not None and chosen:
        slots = {
            environment: {
                name: made[name].slots for row in some if (name := row["episode_id"]) in made
            }
            for environment, some in rows.items()
        }
        scored = run_masses(experiment, chosen, slots, progress=progress)
    all_names = {environment: [r["episode_id"] for r in some] for environment, some in rows.items()}
    return ExplorerContents(
        root_hash=dataset.manifest.root_hash,
        num_operations=dataset.manifest.num_operations,
        lengths=dataset.manifest.lengths,
        schemas={
            key: (sum(name in made for name in some), len(some)) for key, some in names.items()
        },
        episodes=tuple(
            made[name].shown for some in all_names.values() for name in some if name in made
        ),
        names=tuple(name for some in all_names.values() for name in some if name in made),
        drawings={
            str(one.shown["drawing"]): one.drawing
            for one in made.values()
            if one.drawing is not None
        },
        runs=tuple(scored),
        notes=(
            *_dataset_notes(dataset, len(wanted), len(made)),
            *_run_notes(experiment, chosen, scored, all_names),
        ),
        report=report,
    )


def _runs(experiment: Experiment, dataset: Dataset, names: Sequence[str]) -> list[PlannedRun]:
    planned = experiment.plan.root_hash
    if planned != dataset.manifest.root_hash:
        raise RunError(
            "the experiment was planned on another dataset",
            where=str(experiment.path),
            found=f"root hash {planned}",
            expected=f"root hash {dataset.manifest.root_hash}, that of {dataset.path}",
            remedy=f"explore its own dataset: {experiment.plan.dataset}",
        )
    return named_runs(experiment, names) if names else default_runs(experiment)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """An episode in the page's form, the slot of each of its operations, and its picture."""

    shown: dict[str, Json]
    slots: tuple[int, ...]
    drawing: Drawing | None


def _that_fit(
    dataset: Dataset,
    wanted: Sequence[str],
    rows: Mapping[str, Sequence[Mapping[str, str]]],
    *,
    bytes_of_scores: int,
    describe: Mapping[str, Callable[[str], Describe]],
) -> dict[str, _Made]:
    """As many of the wanted episodes, in their order, as the page has room for; one at least."""
    found = {row["episode_id"]: (name, row) for name, some in rows.items() for row in some}
    made: dict[str, _Made] = {}
    room, drawn = ROOM, set[Json]()
    for name in wanted:
        environment, row = found[name]
        one = _made(dataset, row, describe[environment](name))
        room -= len(embedded(one.shown).encode()) + bytes_of_scores
        if one.drawing is not None and one.shown["drawing"] not in drawn:
            drawn.add(one.shown["drawing"])
            room -= BYTES_OF_A_DRAWING
        if room < 0 and made:
            break
        made[name] = one
    return made


def _made(dataset: Dataset, row: Mapping[str, str], describe: Describe) -> _Made:
    manifest = dataset.manifest
    certified = certified_from_row(row, manifest.preset)
    drawn = drawn_steps(manifest)
    return _Made(
        shown=episode_json(certified, describe, is_drawn=drawn is not None),
        slots=anonymise(certified, manifest.seed, manifest.record_form).slot_of_operation,
        drawing=None if drawn is None else drawing(drawn, required_pairs(certified)),
    )


def _bytes_of_scores(experiment: Experiment | None, num_runs: int, manifest: Manifest) -> int:
    """What the probabilities of one episode take on the page, at most."""
    if experiment is None:
        return 0
    num_policies = num_runs * (1 + len(experiment.plan.shared_config.checkpoints))
    drawn = drawn_steps(manifest)
    num_orders = 0 if drawn is None else factorial(drawn)
    return num_policies * (num_orders * _A_PROBABILITY + 4 * max(manifest.lengths) + 96)


def _descriptions(
    environment: str,
    factories: Mapping[str, EnvironmentFactory] | None,
    rows: Sequence[Mapping[str, str]],
) -> Callable[[str], Describe]:
    """How steps of an episode, given its name, are described: by their signature if the environment is not here."""
    episodes = {
        row["episode_id"]: episode_of_json(row["episode"], row["episode_id"]).operations
        for row in rows
    }
    try:
        return description_of(factory_of(environment, factories), episodes)
    except (UnknownNameError, UnavailableError):
        return lambda _: lambda operation: operation.signature


def _dataset_notes(dataset: Dataset, wanted: int, shown: int) -> list[str]:
    try:
        agreement = require_agreement(dataset)
    except DatasetError as error:
        notes = [
            f"The agreement record is not this dataset's: {shown_text(error.what)}."
            if (dataset.path / AGREEMENT).exists()
            else "The dataset has not been verified: no replay was repeated by vcrt verify."
        ]
    else:
        notes = [
            f"Every replay was repeated in a fresh process: {agreement.agreed:,} of {agreement.replays:,} agree."
        ]
    if shown < wanted:
        notes.append(
            f"There is no room for {counted(wanted - shown, 'more episode')} that were asked for: name fewer."
        )
    notes += evidence_sentences(dataset.manifest.model_dump(mode="json")["counts"])
    if dataset.manifest.num_operations is None:
        notes.append(
            "Orders are drawn where all episodes have equally many steps; every pair's evidence is here."
        )
    elif dataset.manifest.num_operations > MAX_DRAWN:
        notes.append(
            f"Orders of more than {MAX_DRAWN} steps are too many to be drawn; every pair's evidence is here."
        )
    return notes


def _run_notes(
    experiment: Experiment | None,
    chosen: Sequence[PlannedRun],
    scored: Sequence[RunMasses],
    names: Mapping[str, Sequence[str]],
) -> list[str]:
    if experiment is None:
        return []
    if not scored:
        return ["No run of the experiment is finished, so no probability is shown."]
    seeds = sorted({one.run.seed for one in scored})
    exact = "Probabilities are exact"
    masses = [mass for one in scored for some in one.masses.values() for mass in some]
    if any(mass.standard_error is not None for mass in masses):
        exact = "Greedy answers are exact, probabilities of all legal orders are estimates with a standard error"
    notes = [
        f"{exact}, of {counted(len(scored), 'run')} (seed {', '.join(map(str, seeds))}) of "
        f"{len(experiment.plan.runs)} that were planned."
    ]
    agreement = recorded_agreement(experiment, scored, names)
    if agreement is None:
        folds = ", ".join(dict.fromkeys(label(one.run.held_out) for one in scored))
        notes.append(
            "No evaluation is recorded both in the experiment's ledger and in the one beside the dataset. What a run "
            f"holds out ({folds}) stays closed: such episodes are shown without probabilities."
        )
    elif agreement[0]:
        compared, agreed = agreement
        notes.append(
            f"The evaluation recorded {counted(compared, 'greedy answer')} to the held-out episodes here; "
            f"{agreed:,} are the same, asked again for this page."
        )
    return notes
