"""Run the command decide: ask a policy for an order of the operations in a record, and print its probability."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import vcrt_train
from vcrt.cli.options import plain_console, print_document, say
from vcrt.cli.progress import telling
from vcrt.documents import MAX_BYTES
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt_train.policy.reference import RELATIONS_SHOWN

if TYPE_CHECKING:
    from vcrt_train.protocol.decision import Answered, Decision, Policy
    from vcrt_train.protocol.relation_records import RelationRecord

FORMAT = "vcrt-decision/1"
#: The record's name that stands for the standard input.
STDIN = "-"


def decide(
    experiment: Path,
    record: str,
    run: str | None = None,
    update: int | None = None,
    frozen: bool = False,
    theorem: str | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Ask a trained policy in which order to take operations, given the relations between them.

    Prints the greedy order, its exact probability, and the orbit mass: the probability of all orders that keep every
    required pair. If these are too many to score, the mass is an estimate with a standard error. A record of 2 to 64
    operations is JSON: {"operations": ["a", "b"], "relations": [["a", "b", "precedes"]]}. Kinds are commutes, precedes,
    conflicts and observes; with the last three, the first stands before the second. The output of `vcrt show EPISODE
    --json` or `vcrt lift lean --json` is a record, too. Nothing is written, and the dataset is not needed.

    Example: vcrt decide runs/experiment record.json --run vcrt/clrs/0

    Args:
        run: A run as METHOD/HELD-OUT/SEED; by default the only run, or the only run of the method vcrt.
        update: The checkpoint after this update; the last one by default.
        experiment: An experiment with finished runs.
        record: The file of a record, or - for the standard input.
        frozen: Ask the backbone alone, as it was before training.
        theorem: The theorem to take, if `vcrt lift lean` found several.
        seed: Seed of the pointers that stand for the operations.
        json: Print the answer for machines.
    """
    from vcrt_train.protocol.decision import chosen_run
    from vcrt_train.protocol.relation_records import read_relation_record

    opened = vcrt_train.open_experiment(experiment)
    # The cheapest check comes first.
    if not frozen:
        chosen_run(opened.plan, run)
    where = "(standard input)" if record == STDIN else record
    asked = read_relation_record(_read(record), where, theorem=theorem)
    with telling(plain_console(aside=True)):
        policy = vcrt_train.trained_policy(opened, run, update=update, frozen=frozen)
        decision = vcrt_train.decide(policy, asked, seed=seed)
    if json:
        print_document(decision_document(policy, asked, decision, opened.plan.plan_hash, seed))
    else:
        say(plain_console(), *decision_lines(policy, asked, decision))


def decision_document(
    policy: Policy, asked: RelationRecord, decision: Decision, plan_hash: str, seed: int
) -> dict[str, Json]:
    """Return the answer for machines; probabilities are between 0 and 1, orders are names of operations."""
    return {
        "format": FORMAT,
        "policy": {
            "plan": plan_hash,
            "run": policy.run,
            "update": policy.update,
            "checkpoint": policy.checkpoint,
            "backbone": policy.backbone.name,
            "backbone_digest": policy.backbone.digest,
            "backbone_revision": policy.backbone.revision,
            "relation_names": policy.backbone.relation_names,
            "interface": policy.method.interface,
            "serialisation": policy.method.serialisation,
        },
        "record": {
            "operations": list(asked.operations),
            "relations": [[*asked.names((r.first, r.second)), r.kind] for r in asked.relations],
        },
        "seed": seed,
        "greedy": None if decision.greedy is None else _answer_json(asked, decision.greedy),
        "orbit_mass": decision.orbit_mass,
        "orbit_mass_standard_error": decision.standard_error,
        "orders": decision.num_orders,
        "legal_orders": decision.num_legal,
        "malformed": decision.malformed,
        "alternatives": [_answer_json(asked, answer) for answer in decision.alternatives],
    }


def decision_lines(policy: Policy, asked: RelationRecord, decision: Decision) -> list[str]:
    """Return the lines of the answer for people."""
    greedy, error, mass = decision.greedy, decision.standard_error, _chance(decision.orbit_mass)
    lines = ["order       none: the most probable answer is no order of these operations"]
    if greedy is not None:
        lines = [
            f"order       {_in_words(asked, greedy)}",
            f"probability {_chance(greedy.probability)}, {_kept(greedy)}",
        ]
    estimate = "" if error is None else f" (an estimate, standard error {error:.1g})"
    legal, chance = "the orders", 1.0
    if decision.num_legal is not None:
        legal = f"{counted(decision.num_legal, 'order')} of {decision.num_orders:,}"
        chance = decision.num_legal / decision.num_orders
    lines.append(f"orbit mass  {mass}{estimate} on {legal} that keep every required pair")
    if decision.orbit_mass - 2 * (error or 0.0) <= chance < 1:
        lines.append(
            f"warning     that is no better than chance: of random orders, {_chance(chance)} keep them"
        )
    if decision.malformed is not None:
        lines.append(f"malformed   {decision.malformed:.4f} on answers that are no order")
    for place, answer in enumerate(decision.alternatives):
        label = "next" if place == 0 else ""
        said = f"{_in_words(asked, answer)}: {_kept(answer)}"
        lines.append(f"{label:<11} {answer.probability:.4f} {said}")
    which = "the frozen backbone, untrained"
    if policy.run is not None:
        updates = counted(policy.update or 0, "update")
        which = f"{policy.run} after {updates}, checkpoint {policy.checkpoint}"
    backbone = policy.backbone
    names, revision = backbone.relation_names, backbone.revision
    known = [f"digest {backbone.digest}"]
    known += [] if revision is None else [f"revision {revision}"]
    known += [] if names is None else [RELATIONS_SHOWN[names]]
    return [
        *lines,
        f"policy      {which}",
        f"backbone    {', '.join((backbone.name, *known))}",
    ]


def _answer_json(asked: RelationRecord, answer: Answered) -> dict[str, Json]:
    return {
        "order": list(asked.names(answer.order)),
        "probability": answer.probability,
        "legal": answer.is_legal,
    }


def _in_words(asked: RelationRecord, answer: Answered) -> str:
    return " -> ".join(asked.names(answer.order))


def _kept(answer: Answered) -> str:
    return "keeps every required pair" if answer.is_legal else "breaks a required pair"


def _chance(probability: float) -> str:
    """Write a probability with four decimals, or with two digits if it is below 0.0001."""
    small = 0 < probability < 0.0001
    return f"{probability:.1e}" if small else f"{probability:.4f}"


def _read(record: str) -> bytes:
    if record == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    from vcrt_train.protocol.relation_records import SOURCES

    path = Path(record)
    if not path.exists() or path.is_dir():
        raise MalformedInputError(
            "no relation record there",
            where=record,
            found="a directory" if path.is_dir() else "no such file",
            expected=f"{SOURCES}; - reads the standard input",
        )
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)
