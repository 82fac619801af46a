"""What a trained policy answers to one relation record: its greedy order, and how probable that and legal orders are.

All orders of up to six operations are scored; beyond, :mod:`vcrt.protocol.many_operations` says what is exact.
The policy is a finished run of an experiment at one of its checkpoints, or the frozen backbone alone. No dataset is
opened and nothing is written. Not covered: reading a record (:mod:`vcrt.records.stated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import exp, factorial

import torch

from vcrt.errors import RunError, TooLargeError, UnknownNameError
from vcrt.limits import MAX_COUNTED, MAX_ENUMERATED, MAX_LISTED
from vcrt.objective.orbit_mass import orbit_log_mass
from vcrt.orders import Order, all_orders, order_columns
from vcrt.partial_orders import num_linear_extensions
from vcrt.policy.backbone import Backbone
from vcrt.policy.backends import choose_backend
from vcrt.policy.interface import tree_depth
from vcrt.policy.scoring import Backend, CausalModel, Prompt, greedy_orders, score_orders
from vcrt.policy.self_check import self_check, spot_check
from vcrt.printable import counted
from vcrt.progress import stage
from vcrt.protocol.experiment import Experiment, device_of, planned_backbone, recorded_checkpoints
from vcrt.protocol.many_operations import score_many
from vcrt.protocol.plan import Plan, PlannedRun
from vcrt.protocol.scores import FROZEN_AS
from vcrt.protocol.trained_models import trained_models
from vcrt.randomness import generator
from vcrt.records.policy_view import PolicyRecord
from vcrt.records.stated import PointedRecord, StatedRecord, pointed
from vcrt.training.methods import Method, method

#: The run that is asked where there are several: the only one of this method, if there is only one.
DEFAULT_METHOD = "vcrt"
_CHECKING = "self-check of the model's scores against naive ones"
#: Orders of a larger record that are compared with naive scores.
_SPOTS = 8


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy with its name: the run, update and checkpoint digest, all ``None`` for the frozen backbone."""

    backbone: Backbone
    model: CausalModel
    method: Method
    backend: Backend
    run: str | None
    update: int | None
    checkpoint: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """An order by the operations' places, its probability, and whether it keeps every required pair."""

    order: Order
    probability: float
    is_legal: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What a policy answers to a record.

    ``greedy`` is ``None`` if it is no order, which only the token interface allows, as it does a ``malformed``
    probability. ``orbit_mass`` is the total probability of the ``num_legal`` orders that keep every required pair, with
    a ``standard_error`` that is ``None`` where the mass is exact. ``num_legal`` is ``None`` if they are too many to
    count, and there are no ``alternatives`` beyond ``MAX_LISTED`` operations.
    """

    greedy: Answered | None
    orbit_mass: float
    num_legal: int | None
    num_orders: int
    malformed: float | None
    alternatives: tuple[Answered, ...]
    """The most probable orders but the greedy one, the best first."""
    standard_error: float | None = None


def chosen_run(plan: Plan, name: str | None) -> PlannedRun:
    """The planned run of that name; without one, the only run, or the only one of ``DEFAULT_METHOD``.

    Raises :class:`UnknownNameError` for a name that is not planned, and :class:`RunError` with the names if there are
    several to choose from.
    """
    runs = {run.name: run for run in plan.runs}
    if name is not None:
        if name not in runs:
            raise UnknownNameError.of("run", name, runs)
        return runs[name]
    candidates = list(plan.runs)
    if len(candidates) > 1:
        candidates = [run for run in plan.runs if run.method == DEFAULT_METHOD]
    if len(candidates) != 1:
        raise RunError(
            "which run?",
            found=f"{counted(len(candidates), 'run')} of {DEFAULT_METHOD} among {counted(len(runs), 'run')}",
            expected=f"one of {', '.join(runs)}",
            remedy=f"for example: --run {(candidates or list(plan.runs))[0].name}",
        )
    return candidates[0]


def load_policy(experiment: Experiment, run: PlannedRun, *, update: int | None = None) -> Policy:
    """The policy of a finished run after ``update``, by default the last one.

    Only that checkpoint's head and weights are read. Raises :class:`RunError` if the run is not finished, if one of
    those two files was altered, or if it has no checkpoint of that update, and as :func:`planned_backbone`.
    """
    plan = experiment.plan
    digests = recorded_checkpoints(experiment, run)
    kept = max(digests) if update is None else update
    if kept not in digests:
        raise RunError(
            "the run has no checkpoint of this update",
            where=str(experiment.run_directory(run)),
            found=f"update {kept}",
            expected=f"one of {', '.join(map(str, sorted(digests)))}",
        )
    backbone = planned_backbone(plan, device=device_of(plan))
    (trained,) = trained_models(experiment, run, backbone, updates=[kept])
    return Policy(
        backbone=backbone,
        model=trained.model,
        # The plan's own definition, which its hash covers, whatever the method has become since.
        method=Method(**plan.definitions[run.method]),
        backend=plan.shared_config.update.backend,
        run=run.name,
        update=kept,
        checkpoint=trained.digest,
    )


def policies_over_training(experiment: Experiment, run: PlannedRun) -> Iterator[Policy]:
    """The frozen backbone as the run asks it, and then the run after each of its kept updates.

    One model is loaded and changed in place, so each policy is to be asked before the next is taken. Raises as
    :func:`load_policy`.
    """
    frozen = frozen_policy(experiment, run)
    yield frozen
    for one in trained_models(experiment, run, frozen.backbone):
        yield replace(
            frozen, model=one.model, run=run.name, update=one.update, checkpoint=one.digest
        )


def frozen_policy(experiment: Experiment, run: PlannedRun | None = None) -> Policy:
    """The backbone alone, asked as the run's method asks it; by default through pointers on sorted records."""
    plan = experiment.plan
    backbone = planned_backbone(plan, device=device_of(plan))
    return Policy(
        backbone=backbone,
        model=backbone.model,
        method=method(FROZEN_AS) if run is None else Method(**plan.definitions[run.method]),
        backend=plan.shared_config.update.backend,
        run=None,
        update=None,
        checkpoint=None,
    )


