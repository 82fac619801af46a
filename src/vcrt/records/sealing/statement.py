"""Make the in-toto Statement about a frozen dataset: its files by digest, its manifest, the roots of its Merkle trees.

It follows from the manifest and the rows, and the root hash knows nothing of it, so that sealing a dataset (or sealing
it differently one day) changes no root hash. The manifest stands in it in full: a field of either that was changed can
be named.

Source: in-toto Attestation Framework, Statement v1. Not covered: the envelope (see :mod:`vcrt.records.sealing.dsse`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field
from pydantic import Strict as StrictOf

from vcrt.hashing import Json, canonical_json, sha256_hex
from vcrt.records.forms import Count, Digest, Strict
from vcrt.records.manifest import LEAVES, MANIFEST, Manifest, model_bytes
from vcrt.records.sealing.leaves import Leaf, by_environment, leaves_bytes, merkle_root

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
#: A name, not a place: nothing is fetched from it.
PREDICATE_TYPE = "urn:vcrt:dataset-seal:1"


class Tree(Strict):
    """A Merkle tree over the certificates of one environment: how many, and its root in hexadecimal."""

    certificates: Count
    root: Digest


class _Sha256(Strict):
    sha256: Digest


class Subject(Strict):
    """A file of the dataset by its path within it."""

    name: str
    digest: _Sha256


class Predicate(Strict):
    """What is said of the files."""

    root_hash: Digest
    merkle: dict[str, Tree]
    counts: dict[str, Any]
    versions: dict[str, Any]
    manifest: str
    """The text of ``manifest.json``, byte for byte; counts and versions are its own."""


class Statement(Strict):
    """The statement; ``type_`` is spelled ``_type`` in JSON."""

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: Annotated[tuple[Subject, ...], StrictOf(strict=False), FailFast()]
    predicateType: Literal["urn:vcrt:dataset-seal:1"]  # noqa: N815 (in-toto's spelling)
    predicate: Predicate


def statement_of(manifest: Manifest, leaves: Iterable[Leaf]) -> dict[str, Json]:
    """The statement about a dataset; the manifest's own files are taken as it names them, unopened."""
    leaves = list(leaves)
    plain = manifest.model_dump()
    digests = {name: entry.sha256 for name, entry in manifest.files.items()}
    text = model_bytes(manifest)
    digests[MANIFEST] = sha256_hex(text)
    digests[LEAVES] = sha256_hex(leaves_bytes(leaves))
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "root_hash": manifest.root_hash,
            "merkle": trees_of(leaves),
            "counts": plain["counts"],
            "versions": plain["versions"],
            "manifest": text.decode(),
        },
    }


def trees_of(leaves: Iterable[Leaf]) -> dict[str, Json]:
    """Size and root of each environment's tree."""
    return {
        name: {"certificates": len(some), "root": merkle_root(some)}
        for name, some in sorted(by_environment(leaves).items())
    }


def statement_bytes(value: Mapping[str, Json]) -> bytes:
    """The payload: canonical JSON."""
    return canonical_json(value)
