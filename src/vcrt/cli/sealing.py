"""What ``vcrt seal``, ``vcrt prove`` and the checks of seals in ``vcrt verify`` do and print."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.errors import VcrtError
from vcrt.protocol.ledger import recorded_openings
from vcrt.records.certificate import read_certificate
from vcrt.records.manifest import SEAL
from vcrt.records.sealing.dsse import Envelope
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.proof import check_proof, make_proof
from vcrt.records.sealing.seal import seal_dataset
from vcrt.records.sealing.signing import (
    can_check_signatures,
    require_signatures_hold,
    require_signed_by,
)
from vcrt.records.sealing.statement import trees_of
from vcrt.report.wording import counted, printable


def seal(console: Console, dataset: Path, key: Path | None) -> None:
    """Make the seal of a dataset, or sign it, and print what there is now."""
    envelope = seal_dataset(dataset, key)
    signed = _check_signatures(envelope, None, str(dataset / SEAL))
    _print(console, f"seal      {dataset / SEAL}, {signed}")


def prove(episode: str, dataset: Path) -> None:
    """Print the proof that an episode's certificate is among those of a dataset."""
    print(make_proof(dataset, episode))


def check_seal(console: Console, dataset: Path, public_key: Path | None) -> None:
    """Check files, manifest, leaves, seal and signatures of a dataset, and print what holds; replays nothing.

    The ledger of openings lies beside the dataset and is no part of what is sealed: its own chain is checked.
    """
    found = require_integrity(dataset)
    if found.manifest is None or found.envelope is None:
        raise VcrtError("the dataset has no seal", where=str(dataset))
    signed = _check_signatures(found.envelope, public_key, str(dataset / SEAL))
    _print(
        console,
        f"sealed    {counted(len(found.leaves), 'certificate')} as they were frozen, {signed}",
    )
    openings = recorded_openings(dataset)
    if openings:
        _print(
            console, f"opened    {counted(len(openings), 'time')}, by the ledger beside the dataset"
        )
    trees = trees_of(found.leaves)
    for name, tree in trees.items():
        assert isinstance(tree, dict)
        _print(console, f"Merkle    {tree['root']} {name}")


def check_inclusion(
    console: Console, certificate: Path, proof: Path, public_key: Path | None
) -> None:
    """Check that a certificate is among those of the dataset that a proof names, and print which."""
    included = check_proof(proof, read_certificate(certificate).sha256)
    signed = _check_signatures(included.envelope, public_key, f"{proof}, field seal")
    place = f"as number {included.index + 1} of {included.size}"
    if included.envelope.signatures:
        found = f"in the dataset with root hash {included.root_hash}, Merkle root {included.merkle_root}"
    else:
        found = (
            f"under Merkle root {included.merkle_root}, which nobody signed: it is one of the dataset with root hash "
            f"{included.root_hash} if `vcrt verify` prints it there"
        )
    _print(console, f"included    {place} {found}; {signed}")


def _check_signatures(envelope: Envelope, public_key: Path | None, where: str) -> str:
    """Check what can be checked, and say in words what that is."""
    if public_key is not None:
        return f"signed by {require_signed_by(envelope, public_key, where)}"
    if not envelope.signatures:
        return "not signed"
    if not can_check_signatures():
        return "signatures not checked: pip install 'vcrt[sign]'"
    require_signatures_hold(envelope, where)
    return f"signed by {_signers(envelope)} (whose key that is, --public-key tells)"


def _signers(envelope: Envelope) -> str:
    return ", ".join(one.keyid for one in envelope.signatures) or "nobody"


def _print(console: Console, line: str) -> None:
    console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
