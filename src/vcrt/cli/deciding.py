"""What ``vcrt decide`` does: read a relation record, ask a policy for an order, and say how sure it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from vcrt.cli.options import plain_console
from vcrt.cli.orders_view import PLAIN
from vcrt.cli.progress import telling
from vcrt.documents import MAX_BYTES
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import printable
from vcrt.protocol.decision import (
    Answered,
    Decision,
    Policy,
    chosen_run,
    decide,
    frozen_policy,
    load_policy,
)
from vcrt.protocol.experiment import open_experiment
from vcrt.records.stated import SOURCES, StatedRecord, read_stated
from vcrt.report.wording import counted

FORMAT = "vcrt-decision/1"
#: The record's name that stands for the standard input.
STDIN = "-"


def decide_record(
    console: Console,
    experiment: Path,
    record: str,
    *,
    run: str | None,
    update: int | None,
    frozen: bool,
    theorem: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Print what a policy answers to a record; raises :class:`VcrtError` for anything that cannot be asked."""
    if frozen and update is not None:
        raise VcrtError(
            "the frozen backbone has no updates",
            found=f"--frozen and --update {update}",
            expected="one of them",
        )
    opened = open_experiment(experiment)
    chosen = None if frozen and run is None else chosen_run(opened.plan, run)
    # What costs least is refused first.
    stated = read_stated(_read(record), _where(record), theorem=theorem)
    with telling(plain_console(aside=True)):
        policy = (
            frozen_policy(opened, chosen)
            if frozen or chosen is None
            else load_policy(opened, chosen, update=update)
        )
        decision = decide(policy, stated, seed=seed)
    if as_json:
        document = decision_document(policy, stated, decision, opened.plan.plan_hash, seed)
        print(json.dumps(document, indent=2))
        return
    for line in decision_lines(policy, stated, decision):
        console.print(printable(line), **PLAIN)


def decision_document(
    policy: Policy, stated: StatedRecord, decision: Decision, plan_hash: str, seed: int
) -> dict[str, Json]:
    """The answer for machines; probabilities are between 0 and 1, orders are names of operations."""
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
            "interface": policy.method.interface,
            "serialisation": policy.method.serialisation,
        },
        "record": {
            "operations": list(stated.operations),
            "relations": [[*stated.names((r.first, r.second)), r.kind] for r in stated.relations],
        },
        "seed": seed,
        "greedy": None if decision.greedy is None else _answer_json(stated, decision.greedy),
        "orbit_mass": decision.orbit_mass,
        "orbit_mass_standard_error": decision.standard_error,
        "orders": decision.num_orders,
        "legal_orders": decision.num_legal,
        "malformed": decision.malformed,
        "alternatives": [_answer_json(stated, answer) for answer in decision.alternatives],
    }


def decision_lines(policy: Policy, stated: StatedRecord, decision: Decision) -> list[str]:
    """The answer for people, one thing a line."""
    greedy = decision.greedy
    lines = ["order       none: the most probable answer is no order of these operations"]
    if greedy is not None:
        lines = [
            f"order       {_in_words(stated, greedy)}",
            f"probability {_chance(greedy.probability)}, {_kept(greedy)}",
        ]
    error = decision.standard_error
    estimate = "" if error is None else f" (an estimate, standard error {error:.1g})"
    legal = "the orders"
    if decision.num_legal is not None:
        legal = f"{counted(decision.num_legal, 'order')} of {decision.num_orders:,}"
    lines.append(
        f"orbit mass  {_chance(decision.orbit_mass)}{estimate} on {legal} that keep every required pair"
    )
    if decision.num_legal is not None:
        chance = decision.num_legal / decision.num_orders
        if decision.orbit_mass - 2 * (error or 0.0) <= chance < 1:
            lines.append(
                f"warning     that is no better than chance: of random orders, {_chance(chance)} keep them"
            )
    if decision.malformed is not None:
        lines.append(f"malformed   {decision.malformed:.4f} on answers that are no order")
    for place, answer in enumerate(decision.alternatives):
        label = "next" if place == 0 else ""
        lines.append(
            f"{label:<11} {answer.probability:.4f} {_in_words(stated, answer)}: {_kept(answer)}"
        )
    if policy.run is None:
        lines.append("policy      the frozen backbone, untrained")
    else:
        lines.append(
            f"policy      {policy.run} after {counted(policy.update or 0, 'update')}, "
            f"checkpoint {policy.checkpoint}"
        )
    revision = "" if policy.backbone.revision is None else f", revision {policy.backbone.revision}"
    lines.append(f"backbone    {policy.backbone.name}, digest {policy.backbone.digest}{revision}")
    return lines


def _answer_json(stated: StatedRecord, answer: Answered) -> dict[str, Json]:
    return {
        "order": list(stated.names(answer.order)),
        "probability": answer.probability,
        "legal": answer.is_legal,
    }


def _in_words(stated: StatedRecord, answer: Answered) -> str:
    return " -> ".join(stated.names(answer.order))


def _kept(answer: Answered) -> str:
    return "keeps every required pair" if answer.is_legal else "breaks a required pair"


def _chance(probability: float) -> str:
    """Four decimals, or two digits of what is smaller."""
    small = 0 < probability < 0.0001
    return f"{probability:.1e}" if small else f"{probability:.4f}"


def _where(record: str) -> str:
    return "(standard input)" if record == STDIN else record


def _read(record: str) -> bytes:
    if record == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
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
