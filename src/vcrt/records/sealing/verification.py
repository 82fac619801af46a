"""Whether a dataset is as it was frozen, and who signed that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.errors import DatasetError
from vcrt.records.manifest import SEAL
from vcrt.records.sealing.dsse import Envelope
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.leaves import Leaf
from vcrt.records.sealing.signing import (
    can_check_signatures,
    require_signatures_hold,
    require_signed_by,
)


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
    if found.manifest is None or found.envelope is None:
        raise DatasetError("the dataset has no seal", where=str(dataset))
    signers = check_signatures(found.envelope, public_key, str(dataset / SEAL))
    return VerifiedSeal(leaves=found.leaves, signers=signers)


def check_signatures(envelope: Envelope, public_key: Path | None, where: str) -> Signers:
    """Check every signature, if the library is there, which it must be where a ``public_key`` is demanded."""
    keyids = tuple(one.keyid for one in envelope.signatures)
    if public_key is not None:
        demanded = require_signed_by(envelope, public_key, where)
        return Signers(keyids=keyids, checked=True, demanded=demanded)
    checked = can_check_signatures()
    if checked:
        require_signatures_hold(envelope, where)
    return Signers(keyids=keyids, checked=checked, demanded=None)
