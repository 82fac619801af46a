"""Make the statement of a seal about a frozen dataset: its leaves, their Merkle trees, and the in-toto Statement.

A leaf is a line of JSON that binds all parts of one certificate, without the line feed:

    {"audit": SHA-256 of the audit row, "certificate": that of the certificate's document, "environment": NAME,
     "episode": NAME, "policy": SHA-256 of the policy row}

The lines of ``leaves.jsonl`` stand by environment, then in the order of the audit file. Each environment has a Merkle
tree over them, as RFC 6962 and RFC 9162 define it: leaves and inner nodes are hashed under different prefixes, so that
no inner node can pass for a leaf. The statement has the dataset's files by digest, its manifest in full, and its trees.

All of this follows from the manifest and the rows. It is kept so that altered parts can be named, and so that a
certificate's proof can be made without opening the rows. The root hash excludes it: sealing a dataset changes no root
hash.

Sources: RFC 9162, section 2.1; in-toto Attestation Framework, Statement v1. :mod:`vcrt.records.sealing.envelopes` has
the envelope.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from vcrt.certificates.episodes import Preset
from vcrt.documents import strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.forms import Count, Digest, Strict, in_a_line
from vcrt.hashing import Json, canonical_json, json_digest, sha256_hex
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.certificate import format_of
from vcrt.records.dataset import POLICY_COLUMNS
from vcrt.records.manifest import (
    LEAVES,
    MANIFEST,
    REMEDY,
    Manifest,
    audit_name,
    manifest_from_bytes,
    model_bytes,
    policy_name,
)
from vcrt.records.rows import read_digested

#: The columns of an audit row that a certificate's document copies unchanged.
_DOCUMENT_COLUMNS = (
    "certificates",
    "cross_checks",
    "episode",
    "orbit",
    "relations",
    "replays",
    "versions",
)
#: The most bytes of a line that are read at once.
_MAX_LINE = 2**16
#: The prefixes of a leaf and of two digests when they are hashed.
_LEAF, _NODE = b"\x00", b"\x01"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A dataset's commitment to one certified episode; the fields except the names are SHA-256 in hexadecimal."""

    audit: str
    certificate: str
    environment: str
    episode: str
    policy: str

    def data(self) -> bytes:
        """Return the leaf's bytes, canonical JSON."""
        return canonical_json(asdict(self))


def leaf_of(
    environment: str, audit_row: Mapping[str, str], preset: Preset, *, policy: str, audit: str
) -> Leaf:
    """Return the leaf of an audit row; ``policy`` and ``audit`` are the digests of its policy row and of itself."""
    return Leaf(
        audit=audit,
        certificate=certificate_digest(audit_row, preset),
        environment=environment,
        episode=audit_row["episode_id"],
        policy=policy,
    )


def certificate_digest(audit_row: Mapping[str, str], preset: Preset) -> str:
    """Return the ``sha256`` of the certificate's document from its row's columns, which hold canonical JSON."""
    fields = {name: audit_row[name] for name in _DOCUMENT_COLUMNS}
    slots = audit_row["slot_of_operation"]
    fields["format"] = canonical_json(format_of(slots.count(",") + 1)).decode()
    fields["num_operations"] = canonical_json(preset.num_operations).decode()
    fields["orbit_size"] = canonical_json(preset.orbit_size).decode()
    if preset.samples:
        fields["sampled"] = "true"
    text = ",".join(f'"{name}":{value}' for name, value in sorted(fields.items()))
    return sha256_hex(f"{{{text}}}".encode("utf-8", "surrogatepass"))


def leaves_bytes(leaves: Iterable[Leaf]) -> bytes:
    """Return the file of all leaves, one a line."""
    return b"".join(leaf.data() + b"\n" for leaf in leaves)


def leaves_from_bytes(data: bytes) -> tuple[Leaf, ...]:
    """Read such a file; raise ``ValueError`` with the first line that :func:`leaves_bytes` does not write."""
    leaves = []
    # Line by line: a file of line feeds alone ends at the first.
    for number, line in enumerate(BytesIO(data), start=1):
        leaves.append(leaf_from_line(line.removesuffix(b"\n"), f"line {number}"))
    if leaves_bytes(leaves) != data:
        raise ValueError(f"line {len(leaves)}: no line feed at its end")
    return tuple(leaves)


def first_leaf(path: Path) -> Leaf:
    """Return the first leaf of a newly frozen dataset, without reading the others."""
    with (path / LEAVES).open("rb") as file:
        return leaf_from_line(file.readline(_MAX_LINE).removesuffix(b"\n"), str(path / LEAVES))


