"""Make, sign and verify the seal of a dataset: the statement about it in an envelope, derived from its manifest.

    leaves.jsonl   one line for each certificate (see :mod:`vcrt.records.sealing.leaves`)
    seal.json      the in-toto Statement in a DSSE envelope, signed or not

Every new dataset has a seal without a signature. Signing adds a signature and leaves the statement as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.dsse import Envelope

from vcrt.errors import DatasetError
from vcrt.records.dataset import open_dataset
from vcrt.records.manifest import LEAVES, SEAL, Manifest
from vcrt.records.sealing.envelopes import (
    can_check_signatures,
    envelope_bytes,
    envelope_of,
    require_signatures_hold,
    require_signed_by,
    signed,
)
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.leaves import Leaf, derived_leaves, leaves_bytes
from vcrt.records.sealing.statement import statement_bytes, statement_of
from vcrt.storage import write_file


def write_seal(directory: Path, manifest: Manifest, leaves: Sequence[Leaf]) -> None:
    """Write leaves and an unsigned seal beside a manifest."""
    envelope = envelope_of(statement_bytes(statement_of(manifest, leaves)))
    write_file(directory / LEAVES, leaves_bytes(leaves))
    write_file(directory / SEAL, envelope_bytes(envelope))


def seal_dataset(path: Path, key: Path | None = None) -> Envelope:
    """Make a dataset's seal if it has none, and sign it if a private key is given.

    Raises :class:`vcrt.errors.AlteredError` for a dataset that is not what its seal says, :class:`DatasetError` for one
    that is not what its manifest says, and :class:`vcrt.errors.SignatureError` for a key that cannot be used.
    """
    if not (path / SEAL).exists() and not (path / LEAVES).exists():
        manifest = open_dataset(path).manifest
        write_seal(path, manifest, derived_leaves(path, manifest))
    envelope = require_integrity(path).envelope
    if envelope is None:
        raise DatasetError("the dataset has no seal", where=str(path / SEAL))
    if key is None:
        return envelope
    require_signatures_hold(envelope, str(path / SEAL))
    envelope = signed(envelope, key)
    write_file(path / SEAL, envelope_bytes(envelope))
    return envelope


@dataclass(frozen=True, kw_only=True, slots=True)
class Signers:
    """Whose signatures a seal has, by the names of their keys, and whether they were checked.

    ``demanded`` is the key that had to be among them, if one was asked for.
    """

    keyids: tuple[str, ...]
    checked: bool
    demanded: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedSeal:
    """What a dataset's seal covers, all of which was found as it was frozen."""

    leaves: Sequence[Leaf]
    signers: Signers


def verify_seal(dataset: Path, *, public_key: Path | None = None) -> VerifiedSeal:
    """Check files, manifest, leaves, seal and signatures of a dataset; replays nothing.

    Raises :class:`vcrt.errors.AlteredError` naming what was altered, and :class:`vcrt.errors.SignatureError` for a
    signature that does not hold, or if none is by ``public_key``; and :class:`vcrt.errors.UnavailableError`
    if one is demanded and the library for signatures is missing.
    """
    found = require_integrity(dataset)
    if found.leaves is None or found.envelope is None:
        raise DatasetError("the dataset has no seal", where=str(dataset))
    signers = check_signatures(found.envelope, public_key, str(dataset / SEAL))
    return VerifiedSeal(leaves=found.leaves, signers=signers)


def check_signatures(envelope: Envelope, public_key: Path | None, where: str) -> Signers:
    """Check every signature, if the library is there, which it must be where a ``public_key`` is demanded."""
    keyids = tuple(envelope.signatures)
    if public_key is not None:
        demanded = require_signed_by(envelope, public_key, where)
        return Signers(keyids=keyids, checked=True, demanded=demanded)
    checked = can_check_signatures()
    if checked:
        require_signatures_hold(envelope, where)
    return Signers(keyids=keyids, checked=checked, demanded=None)
