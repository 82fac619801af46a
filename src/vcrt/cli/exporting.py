"""`vcrt export`: a frozen dataset as a Parquet file that the library ``datasets`` loads."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from rich.console import Console

from vcrt.errors import VcrtError
from vcrt.integrations.text import Rendering
from vcrt.printable import counted
from vcrt.records.dataset import open_dataset, require_agreement
from vcrt.storage import make_directory, require_new, write_file


def export_dataset(
    console: Console,
    path: Path,
    output: Path,
    *,
    environments: tuple[str, ...],
    held_out: str | None,
    rendering: Rendering,
    chat: bool,
) -> None:
    """Write the verified records to ``output`` and say how to load them."""
    # It needs an extra that not everyone has; without it, nothing was done yet.
    from vcrt.integrations.datasets import to_dataset

    require_new(output, VcrtError)
    if output.resolve().is_relative_to(path.resolve()):
        raise VcrtError(
            "a dataset's directory holds nothing but the dataset",
            where=str(output),
            remedy="write elsewhere",
        )
    dataset = open_dataset(path, without=[] if held_out is None else [held_out])
    require_agreement(dataset)
    exported = to_dataset(
        dataset,
        environments=environments or None,
        held_out=held_out,
        rendering=rendering,
        chat=chat,
    )
    table = BytesIO()
    exported.to_parquet(table)
    make_directory(output.parent)
    write_file(output, table.getvalue())
    console.print(
        f"{counted(len(exported), 'record')}  {output}\nroot hash {dataset.manifest.root_hash}\n"
        f'next: datasets.Dataset.from_parquet("{output}")',
        highlight=False,
        soft_wrap=True,
    )
