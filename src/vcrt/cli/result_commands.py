"""The commands about what was trained: the report, and a trained policy's answers.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from vcrt.cli.options import DatasetPath, ExperimentPath, plain_console
from vcrt.errors import RunError, VcrtError


def report(
    experiment: ExperimentPath,
    output: Path | None = None,
    table: str | None = None,
    form: Literal["terminal", "text", "csv", "latex"] = "terminal",
) -> None:
    """Write the tables and one self-contained page of an evaluated experiment.

    Example: vcrt report runs/experiment

    Args:
        experiment: An evaluated experiment.
        output: A new folder to write to; `report` in the experiment by default, where it replaces an earlier one.
        table: Print this one table and write nothing; the names are those of the report's CSV files.
        form: How `--table` is printed.
    """
    if table is not None and output is not None:
        raise VcrtError(
            "one table is printed, not written",
            found="--table and --output",
            expected="one of them",
        )
    if table is None and form != "terminal":
        raise VcrtError("which table?", found=f"--form {form}", expected="--form with --table")
    if output is not None:
        from vcrt.storage import require_new

        require_new(output, RunError)
    from vcrt.cli.reporting import print_one_table, print_report
    from vcrt.protocol.experiment import open_experiment

    if table is not None:
        print_one_table(plain_console(), open_experiment(experiment), table, form)
    else:
        print_report(plain_console(), open_experiment(experiment), output or experiment / "report")


def explore(
    dataset: DatasetPath,
    episode: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    experiment: Path | None = None,
    run: tuple[str, ...] = (),
    output: Path = Path("explorer.html"),
    episodes: int | None = None,
) -> None:
    """Write one self-contained page to look at episodes: steps, relations, evidence, and all orders as a solid.

    With an experiment on the dataset, also the exact probability of each order before training and after every kept
    update. What a run holds out is scored only after `vcrt evaluate`.

    Example: vcrt explore runs/data --experiment runs/experiment --output runs/explorer.html

    Args:
        dataset: A dataset made by `vcrt certify`.
        episode: Episodes to show, by name; without names, the first of each schema.
        experiment: An experiment with finished runs.
        run: Runs as METHOD/HELD-OUT/SEED; by default the first seed of each method and held-out environment.
        output: The page; an earlier one is replaced.
        episodes: How many episodes of each schema; 8 by default, and as many as stay under 5 MB.
    """
    from vcrt.cli.exploring import explore_dataset

    explore_dataset(
        plain_console(),
        dataset,
        output,
        experiment=experiment,
        runs=run,
        episodes=episode,
        per_schema=episodes,
    )


def decide(
    experiment: ExperimentPath,
    record: Annotated[str, tyro.conf.Positional],
    run: str | None = None,
    update: int | None = None,
    frozen: bool = False,
    theorem: str | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Ask a trained policy in which order to take operations, given the relations between them.

    Says the greedy order, its exact probability, and the orbit mass: that of all orders which keep every required
    pair, estimated with a standard error where they are too many to score. A record is JSON: {"operations":
    ["a", "b"], "relations": [["a", "b", "precedes"]]}, of 2 to 64 operations, with kinds commutes, precedes and
    conflicts (the first stands before the second), or what `vcrt show EPISODE --json` or `vcrt lift lean FILE --json`
    prints. Nothing is written, and the dataset need not be there.

    Example: vcrt decide runs/experiment record.json --run vcrt/clrs/0

    Args:
        experiment: An experiment with finished runs.
        record: The file of a record, or - for the standard input.
        run: A run as METHOD/HELD-OUT/SEED; by default the only one, or the only one of vcrt.
        update: The checkpoint after this update; the last one by default.
        frozen: Ask the backbone alone, as it was before training.
        theorem: The theorem to take, where `vcrt lift lean` found several.
        seed: Seed of the pointers that stand for the operations.
        json: Print the answer for machines.
    """
    from vcrt.cli.deciding import decide_record

    decide_record(
        plain_console(),
        experiment,
        record,
        run=run,
        update=update,
        frozen=frozen,
        theorem=theorem,
        seed=seed,
        as_json=json,
    )


def export_model(
    experiment: ExperimentPath, output: Path, run: str | None = None, update: int | None = None
) -> None:
    """Write what a run has trained as a PEFT adapter, or as a whole model where all parameters were trained.

    Example: vcrt export-model runs/experiment --run vcrt/clrs/0 --output runs/adapter

    Args:
        experiment: An experiment with finished runs.
        output: A new folder, with safetensors, configuration and tokenizer.
        run: A run as METHOD/HELD-OUT/SEED; by default the only one, or the only one of vcrt.
        update: The checkpoint after this update; the last one by default.
    """
    from vcrt.cli.model_exporting import export_model as write_model

    write_model(plain_console(), experiment, output, run=run, update=update)