def leaf_from_line(line: bytes, where: str = "leaf") -> Leaf:
    """Read one leaf; raise ``ValueError`` with a message that begins with ``where`` for another form."""
    try:
        value = strict_json(line)
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise ValueError("not an object of texts")
        leaf = Leaf(**value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    if leaf.data() != line:
        raise ValueError(f"{where}: not canonical JSON")
    return leaf


def by_environment(leaves: Iterable[Leaf]) -> dict[str, list[Leaf]]:
    """Return the leaves of each environment, in their order."""
    found: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        found.setdefault(leaf.environment, []).append(leaf)
    return found


def derived_leaves(path: Path, manifest: Manifest) -> list[Leaf]:
    """Derive the leaves of a dataset at ``path`` from its rows: by environment, in the order of the audit rows.

    Raise :class:`DatasetError` naming the row if audit and policy rows do not pair one to one, or the file if it cannot
    be read, and :class:`AlteredError` if its rows differ from the manifest.
    """
    leaves: list[Leaf] = []
    for environment in sorted(manifest.counts):
        audit, policy = audit_name(environment), policy_name(environment)
        rows = _digested(path, audit, AUDIT_COLUMNS, manifest)
        records = _digested(path, policy, POLICY_COLUMNS, manifest)
        _require_pairs(audit, [row for _, row in rows], [row for _, row in records])
        of_record = {row["record_id"]: digest for digest, row in records}
        leaves += [
            leaf_of(
                environment, row, manifest.preset, policy=of_record[row["record_id"]], audit=digest
            )
            for digest, row in rows
        ]
    return leaves


def _digested(
    path: Path, name: str, columns: tuple[str, ...], manifest: Manifest
) -> list[tuple[str, dict[str, str]]]:
    rows = list(read_digested(path / name, columns))
    content = json_digest([digest for digest, _ in rows])
    if content != manifest.content[name]:
        raise AlteredError(
            "a file has other content than the manifest says",
            where=name,
            found=f"content {content}",
            expected=f"content {manifest.content[name]}",
            remedy=REMEDY,
        )
    return rows


def _require_pairs(
    audit: str, rows: Iterable[Mapping[str, str]], records: Iterable[Mapping[str, str]]
) -> None:
    ours = Counter(row["record_id"] for row in rows)
    theirs = Counter(row["record_id"] for row in records)
    unpaired = sorted(name for name in ours | theirs if not ours[name] == theirs[name] == 1)
    if unpaired:
        raise DatasetError(
            "audit rows and policy records do not pair one to one",
            where=f"{audit}, record {unpaired[0]}",
            found=f"{ours[unpaired[0]]} audit rows and {theirs[unpaired[0]]} policy rows",
            expected="one of each",
        )


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(_LEAF + data).digest()


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Return the root over leaves' hashes, in their order; for no leaves, the SHA-256 of no bytes."""
    root = hashlib.sha256(b"").digest()
    for level in _levels(leaves):
        root = level[0]
    return root


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the hashes beside the path from leaf ``index`` up to the root, lowest first.

    Raise ``IndexError`` if there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(f"no leaf {index} among {len(leaves)}")
    beside = ((level, (index >> height) ^ 1) for height, level in enumerate(_levels(leaves)))
    return tuple(level[place] for level, place in beside if place < len(level))


def _levels(leaves: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the levels of a tree, from its leaves to its root.

    Pairing neighbours, with an odd last one carried up, gives the same tree as splitting at powers of two.
    """
    level = leaves
    while len(level) > 1:
        yield level
        pairs = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[len(level) - len(level) % 2 :]]
    if level:
        yield level


def root_from_proof(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root that a proof leads to from a leaf's hash; None if its length does not fit the place.

    ``index`` and ``size`` are the leaf's place and the number of leaves. Source: RFC 9162, section 2.1.3.2.
    """
    if not 0 <= index < size:
        return None
    reached, last, remaining = leaf, size - 1, list(path)
    while last:
        if index % 2 or index != last:
            if not remaining:
                return None
            beside = remaining.pop(0)
            reached = _node(beside, reached) if index % 2 else _node(reached, beside)
        index, last = index // 2, last // 2
    return None if remaining else reached


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


class Tree(Strict):
    """A Merkle tree over the certificates of one environment: their number, and its root in hexadecimal."""

    certificates: Count
    root: Digest


class Statement(Strict):
    """A statement about a dataset: its manifest, the SHA-256 of its file of leaves, and each environment's tree."""

    manifest: Manifest
    leaves_sha256: Digest
    trees: dict[str, Tree]


def statement_of(manifest: Manifest, leaves: Iterable[Leaf]) -> Statement:
    """Return the statement about a dataset; it takes the files from the manifest, without opening them."""
    leaves = list(leaves)
    return Statement(
        manifest=manifest, leaves_sha256=sha256_hex(leaves_bytes(leaves)), trees=trees_of(leaves)
    )


def trees_of(leaves: Iterable[Leaf]) -> dict[str, Tree]:
    """Return size and root of each environment's tree."""
    return {
        name: Tree(
            certificates=len(some), root=root_of([leaf_hash(leaf.data()) for leaf in some]).hex()
        )
        for name, some in sorted(by_environment(leaves).items())
    }


def statement_bytes(statement: Statement) -> bytes:
    """Return the payload of a seal: the statement in in-toto's form, in canonical JSON."""
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
    """Read a payload; raise ``ValueError`` for any that :func:`statement_bytes` does not write.

    All parts of a statement must follow from its manifest, its trees and the digest of its leaves. Raise
    :class:`DatasetError` for a manifest of another format; the error names ``where``.
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
