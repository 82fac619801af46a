"""The manifest and the agreement record of a frozen dataset: their fields, their hash, and reading them.

Not covered: the files that a manifest commits to (see :mod:`vcrt.records.dataset`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from vcrt.certification.episodes import Preset
from vcrt.certification.workers import CertifiedSchema
from vcrt.errors import DatasetError
from vcrt.hashing import Json, json_digest
from vcrt.orders import all_orders

FORMAT = "vcrt-dataset/1"
MANIFEST, AGREEMENT = "manifest.json", "agreement.json"

_Model = TypeVar("_Model", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SchemaCounts(_Strict):
    """How one schema's candidates fared."""

    candidates: int
    episodes: int
    orders: int
    legal_orders: int
    relations: dict[str, int]
    exclusions: dict[str, int]


class CheckCounts(_Strict):
    """Comparisons with a second opinion, and how many agreed."""

    checked: int
    agreed: int


class FileEntry(_Strict):
    """A file's size in bytes and SHA-256."""

    size: int
    sha256: str


class Manifest(_Strict):
    """The manifest of a frozen dataset."""

    format: str
    seed: int
    num_operations: int
    orbit_size: int
    episodes_per_schema: dict[str, int]
    counts: dict[str, dict[str, SchemaCounts]]
    conformance: dict[str, dict[str, CheckCounts]]
    versions: dict[str, dict[str, Any]]
    content: dict[str, str]
    root_hash: str
    files: dict[str, FileEntry]

    def computed_root_hash(self) -> str:
        """The root hash of everything in the manifest but the files' own sizes and digests."""
        return json_digest(self.model_dump(exclude={"root_hash", "files"}))


class Agreement(_Strict):
    """The outcome of replaying a whole dataset again in fresh processes."""

    root_hash: str
    replays: int
    agreed: int
    episodes: int


def schema_counts(
    certified: Sequence[CertifiedSchema], preset: Preset
) -> dict[str, dict[str, SchemaCounts]]:
    """The counts of each schema, by environment and schema."""
    num_orders = len(all_orders(preset.num_operations))
    counts: dict[str, dict[str, SchemaCounts]] = {}
    for schema in certified:
        relations = Counter(r.kind for episode in schema.episodes for r in episode.relations)
        exclusions = Counter(exclusion.kind for exclusion in schema.exclusions)
        counts.setdefault(schema.environment, {})[schema.schema] = SchemaCounts(
            candidates=schema.num_candidates,
            episodes=len(schema.episodes),
            orders=num_orders * len(schema.episodes),
            legal_orders=sum(len(episode.orbit) for episode in schema.episodes),
            relations=dict(sorted(relations.items())),
            exclusions=dict(sorted(exclusions.items())),
        )
    return counts


def conformance_counts(
    certified: Sequence[CertifiedSchema],
) -> dict[str, dict[str, CheckCounts]]:
    """What each second opinion compared, by environment and checker."""
    totals: dict[str, dict[str, tuple[int, int]]] = {}
    for schema in certified:
        checkers = totals.setdefault(schema.environment, {})
        found = [c for episode in schema.episodes for c in episode.cross_checks]
        found += [c for exclusion in schema.exclusions for c in exclusion.cross_checks]
        for check in found:
            checked, agreed = checkers.get(check.checker, (0, 0))
            checkers[check.checker] = (checked + check.checked, agreed + check.agreed)
    return {
        environment: {
            checker: CheckCounts(checked=checked, agreed=agreed)
            for checker, (checked, agreed) in sorted(checkers.items())
        }
        for environment, checkers in totals.items()
    }


def model_bytes(model: BaseModel) -> bytes:
    """Indented JSON, for people to read as well."""
    value: Json = model.model_dump()
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def read_model(kind: type[_Model], path: Path) -> _Model:
    """Read such a file; raises :class:`DatasetError` naming the field that is wrong."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise DatasetError(
            "a file of the dataset does not have the documented form",
            where=f"{path}, field {'.'.join(str(part) for part in first['loc']) or '(root)'}",
            found=f"{first['msg']}",
            remedy="restore the original, or make the dataset again with `vcrt certify`",
        ) from error
