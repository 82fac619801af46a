"""Certificates from Python: one episode, a frozen dataset, and its verification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vcrt.certification.config import sampled as sampled_series
from vcrt.certification.episodes import CertifiedEpisode, Exclusion, preset_named
from vcrt.certification.schema_names import select_schemas
from vcrt.certification.shards import EnvironmentFactory
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.examination import examine, factory_of
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Episode
from vcrt.environments.guarding import required_episode
from vcrt.environments.isolation import Description, describe
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.jobs import num_jobs
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset, open_dataset
from vcrt.records.manifest import Agreement
from vcrt.records.record_form import RecordForm
from vcrt.records.sealing.seal import verify_seal

#: Environments that are not registered, by name: the class, or whatever makes one.
Environments = Mapping[str, EnvironmentFactory]


def certify_episode(
    environment: str | EnvironmentFactory, episode: Episode, *, preset: str = "paper"
) -> CertifiedEpisode | Exclusion:
    """Replay one episode twice, each time in a fresh process, and certify it or say why not.

    Up to 5 operations every order is replayed; up to 10 every reachable context; beyond, a sample of them, which the
    result says.

    ``environment`` is a registered name, or the class of an environment. An :class:`Exclusion` has a ``kind`` and a
    ``detail``; it is an answer, not an error. Raises :class:`vcrt.errors.VerifierFailure` if the verifier breaks twice.
    """
    if not isinstance(episode, Episode):
        raise MalformedInputError(
            "that is no episode",
            found=repr(episode)[:200],
            expected="what `sample` of an environment gives: load_environment(NAME).sample(SCHEMA, seed=SEED)",
        )
    required_episode(episode, "the episode that was given")
    factory = factory_of(environment) if isinstance(environment, str) else environment
    return examine(factory, episode, preset_named(preset)).outcome


def certify(
    output: str | Path,
    *,
    schemas: Iterable[str] = (),
    episodes: int = 500,
    seed: int = 0,
    preset: str = "paper",
    sampled: bool = False,
    form: RecordForm | None = None,
    environments: Environments | None = None,
    jobs: int | None = None,
    backend: Backend = "loky",
    progress: Progress = SILENT,
) -> Dataset:
    """Certify ``episodes`` sampled episodes of each schema and freeze them as a new dataset: ``vcrt certify``.

    ``schemas`` are names like ``clrs`` or ``clrs/mst_kruskal``; without any, the default ones of vcrt's own
    environments. With ``sampled``, contexts are sampled even where all of them could be replayed, from 6 operations on;
    above 10 they always are. Without a ``form``, records of more than four operations leave out the commuting pairs.
    The preset ``any`` takes schemas of every preset, and episodes of several lengths in one dataset.
    ``environments`` adds some that are not registered. A call that was interrupted goes on when it is
    given again; the result does not depend on ``jobs`` or ``backend``. Raises :class:`vcrt.errors.VcrtError` if
    ``output`` exists, :class:`vcrt.errors.UncertifiableError` if too little was certified, and
    :class:`vcrt.errors.UnknownNameError`.
    """
    if episodes < 1:
        raise VcrtError("too few episodes", found=f"{episodes} episodes", expected="at least 1")

    def load(name: str) -> Description:
        return describe(factory_of(name, environments))

    schemas = (schemas,) if isinstance(schemas, str) else schemas
    config = sampled_series(
        select_schemas(schemas, preset, load=load),
        episodes,
        seed=seed,
        preset=replace(preset_named(preset), sampled=sampled),
    )
    return make_dataset(
        config,
        Path(output),
        jobs=num_jobs(jobs),
        backend=backend,
        progress=progress,
        factories=environments,
        form=form,
    )


def verify(
    dataset: Dataset | str | Path,
    *,
    public_key: str | Path | None = None,
    environments: Environments | None = None,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Agreement:
    """Check a dataset's seal, then replay all of it again in fresh processes: ``vcrt verify``.

    ``public_key`` is the PEM file of an Ed25519 key by which the seal must be signed. Raises
    :class:`vcrt.errors.DatasetError` naming what was altered, :class:`vcrt.errors.SignatureError`, and
    :class:`vcrt.errors.DisagreementError` naming every episode whose replay differs.
    """
    path = dataset.path if isinstance(dataset, Dataset) else Path(dataset)
    verify_seal(path, public_key=None if public_key is None else Path(public_key))
    return verify_agreement(
        open_dataset(path), jobs=num_jobs(jobs), progress=progress, factories=environments
    )
