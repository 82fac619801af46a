"""Ask a trained policy about one relation record: its greedy order, and the probability of this and of legal orders.

All orders of up to six operations are scored. For more operations, through pointers, the greedy order and its
probability are exact; the mass on the legal orders is exact if all legal prefixes fit
(:mod:`vcrt_train.training.legal_trees`), and otherwise an unbiased estimate with a standard error. The policy is a
finished run of an experiment at one of its checkpoints, or the frozen backbone alone. No dataset is opened and nothing
is written. Not covered: how a record is read (:mod:`vcrt_train.protocol.relation_records`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import exp, factorial, fsum

import torch

from vcrt.errors import RunError, TooLargeError, UnknownNameError
from vcrt.limits import MAX_COUNTED, MAX_ENUMERATED, MAX_LISTED, MAX_MANY_PATHS
from vcrt.orders import Order, all_orders
from vcrt.partial_orders import PartialOrder, num_linear_extensions
from vcrt.printable import counted
from vcrt.progress import stage
from vcrt.randomness import derive_seed
from vcrt.records.anonymise import Anonymised
from vcrt.records.policy_view import PolicyRecord
from vcrt_train.config import Backend, EstimatorConfig
from vcrt_train.objective.orbit_mass import orbit_log_mass
from vcrt_train.policy.backbone import Backbone, device_of
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.causal_model import CausalModel, Prompt
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.scoring import greedy_orders, score_orders, score_prefixes, tree_depth
from vcrt_train.policy.self_check import prefix_check, self_check
from vcrt_train.protocol.experiment import (
    Experiment,
    planned_backbone,
    recorded_checkpoints,
    trained_models,
)
from vcrt_train.protocol.plan import Plan, PlannedRun
from vcrt_train.protocol.relation_records import RelationRecord, with_pointers
from vcrt_train.protocol.scores import FROZEN_AS
from vcrt_train.randomness import generator
from vcrt_train.training.legal_trees import fits
from vcrt_train.training.methods import Method, method
from vcrt_train.training.orbit_masses import read_masses

#: Number of masked paths of an estimate, and of one with long paths. An estimate is made once, for one record.
NUM_PATHS = 256
_NUM_LONG_PATHS = 64
#: Choices of the paths that are drawn and scored together, which bounds the memory for every record.
_AT_ONCE = 1_024
#: If there are several runs, the only run of this method is asked.
DEFAULT_METHOD = "vcrt"
_CHECKING = "self-check of the model's scores against naive ones"
#: How many random orders of a record are checked against naive scores, and of one with too many orders to list.
_CHECKED, _LONG_CHECKED = 8, 2
#: How many of the most probable orders are given besides the greedy one.
_ALTERNATIVES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ManyScores:
    """The greedy order of slots, its log-probability, and the mass of the legal orders.

    ``standard_error`` is that of independent paths; systematic paths vary less. It is None if the mass is exact.
    """

    greedy: Order
    log_prob: float
    orbit_mass: float
    standard_error: float | None


@torch.no_grad()
def read_many(
    model: CausalModel, prompt: Prompt, order: PartialOrder, *, backend: Backend, seed: int
) -> ManyScores:
    """Ask ``model`` about a record whose legal orders extend ``order``; its scores must have passed the self-check.

    ``seed`` draws the paths of an estimate.
    """
    num_operations = prompt.num_operations
    (greedy,) = greedy_orders(model, [prompt], interface="pointers", backend=backend)
    assert greedy is not None, "through pointers, every answer is an order"
    tree = prefix_tree(num_operations, [greedy[:-2]])
    scores = score_prefixes(model, [prompt], [tree], interface="pointers", backend=backend)
    rows, slots = tree.path(greedy)
    mass, error = _mass(model, prompt, order, backend=backend, seed=seed)
    return ManyScores(
        greedy=greedy,
        log_prob=float(scores.choice_log_probs[0, rows, slots].double().sum()),
        orbit_mass=mass,
        standard_error=error,
    )


def _mass(
    model: CausalModel, prompt: Prompt, order: PartialOrder, *, backend: Backend, seed: int
) -> tuple[float, float | None]:
    """Return the mass of the legal orders, and its standard error if the mass is an estimate."""
    config, num_operations = EstimatorConfig(), order.num_operations
    exact = fits([order], config.max_legal_prefixes)
    wanted = NUM_PATHS if num_operations <= MAX_MANY_PATHS else _NUM_LONG_PATHS
    num_paths = min(wanted, max(_AT_ONCE // num_operations, 2))
    draw = torch.Generator().manual_seed(derive_seed(seed, "decide", "paths") % 2**63)
    parts = [
        read_masses(
            model,
            [prompt],
            [order],
            config=config,
            num_paths=num_paths,
            backend=backend,
            generator=draw,
        )
        for _ in range(1 if exact else wanted // num_paths)
    ]
    masses = [float(part.log_inside[0].double().exp()) for part in parts]
    if exact:
        return masses[0], None
    # The standard error is that of the logarithm (delta method); times the mass, it is that of the mass.
    errors = [
        mass * float(part.standard_error[0]) for mass, part in zip(masses, parts, strict=True)
    ]
    return fsum(masses) / len(masses), fsum(e * e for e in errors) ** 0.5 / len(masses)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A policy with its run, update and checkpoint digest, which are ``None`` for the frozen backbone."""

    backbone: Backbone
    model: CausalModel
    method: Method
    backend: Backend
    run: str | None
    update: int | None
    checkpoint: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """An order of indices of operations, its probability, and whether it keeps every required pair."""

    order: Order
    probability: float
    is_legal: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The answer of a policy to a record.

    Only the token interface has a ``malformed`` probability, and a ``greedy`` that is ``None`` if the greedy answer is
    no order. ``orbit_mass`` is the total probability of the ``num_legal`` orders that keep every required pair, with a
    ``standard_error`` that is ``None`` if the mass is exact. ``num_legal`` is ``None`` if there are too many orders to
    count. Above ``MAX_LISTED`` operations, there are no ``alternatives``.
    """

    greedy: Answered | None
    orbit_mass: float
    num_legal: int | None
    num_orders: int
    malformed: float | None
    alternatives: tuple[Answered, ...]
    """The most probable orders besides the greedy one, the best first."""
    standard_error: float | None = None


def chosen_run(plan: Plan, name: str | None) -> PlannedRun:
    """Return the planned run of that name; without a name, the only run, or the only one of ``DEFAULT_METHOD``.

    Raises :class:`UnknownNameError` for a name that is not planned, and :class:`RunError`, with the names of all runs,
    if there is no such only run.
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
    """Load the policy of a finished run after ``update``, by default the last one.

    Only that checkpoint's head and weights are read. Raises :class:`RunError` if the run is not finished, if one of
    those two files was changed, or if it has no checkpoint of that update, and as :func:`planned_backbone`.
    """
    digests = recorded_checkpoints(experiment, run)
    kept = max(digests) if update is None else update
    if kept not in digests:
        raise RunError(
            "the run has no checkpoint of this update",
            where=str(experiment.run_directory(run)),
            found=f"update {kept}",
            expected=f"one of {', '.join(map(str, sorted(digests)))}",
        )
    (policy,) = _trained(frozen_policy(experiment, run), experiment, run, [kept])
    return policy


