"""Show what is in a dataset, sign it, and prove what is in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vcrt.api.certifying import Environments, as_dataset, factories_of, path_or_none, place_of
from vcrt.certificates.episodes import preset_named
from vcrt.datasets.examination import Describe, Examined, description_of, examine, from_certified
from vcrt.environments.isolation import ask, describe
from vcrt.errors import DatasetError, UnknownNameError, VcrtError
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import read_certificate
from vcrt.records.dataset import Dataset, read_audit
from vcrt.records.manifest import LEAVES, SEAL
from vcrt.records.sealing.seal import Signers, check_signatures, make_proof, seal_dataset
from vcrt.replay.shards import EnvironmentFactory, factory_of
from vcrt.storage import require_new

_EPISODE = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,19})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An episode, the source of its evidence, and the environment that can describe its steps."""

    examined: Examined
    origin: str
    factory: EnvironmentFactory

    def describe(self) -> Describe:
        """Describe a step in words; raises :class:`DatasetError` if the environment cannot read it."""
        episode = self.examined.evidence.episode
        return description_of(self.factory, {episode.episode_id: episode.operations})(
            episode.episode_id
        )


def seal(dataset: Dataset | str | Path, key: str | Path | None = None) -> Signers:
    """Sign a dataset's seal with an Ed25519 key, or make the seal of a dataset that has none yet.

    To make a key: `openssl genpkey -algorithm ed25519 -out key.pem`; to make its public half, for
    others: `openssl pkey -in key.pem -pubout -out key.pub`. Signing needs the package `cryptography`.

    Example: vcrt seal runs/data --key key.pem

    Args:
        dataset: A directory made by `vcrt certify`.
        key: The private key, a PEM file without a password.

    Returns:
        The signers of the seal, the new one included.

    Raises:
        UnavailableError: The package cryptography is not installed.
        AlteredError: The dataset differs from what its seal says.
    """
    path = place_of(dataset)
    return check_signatures(seal_dataset(path, path_or_none(key)), None, str(path / SEAL))


def prove(episode: str, dataset: Dataset | str | Path) -> str:
    """Give the proof, as JSON, that an episode's certificate belongs to a sealed dataset.

    To check this, one needs the certificate and the proof, and no other file of the dataset.

    Example: vcrt prove clrs/bellman_ford/7 --dataset runs/data > proof.json

    Args:
        episode: An episode of the dataset, as environment/schema/seed.
        dataset: A directory made by `vcrt certify`.

    Raises:
        VcrtError: The dataset has no episode of that name.
    """
    return make_proof(place_of(dataset), episode)


def show(
    episode: str,
    dataset: Dataset | str | Path | None = None,
    *,
    environments: Environments | Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> Shown:
    """Show one episode: its steps, which of them commute and which do not, and the verifier's own evidence for it.

    Example: vcrt show clrs/bellman_ford/7

    Args:
        episode: An episode as environment/schema/seed, or a certificate's file.
        dataset: Take the sealed evidence of this dataset; without it, the episode is sampled and replayed twice.
        environments: Environments that are not registered, as FILE.py:CLASS (in Python, classes by name as well).

    Returns:
        The episode with its evidence, or why it certifies nothing.

    Raises:
        UnknownNameError: There is no such environment or schema.
        DatasetError: The dataset has no such episode, or the certificate cannot be read.
    """
    factories = factories_of(environments or ())
    if dataset is not None:
        examined, origin = _sealed(episode, as_dataset(dataset))
    elif Path(episode).is_file():
        read = read_certificate(Path(episode))
        examined = from_certified(read.certified, read.preset)
        origin = (
            f"the replays that {episode} holds; `vcrt verify --certificate {episode}` makes "
            "them again"
        )
    else:
        examined, origin = _sampled(episode, factories, progress)
    factory = factory_of(examined.evidence.episode.environment, factories)
    return Shown(examined=examined, origin=origin, factory=factory)


def _sampled(name: str, environments: Environments, progress: Progress) -> tuple[Examined, str]:
    matched = _EPISODE.fullmatch(name)
    if matched is None:
        raise UnknownNameError(
            f"neither an episode nor a file: {name!r}",
            expected="environment/schema/seed, or the path of a certificate",
            remedy=f"vcrt show EPISODE --dataset {name}; {Path(name, LEAVES)} names its episodes"
            if Path(name, LEAVES).is_file()
            else "vcrt environments names environments and schemas; a seed is any number",
        )
    factory = factory_of(matched[1], environments)
    schema = describe(factory).schema(matched[2])
    seed = int(matched[3])
    drawn = ask(factory, lambda environment: environment.sample(schema.name, seed))
    what = "sequences of steps" if preset_named(schema.preset).is_long else "every order"
    return (
        examine(factory, drawn, preset_named(schema.preset), progress),
        f"sampled now; {what} replayed in two fresh processes",
    )


def _sealed(name: str, dataset: Dataset) -> tuple[Examined, str]:
    environment = name.partition("/")[0]
    if environment not in dataset.environments:
        raise UnknownNameError.of("environment of the dataset", environment, dataset.environments)
    rows = {row["episode_id"]: row for row in read_audit(dataset, environment)}
    if name not in rows:
        near = get_close_matches(name, rows, n=3, cutoff=0.0)
        raise DatasetError(
            f"no episode {name!r} in the dataset",
            where=str(dataset.path),
            expected=f"one of its {counted(len(rows), 'episode')} of {environment}, such as {', '.join(near)}",
            remedy=f"give one of these; {dataset.path / LEAVES} names all of them",
        )
    preset = dataset.manifest.preset
    return (
        from_certified(certified_from_row(rows[name], preset), preset),
        f"sealed in {dataset.path}, root hash {dataset.manifest.root_hash}",
    )


def require_apart(output: Path, dataset: Path, elsewhere: str) -> None:
    """Raise unless ``output`` is new and not inside a dataset; the remedy is to write ``elsewhere``."""
    require_new(output, VcrtError)
    if output.resolve().is_relative_to(dataset.resolve()):
        raise DatasetError(
            "a dataset's directory holds nothing but the dataset",
            where=str(output),
            remedy=f"write {elsewhere}",
        )
