"""Write, read, sign and check the DSSE envelope of a seal, by the library ``securesystemslib``.

An envelope has exactly one spelling here; a file with the same content in other bytes is refused. By its specification,
a DSSE envelope must have a signature; vcrt seals an unsigned dataset by an envelope without one.

Signatures are of Ed25519. They need the package cryptography. A key's name in an envelope is ``ed25519:`` and the
public key itself in hexadecimal, so that every signature can be checked, by whoever signed. No file can say whose key
it is: ``--public-key`` does. Keys are PEM files, as `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`
write them.

Source: https://github.com/secure-systems-lab/dsse, version 1.0.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import FailFast
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from vcrt.documents import strict_json
from vcrt.errors import SignatureError, UnavailableError
from vcrt.forms import Strict, in_a_line
from vcrt.plugins import installing_extra

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_KEYID = re.compile(r"ed25519:([0-9a-f]{64})")
#: The largest key file that is read, in bytes.
MAX_KEY_BYTES = 65536
#: The commands that make the PEM file of each kind of key.
_MADE_BY = {
    "private": "openssl genpkey -algorithm ed25519 -out key.pem",
    "public": "openssl pkey -in key.pem -pubout -out key.pub",
}


class _Signature(Strict):
    keyid: str
    sig: str


class _Form(Strict):
    payload: str
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815 (DSSE's spelling)
    signatures: Annotated[list[_Signature], FailFast()]


def envelope_of(payload: bytes) -> Envelope:
    """Return an unsigned envelope."""
    return Envelope(payload, PAYLOAD_TYPE, {})


def envelope_bytes(envelope: Envelope) -> bytes:
    """Return the one spelling of an envelope: indented JSON with sorted fields."""
    return (json.dumps(envelope.to_dict(), indent=2, sort_keys=True) + "\n").encode()


def envelope_from_bytes(data: bytes) -> Envelope:
    """Read an envelope; raise ``ValueError`` for bytes that :func:`envelope_bytes` does not write."""
    value = strict_json(data)
    try:
        _Form.model_validate(value)
    except ValueError as error:
        raise ValueError(in_a_line(error)) from error
    envelope = Envelope.from_dict(value)
    if list(envelope.signatures) != sorted(envelope.signatures):
        raise ValueError("signatures: not sorted by key")
    if envelope_bytes(envelope) != data:
        raise ValueError(
            "the same content in other bytes than vcrt writes (space, escapes, base64)"
        )
    return envelope


def can_check_signatures() -> bool:
    """Return whether the library that computes signatures is installed."""
    try:
        _require_cryptography()
    except UnavailableError:
        return False
    return True


def signed(envelope: Envelope, key: Path) -> Envelope:
    """Return the envelope with a signature by the private key of a PEM file; replace an earlier one by this key.

    Raise :class:`SignatureError` if the file holds no such key.
    """
    private, public = _read_key(key, "private")
    again = Envelope(envelope.payload, envelope.payload_type, dict(envelope.signatures))
    again.sign(CryptoSigner(private, public))
    again.signatures = dict(sorted(again.signatures.items()))
    return again


def require_signatures_hold(envelope: Envelope, where: str) -> None:
    """Raise :class:`SignatureError` unless every signature is one of the envelope's payload by the key it names."""
    _require_cryptography()
    for keyid, signature in envelope.signatures.items():
        named = _KEYID.fullmatch(keyid)
        if named is None:
            raise SignatureError(
                "a signature names no Ed25519 key",
                where=where,
                found=keyid[:100],
                expected="ed25519: and 64 hexadecimal digits",
            )
        try:
            key = SSlibKey(keyid, "ed25519", "ed25519", {"public": named[1]})
            key.verify_signature(signature, envelope.pae())
        except (UnverifiedSignatureError, VerificationError) as error:
            raise SignatureError(
                "a signature does not hold: it, its key's name or what it signs was altered",
                where=where,
                found=f"a signature by {keyid}",
                expected="a signature of this statement",
                remedy="restore the original seal, or sign it again with `vcrt seal DATASET --key FILE`",
            ) from error


def require_signed_by(envelope: Envelope, public_key: Path, where: str) -> str:
    """Return the name of a key if it signed the envelope; raise :class:`SignatureError` otherwise.

    Check all signatures, those by other keys too.
    """
    keyid = _read_key(public_key, "public")[1].keyid
    if not envelope.signatures:
        raise SignatureError(
            "the dataset is not signed",
            where=where,
            found="a seal without a signature",
            expected=f"one by {keyid}",
            remedy="if it was signed, the signature was removed: get the original seal",
        )
    require_signatures_hold(envelope, where)
    if keyid not in envelope.signatures:
        raise SignatureError(
            "the dataset is signed by another key",
            where=where,
            found=", ".join(envelope.signatures),
            expected=keyid,
            remedy="check whose public key you gave, and who signed the dataset",
        )
    return keyid


def _require_cryptography() -> None:
    # Without it, the library checks Ed25519 by a slow reference implementation, which accepts several spellings.
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: F401
    except ImportError as error:
        raise UnavailableError(
            "signatures need the library cryptography",
            found=str(error),
            remedy=installing_extra("sign"),
        ) from error


def _read_key(path: Path, kind: Literal["private", "public"]) -> tuple[Any, SSlibKey]:
    """Return the key in a PEM file, and its public half under its name; raise :class:`SignatureError` without one."""
    _require_cryptography()
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    if not path.is_file():
        raise SignatureError(f"no {kind} key there", where=str(path), remedy=_MADE_BY[kind])
    with path.open("rb") as stream:
        data = stream.read(MAX_KEY_BYTES)
    try:
        key: Any = (
            serialization.load_pem_public_key(data)
            if kind == "public"
            else serialization.load_pem_private_key(data, password=None)
        )
        public = SSlibKey.from_crypto(key if kind == "public" else key.public_key())
        if public.keytype != "ed25519":
            raise ValueError(f"a key of {public.keytype}")
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise SignatureError(
            f"not a {kind} Ed25519 key",
            where=str(path),
            found=in_a_line(error)[:160],
            expected=f"a PEM file with a {kind} Ed25519 key, without a password",
            remedy=_MADE_BY[kind],
        ) from error
    public.keyid = f"ed25519:{public.keyval['public']}"
    return key, public
