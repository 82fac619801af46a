"""Ask the verifier: certify an episode on the spot, or replay a certificate again from its own bytes.

Every replay is made in a fresh process. Not covered: whole datasets (see :mod:`vcrt.datasets.agreement`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.environments.contract import Environment, Episode, Operation, Versions
from vcrt.environments.isolation import Description, ask, describe
from vcrt.errors import DatasetError, EnvironmentFailure, MalformedInputError, UnavailableError
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress, call_progress
from vcrt.records.certificate import (
    Difference,
    SealedCertificate,
    after,
    certificate_document,
    exclusion_document,
    first_difference,
    read_certificate,
)
from vcrt.replay.evidence import Evidence, num_replayed, replays_to_json
from vcrt.replay.shards import EnvironmentFactory, evidence_again, factory_of

#: A step as its environment would have a person read it.
Describe: TypeAlias = Callable[[Operation], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """An episode, the verifier's answers, and what they certify, or why they certify nothing."""

    evidence: Evidence
    versions: Versions
    preset: Preset
    outcome: CertifiedEpisode | Exclusion

    def document(self) -> dict[str, Json]:
        """The certificate's document, or that of the exclusion."""
        if isinstance(self.outcome, CertifiedEpisode):
            return certificate_document(self.outcome, self.preset)
        return exclusion_document(self.outcome, self.evidence, self.versions, self.preset)


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificateCheck:
    """What agreed when a single certificate was checked; ``hashes`` and ``messages`` count values in its replays."""

    certificate: SealedCertificate
    replays: int
    hashes: int
    messages: int


def description_of(
    factory: EnvironmentFactory, episodes: Mapping[str, Sequence[Operation]]
) -> Callable[[str], Describe]:
    """Ask the environment once to describe the steps of these episodes; the result is by episode name.

    Raises :class:`DatasetError`, naming the episode, for a step that the environment cannot read, since steps may
    come from an untrusted file.
    """

    def described(environment: Environment) -> dict[str, dict[str, str]]:
        return {
            name: {one.signature: _described(environment, name, one) for one in operations}
            for name, operations in episodes.items()
        }

    texts = ask(factory, described)
    return lambda name: lambda operation: texts[name][operation.signature]


def _described(environment: Environment, name: str, operation: Operation) -> str:
    try:
        return environment.describe(operation)
    except EnvironmentFailure as error:
        raise DatasetError(
            "the environment cannot read a step",
            where=f"{name}, step {operation.signature!r}",
            found=error.found,
            expected=f"a step of environment {environment.name!r}",
        ) from error


def from_certified(certified: CertifiedEpisode, preset: Preset) -> Examined:
    """An episode that was certified before."""
    return Examined(
        evidence=Evidence(certified.evidence, certified.cross_checks),
        versions=certified.versions,
        preset=preset,
        outcome=certified,
    )


def examine(
    factory: EnvironmentFactory, episode: Episode, preset: Preset, progress: Progress = SILENT
) -> Examined:
    """Replay an episode twice, each time in a fresh process, and certify it or say why not.

    Raises :class:`vcrt.errors.VerifierFailure` if the verifier breaks twice.
    """
    environment = describe(factory)
    (versions, *others), evidence = _replayed(factory, environment, episode, preset, progress)
    more, again = _replayed(factory, environment, episode, preset, progress, backwards=True)
    foreign = next((found for found in (*others, *more) if found != versions), None)
    outcome = certify_episode(evidence.replays, versions, preset, evidence.cross_checks)
    if isinstance(outcome, CertifiedEpisode) and foreign is not None:
        detail = f"{foreign}, not {versions}"
        outcome = Exclusion(
            episode.episode_id, "version_disagreement", detail, evidence.cross_checks
        )
    difference = first_difference(evidence.to_json(), again.to_json())
    if isinstance(outcome, CertifiedEpisode) and difference is not None:
        detail = (
            f"{difference.name}{_which(difference, evidence)}: "
            f"{difference.found}, then {difference.expected}"
        )
        outcome = Exclusion(episode.episode_id, "nondeterministic", detail, evidence.cross_checks)
    return Examined(evidence=evidence, versions=versions, preset=preset, outcome=outcome)


def verify_certificate(
    path: Path,
    *,
    factories: Mapping[str, EnvironmentFactory] | None = None,
    progress: Progress = SILENT,
) -> CertificateCheck:
    """Check a certificate from its own bytes: digest, derivation, versions, and every replay again.

    Raises :class:`DatasetError` naming the field that is wrong or the versions that are not present,
    :class:`vcrt.errors.UnknownNameError` for an environment that is not registered, :class:`UnavailableError` if its
    verifier is missing, and :class:`vcrt.errors.VerifierFailure` if it breaks.
    """
    certificate = read_certificate(path)
    certified = certificate.certified
    factory = factory_of(certified.episode.environment, factories)
    environment = describe(factory)
    _require_versions(path, certified, _versions_here(environment, certified))
    _require_schema(path, environment, certified.episode)
    found, again = _replayed_untrusted(
        path, factory, environment, certified.episode, certificate.preset, progress
    )
    for versions in found:
        _require_versions(path, certified, versions)
    _require_equal(path, certified, again)
    tree, replays = certified.tree, certified.replays
    return CertificateCheck(
        certificate=certificate,
        replays=len(replays) or len(tree),
        hashes=sum(len(each.state_hashes) for each in replays) or len(tree) - tree.num_refused,
        messages=sum(not each.accepted for each in replays) if replays else tree.num_refused,
    )


