"""Verify a dataset or one certificate from the shell, and print what holds and who signed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Console

import vcrt
from vcrt.cli.options import plain_console, print_document, say
from vcrt.datasets.examination import CertificateCheck
from vcrt.errors import VcrtError
from vcrt.plugins import installing_extra
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.records.manifest import SEAL, Agreement
from vcrt.records.sealing.seal import VerifiedSeal

if TYPE_CHECKING:
    from vcrt.certificates.episodes import CertifiedEpisode
    from vcrt.records.sealing.seal import Included, Signers

#: What was verified, one thing after another.
Verified: TypeAlias = "CertificateCheck | VerifiedSeal | Agreement | tuple[Included, Signers]"


def verify(
    dataset: Path | None = None,
    *,
    certificate: Path | None = None,
    proof: Path | None = None,
    public_key: Path | None = None,
    replay: bool = True,
    environments: Sequence[str] = (),
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Iterator[Verified]:
    """Replay a whole dataset or one certificate again, in fresh processes, and require that everything agrees.

    A dataset is compared with its seal first; if anything was altered, it is named and nothing is replayed.

    Example: vcrt verify runs/data

    Args:
        dataset: A directory made by `vcrt certify`.
        certificate: Check this file alone, from its own bytes; `vcrt show EPISODE --json` makes such files.
        proof: A file made by `vcrt prove`; the certificate must belong to the dataset that this file names.
        public_key: Require that this key, a PEM file, has signed the seal (with --proof, the proof's seal).
        replay: With `--no-replay`, only the seal is checked: files, manifest, leaves, signatures.
        environments: Environments that are not registered, as FILE.py:CLASS.
    """
    if (dataset is None) == (certificate is None):
        raise VcrtError(
            "verify what?",
            found="neither a dataset nor a certificate" if dataset is None else "both",
            expected="a dataset, or a certificate",
            remedy="vcrt verify DATASET, or vcrt verify --certificate FILE",
        )
    if (proof is not None and certificate is None) or (
        certificate is not None and (not replay or (proof is None and public_key is not None))
    ):
        raise VcrtError(
            "options that do not go together",
            expected="--proof with --certificate; --public-key with a dataset or --proof; --no-replay with a dataset",
        )
    if certificate is not None:
        yield vcrt.verify_certificate(certificate, environments=environments, progress=progress)
        if proof is not None:
            yield vcrt.verify_proof(certificate, proof, public_key=public_key)
    if dataset is not None:
        yield vcrt.verify_seal(dataset, public_key=public_key)
        if replay:
            yield vcrt.verify(
                dataset,
                public_key=public_key,
                environments=environments,
                jobs=jobs,
                progress=progress,
            )


def print_verified(
    found: Iterator[Verified], *, dataset: Path | None, replay: bool, json: bool = False
) -> None:
    """Print each result as soon as it is there.

    Args:
        json: Print the result of comparing replays for machines; all other output goes to the standard error.
    """
    if json and (dataset is None or not replay):
        raise VcrtError(
            "options that do not go together",
            found="--json without the replays of a dataset",
            remedy="leave --json out: the exit status says whether all holds",
        )
    console = plain_console(aside=json)
    for one in found:
        if isinstance(one, CertificateCheck):
            say(console, *check_lines(one))
        elif isinstance(one, VerifiedSeal) and dataset is not None:
            _print_seal(console, dataset, one)
        elif isinstance(one, Agreement) and dataset is not None:
            _print_agreement(console, dataset, one)
            if json:
                print_document(one.model_dump())
        elif isinstance(one, tuple):
            say(console, inclusion_line(*one))


def print_signers(signers: Signers, *, dataset: Path) -> None:
    """Print who has signed a dataset's seal."""
    say(plain_console(), f"seal      {dataset / SEAL}, {_signed(signers)}")


def print_proof(proof: str) -> None:
    """Print a proof in the form of its file."""
    print(proof)


def _print_seal(console: Console, dataset: Path, found: VerifiedSeal) -> None:
    """Print what the seal covers; the ledger of openings beside the dataset has its own hash chain instead."""
    from vcrt.records.ledger import recorded_openings
    from vcrt.records.sealing.statement import trees_of

    certificates = counted(len(found.leaves), "certificate")
    say(console, f"sealed    {certificates} as they were frozen, {_signed(found.signers)}")
    if openings := recorded_openings(dataset):
        times = counted(len(openings), "time")
        say(console, f"opened    {times}, by the ledger beside the dataset")
    for name, tree in trees_of(found.leaves).items():
        say(console, f"Merkle    {tree.root} {name}")


def _print_agreement(console: Console, dataset: Path, agreement: Agreement) -> None:
    from vcrt.words.evidence_words import evidence_sentences

    say(
        console,
        f"{agreement.agreed} of {agreement.replays} replays agree "
        f"({counted(agreement.episodes, 'episode')}), root hash {agreement.root_hash}",
        *evidence_sentences(vcrt.open_dataset(dataset).manifest.model_dump()["counts"]),
    )
    for name, guards in agreement.guards.items():
        counts = ", ".join(f"{count} {what}" for what, count in guards.checked_again.items())
        if counts:
            say(console, f"{name}: checked again by itself: {counts}")
        if guards.absent:
            missing = "; ".join(f"{what} ({why})" for what, why in guards.absent.items())
            say(console, f"{name}: not protected: {missing}")


def inclusion_line(included: Included, signers: Signers) -> str:
    """Say in words which dataset holds a certificate."""
    place = f"as number {included.index + 1} of {included.size}"
    if included.envelope.signatures:
        found = f"in the dataset with root hash {included.root_hash}, Merkle root {included.merkle_root}"
    else:
        found = (
            f"under Merkle root {included.merkle_root}, which nobody signed: it is one of the dataset with root hash "
            f"{included.root_hash} if `vcrt verify` prints it there"
        )
    return f"included    {place} {found}; {_signed(signers)}"


def _signed(signers: Signers) -> str:
    """Say in words what was checked."""
    if signers.demanded is not None:
        return f"signed by {signers.demanded}"
    if not signers.keyids:
        return "not signed"
    if not signers.checked:
        return f"signatures not checked: {installing_extra('sign')}"
    return f"signed by {', '.join(signers.keyids)} (whose key that is, --public-key tells)"


def check_lines(check: CertificateCheck) -> list[str]:
    """Give what was checked, with counts, one line for each check."""
    certified = check.certificate.certified
    versions, num_libraries = certified.versions, len(certified.versions.libraries)
    from vcrt.certificates.probes import in_brief

    opinions = [f"{c.checker} {c.agreed}/{c.checked}" for c in in_brief(certified.cross_checks)]
    return [
        f"certificate {certified.episode.episode_id}",
        f"digest      SHA-256 {check.certificate.sha256} holds",
        f"derived     {counted(len(certified.certificates), 'local certificate')}, "
        f"{counted(len(certified.relations), 'relation')} and "
        f"{_legal_orders(certified)} follow from the replays",
        f"versions    {versions.verifier}, adapter {versions.adapter}, canonicalizer {versions.canonicalizer} and "
        f"{counted(num_libraries, 'library', 'libraries')} are the same here",
        f"replayed    {check.replays} of {check.replays} {_replayed(certified)} again in a fresh process: "
        f"{check.hashes} hashes and {check.messages} messages equal",
        f"opinions    {', '.join(opinions) or 'none to repeat'}" + ", as before" * bool(opinions),
        "unchecked   where the episode comes from: no replay tells its source, generator or seed",
    ]


def _legal_orders(certified: CertifiedEpisode) -> str:
    num_legal = certified.num_legal
    if num_legal is None:
        return "the legal orders"
    if certified.complete:
        return counted(num_legal, "legal order")
    return f"{counted(num_legal, 'order')} that keep them"


def _replayed(certified: CertifiedEpisode) -> str:
    if certified.exhaustive:
        return "orders"
    return "sequences (complete)" if certified.complete else "sequences (sampled, not complete)"
