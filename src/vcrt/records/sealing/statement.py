"""Make and read the in-toto Statement about a frozen dataset: its files by digest, its manifest, its Merkle trees.

It follows from the manifest and the rows, and the root hash knows nothing of it, so that sealing a dataset (or sealing
it differently one day) changes no root hash. The manifest stands in it in full.

Source: in-toto Attestation Framework, Statement v1. Not covered: the envelope
(see :mod:`vcrt.records.sealing.envelopes`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from vcrt.documents import strict_json
from vcrt.errors import DatasetError
from vcrt.forms import Count, Digest, Strict, in_a_line
from vcrt.hashing import Json, canonical_json, sha256_hex
from vcrt.records.manifest import LEAVES, MANIFEST, Manifest, manifest_from_bytes, model_bytes
from vcrt.records.sealing.leaves import Leaf, by_environment, leaves_bytes, merkle_root


class Tree(Strict):
    """A Merkle tree over the certificates of one environment: how many, and its root in hexadecimal."""

    certificates: Count
    root: Digest


class Statement(Strict):
    """What is said of a dataset: its manifest, the SHA-256 of its file of leaves, and each environment's tree."""

    manifest: Manifest
    leaves_sha256: Digest
    trees: dict[str, Tree]


def statement_of(manifest: Manifest, leaves: Iterable[Leaf]) -> Statement:
    """The statement about a dataset; the manifest's own files are taken as it names them, unopened."""
    leaves = list(leaves)
    return Statement(
        manifest=manifest, leaves_sha256=sha256_hex(leaves_bytes(leaves)), trees=trees_of(leaves)
    )


def trees_of(leaves: Iterable[Leaf]) -> dict[str, Tree]:
    """Size and root of each environment's tree."""
    return {
        name: Tree(certificates=len(some), root=merkle_root(some))
        for name, some in sorted(by_environment(leaves).items())
    }


def statement_bytes(statement: Statement) -> bytes:
    """The payload of a seal: the statement as in-toto has it, in canonical JSON."""
    manifest = statement.manifest
    plain = manifest.model_dump()
    text = model_bytes(manifest)
    digests = {name: entry.sha256 for name, entry in manifest.files.items()}
    digests |= {MANIFEST: sha256_hex(text), LEAVES: statement.leaves_sha256}
    subject: Json = [
        {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())
    ]
    return canonical_json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": subject,
            # A name, not a place: nothing is fetched from it.
            "predicateType": "urn:vcrt:dataset-seal:1",
            "predicate": {
                "root_hash": manifest.root_hash,
                "merkle": {name: tree.model_dump() for name, tree in statement.trees.items()},
                "counts": plain["counts"],
                "versions": plain["versions"],
                "manifest": text.decode(),
            },
        }
    )


def statement_from_bytes(data: bytes, where: Path) -> Statement:
    """Read a payload; raises ``ValueError`` for any that :func:`statement_bytes` does not write.

    Whatever a statement says beside its manifest, its trees and the digest of its leaves must follow from them. Raises
    :class:`DatasetError` for a manifest of another format; ``where`` is the place that it names.
    """
    try:
        value = strict_json(data)
        predicate = value["predicate"]
        (leaves,) = (one["digest"]["sha256"] for one in value["subject"] if one["name"] == LEAVES)
        manifest = manifest_from_bytes(predicate["manifest"].encode(), where)
        statement = Statement(manifest=manifest, leaves_sha256=leaves, trees=predicate["merkle"])
    except DatasetError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"payload: {in_a_line(error)}") from error
    if statement_bytes(statement) != data:
        raise ValueError("payload: a statement that contradicts itself")
    return statement
