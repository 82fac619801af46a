"""Compute the exact probability of every order of an episode, before training and after each kept update of a run.

If there are too many orders to draw, this is the total probability of the legal orders, with a standard error if it is
estimated. An episode is scored as in the evaluation. An episode that a run holds out is scored only after the
evaluation was opened and recorded, in the experiment's ledger and in the one beside the dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from vcrt.errors import UnknownNameError
from vcrt.orders import Order, all_orders, order_columns
from vcrt.partial_orders import PartialOrder
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Item, load_items, read_audit
from vcrt_train.objective.orbit_mass import orbit_log_mass
from vcrt_train.policy.scoring import greedy_orders, score_orders
from vcrt_train.protocol.decision import Policy, one_thread, policies_over_training, read_many
from vcrt_train.protocol.evaluation import check_scoring, encoded
from vcrt_train.protocol.experiment import Experiment, planned_dataset
from vcrt_train.protocol.plan import PlannedRun
from vcrt_train.protocol.scores import is_evaluated, read_scores, view_of
from vcrt_train.protocol.splits import set_aside
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.methods import Method

#: The role of an episode in a run; ``closed`` means that it is held out and no evaluation is recorded.
Role: TypeAlias = Literal["held out", "closed", "trained on", "set aside"]
#: The number of prompts that are scored at once.
_BATCH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Mass:
    """A policy's probabilities and greedy answer for one episode, in terms of the episode's own operations."""

    #: The probability of every order by column; empty if orders are not drawn.
    probabilities: tuple[float, ...]
    #: Z+: the probability of all legal orders together.
    legal: float
    #: The probability of all answers that are no order; 0 with pointers.
    malformed: float
    #: The greedy order; None if the greedy answer is no order.
    answer: Order | None
    #: Whether the greedy order keeps the certified relations; it is then legal, unless the evidence is sampled.
    passes: bool
    #: Standard error of ``legal``; None if it is exact.
    standard_error: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMasses:
    """A run, its kept updates (0 is the frozen backbone), and its role and masses of each episode by name."""

    run: PlannedRun
    updates: tuple[int, ...]
    roles: Mapping[str, Role]
    masses: Mapping[str, tuple[Mass, ...]]


def chosen_runs(experiment: Experiment, names: Sequence[str]) -> list[PlannedRun]:
    """Return the planned runs of these names; without names, the finished runs with the smallest seed.

    Raises :class:`UnknownNameError`.
    """
    runs = {run.name: run for run in experiment.plan.runs}
    if not names:
        finished, smallest = experiment.finished_runs(), min(experiment.plan.seeds)
        return [run for run in runs.values() if run.seed == smallest and run.name in finished]
    for name in names:
        if name not in runs:
            raise UnknownNameError.of("run", name, runs)
    return [runs[name] for name in dict.fromkeys(names)]


def run_masses(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    slots: Mapping[str, Mapping[str, Sequence[int]]],
    *,
    drawn: bool,
    progress: Progress = SILENT,
) -> list[RunMasses]:
    """Score episodes under each run; ``slots`` has the slot of each operation, by environment and episode.

    If orders are ``drawn``, all episodes have the same number of steps, and each order gets its probability. Raises
    :class:`vcrt.errors.RunError` if a run is not finished or a file differs from its record, and
    :class:`vcrt.errors.BackboneError` if the model's scores differ from those of the naive backend.
    """
    evaluated = _was_evaluated(experiment)
    if evaluated:
        # This raises an error if the scores were changed after they were recorded.
        read_scores(experiment)
    task = progress.task("score episodes", len(runs), "runs")
    scored = []
    for run in runs:
        scored.append(_run_masses(experiment, run, slots, evaluated, drawn=drawn))
        task.advance()
    return scored


def _was_evaluated(experiment: Experiment) -> bool:
    closed = planned_dataset(experiment.plan, without=experiment.plan.held_out)
    return is_evaluated(experiment, closed)


def _run_masses(
    experiment: Experiment,
    run: PlannedRun,
    slots: Mapping[str, Mapping[str, Sequence[int]]],
    evaluated: bool,
    *,
    drawn: bool,
) -> RunMasses:
    plan = experiment.plan
    dataset = planned_dataset(plan, without=() if evaluated else (run.held_out,))
    items: list[Item] = []
    roles: dict[str, Role] = {}
    for environment, episodes in slots.items():
        if environment in dataset.closed:
            roles |= dict.fromkeys(episodes, "closed")
            continue
        items += load_items(dataset, environment, only=episodes)
        if environment == run.held_out:
            roles |= dict.fromkeys(episodes, "held out")
            continue
        rows = read_audit(dataset, environment)
        aside = set_aside(
            [row["source"] for row in rows], plan.config.data.retention_share, plan.seed
        )
        roles |= {
            row["episode_id"]: "set aside" if row["source"] in aside else "trained on"
            for row in rows
            if row["episode_id"] in episodes
        }
    of_episode = {name: tuple(of) for some in slots.values() for name, of in some.items()}
    masses: dict[str, list[Mass]] = {item.episode_id: [] for item in items}
    updates = []
    for policy in policies_over_training(experiment, run):
        updates.append(policy.update or 0)
        if not items:
            continue
        if policy.update is None:
            check_scoring(
                policy.model,
                policy.backbone.encode,
                [item.supervised.record for item in items],
                policy.method,
                backend=policy.backend,
                seed=plan.seed,
                gradients=False,
            )
        with one_thread(policy.model):
            answers = _scored(policy, items, of_episode, plan.seed, drawn=drawn)
        for item, mass in zip(items, answers, strict=True):
            masses[item.episode_id].append(mass)
    return RunMasses(
        run=run,
        updates=tuple(updates),
        roles=roles,
        masses={name: tuple(of) for name, of in masses.items()},
    )


@torch.no_grad()
def _scored(
    policy: Policy,
    items: Sequence[Item],
    slots: Mapping[str, tuple[int, ...]],
    seed: int,
    *,
    drawn: bool,
) -> list[Mass]:
    ready = encoded(policy.backbone, items, policy.method, seed)
    pairs = [(one, slots[item.episode_id]) for one, item in zip(ready, items, strict=True)]
    if not drawn:
        return [_of_many(policy, item, slot_of, seed) for item, slot_of in pairs]
    starts = range(0, len(pairs), _BATCH)
    return [m for start in starts for m in _of_drawn(policy, pairs[start : start + _BATCH])]


def _of_drawn(
    policy: Policy, batch: Sequence[tuple[EncodedItem, tuple[int, ...]]]
) -> Iterator[Mass]:
    """Compute every order's probability for a batch of episodes of few operations."""
    interface, backend = policy.method.interface, policy.backend
    prompts = [item.prompt for item, _ in batch]
    scores = score_orders(policy.model, prompts, interface=interface, backend=backend)
    answers = greedy_orders(policy.model, prompts, interface=interface, backend=backend)
    log_probs = scores.order_log_probs.double().cpu()
    # All episodes of a batch have the same number of operations.
    orders = all_orders(len(prompts[0].pointer_ids))
    members = [[item.is_legal(order) for order in orders] for item, _ in batch]
    legal = orbit_log_mass(log_probs, torch.tensor(members)).exp()
    malformed = scores.malformed_log_prob
    lost = [0.0] * len(batch) if malformed is None else malformed.double().exp().tolist()
    column = order_columns(len(prompts[0].pointer_ids))
    for number, ((item, slot_of), answer) in enumerate(zip(batch, answers, strict=True)):
        by_slots = log_probs[number].exp().tolist()
        yield Mass(
            probabilities=tuple(
                by_slots[column[tuple(slot_of[operation] for operation in order)]]
                for order in orders
            ),
            legal=float(legal[number]),
            malformed=float(lost[number]),
            answer=_of_operations(answer, slot_of),
            passes=answer is not None and item.is_legal(answer),
        )