def _replayed(
    factory: EnvironmentFactory,
    environment: Description,
    episode: Episode,
    preset: Preset,
    progress: Progress,
    *,
    backwards: bool = False,
) -> tuple[tuple[Versions, Versions], Evidence]:
    """Replay in a fresh process; backwards, replay each sequence from a fresh initial state."""
    what = f"replay {episode.episode_id}{' again, each sequence afresh' * backwards}"
    expected = environment.calls_for_all_orders(episode.num_operations, sharing=not backwards)
    with call_progress() as calls:
        calls.expect(episode.environment, progress.task(what, 1, "episodes"), 1, expected)
        (result,) = in_fresh_processes(
            calls.counted(evidence_again),
            [(factory, (episode,), preset, backwards)],
            jobs=1,
            on_wait=calls.show,
        )
        versions, (evidence,) = calls.done(episode.environment, 1, result)
    return versions, evidence


def _require_schema(path: Path, environment: Description, episode: Episode) -> None:
    known = [schema.name for schema in environment.schemas]
    if environment.name != episode.environment or episode.schema not in known:
        raise DatasetError(
            "the certificate names a schema that its environment does not have",
            where=f"{path}, field episode.schema",
            found=f"{episode.environment}/{episode.schema}",
            expected=", ".join(f"{environment.name}/{name}" for name in known),
        )


def _replayed_untrusted(
    path: Path,
    factory: EnvironmentFactory,
    environment: Description,
    episode: Episode,
    preset: Preset,
    progress: Progress,
) -> tuple[tuple[Versions, Versions], Evidence]:
    try:
        return _replayed(factory, environment, episode, preset, progress, backwards=True)
    except MalformedInputError as error:
        raise DatasetError(
            f"the environment refuses the certificate's episode: {error.what}",
            where=": ".join(filter(None, (f"{path}, field episode", error.where))),
            found=error.found,
            expected=error.expected,
        ) from error
    except EnvironmentFailure as error:
        # Whatever an environment does with an episode that it did not make, it is the file that is wrong.
        raise DatasetError(
            "the environment cannot read the certificate's episode",
            where=f"{path}, field episode: {error.where}",
            found=error.found,
            expected=f"an episode of environment {episode.environment!r}",
        ) from error


def _versions_here(environment: Description, certified: CertifiedEpisode) -> Versions:
    try:
        return environment.versions()
    except UnavailableError as error:
        raise UnavailableError(
            f"the certificate cannot be replayed here: {error.what}",
            where=error.where,
            found=error.found,
            expected=error.expected,
            remedy="; ".join(filter(None, (error.remedy, _checked_so_far(certified)))),
        ) from error


def _require_versions(path: Path, certified: CertifiedEpisode, present: Versions) -> None:
    difference = first_difference(certified.versions.to_json(), present.to_json())
    if difference is not None:
        raise DatasetError(
            "the certificate cannot be replayed here: it was made under other versions of "
            f"{certified.episode.environment!r}",
            where=f"{path}, field versions.{difference.name}",
            found=f"{difference.found} in the certificate",
            expected=f"{difference.expected}, which is present",
            remedy=f"install the versions that it names; {_checked_so_far(certified)}",
        )


def _checked_so_far(certified: CertifiedEpisode) -> str:
    return (
        f"its digest holds and its {counted(len(certified.certificates), 'local certificate')} follow from its "
        f"{num_replayed(replays_to_json(certified.evidence))} replays, but no replay could be repeated"
    )


def _require_equal(path: Path, certified: CertifiedEpisode, again: Evidence) -> None:
    sealed = Evidence(certified.evidence, certified.cross_checks)
    difference = first_difference(sealed.to_json(), again.to_json())
    if difference is not None:
        raise DatasetError(
            "a certificate does not replay as it says",
            where=f"{path}, field {difference.name}{_which(difference, sealed)}",
            found=difference.found,
            expected=f"{difference.expected}, as the verifier answers here",
            remedy="if the verifier is deterministic, the certificate is forged: "
            "make a new one with `vcrt show EPISODE --json`",
        )


def _which(difference: Difference, evidence: Evidence) -> str:
    """Say in words which pair, in which context, a difference between replays concerns."""
    if not evidence.replays.exhaustive:
        match difference.field:
            case ("replays", "nodes", int(index), *_) if index + 1 < len(evidence.replays.tree):
                *context, step = list(evidence.replays.tree.answers)[index + 1]
                return f" (step {step} {after(context)})"
        return ""
    match difference.field:
        case ("replays", int(index), "state_hashes", int(0)):
            return " (the initial state)"
        case ("replays", int(index), *rest):
            replay = evidence.replays.replays[index]
            reached = rest[1] if rest[0] == "state_hashes" else len(replay.state_hashes)
            assert isinstance(reached, int)
            start = min(reached - 1, len(replay.sequence) - 2)
            one, other = replay.sequence[start : start + 2]
            return f" (step {one} then {other} {after(replay.sequence[:start])})"
    return ""
