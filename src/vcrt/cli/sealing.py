"""What ``vcrt seal``, ``vcrt prove`` and the checks of seals in ``vcrt verify`` do and print."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vcrt.printable import printable
from vcrt.protocol.ledger import recorded_openings
from vcrt.records.certificate import read_certificate
from vcrt.records.manifest import SEAL
from vcrt.records.sealing.proof import check_proof, make_proof
from vcrt.records.sealing.seal import Signers, check_signatures, seal_dataset, verify_seal
from vcrt.records.sealing.statement import trees_of
from vcrt.report.wording import counted


def seal(console: Console, dataset: Path, key: Path | None) -> None:
    """Make the seal of a dataset, or sign it, and print what there is now."""
    envelope = seal_dataset(dataset, key)
    signed = _signed(check_signatures(envelope, None, str(dataset / SEAL)))
    _print(console, f"seal      {dataset / SEAL}, {signed}")


def prove(episode: str, dataset: Path) -> None:
    """Print the proof that an episode's certificate is among those of a dataset."""
    print(make_proof(dataset, episode))


def check_seal(console: Console, dataset: Path, public_key: Path | None) -> None:
    """Check files, manifest, leaves, seal and signatures of a dataset, and print what holds; replays nothing.

    The ledger of openings lies beside the dataset and is no part of what is sealed: its own chain is checked.
    """
    found = verify_seal(dataset, public_key=public_key)
    _print(
        console,
        f"sealed    {counted(len(found.leaves), 'certificate')} as they were frozen, {_signed(found.signers)}",
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
    signed = _signed(check_signatures(included.envelope, public_key, f"{proof}, field seal"))
    place = f"as number {included.index + 1} of {included.size}"
    if included.envelope.signatures:
        found = f"in the dataset with root hash {included.root_hash}, Merkle root {included.merkle_root}"
    else:
        found = (
            f"under Merkle root {included.merkle_root}, which nobody signed: it is one of the dataset with root hash "
            f"{included.root_hash} if `vcrt verify` prints it there"
        )
    _print(console, f"included    {place} {found}; {signed}")


def _signed(signers: Signers) -> str:
    """What was checked, in words."""
    if signers.demanded is not None:
        return f"signed by {signers.demanded}"
    if not signers.keyids:
        return "not signed"
    if not signers.checked:
        return "signatures not checked: pip install 'vcrt[sign]'"
    return f"signed by {', '.join(signers.keyids)} (whose key that is, --public-key tells)"


def _print(console: Console, line: str) -> None:
    console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