@torch.no_grad()
def decide(
    policy: Policy, stated: StatedRecord, *, seed: int = 0, num_alternatives: int = 3
) -> Decision:
    """Ask a policy; ``seed`` draws the record's pointers and what its serialisation leaves to chance.

    The model's scores are compared with naive ones first; raises :class:`vcrt.errors.BackboneError` if they differ or
    if the record is too long for the model, :class:`vcrt.errors.TooLargeError` if a policy that answers as tokens is
    asked about more than ``MAX_LISTED`` operations.
    """
    shown = pointed(stated, seed, policy.backbone.num_pointers)
    prompt = _prompt(policy, shown.record, seed)
    interface = policy.method.interface
    longest = len(prompt.token_ids) + tree_depth(prompt.num_operations, interface)
    backend = choose_backend(policy.model, policy.backend, longest=longest)
    if prompt.num_operations > MAX_LISTED:
        return _decide_many(policy, shown, prompt, backend, seed)
    with one_thread(policy.model):
        small = _prompt(policy, _first_slots(shown.record, MAX_ENUMERATED), seed)
        with stage(_CHECKING):
            self_check(policy.model, [small], interface=interface, backend=backend, gradients=False)
        if prompt.num_operations > MAX_ENUMERATED:
            columns = all_orders(prompt.num_operations)
            drawn = generator(seed, "decide", "spot check").choice(
                len(columns), _SPOTS, replace=False
            )
            some = [columns[i] for i in drawn]
            spot_check(policy.model, prompt, some, interface=interface, backend=backend)
        scores = score_orders(policy.model, [prompt], interface=interface, backend=backend)
        (greedy,) = greedy_orders(policy.model, [prompt], interface=interface, backend=backend)
    log_probs = scores.order_log_probs[0].double().cpu()

    columns = all_orders(len(stated.operations))
    of_record = [tuple(shown.operations[slot] for slot in order) for order in columns]
    legal = set(stated.legal_orders)
    members = torch.tensor([order in legal for order in of_record])
    answers = [
        Answered(order=order, probability=float(p), is_legal=order in legal)
        for order, p in zip(of_record, log_probs.exp().tolist(), strict=True)
    ]
    chosen = None if greedy is None else answers[order_columns(len(stated.operations))[greedy]]
    others = sorted(
        (answer for answer in answers if answer is not chosen),
        key=lambda answer: (-answer.probability, answer.order),
    )
    malformed = scores.malformed_log_prob
    return Decision(
        greedy=chosen,
        orbit_mass=float(orbit_log_mass(log_probs[None], members[None]).exp()),
        num_legal=len(legal),
        num_orders=factorial(len(stated.operations)),
        malformed=None if malformed is None else float(malformed[0].double().exp()),
        alternatives=tuple(others[:num_alternatives]),
    )


def _decide_many(
    policy: Policy, shown: PointedRecord, prompt: Prompt, backend: Backend, seed: int
) -> Decision:
    num_operations = prompt.num_operations
    if policy.method.interface != "pointers":
        raise TooLargeError(
            "answers as tokens are scored for few operations only",
            found=f"{counted(num_operations, 'operation')}",
            expected=f"at most {MAX_LISTED}",
            remedy="ask a run of a method that answers through pointers",
        )
    with one_thread(policy.model):
        small = _prompt(policy, _first_slots(shown.record, MAX_ENUMERATED), seed)
        with stage(_CHECKING):
            self_check(
                policy.model, [small], interface="pointers", backend=backend, gradients=False
            )
        scores = score_many(policy.model, prompt, shown.order, backend=backend, seed=seed)
    countable = num_operations <= MAX_COUNTED
    return Decision(
        greedy=Answered(
            order=tuple(shown.operations[slot] for slot in scores.greedy),
            probability=exp(scores.log_prob),
            is_legal=shown.order.allows(scores.greedy),
        ),
        orbit_mass=scores.orbit_mass,
        num_legal=num_linear_extensions(shown.order) if countable else None,
        num_orders=factorial(num_operations),
        malformed=None,
        alternatives=(),
        standard_error=scores.standard_error,
    )


def _prompt(policy: Policy, record: PolicyRecord, seed: int) -> Prompt:
    draw = generator(seed, "decide", "render")
    return policy.backbone.encode(record, policy.method.serialisation, draw)


def _first_slots(record: PolicyRecord, count: int) -> PolicyRecord:
    """The record of the first ``count`` slots alone."""
    return PolicyRecord(
        record_id=record.record_id,
        pointers=record.pointers[:count],
        pool=record.pool,
        relations=tuple(r for r in record.relations if max(r.first, r.second) < count),
    )


@contextmanager
def one_thread(model: CausalModel) -> Iterator[None]:
    """One thread for a small model, whose last bits are then the same on every call; restores the number."""
    before = torch.get_num_threads()
    is_small = sum(parameter.numel() for parameter in model.parameters()) < 10**7
    torch.set_num_threads(1 if is_small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
