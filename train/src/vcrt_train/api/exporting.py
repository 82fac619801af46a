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
    """Write a verified dataset's records, with orbits, as a Parquet file for `datasets`: ``vcrt export``.

    Without ``environments`` it is those of all; no file of ``held_out`` is opened. ``form`` to
    ``seed`` are those of :class:`vcrt_train.integrations.text.Rendering`; with ``chat``, a prompt is a user's message.
    Raises :class:`vcrt.errors.UnavailableError` without ``datasets``, and :class:`vcrt.errors.VcrtError` if ``output``
    exists.
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
