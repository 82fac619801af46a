"""Write and read DSSE envelopes: a payload in base64 with its type and any number of signatures over both.

An envelope has exactly one spelling here, so a file that says the same in other bytes is refused. A DSSE envelope must
have a signature by its specification; one without any is how vcrt seals a dataset that nobody has signed yet.

Source: https://github.com/secure-systems-lab/dsse, version 1.0. Not covered: keys
(see :mod:`vcrt.records.sealing.signing`).
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from vcrt.documents import strict_json


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature's bytes, and the name of the key that it says it was made with."""

    keyid: str
    signature: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A payload, its media type, and the signatures over :func:`signed_bytes` of both, sorted by key."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...] = ()


def signed_bytes(envelope: Envelope) -> bytes:
    """What is signed: the pre-authentication encoding of type and payload."""
    kind = envelope.payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(envelope.payload), envelope.payload)


def envelope_bytes(envelope: Envelope) -> bytes:
    """The one spelling of an envelope: indented JSON with sorted fields."""
    value = {
        "payload": _base64(envelope.payload),
        "payloadType": envelope.payload_type,
        "signatures": [
            {"keyid": s.keyid, "sig": _base64(s.signature)} for s in envelope.signatures
        ],
    }
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def envelope_from_bytes(data: bytes) -> Envelope:
    """Read an envelope; raises ``ValueError`` with the field that :func:`envelope_bytes` does not write so."""
    value = strict_json(data)
    _require_fields(value, {"payload": str, "payloadType": str, "signatures": list}, "")
    signatures = []
    for index, one in enumerate(value["signatures"]):
        _require_fields(one, {"keyid": str, "sig": str}, f"signatures[{index}].")
        bare = _from_base64(one["sig"], f"signatures[{index}].sig")
        signatures.append(Signature(one["keyid"], bare))
    if [s.keyid for s in signatures] != sorted({s.keyid for s in signatures}):
        raise ValueError("signatures: two of one key, or not sorted by key")
    envelope = Envelope(
        payload_type=value["payloadType"],
        payload=_from_base64(value["payload"], "payload"),
        signatures=tuple(signatures),
    )
    if envelope_bytes(envelope) != data:
        raise ValueError("the same content in other bytes than vcrt writes (space, escapes)")
    return envelope


def _require_fields(value: Any, fields: dict[str, type], prefix: str) -> None:
    if not isinstance(value, dict) or set(value) != set(fields):
        found = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise ValueError(f"{prefix or 'envelope '}has {found}, and not {', '.join(fields)}")
    for name, kind in fields.items():
        if not isinstance(value[name], kind):
            raise ValueError(f"{prefix}{name} is not a {kind.__name__}")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str, field: str) -> bytes:
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{field}: {error}") from error
    if _base64(data) != text:
        raise ValueError(f"{field}: base64 with stray bits at its end")
    return data
