"""Readers of seals, leaves, inclusion proofs and keys, with valid inputs of each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from fuzz_watch import Target
from securesystemslib.dsse import Envelope

from vcrt.documents import strict_json
from vcrt.hashing import canonical_json
from vcrt.records.dataset import Dataset
from vcrt.records.manifest import LEAVES, SEAL, policy_name
from vcrt.records.sealing.envelopes import envelope_bytes, envelope_of, require_signed_by, signed
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.seal import check_proof, make_proof, seal_dataset
from vcrt.records.sealing.statement import leaves_from_bytes

_PEM = serialization.Encoding.PEM


def seal_readers(place: Path, dataset: Dataset) -> Iterator[Target]:
    """The readers of what lies beside a manifest or is taken away from it, over a signed copy of the dataset."""
    sealed = place / "sealed"
    shutil.copytree(dataset.path, sealed)
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
    keys = {
        "private": private.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
        "public": private.public_key().public_bytes(
            _PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    }
    key_file = place / "key.pem"
    key_file.write_bytes(keys["private"])
    envelope = seal_dataset(sealed, key_file)
    yield from _sealed_files(sealed, envelope)
    yield _proof(place, sealed)

    def sign(data: bytes) -> object:
        key_file.write_bytes(data)
        return signed(envelope, key_file)

    def check(data: bytes) -> object:
        key_file.write_bytes(data)
        return require_signed_by(envelope, key_file, "fuzz")

    for kind, read in (("private", sign), ("public", check)):
        yield Target(name=f"{kind} key", form="PEM", seeds=(keys[kind],), read=read, weight=6)


def _sealed_files(sealed: Path, envelope: Envelope) -> Iterator[Target]:
    table = policy_name("clrs")
    originals = {name: (sealed / name).read_bytes() for name in (SEAL, LEAVES, table)}

    def with_file(name: str, data: bytes) -> object:
        (sealed / name).write_bytes(data)
        try:
            return require_integrity(sealed)
        finally:
            (sealed / name).write_bytes(originals[name])

    def statement(data: bytes) -> object:
        """A payload as an envelope holds it: canonical, if it is JSON at all."""
        try:
            payload = canonical_json(strict_json(data))
        except (ValueError, RecursionError):
            payload = data
        return with_file(SEAL, envelope_bytes(envelope_of(payload)))

    yield Target(
        name="seal",
        form="JSON",
        seeds=(originals[SEAL],),
        read=lambda data: with_file(SEAL, data),
        weight=2,
        is_json=True,
    )
    yield Target(
        name="statement in a seal",
        form="JSON",
        seeds=(envelope.payload,),
        read=statement,
        weight=2,
        is_json=True,
    )
    yield Target(
        name="leaves",
        form="JSON lines",
        seeds=(originals[LEAVES],),
        read=lambda data: with_file(LEAVES, data),
        weight=2,
    )
    yield Target(
        name="damaged file of a sealed dataset",
        form="gzip",
        seeds=(originals[table],),
        read=lambda data: with_file(table, data),
        weight=2,
    )


def _proof(place: Path, sealed: Path) -> Target:
    leaf = leaves_from_bytes((sealed / LEAVES).read_bytes())[0]
    proof = place / "proof.json"

    def read(data: bytes) -> object:
        proof.write_bytes(data)
        return check_proof(proof, leaf.certificate)

    return Target(
        name="inclusion proof",
        form="JSON",
        seeds=(make_proof(sealed, leaf.episode).encode(),),
        read=read,
        weight=4,
        is_json=True,
    )
