"""Measure how well relations between steps can be inferred without replaying them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from vcrt.api.certifying import Environments, as_dataset
from vcrt.environments.isolation import ask
from vcrt.errors import RunError, VcrtError
from vcrt.limits import MAX_DRAWN
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset
from vcrt.replay.shards import factory_of
from vcrt_research.asking import yes_shares
from vcrt_research.relation_predictors import (
    by_answers,
    by_footprints,
    by_policy,
    by_shared_words,
    declared,
    described,
    question,
    tasks,
)
from vcrt_research.relation_scores import (
    Labelled,
    LabelledPair,
    Prediction,
    RelationScores,
    best_threshold,
    labelled,
    relation_scores,
)
from vcrt_train.api.experimenting import as_experiment, names_of
from vcrt_train.policy.backbone import Backbone, device_of, load_backbone
from vcrt_train.policy.reference import backbone_reference
from vcrt_train.protocol.experiment import Experiment
from vcrt_train.report.explorer.masses import RunMasses, chosen_runs, run_masses

Said = TypeVar("Said")
#: From which score on what claims to be a probability is a prediction of an edge.
_HALF = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorScores:
    """How well one predictor infers the relations of one environment; ``runs`` of a policy are taken together."""

    predictor: str
    environment: str
    scores: RelationScores
    runs: int = 0


@dataclass(frozen=True, slots=True)
class RelationInference:
    """The scores of each predictor on each environment, and how many pairs of each have no relation of their own."""

    rows: tuple[PredictorScores, ...]
    implied: Mapping[str, int]


def relations(
    dataset: Dataset | str | Path,
    *,
    experiment: Experiment | str | Path | None = None,
    run: Sequence[str] = (),
    backbone: str | None = None,
    episodes: int | None = None,
    environments: Environments | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> RelationInference:
    """Score predictions of which steps depend on one another against a dataset's certificates: ``vcrt relations``.

    ``shared words`` predicts from words that the steps' texts share; its threshold is chosen on the other environments.
    ``declared footprints`` does so for environments that have footprints. With an evaluated ``experiment`` on the
    dataset, the policies of its runs ``run`` (by default all) predict before and after training, each on the
    environment that it holds out. A language model ``backbone`` is asked in words about each pair of steps, with two
    prompts a pair. ``seed`` draws ``episodes`` from each environment; by default all are taken.

    Raises :class:`vcrt.errors.RunError` if the experiment is on another dataset, was not evaluated, or has episodes
    with too many orders to list.
    """
    opened = as_dataset(dataset)
    if episodes is not None and episodes < 1:
        raise VcrtError("too few episodes", found=f"{episodes} episodes", expected="at least 1")
    known = {name: labelled(opened, name, episodes, seed) for name in opened.environments}
    rows = list(_by_words(known, environments, seed))
    rows += _by_footprints(known, environments, seed)
    if backbone is not None:
        reference = backbone_reference(backbone)
        asked = load_backbone(reference)
        asked.model.to(device_of(reference))
        rows += _by_answers(known, asked, environments, seed, progress)
    if experiment is not None:
        rows += _by_policies(
            opened, as_experiment(experiment), names_of(run), known, seed, progress
        )
    order = {name: place for place, name in enumerate(dict.fromkeys(row.predictor for row in rows))}
    rows.sort(key=lambda row: (row.environment, order[row.predictor]))
    return RelationInference(tuple(rows), {name: one.implied for name, one in known.items()})


def _by_words(
    known: Mapping[str, Labelled], environments: Environments | None, seed: int
) -> Iterator[PredictorScores]:
    predictions = {}
    for name, of in known.items():
        texts = ask(factory_of(name, environments), partial(described, episodes=of.episodes))
        predictions[name] = by_shared_words(of.pairs, _by_episode(of, texts))
    yield from _thresholded("shared words", known, predictions, False, seed)


def _thresholded(
    predictor: str,
    known: Mapping[str, Labelled],
    predictions: Mapping[str, Sequence[Prediction]],
    probabilities: bool,
    seed: int,
) -> Iterator[PredictorScores]:
    """Each environment by the threshold that is best on the others."""
    for name, of in known.items():
        others = [other for other in known if other != name] or [name]
        threshold = best_threshold(
            [pair for other in others for pair in known[other].pairs],
            [prediction for other in others for prediction in predictions[other]],
        )
        yield _row(predictor, name, of.pairs, predictions[name], threshold, probabilities, seed)


def _by_answers(
    known: Mapping[str, Labelled],
    backbone: Backbone,
    environments: Environments | None,
    seed: int,
    progress: Progress,
) -> Iterator[PredictorScores]:
    predictions = {}
    for name, of in known.items():
        factory = factory_of(name, environments)
        texts = _by_episode(of, ask(factory, partial(described, episodes=of.episodes)))
        given = ask(factory, partial(tasks, episodes=of.episodes))
        task_of = dict(zip(of.slots, given, strict=True))
        asked = [
            (pair.episode_id, *ends)
            for pair in of.pairs
            for ends in ((pair.first, pair.second), (pair.second, pair.first))
        ]
        questions = [
            question(task_of[name], texts[name][first], texts[name][second])
            for name, first, second in asked
        ]
        shares = yes_shares(backbone, questions, progress=progress)
        predictions[name] = by_answers(of.pairs, dict(zip(asked, shares, strict=True)))
    yield from _thresholded(f"{backbone.name}, asked", known, predictions, True, seed)


def _by_footprints(
    known: Mapping[str, Labelled], environments: Environments | None, seed: int
) -> Iterator[PredictorScores]:
    for name, of in known.items():
        found = ask(factory_of(name, environments), partial(declared, episodes=of.episodes))
        footprints = {
            episode: [one for one in some if one is not None]
            for episode, some in _by_episode(of, found).items()
        }
        if all(len(footprints[e.episode_id]) == e.num_operations for e in of.episodes):
            predictions = by_footprints(of.pairs, footprints)
            yield _row("declared footprints", name, of.pairs, predictions, _HALF, False, seed)


def _by_policies(
    dataset: Dataset,
    experiment: Experiment,
    names: Sequence[str],
    known: Mapping[str, Labelled],
    seed: int,
    progress: Progress,
) -> Iterator[PredictorScores]:
    plan, manifest = experiment.plan, dataset.manifest
    if plan.root_hash != manifest.root_hash:
        raise RunError(
            "the experiment is on another dataset",
            where=str(experiment.path),
            found=f"root hash {plan.root_hash}",
            expected=f"root hash {manifest.root_hash}",
        )
    if manifest.num_operations is None or manifest.num_operations > MAX_DRAWN:
        raise RunError(
            "the orders of these episodes are too many to read a policy's relations from",
            where=str(dataset.path),
            expected=f"episodes of one length, of {MAX_DRAWN} operations at most",
        )
    slots = {name: known[name].slots for name in plan.held_out}
    runs = chosen_runs(experiment, names or [one.name for one in plan.runs])
    scored = run_masses(experiment, runs, slots, drawn=True, progress=progress)
    closed = [one.run.name for one in scored if "closed" in one.roles.values()]
    if closed:
        raise RunError(
            "what a run holds out is closed until the experiment is evaluated",
            where=str(experiment.path),
            found=f"{closed[0]}, not evaluated",
            remedy=f"run `vcrt evaluate {experiment.path}` first",
        )
    for fold in plan.held_out:
        own = [one for one in scored if one.run.held_out == fold]
        for method in dict.fromkeys(one.run.method for one in own):
            of_method = [one for one in own if one.run.method == method]
            for words, update in (("before training", 0), ("", -1)):
                yield _policy_row(f"{method} {words}".strip(), fold, of_method, update, known, seed)


def _policy_row(
    predictor: str,
    fold: str,
    runs: Sequence[RunMasses],
    update: int,
    known: Mapping[str, Labelled],
    seed: int,
) -> PredictorScores:
    """All runs of a method together; of a policy before training the first, as all begin with one."""
    taken = runs if update else runs[:1]
    pairs: list[LabelledPair] = []
    predictions: list[Prediction] = []
    for one in taken:
        probabilities = {name: masses[update].probabilities for name, masses in one.masses.items()}
        pairs += known[fold].pairs
        predictions += by_policy(known[fold].pairs, probabilities)
    return _row(predictor, fold, pairs, predictions, _HALF, True, seed, runs=len(taken))


def _row(
    predictor: str,
    environment: str,
    pairs: Sequence[LabelledPair],
    predictions: Sequence[Prediction],
    threshold: float,
    probabilities: bool,
    seed: int,
    *,
    runs: int = 0,
) -> PredictorScores:
    scores = relation_scores(
        pairs, predictions, threshold=threshold, probabilities=probabilities, seed=seed
    )
    return PredictorScores(predictor=predictor, environment=environment, scores=scores, runs=runs)


def _by_episode(of: Labelled, found: Sequence[Sequence[Said]]) -> dict[str, Sequence[Said]]:
    return {episode.episode_id: some for episode, some in zip(of.episodes, found, strict=True)}
