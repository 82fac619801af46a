"""Make and check inclusion proofs: that a certificate is among those of a sealed dataset, without its other files.

A proof is one JSON document: the certificate's leaf, its place, the hashes on the way up its Merkle tree, and the
dataset's seal as it stands. Whether the certificate is true is another question: its replays answer that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import FailFast, Field

from vcrt.documents import MAX_BYTES, in_a_line, read_limited, strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.records.forms import Count, Digest, Strict
from vcrt.records.manifest import Manifest, require_known_format
from vcrt.records.sealing.dsse import Envelope, envelope_bytes
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.leaves import by_environment, leaf_from_line
from vcrt.records.sealing.merkle import inclusion_proof, leaf_hash, root_from_proof
from vcrt.records.sealing.sealed_files import held_manifest, sealed_statement

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
    leaves = by_environment(sealed.leaves).get(episode.partition("/")[0], [])
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
        envelope, statement = sealed_statement(read.seal.encode())
    except ValueError as error:
        raise _malformed(proof, str(error)) from error
    held = held_manifest(statement)
    if held is None:
        require_known_format(statement["predicate"]["manifest"].encode(), proof)
    tree = statement["predicate"]["merkle"].get(leaf.environment)
    trees = statement["predicate"]["merkle"]
    if held is None or tree is None or _sizes(trees) != _episodes(held):
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
    size = tree["certificates"]
    reached = root_from_proof(leaf_hash(leaf.data()), read.index, size, hashes)
    if reached is None or reached.hex() != tree["root"]:
        raise AlteredError(
            "the proof does not lead from the certificate to the sealed root",
            where=f"{proof}, fields index and path",
            found="a path of another length" if reached is None else reached.hex(),
            expected=f"Merkle root {tree['root']} over {size} certificates",
        )
    return Included(
        envelope=envelope,
        root_hash=held.root_hash,
        merkle_root=tree["root"],
        index=read.index,
        size=size,
    )


def _sizes(trees: Mapping[str, Any]) -> dict[str, int]:
    return {name: tree["certificates"] for name, tree in trees.items()}


def _episodes(manifest: Manifest) -> dict[str, int]:
    return {
        name: sum(schema.episodes for schema in schemas.values())
        for name, schemas in manifest.counts.items()
    }


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
