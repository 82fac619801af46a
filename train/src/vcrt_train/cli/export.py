"""Run the commands export and export-model: records and trained models, as other libraries load them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import vcrt_train
from vcrt.cli.options import plain_console, say
from vcrt.cli.progress import telling
from vcrt.printable import counted


def export(
    dataset: Path,
    output: Path,
    environments: tuple[str, ...] = (),
    held_out: str | None = None,
    form: Literal["words", "tokens"] = "words",
    chat: bool = False,
    serialisation: Literal["sorted", "shuffled"] = "sorted",
    seed: int = 0,
) -> None:
    """Write a verified dataset's records, with orbits, as one Parquet file for the library `datasets`, and so for TRL.

    Example: vcrt export runs/data --output runs/source.parquet --held-out lean

    Args:
        dataset: A directory made by `vcrt certify` and verified by `vcrt verify`.
        output: The new file.
        environments: Environments to export; all if none is given.
        held_out: An environment to leave out; its files stay unopened.
        form: The record in words, or as the tokens that the embedded backbone reads.
        chat: Write each prompt as the message of a user, for chat templates, instead of as plain text.
        serialisation: Relations sorted, or shuffled and in either direction.
        seed: Seed of what the serialisation leaves to chance.
    """
    exported = vcrt_train.export(
        dataset,
        output,
        environments=environments,
        held_out=held_out,
        form=form,
        chat=chat,
        serialisation=serialisation,
        seed=seed,
    )
    say(
        plain_console(),
        f"{counted(exported.num_records, 'record')}  {output}",
        f"root hash {exported.root_hash}",
        f'next: datasets.Dataset.from_parquet("{output}")',
    )


def export_model(
    experiment: Path, output: Path, run: str | None = None, update: int | None = None
) -> None:
    """Write what a run has trained as a PEFT adapter, or as a whole model where all parameters were trained.

    Example: vcrt export-model runs/experiment --run vcrt/clrs/0 --output runs/adapter

    Args:
        run: A run as METHOD/HELD-OUT/SEED; by default the only one, or the only one of vcrt.
        update: The checkpoint after this update; the last one by default.
        experiment: An experiment with finished runs.
        output: A new folder, with safetensors, configuration and tokenizer.
    """
    console = plain_console()
    with telling(console):
        made = vcrt_train.export_model(experiment, output, run=run, update=update)
    how = f'AutoModelForCausalLM.from_pretrained("{made.base if made.is_adapter else output}")'
    if made.is_adapter:
        how = f'peft.PeftModel.from_pretrained({how}, "{output}")'
    say(
        console,
        f"run {made.policy.run} after update {made.policy.update}  {output}",
        f"provenance: {made.provenance.in_words()}",
        f"next: {how}",
    )
