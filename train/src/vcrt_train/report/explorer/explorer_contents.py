"""Gather the explorer's page: episodes with evidence and pictures, and the probabilities of trained runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from math import factorial

from vcrt.datasets.examination import Describe, description_of
from vcrt.errors import DatasetError, RunError, UnavailableError, UnknownNameError, VcrtError
from vcrt.hashing import Json
from vcrt.limits import MAX_DRAWN
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import certified_from_row, episode_of_json
from vcrt.records.dataset import Dataset, read_audit, require_agreement
from vcrt.records.manifest import AGREEMENT, Manifest
from vcrt.replay.shards import EnvironmentFactory, factory_of
from vcrt.words.evidence_words import evidence_sentences
from vcrt_train.protocol.experiment import Experiment
from vcrt_train.report.explorer.episodes import embedded, episode_json, required_pairs, shown_text
from vcrt_train.report.explorer.geometry import Drawing, Pairs, drawing, drawn_steps
from vcrt_train.report.explorer.masses import (
    RunMasses,
    chosen_runs,
    recorded_agreement,
    run_masses,
)
from vcrt_train.report.wording import label

#: Episodes of each schema, if no number is given.
PER_SCHEMA = 8
#: The most bytes of the page for episodes; the whole page stays under 5 MB.
ROOM = 4_500_000
#: The most bytes of the probability of one order.
_A_PROBABILITY = 8
#: The most bytes of a picture, which has five steps then.
BYTES_OF_A_DRAWING = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownEpisode:
    """An episode in the page's form, the slot of each of its operations, its required pairs and its picture."""

    #: The original name, which may have characters that are not printable.
    name: str
    shown: dict[str, Json]
    slots: tuple[int, ...]
    required: Pairs
    drawing: Drawing | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplorerContents:
    """All contents of the page; ``schemas`` has, for each schema, the numbers of episodes on the page and in all."""

    root_hash: str
    #: None if the page's episodes have different numbers of steps, all in ``lengths``; none of them is drawn then.
    num_operations: int | None
    lengths: tuple[int, ...]
    schemas: Mapping[tuple[str, str], tuple[int, int]]
    episodes: tuple[ShownEpisode, ...]
    runs: tuple[RunMasses, ...] = ()
    #: Notes for the reader on the origin of the contents, and on what is missing.
    notes: tuple[str, ...] = ()
    #: The address of a report to link to.
    report: str | None = None

    @property
    def num_in_dataset(self) -> int:
        """The number of episodes of the dataset."""
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
    """Gather the contents of a page on a dataset's episodes.

    ``episodes`` names the episodes to show; by default they are the first ``per_schema`` (8) of each schema. With an
    ``experiment`` on the dataset, the page has each order's exact probability for the frozen backbone and for every
    kept update of ``runs`` (METHOD/HELD-OUT/SEED; by default the smallest seed of each method and fold). Held-out
    episodes are scored only after the evaluation was opened and recorded. ``report`` is a report's relative address.

    Raises :class:`VcrtError` if the arguments contradict each other, :class:`vcrt.errors.DatasetError` for an episode
    that is not in the dataset, :class:`vcrt.errors.UnknownNameError` for a run that is not planned, and
    :class:`vcrt.errors.RunError` for a run that is not finished or an experiment on another dataset.
    """
    if per_schema is not None and per_schema < 1:
        raise VcrtError(
            "too few episodes of each schema", found=str(per_schema), expected="1 or more"
        )
    if per_schema is not None and episodes:
        found = "names, and a number of each schema"
        raise VcrtError("which episodes?", found=found, expected="one of them")
    if runs and experiment is None:
        expected = "an experiment with them"
        raise VcrtError("runs of which experiment?", found=", ".join(runs), expected=expected)
    chosen = []
    if experiment is not None:
        _require_its_dataset(experiment, dataset)
        chosen = chosen_runs(experiment, runs)
    rows = {name: read_audit(dataset, name) for name in dataset.environments}
    names = {name: [row["episode_id"] for row in some] for name, some in rows.items()}
    schemas: dict[tuple[str, str], list[str]] = defaultdict(list)
    for environment, some in rows.items():
        for row in some:
            schemas[environment, row["schema"]].append(row["episode_id"])
    if episodes:
        wanted = _named(names, episodes, str(dataset.path))
    else:
        # Take one of each schema at a time, so that schemas share the space.
        rounds = zip_longest(*(some[: per_schema or PER_SCHEMA] for some in schemas.values()))
        wanted = [name for some in rounds for name in some if name is not None]
    num_operations = _common_length(dataset.manifest, wanted, rows)
    drawn = drawn_steps(num_operations)
    made = _that_fit(
        dataset,
        wanted,
        rows,
        drawn=drawn,
        bytes_of_scores=_bytes_of_scores(experiment, len(chosen), dataset.manifest, drawn),
        describe={name: _descriptions(name, factories, some) for name, some in rows.items()},
    )
    scored: list[RunMasses] = []
    if experiment is not None and chosen:
        slots = {
            environment: {name: made[name].slots for name in some if name in made}
            for environment, some in names.items()
        }
        scored = run_masses(experiment, chosen, slots, drawn=drawn is not None, progress=progress)
    return ExplorerContents(
        root_hash=dataset.manifest.root_hash,
        num_operations=num_operations,
        lengths=dataset.manifest.lengths,
        schemas={
            key: (sum(name in made for name in some), len(some)) for key, some in schemas.items()
        },
        episodes=tuple(made[name] for some in names.values() for name in some if name in made),
        runs=tuple(scored),
        notes=(
            *_dataset_notes(dataset, num_operations, len(wanted), len(made)),
            *_run_notes(experiment, scored, names),
        ),
        report=report,
    )


