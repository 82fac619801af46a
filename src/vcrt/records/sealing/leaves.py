"""Make and read the leaves of a dataset's Merkle trees: for each certificate a line of JSON that binds all of it.

    {"audit": SHA-256 of the audit row, "certificate": that of the certificate's document, "environment": NAME,
     "episode": NAME, "policy": SHA-256 of the policy row}

A leaf is its line without the line feed. The lines of ``leaves.jsonl`` stand by environment, then in the order of the
audit file. All of it follows from the rows; it is kept so that what was altered can be named, and so that a
certificate's proof can be made without opening the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

from vcrt.certification.episodes import Preset
from vcrt.documents import strict_json
from vcrt.errors import AlteredError, DatasetError
from vcrt.hashing import canonical_json, json_digest, sha256_hex
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.certificate import format_of
from vcrt.records.dataset import POLICY_COLUMNS
from vcrt.records.manifest import LEAVES, REMEDY, Manifest, audit_name, policy_name
from vcrt.records.rows import read_digested
from vcrt.records.sealing.merkle import leaf_hash, root_of

#: The columns of an audit row that a certificate's document takes over as they stand.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """What a dataset commits to for one certified episode; the fields but the names are SHA-256 in hexadecimal."""

    audit: str
    certificate: str
    environment: str
    episode: str
    policy: str

    def data(self) -> bytes:
        """The leaf's bytes, canonical JSON."""
        return canonical_json(asdict(self))


def leaf_of(
    environment: str, audit_row: Mapping[str, str], preset: Preset, *, policy: str, audit: str
) -> Leaf:
    """The leaf of an audit row; ``policy`` and ``audit`` are the digests of its policy row and of the row itself."""
    return Leaf(
        audit=audit,
        certificate=certificate_digest(audit_row, preset),
        environment=environment,
        episode=audit_row["episode_id"],
        policy=policy,
    )


def certificate_digest(audit_row: Mapping[str, str], preset: Preset) -> str:
    """The ``sha256`` of the certificate's document, by its row's columns, which hold canonical JSON already."""
    fields = {name: audit_row[name] for name in _DOCUMENT_COLUMNS}
    slots = audit_row["slot_of_operation"]
    fields["format"] = canonical_json(format_of(slots.count(",") + 1)).decode()
    fields["num_operations"] = canonical_json(preset.num_operations).decode()
    fields["orbit_size"] = canonical_json(preset.orbit_size).decode()
    if preset.samples:
        fields["sampled"] = "true"
    text = ",".join(f'"{name}":{value}' for name, value in sorted(fields.items()))
    return sha256_hex(f"{{{text}}}".encode("utf-8", "surrogatepass"))


def row_digest(row: Mapping[str, str]) -> str:
    """The digest of a row of either view."""
    return json_digest(dict(row))


def leaves_bytes(leaves: Iterable[Leaf]) -> bytes:
    """The file of all leaves, one a line."""
    return b"".join(leaf.data() + b"\n" for leaf in leaves)


def leaves_from_bytes(data: bytes) -> tuple[Leaf, ...]:
    """Read such a file; raises ``ValueError`` with the first line that is not as :func:`leaves_bytes` writes it."""
    leaves = []
    # Line by line: what is nothing but line feeds ends at the first.
    for number, line in enumerate(BytesIO(data), start=1):
        leaves.append(leaf_from_line(line.removesuffix(b"\n"), f"line {number}"))
    if leaves_bytes(leaves) != data:
        raise ValueError(f"line {len(leaves)}: no line feed at its end")
    return tuple(leaves)


def first_leaf(path: Path) -> Leaf:
    """The first leaf of a dataset that was just frozen, without reading the others."""
    with (path / LEAVES).open("rb") as file:
        return leaf_from_line(file.readline(_MAX_LINE).removesuffix(b"\n"), str(path / LEAVES))


def leaf_from_line(line: bytes, where: str = "leaf") -> Leaf:
    """Read one leaf; raises ``ValueError`` that begins with ``where``."""
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
    """The leaves of each environment, in their order."""
    found: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        found.setdefault(leaf.environment, []).append(leaf)
    return found


def merkle_root(leaves: Sequence[Leaf]) -> str:
    """The root over leaves, in hexadecimal."""
    return root_of([leaf_hash(leaf.data()) for leaf in leaves]).hex()


def derived_leaves(path: Path, manifest: Manifest) -> list[Leaf]:
    """Derive the leaves of a dataset at ``path`` from its rows: by environment, in the order of the audit rows.

    Raises :class:`DatasetError` naming the row if audit and policy rows do not pair one to one, the file if it cannot
    be read, and :class:`AlteredError` if its rows have not the content that the manifest says.
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
                environment,
                row,
                manifest.preset,
                policy=of_record[row["record_id"]],
                audit=digest,
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
