"""The commands that hand a dataset over: seal, prove, export.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from vcrt.cli.options import DatasetPath, plain_console


def seal(dataset: DatasetPath, key: Path | None = None) -> None:
    """Sign a dataset's seal with an Ed25519 key, or make the seal of a dataset that has none yet.

    A key is made by `openssl genpkey -algorithm ed25519 -out key.pem`, and its public half, for others, by
    `openssl pkey -in key.pem -pubout -out key.pub`. Signing needs `pip install 'vcrt[sign]'`.

    Example: vcrt seal runs/data --key key.pem

    Args:
        dataset: A directory made by `vcrt certify`.
        key: The private key, a PEM file without a password.
    """
    from vcrt.cli import sealing

    sealing.seal(plain_console(), dataset, key)


def prove(episode: Annotated[str, tyro.conf.Positional], dataset: Path) -> None:
    """Print the proof that an episode's certificate is among those of a sealed dataset.

    Whoever has the certificate and the proof needs no other file of the dataset to check it.

    Example: vcrt prove clrs/bellman_ford/7 --dataset runs/data > proof.json

    Args:
        episode: An episode of the dataset, as environment/schema/seed.
        dataset: A directory made by `vcrt certify`.
    """
    from vcrt.cli import sealing

    sealing.prove(episode, dataset)


def export(
    dataset: DatasetPath,
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
    from vcrt.cli.exporting import export_dataset
    from vcrt.integrations.text import Rendering

    export_dataset(
        plain_console(),
        dataset,
        output,
        environments=environments,
        held_out=held_out,
        rendering=Rendering(form=form, serialisation=serialisation, seed=seed),
        chat=chat,
    )
