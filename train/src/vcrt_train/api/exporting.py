"""Export the records of a dataset for other trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

from vcrt.api.certifying import place_of
from vcrt.api.datasets import require_apart
from vcrt.records.dataset import Dataset, open_dataset, require_agreement
from vcrt.storage import make_directory, write_file
from vcrt_train.integrations.text import Form, Rendering


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """How many records were written, and the root hash of the dataset that they are of."""

    num_records: int
    root_hash: str


def export(
    dataset: Dataset | str | Path,
    output: str | Path,
    *,
    environments: Sequence[str] = (),
    held_out: str | None = None,
    form: Form = "words",
    chat: bool = False,
    serialisation: Literal["sorted", "shuffled"] = "sorted",
    seed: int = 0,
) -> Exported:
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

    Raises:
        UnavailableError: ``datasets`` is not installed.
        VcrtError: `output` exists.
    """
    # It needs an extra that not everyone has; without it, nothing was done yet.
    from vcrt_train.integrations.datasets import to_dataset

    path, output = place_of(dataset), Path(output)
    require_apart(output, path, "elsewhere")
    opened = open_dataset(path, without=[] if held_out is None else [held_out])
    require_agreement(opened)
    exported = to_dataset(
        opened,
        environments=tuple(environments) or None,
        held_out=held_out,
        rendering=Rendering(form=form, serialisation=serialisation, seed=seed),
        chat=chat,
    )
    table = BytesIO()
    exported.to_parquet(table)
    make_directory(output.parent)
    write_file(output, table.getvalue())
    return Exported(num_records=len(exported), root_hash=opened.manifest.root_hash)
