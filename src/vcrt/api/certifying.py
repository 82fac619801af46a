"""Certify episodes, freeze them as a dataset, and verify them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, preset_named
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.examination import CertificateCheck, examine
from vcrt.datasets.examination import verify_certificate as check_certificate
from vcrt.datasets.freezing import make_dataset
from vcrt.environments.contract import Episode
from vcrt.environments.guarding import required_episode
from vcrt.environments.isolation import Description, describe
from vcrt.environments.registry import given_environments
from vcrt.errors import DatasetError, MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.processes import Backend, num_jobs
from vcrt.progress import SILENT, Progress
from vcrt.records.certificate import read_certificate
from vcrt.records.dataset import Dataset, open_dataset
from vcrt.records.manifest import Agreement
from vcrt.records.policy_view import MAX_DISTRACTORS
from vcrt.records.record_form import Commutations, Pool, RecordForm, Relations, View, usual_form
from vcrt.records.sealing.seal import Included, Signers, VerifiedSeal, check_proof, check_signatures
from vcrt.records.sealing.seal import verify_seal as check_seal
from vcrt.replay.completion_judge import MAX_STEPS, CompletionJudge
from vcrt.replay.completions import Judgement
from vcrt.replay.config import sampled as sampled_series
from vcrt.replay.config import select_schemas
from vcrt.replay.shards import EnvironmentFactory, factory_of

#: Environments that are not registered, by name: the class, or whatever makes one.
Environments = Mapping[str, EnvironmentFactory]


def certify_episode(
    environment: str | EnvironmentFactory, episode: Episode, *, preset: str = "paper"
) -> CertifiedEpisode | Exclusion:
    """Replay one episode twice, each time in a fresh process, and certify it or say why not.

    With up to 5 operations, every order is replayed; with 6 to 10, every reachable context. With more than 10, a sample
    of the contexts is replayed, and the result says so.

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


def certify_completion(
    environment: str | EnvironmentFactory,
    task: Json,
    completion: str,
    *,
    max_steps: int = MAX_STEPS,
    max_judged: int = 0,
) -> Judgement:
    r"""Read a text that a model wrote, replay its steps, and certify their order if they solve the task.

    Up to ``max_judged`` orders of the steps are also judged one by one, whether the text solves the task or not. The
    answer's field ``judged`` says which of these orders solve it.

    ``environment`` is a class of :class:`vcrt.WrittenSteps`, such as a :class:`vcrt.WrittenEnvironment`, or a
    registered name; ``task`` holds what the environment needs to know about the problem. A failure is an answer, not an
    error; so is a success that certifies nothing. Raises :class:`vcrt.errors.VerifierFailure` if the environment breaks
    twice.

    >>> import vcrt
    >>> class Drawer(vcrt.WrittenEnvironment):
    ...     name = "drawer"
    ...     def reset(self, task): return set()
    ...     def call(self, state, name, arguments): state.add(arguments["item"])
    >>> vcrt.certify_completion(Drawer, None, 'put(item="pen")\nput(item="ruler")').order.pairs
    ()
    """
    factory = factory_of(environment) if isinstance(environment, str) else environment
    with CompletionJudge(factory, max_steps=max_steps, max_judged=max_judged) as judge:
        judge.begin([task], [completion])
        (judgement,) = judge.finish()
    return judgement


def certify(
    output: str | Path,
    *,
    schemas: Iterable[str] = (),
    episodes: int = 500,
    seed: int = 0,
    preset: str = "paper",
    sampled: bool = False,
    view: View = "relations",
    relations: Relations = "all",
    commutations: Commutations | None = None,
    distractors: int = 0,
    pool: Pool | None = None,
    environments: Environments | None = None,
    jobs: int | None = None,
    backend: Backend = "local",
    progress: Progress = SILENT,
) -> Dataset:
    """Replay the orders of sampled episodes and freeze the certified episodes as a new dataset.

    Without options it makes the paper's dataset: 500 episodes of each of five schemas in each of three
    environments. The folder OUTPUT.shards holds unfinished work until the dataset is whole; repeat an interrupted
    command to continue from there.

    Example: vcrt certify --output runs/data --schemas clrs lean/cite --episodes 100

    Args:
        output: The new dataset's directory.
        schemas: Environments, or single schemas as environment/schema. If none is given: all default schemas that come
            with vcrt.
        episodes: Certified episodes for each schema.
        seed: Seed of everything.
        preset: What an episode looks like: `paper` (one anti-diamond, 12 of 24 orders legal), `several` (several
            anti-diamonds, 2 to 8 orders legal), `posetsN` (N steps, 3 to 64; at least two legal orders and one
            anti-diamond, or two anti-diamonds for 3 or 4 steps), or `any` (every episode that certifies, of 2 to 64
            steps; one dataset may mix lengths). With 6 to 10 steps, every reachable context is replayed; with more than
            10, a sample of them. Each preset has its own schemas, but `any` takes the schemas of every preset; the
            schemas that come with vcrt have 4, 6, 8, 12 and 16 steps.
        sampled: From 6 steps on, replay a sample of the contexts even if all could be replayed.
        view: What a policy sees: the certified relations, the native steps as text, or what each step declares to
            read and to write. Text needs a language model, which has to find the dependencies itself.
        relations: Whether a policy record states all directed relations, or only relations that do not follow from
            others.
        commutations: Whether a record states which pairs commute; by default only up to four steps, and not with `any`.
        distractors: How many relations are added to a record, among operations that do not occur in the episode.
        pool: Records of up to four steps draw their pointers from 8 (`usual`), or from the 32 of longer records
            (`large`), so that both look alike. The default is `usual`; with `any`, it is `large`.
        environments: Environments that are not registered: each name with a class, or with a function that makes one.

    Raises:
        VcrtError: `output` exists, or a number is out of range.
        UncertifiableError: Too few episodes could be certified.
        UnknownNameError: There is no such schema.
    """
    if episodes < 1:
        raise VcrtError("too few episodes", found=f"{episodes} episodes", expected="at least 1")
    if not 0 <= distractors <= MAX_DISTRACTORS:
        raise VcrtError(
            "the number of distractors is out of range",
            found=f"{distractors} distractors",
            expected=f"0 to {MAX_DISTRACTORS}",
        )
    if view != "relations" and (relations != "all" or commutations is not None or distractors):
        raise VcrtError(
            f"records of {view} have no relations, so options on relations do not apply to them",
            found=f"view {view!r} with relations, commutations or distractors",
            expected="this view without these options, or the view 'relations'",
        )
    usual = usual_form(preset_named(preset).num_operations)

    def load(name: str) -> Description:
        return describe(factory_of(name, environments))

    schemas = (schemas,) if isinstance(schemas, str) else schemas
    selected = select_schemas(schemas, preset, load=load)
    if view == "footprints":
        _require_footprints([load(name) for name in selected])
    config = sampled_series(
        selected,
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
        form=RecordForm(
            relations=relations,
            commutations=commutations or usual.commutations,
            distractors=distractors,
            pool=pool or usual.pool,
            view=view,
        ),
    )


