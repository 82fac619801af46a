"""Make and check Ed25519 signatures of a seal, by the library ``cryptography``: ``pip install 'vcrt[sign]'``.

A key's name in an envelope is ``ed25519:`` and the public key itself in hexadecimal, so that every signature can be
checked, by whomever it is. Whose key it is, no file can say: that is what ``--public-key`` is for.

Keys are PEM files, as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` write them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vcrt.errors import SignatureError, UnavailableError
from vcrt.records.sealing.dsse import Envelope, Signature, signed_bytes

if TYPE_CHECKING:
    from types import ModuleType

_KEYID = re.compile(r"ed25519:([0-9a-f]{64})")
#: The largest key file that is read, in bytes.
MAX_KEY_BYTES = 65536
NEW_KEY = "openssl genpkey -algorithm ed25519 -out key.pem"
NEW_PUBLIC_KEY = "openssl pkey -in key.pem -pubout -out key.pub"


def can_check_signatures() -> bool:
    """Whether the library is there."""
    try:
        _ed25519()
    except UnavailableError:
        return False
    return True


def signature_of(envelope: Envelope, key: Path) -> Signature:
    """Sign an envelope with the private key of a PEM file; raises :class:`SignatureError` if it is none of Ed25519."""
    ed25519 = _ed25519()
    private = _read_key(key, "private", NEW_KEY)
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise _no_key(key, "private", type(private).__name__, NEW_KEY)
    return Signature(_keyid(private.public_key()), private.sign(signed_bytes(envelope)))


def require_signatures_hold(envelope: Envelope, where: str) -> None:
    """Raise :class:`SignatureError` unless every signature is one of the envelope's payload by the key it names."""
    from cryptography.exceptions import InvalidSignature

    ed25519 = _ed25519()
    for one in envelope.signatures:
        named = _KEYID.fullmatch(one.keyid)
        if named is None:
            raise SignatureError(
                "a signature names no Ed25519 key",
                where=where,
                found=one.keyid[:100],
                expected="ed25519: and 64 hexadecimal digits",
            )
        try:
            public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(named[1]))
            public.verify(one.signature, signed_bytes(envelope))
        except (InvalidSignature, ValueError) as error:
            raise SignatureError(
                "a signature does not hold: it, its key's name or what it signs was altered",
                where=where,
                found=f"a signature by {one.keyid}",
                expected="a signature of this statement",
                remedy="restore the original seal, or sign it again with `vcrt seal DATASET --key FILE`",
            ) from error


def require_signed_by(envelope: Envelope, public_key: Path, where: str) -> str:
    """The name of a key, if the envelope is signed by it; raises :class:`SignatureError` otherwise.

    All signatures are checked, those by other keys too.
    """
    ed25519 = _ed25519()
    public = _read_key(public_key, "public", NEW_PUBLIC_KEY)
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise _no_key(public_key, "public", type(public).__name__, NEW_PUBLIC_KEY)
    keyid = _keyid(public)
    if not envelope.signatures:
        raise SignatureError(
            "the dataset is not signed",
            where=where,
            found="a seal without a signature",
            expected=f"one by {keyid}",
            remedy="if it was signed, the signature was removed: get the original seal",
        )
    require_signatures_hold(envelope, where)
    if keyid not in {one.keyid for one in envelope.signatures}:
        raise SignatureError(
            "the dataset is signed by another key",
            where=where,
            found=", ".join(one.keyid for one in envelope.signatures),
            expected=keyid,
            remedy="check whose public key you gave, and who signed the dataset",
        )
    return keyid


def _keyid(public: Any) -> str:
    raw: bytes = public.public_bytes_raw()
    return f"ed25519:{raw.hex()}"


def _ed25519() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise UnavailableError(
            "signatures need the library cryptography",
            found=str(error),
            remedy="pip install 'vcrt[sign]'",
        ) from error
    module: ModuleType = ed25519
    return module


def _read_key(path: Path, kind: str, how: str) -> Any:
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    if not path.is_file():
        raise SignatureError(f"no {kind} key there", where=str(path), remedy=how)
    with path.open("rb") as stream:
        data = stream.read(MAX_KEY_BYTES)
    try:
        if kind == "public":
            return serialization.load_pem_public_key(data)
        return serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        found = (str(error).splitlines() or [type(error).__name__])[0][:160]
        raise _no_key(path, kind, found, how) from error


def _no_key(path: Path, kind: str, found: str, how: str) -> SignatureError:
    return SignatureError(
        f"not a {kind} Ed25519 key",
        where=str(path),
        found=found,
        expected=f"a PEM file with a {kind} Ed25519 key, without a password",
        remedy=how,
    )
