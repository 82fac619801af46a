"""Seal, sign and verify a dataset, and make and check the proof that a certificate is in it.

    leaves.jsonl   one line for each certificate (see :mod:`vcrt.records.sealing.statement`)
    seal.json      the in-toto Statement in a DSSE envelope, signed or not

Every new dataset has an unsigned seal. Signing adds a signature and leaves the statement unchanged.

A proof is one JSON document: the certificate's leaf, its place, the hashes on the way up its Merkle tree, and the
dataset's seal. Only the certificate's replays show whether it is true.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import FailFast, Field
from securesystemslib.dsse import Envelope

from vcrt.documents import MAX_BYTES, read_limited, strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.forms import Count, Digest, Strict, in_a_line
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
from vcrt.records.sealing.integrity import open_seal, require_integrity
from vcrt.records.sealing.statement import (
    Leaf,
    by_environment,
    derived_leaves,
    inclusion_proof,
    leaf_from_line,
    leaf_hash,
    leaves_bytes,
    root_from_proof,
    statement_bytes,
    statement_of,
)
from vcrt.storage import write_file

FORMAT: Final = "vcrt-proof/1"


def write_seal(directory: Path, manifest: Manifest, leaves: Sequence[Leaf]) -> None:
    """Write leaves and an unsigned seal beside a manifest."""
    envelope = envelope_of(statement_bytes(statement_of(manifest, leaves)))
    write_file(directory / LEAVES, leaves_bytes(leaves))
    write_file(directory / SEAL, envelope_bytes(envelope))


def seal_dataset(path: Path, key: Path | None = None) -> Envelope:
    """Make a dataset's seal if it has none, and sign it if a private key is given.

    Raise :class:`vcrt.errors.AlteredError` for a dataset that differs from its seal, :class:`DatasetError` for one that
    differs from its manifest, and :class:`vcrt.errors.SignatureError` for a key that cannot be used.
    """
    if not (path / SEAL).exists() and not (path / LEAVES).exists():
        manifest = open_dataset(path).manifest
        write_seal(path, manifest, derived_leaves(path, manifest))
    envelope, _ = require_integrity(path)
    if key is None:
        return envelope
    require_signatures_hold(envelope, str(path / SEAL))
    envelope = signed(envelope, key)
    write_file(path / SEAL, envelope_bytes(envelope))
    return envelope


@dataclass(frozen=True, kw_only=True, slots=True)
class Signers:
    """The names of the keys whose signatures a seal has, and whether the signatures were checked.

    ``demanded`` is the key that had to be among them, if one was required.
    """

    keyids: tuple[str, ...]
    checked: bool
    demanded: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedSeal:
    """The unaltered content that a dataset's seal covers."""

    leaves: Sequence[Leaf]
    signers: Signers


def verify_seal(dataset: Path, *, public_key: Path | None = None) -> VerifiedSeal:
    """Check files, manifest, leaves, seal and signatures of a dataset; replay nothing.

    Raise :class:`vcrt.errors.AlteredError` naming what was altered, :class:`vcrt.errors.SignatureError` for a signature
    that does not hold, or if none is by ``public_key``, and :class:`vcrt.errors.UnavailableError` if a key is given and
    the library for signatures is missing.
    """
    envelope, leaves = require_integrity(dataset)
    signers = check_signatures(envelope, public_key, str(dataset / SEAL))
    return VerifiedSeal(leaves=leaves, signers=signers)


def check_signatures(envelope: Envelope, public_key: Path | None, where: str) -> Signers:
    """Check every signature if the library is installed, which it must be if a ``public_key`` is given."""
    keyids = tuple(envelope.signatures)
    if public_key is not None:
        demanded = require_signed_by(envelope, public_key, where)
        return Signers(keyids=keyids, checked=True, demanded=demanded)
    checked = can_check_signatures()
    if checked:
        require_signatures_hold(envelope, where)
    return Signers(keyids=keyids, checked=checked, demanded=None)


class _Proof(Strict):
    format: Literal["vcrt-proof/1"]
    leaf: str
    index: Count
    path: Annotated[list[Digest], Field(max_length=64), FailFast()]
    seal: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Included:
    """A certificate's place in a sealed dataset: root hash, Merkle root of its environment, place and size there."""

    envelope: Envelope
    root_hash: str
    merkle_root: str
    index: int
    size: int


def make_proof(dataset: Path, episode: str) -> str:
    """Return the proof document for an episode of a dataset.

    Raise :class:`AlteredError` for a dataset that differs from its seal, and :class:`DatasetError` if it has no such
    episode.
    """
    envelope, every = require_integrity(dataset)
    leaves = by_environment(every).get(episode.partition("/")[0], [])
    index = next((i for i, leaf in enumerate(leaves) if leaf.episode == episode), None)
    if index is None:
        raise DatasetError(
            f"no episode {episode!r} in the dataset",
            where=str(dataset),
            expected=f"one like {leaves[0].episode}" if leaves else "one of its environments",
        )
    path = inclusion_proof([leaf_hash(leaf.data()) for leaf in leaves], index)
    proof = _Proof(
        format=FORMAT,
        leaf=leaves[index].data().decode(),
        index=index,
        path=[one.hex() for one in path],
        seal=envelope_bytes(envelope).decode(),
    )
    return json.dumps(proof.model_dump(), indent=2, sort_keys=True)


def check_proof(proof: Path, certificate_digest: str) -> Included:
    """Check that a proof leads from a certificate's digest to the Merkle root in its seal; check no signatures.

    Raise :class:`DatasetError` for a document that is no proof and :class:`AlteredError` for one that does not hold.
    """
    if not proof.is_file():
        raise DatasetError("no proof there", where=str(proof), remedy="make one with `vcrt prove`")
    try:
        read = _Proof.model_validate(strict_json(read_limited(proof, MAX_BYTES)))
        leaf = leaf_from_line(read.leaf.encode())
        envelope, statement = open_seal(read.seal.encode(), proof)
    except DatasetError:
        raise
    except ValueError as error:
        raise DatasetError(
            "not a proof of the documented form",
            where=str(proof),
            found=in_a_line(error),
            expected=f"a document of format {FORMAT}, as `vcrt prove` prints it",
        ) from error
    sizes = {
        name: sum(schema.episodes for schema in schemas.values())
        for name, schemas in statement.manifest.counts.items()
    }
    tree = statement.trees.get(leaf.environment)
    if tree is None or {name: one.certificates for name, one in statement.trees.items()} != sizes:
        raise AlteredError(
            "the proof's seal contradicts itself, or has no tree of the certificate's environment",
            where=f"{proof}, field seal",
        )
    if leaf.certificate != certificate_digest:
        raise AlteredError(
            "the proof is of another certificate",
            where=f"{proof}, field leaf",
            found=f"SHA-256 {leaf.certificate} of episode {leaf.episode}",
            expected=f"SHA-256 {certificate_digest}",
        )
    hashes = [bytes.fromhex(one) for one in read.path]
    reached = root_from_proof(leaf_hash(leaf.data()), read.index, tree.certificates, hashes)
    if reached is None or reached.hex() != tree.root:
        raise AlteredError(
            "the proof does not lead from the certificate to the sealed root",
            where=f"{proof}, fields index and path",
            found="a path of another length" if reached is None else reached.hex(),
            expected=f"Merkle root {tree.root} over {tree.certificates} certificates",
        )
    return Included(
        envelope=envelope,
        root_hash=statement.manifest.root_hash,
        merkle_root=tree.root,
        index=read.index,
        size=tree.certificates,
    )
