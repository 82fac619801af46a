"""Print what was exported, and how other libraries load it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.cli.options import plain_console, say
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt_train.api.exporting import Exported
    from vcrt_train.api.models import ExportedModel


def print_exported(exported: Exported, *, output: Path) -> None:
    """Print how many records were written, and how they are loaded."""
    say(
        plain_console(),
        f"{counted(exported.num_records, 'record')}  {output}",
        f"root hash {exported.root_hash}",
        f'next: datasets.Dataset.from_parquet("{output}")',
    )


def print_model(made: ExportedModel, *, output: Path) -> None:
    """Print which run's model was written, and how it is loaded."""
    how = f'AutoModelForCausalLM.from_pretrained("{made.base if made.is_adapter else output}")'
    if made.is_adapter:
        how = f'peft.PeftModel.from_pretrained({how}, "{output}")'
    say(
        plain_console(),
        f"run {made.policy.run} after update {made.policy.update}  {output}",
        f"provenance: {made.provenance.in_words()}",
        f"next: {how}",
    )
