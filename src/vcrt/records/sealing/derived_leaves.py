"""The leaves of one environment as they follow from the rows of its two files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcrt.certification.episodes import Preset
from vcrt.errors import DatasetError
from vcrt.hashing import json_digest
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import POLICY_COLUMNS, audit_name, policy_name
from vcrt.records.rows import read_rows
from vcrt.records.sealing.leaves import Leaf, leaf_of, row_digest


@dataclass(frozen=True, kw_only=True, slots=True)
class DerivedLeaves:
    """The leaves, in the order of the audit rows, and the digest of each file's rows as the manifest has it."""

    leaves: tuple[Leaf, ...]
    content: Mapping[str, str]


def derived_leaves(path: Path, environment: str, preset: Preset) -> DerivedLeaves:
    """Derive an environment's leaves from its files.

    Raises :class:`DatasetError` naming the row if audit and policy rows do not pair one to one, or an unreadable file.
    """
    audit, policy = audit_name(environment), policy_name(environment)
    rows = read_rows(path / audit, AUDIT_COLUMNS)
    records = read_rows(path / policy, POLICY_COLUMNS)
    _require_pairs(environment, rows, records)
    audit_digests = [row_digest(row) for row in rows]
    policy_digests = [row_digest(row) for row in records]
    of_record = {
        row["record_id"]: digest for row, digest in zip(records, policy_digests, strict=True)
    }
    return DerivedLeaves(
        leaves=tuple(
            leaf_of(environment, row, of_record[row["record_id"]], preset, audit=digest)
            for row, digest in zip(rows, audit_digests, strict=True)
        ),
        content={audit: json_digest(audit_digests), policy: json_digest(policy_digests)},
    )


def _require_pairs(
    environment: str, rows: list[dict[str, str]], records: list[dict[str, str]]
) -> None:
    ours = Counter(row["record_id"] for row in rows)
    theirs = Counter(row["record_id"] for row in records)
    unpaired = sorted(name for name in ours | theirs if not ours[name] == theirs[name] == 1)
    if unpaired:
        raise DatasetError(
            "audit rows and policy records do not pair one to one",
            where=f"{audit_name(environment)}, record {unpaired[0]}",
            found=f"{ours[unpaired[0]]} audit rows and {theirs[unpaired[0]]} policy rows",
            expected="one of each",
        )
