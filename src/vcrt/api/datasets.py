"""Show what is in a dataset, sign it, and prove what is in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from vcrt.api.certifying import Environments, as_dataset, factories_of, path_or_none, place_of
from vcrt.certification.episodes import preset_named
from vcrt.certification.shards import EnvironmentFactory, factory_of
from vcrt.datasets.examination import Describe, Examined, description_of, examine, from_certified
from vcrt.environments.isolation import describe, sample
from vcrt.errors import DatasetError, UnknownNameError, VcrtError
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import read_certificate
from vcrt.records.dataset import Dataset, read_audit
from vcrt.records.manifest import LEAVES, SEAL
from vcrt.records.sealing.proof import make_proof
from vcrt.records.sealing.seal import Signers, check_signatures, seal_dataset
from vcrt.storage import require_new

_EPISODE = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,19})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """An episode, where its evidence comes from, and the environment that can describe its steps."""

    examined: Examined
    origin: str
    factory: EnvironmentFactory

    def describe(self) -> Describe:
        """How a step is to be read; raises :class:`DatasetError` if the environment cannot read one."""
        episode = self.examined.evidence.episode
        return description_of(self.factory, {episode.episode_id: episode.operations})(
            episode.episode_id
        )


def seal(dataset: Dataset | str | Path, key: str | Path | None = None) -> Signers:
    """Sign a dataset's seal, or make the seal of one that has none: ``vcrt seal``; returns who has signed it now.

    ``key`` is the PEM file of a private Ed25519 key without a password. Raises
    :class:`vcrt.errors.UnavailableError` without ``vcrt[sign]``, and :class:`vcrt.errors.AlteredError`.
    """
    path = place_of(dataset)
    return check_signatures(seal_dataset(path, path_or_none(key)), None, str(path / SEAL))


def prove(episode: str, dataset: Dataset | str | Path) -> str:
    """The proof, as JSON, that an episode's certificate is among those of a sealed dataset: ``vcrt prove``.

    ``episode`` is environment/schema/seed. Raises :class:`vcrt.errors.VcrtError` if the dataset has none of that name.
    """
    return make_proof(place_of(dataset), episode)


def show(
    episode: str,
    dataset: Dataset | str | Path | None = None,
    *,
    environments: Environments | Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> Shown:
    """One episode with its evidence, or why it certifies nothing: ``vcrt show``.

    ``episode`` is environment/schema/seed, or a certificate's file. With a ``dataset``, its sealed evidence is taken;
    without, the episode is sampled and replayed twice. ``environments`` are as :func:`vcrt.verify` takes them. Raises
    :class:`vcrt.errors.UnknownNameError` and :class:`vcrt.errors.DatasetError` if there is no such episode.
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
            else "for example: vcrt show clrs/bellman_ford/7",
        )
    factory = factory_of(matched[1], environments)
    schema = describe(factory).schema(matched[2])
    drawn = sample(factory, schema.name, int(matched[3]))
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
            remedy="without --dataset it is sampled and certified on the spot, or excluded with the reason",
        )
    preset = dataset.manifest.preset
    return (
        from_certified(certified_from_row(rows[name], preset), preset),
        f"sealed in {dataset.path}, root hash {dataset.manifest.root_hash}",
    )


def require_apart(output: Path, dataset: Path, elsewhere: str) -> None:
    """Raise unless ``output`` is new and no part of a dataset; the remedy is to write ``elsewhere``."""
    require_new(output, VcrtError)
    if output.resolve().is_relative_to(dataset.resolve()):
        raise DatasetError(
            "a dataset's directory holds nothing but the dataset",
            where=str(output),
            remedy=f"write {elsewhere}",
        )
