"""The table of contents: every command of ``vcrt`` in its place, with one line on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vcrt.cli import (
    backbone_commands,
    data_commands,
    handing_commands,
    planning_commands,
    result_commands,
    running_commands,
    whole_commands,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A function whose options are the command's, and what it does in at most 62 characters.

    ``function`` is the name in ``vcrt.__all__`` that does the same in Python; None where there is none.
    """

    run: Callable[..., None]
    summary: str
    function: str | None = None


CHAPTERS: dict[str, dict[str, Command]] = {
    "the whole way": {
        "demo": Command(whole_commands.demo, "everything once, small, with a report at the end"),
        "reproduce": Command(
            whole_commands.reproduce, "the paper's experiment, or what is missing"
        ),
        "doctor": Command(
            whole_commands.doctor, "what is installed, what is missing, what mends it"
        ),
    },
    "certify": {
        "environments": Command(
            data_commands.environments, "what can be certified here", "environment_names"
        ),
        "certify": Command(
            data_commands.certify, "replay all orders of episodes, freeze a dataset", "certify"
        ),
        "lift": Command(data_commands.lift, "episodes from your theories, Lean files or runs"),
        "theories": Command(data_commands.theories, "check ProofWriter files by their answers"),
        "verify": Command(
            data_commands.verify, "replay a dataset or one certificate again", "verify"
        ),
        "show": Command(data_commands.show, "one episode: its steps, relations and evidence"),
        "probe": Command(data_commands.probe, "how anonymous the policy's records are"),
    },
    "hand over": {
        "seal": Command(handing_commands.seal, "sign a dataset"),
        "prove": Command(handing_commands.prove, "that a certificate is in a dataset"),
        "export": Command(handing_commands.export, "records with orbits, for other trainers"),
    },
    "train": {
        "methods": Command(planning_commands.methods, "what each method trains on"),
        "backbone": Command(backbone_commands.backbone, "lock a language model, or check it"),
        "search": Command(planning_commands.search, "choose settings on source items alone"),
        "plan": Command(planning_commands.plan, "freeze what will be trained and measured", "plan"),
        "train": Command(running_commands.train, "every run of a plan", "train"),
    },
    "results": {
        "evaluate": Command(
            running_commands.evaluate, "open the held-out environments, once", "evaluate"
        ),
        "report": Command(
            result_commands.report, "tables, figures and one HTML page", "write_report"
        ),
        "explore": Command(
            result_commands.explore,
            "a page of episodes, orders and probabilities",
            "write_explorer",
        ),
        "decide": Command(
            result_commands.decide, "ask a trained run for the order of your steps", "decide"
        ),
        "export-model": Command(
            result_commands.export_model, "a trained run as PEFT or model folder"
        ),
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
