"""List the contents: every command of ``vcrt`` in its place, with one line on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vcrt.cli.annotate import annotate
from vcrt.cli.backbone import backbone
from vcrt.cli.certify import certify
from vcrt.cli.decide import decide
from vcrt.cli.environments import doctor, environments, theories
from vcrt.cli.export import export, export_model
from vcrt.cli.lift import lift
from vcrt.cli.plan import methods, plan, search
from vcrt.cli.report import explore, probe, relations, report
from vcrt.cli.reproduce import demo, reproduce
from vcrt.cli.schedule import schedule
from vcrt.cli.show import show
from vcrt.cli.train import evaluate, train
from vcrt.cli.verify import prove, seal, verify


@dataclass(frozen=True, slots=True)
class Command:
    """A function whose options are the command's, and what it does in at most 62 characters.

    ``functions`` are the names in ``vcrt`` of what does the same in Python, if it is not the command's own: where that
    is a room's (``vcrt.environments``, ``vcrt.report``), or one command is several functions.
    """

    run: Callable[..., None]
    summary: str
    functions: str | None = None


CHAPTERS: dict[str, dict[str, Command]] = {
    "the whole way": {
        "demo": Command(demo, "everything once, small, with a report at the end"),
        "reproduce": Command(reproduce, "the paper's experiment, or what is missing"),
        "doctor": Command(doctor, "what is installed, what is missing, what mends it"),
    },
    "certify": {
        "environments": Command(
            environments, "what can be certified here", "list_environments validate_environment"
        ),
        "certify": Command(certify, "replay all orders of episodes, freeze a dataset"),
        "lift": Command(
            lift,
            "episodes from your logs, migrations, proofs",
            "lift_log lift_django lift_lean lift_rocq lift_proofwriter lift_clrs",
        ),
        "schedule": Command(schedule, "which calls or steps may run at once, and why"),
        "annotate": Command(annotate, "what calls show of each tool and pair of tools"),
        "theories": Command(theories, "check ProofWriter files by their answers"),
        "verify": Command(
            verify,
            "replay a dataset or one certificate again",
            "verify verify_seal verify_certificate verify_proof",
        ),
        "show": Command(show, "one episode: its steps, relations and evidence"),
        "probe": Command(probe, "how anonymous the policy's records are"),
    },
    "hand over": {
        "seal": Command(seal, "sign a dataset"),
        "prove": Command(prove, "that a certificate is in a dataset"),
        "export": Command(export, "records with orbits, for other trainers"),
    },
    "train": {
        "methods": Command(methods, "what each method trains on"),
        "backbone": Command(
            backbone,
            "fetch, import, lock or check a language model",
            "fetch_backbone import_backbone lock_backbone check_backbone pretrain_backbone",
        ),
        "search": Command(search, "choose settings on source items alone"),
        "plan": Command(plan, "freeze what will be trained and measured"),
        "train": Command(train, "every run of a plan"),
    },
    "results": {
        "evaluate": Command(evaluate, "open the held-out environments, once"),
        "report": Command(report, "tables, figures and one HTML page", "write_report"),
        "relations": Command(relations, "how well relations are inferred without replay"),
        "explore": Command(explore, "a page of episodes, orders and probabilities"),
        "decide": Command(
            decide, "ask a trained run for the order of your steps", "trained_policy decide"
        ),
        "export-model": Command(export_model, "a trained run as PEFT or model folder"),
    },
}


def contents() -> str:
    """The page that ``vcrt --help`` prints; it fits a terminal of 80 columns."""
    lines = ["Certify by replay which steps commute, and train on whole orbits of orders.", ""]
    for chapter, commands in CHAPTERS.items():
        for place, (name, command) in enumerate(commands.items()):
            lines.append(f"{chapter if place == 0 else '':<15}{name:<14}{command.summary}")
    return "\n".join(
        [
            *lines,
            "",
            "vcrt COMMAND --help   its options, and an example        vcrt --version",
            "vcrt --tyro-print-completion bash|zsh   completion for your shell",
        ]
    )