def _require_footprints(environments: Iterable[Description]) -> None:
    """Raise :class:`VcrtError` if an environment does not say what its steps read and write."""
    without = [one.name for one in environments if not one.declares_footprints]
    if without:
        raise VcrtError(
            "an environment does not declare what its steps read and write",
            found=", ".join(without),
            expected="environments with a method `footprint`",
            remedy="leave it out with --schemas, or certify with --view steps",
        )


def verify(
    dataset: Dataset | str | Path,
    *,
    public_key: str | Path | None = None,
    environments: Environments | Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Agreement:
    """Check a dataset's seal, then replay all of it again in fresh processes.

    Args:
        dataset: A dataset, or its directory.
        public_key: The PEM file of an Ed25519 key by which the seal must be signed.
        environments: Environments that are not registered: classes by name, or ``FILE.py:CLASS``.

    Raises:
        DatasetError: Something was altered; it is named.
        SignatureError: The key has not signed the seal.
        DisagreementError: Replays differ; every such episode is named.
    """
    verify_seal(dataset, public_key=public_key)
    return verify_agreement(
        open_dataset(place_of(dataset)),
        jobs=num_jobs(jobs),
        progress=progress,
        factories=factories_of(environments),
    )


def factories_of(environments: Environments | Sequence[str]) -> Environments:
    """Return the environments by name; each may be given as ``FILE.py:CLASS``."""
    if isinstance(environments, Mapping):
        return environments
    return given_environments(environments)


def verify_seal(
    dataset: Dataset | str | Path, *, public_key: str | Path | None = None
) -> VerifiedSeal:
    """Check files, manifest, leaves, seal and signatures of a dataset without a replay: ``vcrt verify --no-replay``.

    Raises what :func:`verify` raises, except ``DisagreementError``.
    """
    return check_seal(place_of(dataset), public_key=path_or_none(public_key))


def verify_certificate(
    certificate: str | Path,
    *,
    environments: Environments | Sequence[str] = (),
    progress: Progress = SILENT,
) -> CertificateCheck:
    """Check a single certificate from its own bytes, and replay it again: ``vcrt verify --certificate``.

    The file is what ``vcrt show EPISODE --json`` prints. Raises :class:`vcrt.errors.DatasetError`, which names the
    wrong field or the missing versions.
    """
    path = Path(certificate)
    if not path.exists() or path.is_dir():
        found = "a directory" if path.is_dir() else "No such file"
        if path.is_symlink() and not path.exists():
            found = f"a link to {path.readlink()}, which is not there"
        raise DatasetError(
            "no certificate there",
            where=str(path),
            found=found,
            expected="a file made by `vcrt show EPISODE --json`",
            remedy="check the name, or make one: vcrt show EPISODE --json > FILE",
        )
    return check_certificate(path, factories=factories_of(environments), progress=progress)


def verify_proof(
    certificate: str | Path, proof: str | Path, *, public_key: str | Path | None = None
) -> tuple[Included, Signers]:
    """Check that a certificate belongs to the dataset that a proof names: ``vcrt verify --proof``.

    Returns the certificate's place and the signers of the proof's seal. Both arguments are files; :func:`prove` makes
    the proof. Raises :class:`vcrt.errors.VcrtError` if the certificate does not belong to it, and
    :class:`vcrt.errors.SignatureError` if ``public_key`` has not signed the proof's seal.
    """
    included = check_proof(Path(proof), read_certificate(Path(certificate)).sha256)
    where = f"{proof}, field seal"
    return included, check_signatures(included.envelope, path_or_none(public_key), where)


def as_dataset(dataset: Dataset | str | Path) -> Dataset:
    """Return the dataset; open it first if it is given as a path."""
    return dataset if isinstance(dataset, Dataset) else open_dataset(dataset)


def place_of(dataset: Dataset | str | Path) -> Path:
    """Return the directory of a dataset."""
    return dataset.path if isinstance(dataset, Dataset) else Path(dataset)


def path_or_none(given: str | Path | None) -> Path | None:
    """The path, if one was given."""
    return None if given is None else Path(given)
