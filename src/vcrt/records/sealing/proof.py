"""Make and check inclusion proofs: that a certificate is among those of a sealed dataset, without its other files.

A proof is one JSON document: the certificate's leaf, its place, the hashes on the way up its Merkle tree, and the
dataset's seal as it stands. Whether the certificate is true is another question: its replays answer that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import FailFast, Field
from securesystemslib.dsse import Envelope

from vcrt.documents import MAX_BYTES, read_limited, strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.forms import Count, Digest, Strict, in_a_line
from vcrt.records.sealing.envelopes import envelope_bytes
from vcrt.records.sealing.integrity import open_seal, require_integrity
from vcrt.records.sealing.leaves import by_environment, leaf_from_line
from vcrt.records.sealing.merkle import inclusion_proof, leaf_hash, root_from_proof

FORMAT: Final = "vcrt-proof/1"


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
    """The proof document for an episode of a dataset.

    Raises :class:`AlteredError` for a dataset that is not what was sealed, and :class:`DatasetError` if it has no such
    episode.
    """
    sealed = require_integrity(dataset)
    assert sealed.envelope is not None
    leaves = by_environment(sealed.leaves or ()).get(episode.partition("/")[0], [])
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
        seal=envelope_bytes(sealed.envelope).decode(),
    )
    return json.dumps(proof.model_dump(), indent=2, sort_keys=True)


def check_proof(proof: Path, certificate_digest: str) -> Included:
    """Check that a proof leads from a certificate's digest to the Merkle root in its seal; signatures are not checked.

    Raises :class:`DatasetError` for a document that is no proof and :class:`AlteredError` for one that does not hold.
    """
    read = _read(proof)
    try:
        leaf = leaf_from_line(read.leaf.encode())
        envelope, statement = open_seal(read.seal.encode(), proof)
    except DatasetError:
        raise
    except ValueError as error:
        raise _malformed(proof, str(error)) from error
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


def _read(path: Path) -> _Proof:
    if not path.is_file():
        raise DatasetError("no proof there", where=str(path), remedy="make one with `vcrt prove`")
    try:
        return _Proof.model_validate(strict_json(read_limited(path, MAX_BYTES)))
    except ValueError as error:
        raise _malformed(path, in_a_line(error)) from error


def _malformed(path: Path, found: str) -> DatasetError:
    return DatasetError(
        "not a proof of the documented form",
        where=str(path),
        found=found,
        expected=f"a document of format {FORMAT}, as `vcrt prove` prints it",
    )
