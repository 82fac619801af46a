"""The exact probability of every order of an episode, before training and after each kept update of a run.

Where orders are too many to be drawn, the probability of the legal ones together, with a standard error if it is
estimated. An episode is scored as the evaluation scores it: same rendering, same interface, same weights. One that a
run holds out is scored only after the experiment's one evaluation was opened and recorded, in the experiment's ledger
and in the one beside the dataset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from vcrt.errors import UnknownNameError
from vcrt.objective.orbit_mass import orbit_log_mass
from vcrt.orders import Order, all_orders, order_columns
from vcrt.partial_orders import PartialOrder
from vcrt.policy.scoring import greedy_orders, score_orders
from vcrt.progress import SILENT, Progress
from vcrt.protocol.decision import Policy, one_thread, policies_over_training
from vcrt.protocol.evaluation import encoded
from vcrt.protocol.experiment import Experiment, planned_dataset
from vcrt.protocol.many_operations import read_many
from vcrt.protocol.openings import is_evaluated
from vcrt.protocol.plan import PlannedRun
from vcrt.protocol.scores import read_scores, view_of
from vcrt.protocol.scoring_check import check_scoring
from vcrt.protocol.splits import set_aside
from vcrt.records.dataset import Item, load_items, read_audit
from vcrt.report.explorer.choice import drawn_steps
from vcrt.training.items import EncodedItem
from vcrt.training.methods import Method

#: What an episode is to a run: ``closed`` is one that is held out while no evaluation is recorded.
Role: TypeAlias = Literal["held out", "closed", "trained on", "set aside"]
#: Prompts that are scored at once.
_BATCH = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Mass:
    """What a policy says to one episode. Columns are the orders of the episode's own operations.

    Beyond ``MAX_DRAWN`` steps there are no columns: ``probabilities`` is empty and ``greedy`` is ``None``.
    """

    probabilities: tuple[float, ...]
    #: Z+: the probability of all legal orders together.
    legal: float
    #: The probability of all answers that are no order; 0 through pointers.
    malformed: float
    #: The column of the greedy order; None if that is no order.
    greedy: int | None
    #: The greedy order itself.
    answer: Order | None
    #: Whether the greedy order keeps the certified relations: is legal, unless the evidence is sampled.
    passes: bool
    #: Standard error of ``legal``; None where it is exact.
    standard_error: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMasses:
    """A run, the updates that were kept (0 is the frozen backbone), and what it says to each episode by name."""

    run: PlannedRun
    updates: tuple[int, ...]
    roles: Mapping[str, Role]
    masses: Mapping[str, tuple[Mass, ...]]


def default_runs(experiment: Experiment) -> list[PlannedRun]:
    """The finished runs of each method and fold with the smallest seed."""
    finished = experiment.finished_runs()
    smallest = min(experiment.plan.seeds)
    return [r for r in experiment.plan.runs if r.seed == smallest and r.name in finished]


def named_runs(experiment: Experiment, names: Sequence[str]) -> list[PlannedRun]:
    """The planned runs of these names; raises :class:`UnknownNameError`."""
    runs = {run.name: run for run in experiment.plan.runs}
    for name in names:
        if name not in runs:
            raise UnknownNameError.of("run", name, runs)
    return [runs[name] for name in dict.fromkeys(names)]


def run_masses(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    slots: Mapping[str, Mapping[str, Sequence[int]]],
    *,
    progress: Progress = SILENT,
) -> list[RunMasses]:
    """Score episodes under each run; ``slots`` has the slot of each operation, by environment and episode.

    Raises :class:`vcrt.errors.RunError` if a run is not finished or a file is not the one that was recorded, and
    :class:`vcrt.errors.BackboneError` if the model's scores are not those of the naive backend.
    """
    evaluated = _was_evaluated(experiment)
    if evaluated:
        # Scores that were changed after they were recorded are no evaluation.
        read_scores(experiment)
    task = progress.task("score episodes", len(runs), "runs")
    scored = []
    for run in runs:
        scored.append(_run_masses(experiment, run, slots, evaluated))
        task.advance()
    return scored


def _was_evaluated(experiment: Experiment) -> bool:
    plan = experiment.plan
    return is_evaluated(experiment, planned_dataset(plan, without=plan.held_out))


def _run_masses(
    experiment: Experiment,
    run: PlannedRun,
    slots: Mapping[str, Mapping[str, Sequence[int]]],
    evaluated: bool,
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
        aside = set_aside([row["source"] for row in rows], plan.retention_share, plan.seed)
        roles |= {
            row["episode_id"]: "set aside" if row["source"] in aside else "trained on"
            for row in rows
            if row["episode_id"] in episodes
        }
    of_episode = {name: tuple(of) for some in slots.values() for name, of in some.items()}
    masses: dict[str, list[Mass]] = {item.episode_id: [] for item in items}
    updates = []
    drawn = drawn_steps(dataset.manifest) is not None
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
    if not drawn:
        return [
            _of_many(policy, one, slots[item.episode_id], seed)
            for item, one in zip(items, ready, strict=True)
        ]
    interface, backend = policy.method.interface, policy.backend
    found = []
    for start in range(0, len(ready), _BATCH):
        batch = ready[start : start + _BATCH]
        prompts = [item.prompt for item in batch]
        scores = score_orders(policy.model, prompts, interface=interface, backend=backend)
        answers = greedy_orders(policy.model, prompts, interface=interface, backend=backend)
        log_probs = scores.order_log_probs.double().cpu()
        members = [
            [item.is_legal(order) for order in all_orders(len(prompt.pointer_ids))]
            for item, prompt in zip(batch, prompts, strict=True)
        ]
        legal = orbit_log_mass(log_probs, torch.tensor(members)).exp()
        malformed = scores.malformed_log_prob
        lost = [0.0] * len(batch) if malformed is None else malformed.double().exp().tolist()
        for number, item in enumerate(items[start : start + _BATCH]):
            answer = answers[number]
            found.append(
                Mass(
                    probabilities=_by_operations(
                        log_probs[number].exp().tolist(), slots[item.episode_id]
                    ),
                    legal=float(legal[number]),
                    malformed=float(lost[number]),
                    greedy=_column_by_operations(answer, slots[item.episode_id]),
                    answer=_order_by_operations(answer, slots[item.episode_id]),
                    passes=answer is not None and batch[number].is_legal(answer),
                )
            )
    return found


def _of_many(policy: Policy, item: EncodedItem, slot_of: tuple[int, ...], seed: int) -> Mass:
    """The mass and the greedy order of an episode whose orders are too many for columns."""
    if not isinstance(item.orbit, PartialOrder):
        raise AssertionError("so many operations are encoded as a partial order")
    found = read_many(policy.model, item.prompt, item.orbit, backend=policy.backend, seed=seed)
    return Mass(
        probabilities=(),
        legal=found.orbit_mass,
        malformed=0.0,
        greedy=None,
        answer=_order_by_operations(found.greedy, slot_of),
        passes=item.is_legal(found.greedy),
        standard_error=found.standard_error,
    )


def _by_operations(by_slots: Sequence[float], slot_of: tuple[int, ...]) -> tuple[float, ...]:
    """Columns over slots as columns over operations."""
    column = order_columns(len(slot_of))
    return tuple(
        by_slots[column[tuple(slot_of[operation] for operation in order)]]
        for order in all_orders(len(slot_of))
    )


def _order_by_operations(order: Order | None, slot_of: tuple[int, ...]) -> Order | None:
    return None if order is None else tuple(slot_of.index(slot) for slot in order)


def _column_by_operations(order: Order | None, slot_of: tuple[int, ...]) -> int | None:
    named = _order_by_operations(order, slot_of)
    return None if named is None else order_columns(len(slot_of))[named]


def recorded_agreement(
    experiment: Experiment, scored: Collection[RunMasses], rows: Mapping[str, Sequence[str]]
) -> tuple[int, int] | None:
    """Of how many answers the evaluation recorded a verdict too, and for how many it is the same; None before it.

    ``rows`` are the names of all episodes of an environment in the dataset's order.
    """
    if not _was_evaluated(experiment):
        return None
    scores = read_scores(experiment)
    compared = agreed = 0
    for run in scored:
        place = {name: index for index, name in enumerate(rows.get(run.run.held_out, ()))}
        last = len(run.updates) - 1
        view = view_of(Method(**experiment.plan.definitions[run.run.method]))
        for name, masses in run.masses.items():
            if run.roles[name] != "held out":
                continue
            for number, update in enumerate(run.updates):
                if number == 0:
                    recorded = scores.frozen[view][run.run.held_out]
                elif number == last:
                    recorded = scores.runs[run.run.name]
                else:
                    recorded = scores.checkpoints[run.run.name][update]
                compared += 1
                agreed += (recorded.held_out[place[name]] == "1") == masses[number].passes
    return compared, agreed