def policies_over_training(experiment: Experiment, run: PlannedRun) -> Iterator[Policy]:
    """Yield the frozen backbone with the run's method, and then the run after each of its kept updates.

    One model is loaded and changed in place, so ask each policy before you take the next. Raises as
    :func:`load_policy`.
    """
    frozen = frozen_policy(experiment, run)
    yield frozen
    yield from _trained(frozen, experiment, run, None)


def _trained(
    frozen: Policy, experiment: Experiment, run: PlannedRun, updates: Sequence[int] | None
) -> Iterator[Policy]:
    for one in trained_models(experiment, run, frozen.backbone, updates=updates):
        yield replace(
            frozen, model=one.model, run=run.name, update=one.update, checkpoint=one.digest
        )


def frozen_policy(experiment: Experiment, run: PlannedRun | None = None) -> Policy:
    """Load the backbone alone, with the run's method; by default with pointers on sorted records."""
    plan = experiment.plan
    backbone = planned_backbone(plan, device=device_of(plan.backbone))
    return Policy(
        backbone=backbone,
        model=backbone.model,
        # The definition in the plan, which the plan's hash covers; the method may have changed since.
        method=method(FROZEN_AS) if run is None else Method(**plan.definitions[run.method]),
        backend=plan.config.model.scoring,
        run=None,
        update=None,
        checkpoint=None,
    )