def _of_many(policy: Policy, item: EncodedItem, slot_of: tuple[int, ...], seed: int) -> Mass:
    """Compute the mass and the greedy order of an episode with too many orders to list."""
    assert isinstance(item.orbit, PartialOrder), "so many operations are a partial order"
    found = read_many(policy.model, item.prompt, item.orbit, backend=policy.backend, seed=seed)
    return Mass(
        probabilities=(),
        legal=found.orbit_mass,
        malformed=0.0,
        answer=_of_operations(found.greedy, slot_of),
        passes=item.is_legal(found.greedy),
        standard_error=found.standard_error,
    )


def _of_operations(order: Order | None, slot_of: tuple[int, ...]) -> Order | None:
    """Translate an order of slots into an order of operations."""
    return None if order is None else tuple(slot_of.index(slot) for slot in order)


def recorded_agreement(
    experiment: Experiment, scored: Collection[RunMasses], rows: Mapping[str, Sequence[str]]
) -> tuple[int, int] | None:
    """Count the answers with a verdict in the evaluation, and those with the same verdict; None before an evaluation.

    ``rows`` has the names of all episodes of each environment in the dataset's order.
    """
    if not _was_evaluated(experiment):
        return None
    scores = read_scores(experiment)
    compared = agreed = 0
    for run in scored:
        name, fold = run.run.name, run.run.held_out
        place = {episode: index for index, episode in enumerate(rows.get(fold, ()))}
        view = view_of(Method(**experiment.plan.definitions[run.run.method]))
        kept = [scores.checkpoints[name][update] for update in run.updates[1:-1]]
        recorded = [scores.frozen[view][fold], *kept, scores.runs[name]]
        for episode, masses in run.masses.items():
            if run.roles[episode] == "held out":
                passed = [of.held_out[place[episode]] == "1" for of in recorded]
                compared += len(passed)
                agreed += sum(of.passes == mass for of, mass in zip(masses, passed, strict=True))
    return compared, agreed