def _common_length(
    manifest: Manifest, wanted: Sequence[str], rows: Mapping[str, Sequence[Mapping[str, str]]]
) -> int | None:
    """Return the number of steps of the wanted episodes; None if they have different numbers."""
    if manifest.num_operations is not None:
        return manifest.num_operations
    chosen = set(wanted)
    lengths = {
        episode_of_json(row["episode"], row["episode_id"]).num_operations
        for some in rows.values()
        for row in some
        if row["episode_id"] in chosen
    }
    return lengths.pop() if len(lengths) == 1 else None


def _named(names: Mapping[str, Sequence[str]], wanted: Sequence[str], where: str) -> list[str]:
    """Return the names of wanted episodes, each once; raises :class:`DatasetError` for one that does not exist."""
    known = [name for some in names.values() for name in some]
    for name in wanted:
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.0)
            raise DatasetError(
                f"no episode {name!r} in the dataset",
                where=where,
                expected=f"one of its {counted(len(known), 'episode')}, such as {', '.join(near)}",
                remedy="`vcrt explore DATASET` without names takes the first of each schema",
            )
    return list(dict.fromkeys(wanted))


def _require_its_dataset(experiment: Experiment, dataset: Dataset) -> None:
    planned = experiment.plan.root_hash
    if planned != dataset.manifest.root_hash:
        raise RunError(
            "the experiment was planned on another dataset",
            where=str(experiment.path),
            found=f"root hash {planned}",
            expected=f"root hash {dataset.manifest.root_hash}, that of {dataset.path}",
            remedy=f"explore its own dataset: {experiment.plan.dataset}",
        )


def _that_fit(
    dataset: Dataset,
    wanted: Sequence[str],
    rows: Mapping[str, Sequence[Mapping[str, str]]],
    *,
    drawn: int | None,
    bytes_of_scores: int,
    describe: Mapping[str, Callable[[str], Describe]],
) -> dict[str, ShownEpisode]:
    """Make as many of the wanted episodes, in their order, as fit on the page; at least one."""
    found = {row["episode_id"]: (name, row) for name, some in rows.items() for row in some}
    made: dict[str, ShownEpisode] = {}
    manifest = dataset.manifest
    room, pictures = ROOM, set[Pairs]()
    for name in wanted:
        environment, row = found[name]
        certified = certified_from_row(row, manifest.preset)
        required = required_pairs(certified)
        one = ShownEpisode(
            name=name,
            shown=episode_json(certified, describe[environment](name), is_drawn=drawn is not None),
            slots=anonymise(certified, manifest.seed, manifest.record_form).slot_of_operation,
            required=required,
            drawing=None if drawn is None else drawing(drawn, required),
        )
        room -= len(embedded(one.shown).encode()) + bytes_of_scores
        if one.drawing is not None and one.required not in pictures:
            pictures.add(one.required)
            room -= BYTES_OF_A_DRAWING
        if room < 0 and made:
            break
        made[name] = one
    return made


def _bytes_of_scores(
    experiment: Experiment | None, num_runs: int, manifest: Manifest, drawn: int | None
) -> int:
    """Return the most bytes on the page for the probabilities of one episode."""
    if experiment is None:
        return 0
    num_policies = num_runs * (1 + len(experiment.plan.config.schedule.checkpoints))
    num_orders = 0 if drawn is None else factorial(drawn)
    return num_policies * (num_orders * _A_PROBABILITY + 4 * max(manifest.lengths) + 96)


def _descriptions(
    environment: str,
    factories: Mapping[str, EnvironmentFactory] | None,
    rows: Sequence[Mapping[str, str]],
) -> Callable[[str], Describe]:
    """Return how to describe steps of an episode, given its name: by signature if the environment is not available."""
    episodes = {
        row["episode_id"]: episode_of_json(row["episode"], row["episode_id"]).operations
        for row in rows
    }
    try:
        return description_of(factory_of(environment, factories), episodes)
    except (UnknownNameError, UnavailableError):
        return lambda _: lambda operation: operation.signature


def _dataset_notes(
    dataset: Dataset, num_operations: int | None, wanted: int, shown: int
) -> list[str]:
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
    if num_operations is None:
        notes.append(
            "Orders are drawn where all episodes on the page have equally many steps: name such episodes to see them. "
            "Every pair's evidence is here."
        )
    elif num_operations > MAX_DRAWN:
        notes.append(
            f"Orders of more than {MAX_DRAWN} steps are too many to be drawn; every pair's evidence is here."
        )
    return notes


def _run_notes(
    experiment: Experiment | None,
    scored: Sequence[RunMasses],
    names: Mapping[str, Sequence[str]],
) -> list[str]:
    if experiment is None:
        return []
    if not scored:
        return ["No run of the experiment is finished, so no probability is shown."]
    seeds = sorted({one.run.seed for one in scored})
    masses = [mass for one in scored for some in one.masses.values() for mass in some]
    exact = "Probabilities are exact"
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