@torch.no_grad()
def decide(policy: Policy, asked: RelationRecord, *, seed: int = 0) -> Decision:
    """Ask a policy about a record; ``seed`` draws the record's pointers and its shuffled serialisation.

    First, the model's scores are compared with naive ones. Raises :class:`vcrt.errors.BackboneError` if they differ or
    if the record is too long for the model, and :class:`vcrt.errors.TooLargeError` if a policy that answers in tokens
    is asked about more than ``MAX_LISTED`` operations.
    """
    shown = with_pointers(asked, seed, policy.backbone.num_pointers)
    prompt = _prompt(policy, shown.record, seed)
    num_operations, interface = prompt.num_operations, policy.method.interface
    if num_operations > MAX_LISTED and interface != "pointers":
        raise TooLargeError(
            "answers as tokens are scored for few operations only",
            found=f"{counted(num_operations, 'operation')}",
            expected=f"at most {MAX_LISTED}",
            remedy="ask a run of a method that answers through pointers",
        )
    depth = tree_depth(num_operations, interface)
    longest = len(prompt.token_ids) + depth
    backend = choose_backend(policy.model, policy.backend, longest=longest)
    with one_thread(policy.model):
        small = _prompt(policy, _first_slots(shown.record, MAX_ENUMERATED), seed)
        with stage(_CHECKING):
            self_check(policy.model, [small], interface=interface, backend=backend, gradients=False)
        if num_operations > MAX_ENUMERATED:
            draw = generator(seed, "decide", "spot check")
            number = _CHECKED if num_operations <= MAX_LISTED else _LONG_CHECKED
            orders = [draw.permutation(num_operations).tolist() for _ in range(number)]
            prefixes = [tuple(order[:depth]) for order in orders]
            prefix_check(policy.model, prompt, prefixes, interface=interface, backend=backend)
        if num_operations <= MAX_LISTED:
            return _by_listed_orders(policy, shown, prompt, backend)
        scores = read_many(policy.model, prompt, shown.record.order, backend=backend, seed=seed)
    order = shown.record.order
    return Decision(
        greedy=Answered(
            order=shown.operations(scores.greedy),
            probability=exp(scores.log_prob),
            is_legal=order.allows(scores.greedy),
        ),
        orbit_mass=scores.orbit_mass,
        num_legal=num_linear_extensions(order) if num_operations <= MAX_COUNTED else None,
        num_orders=factorial(num_operations),
        malformed=None,
        alternatives=(),
        standard_error=scores.standard_error,
    )


def _by_listed_orders(
    policy: Policy, shown: Anonymised, prompt: Prompt, backend: Backend
) -> Decision:
    interface, order = policy.method.interface, shown.record.order
    scores = score_orders(policy.model, [prompt], interface=interface, backend=backend)
    (greedy,) = greedy_orders(policy.model, [prompt], interface=interface, backend=backend)
    log_probs = scores.order_log_probs[0].double().cpu()
    columns = all_orders(prompt.num_operations)
    members = torch.tensor([order.allows(column) for column in columns])
    answers = [
        Answered(order=shown.operations(column), probability=p, is_legal=is_legal)
        for column, p, is_legal in zip(
            columns, log_probs.exp().tolist(), members.tolist(), strict=True
        )
    ]
    chosen = None if greedy is None else answers[columns.index(greedy)]
    others = sorted(
        (answer for answer in answers if answer is not chosen),
        key=lambda answer: (-answer.probability, answer.order),
    )
    malformed = scores.malformed_log_prob
    return Decision(
        greedy=chosen,
        orbit_mass=float(orbit_log_mass(log_probs[None], members[None]).exp()),
        num_legal=int(members.sum()),
        num_orders=len(columns),
        malformed=None if malformed is None else float(malformed[0].double().exp()),
        alternatives=tuple(others[:_ALTERNATIVES]),
    )


def _prompt(policy: Policy, record: PolicyRecord, seed: int) -> Prompt:
    draw = generator(seed, "decide", "render")
    return policy.backbone.encode(record, policy.method.serialisation, draw)


def _first_slots(record: PolicyRecord, count: int) -> PolicyRecord:
    """Return the record of only the first ``count`` slots."""
    return PolicyRecord(
        record_id=record.record_id,
        pointers=record.pointers[:count],
        pool=record.pool,
        relations=tuple(r for r in record.relations if max(r.first, r.second) < count),
    )


@contextmanager
def one_thread(model: CausalModel) -> Iterator[None]:
    """Use one thread for a small model, so that its last bits are the same on every call; restore the number after."""
    before = torch.get_num_threads()
    is_small = sum(parameter.numel() for parameter in model.parameters()) < 10**7
    torch.set_num_threads(1 if is_small else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
