"""The sealed audit view: everything that was executed, as rows of JSON columns.

A row holds an episode in its native form, the versions that judged it, every replay, every certificate, the relation
graph and the orbit, and the link to its policy record. It is what a certificate can be checked from, and what no
policy ever sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vcrt.certification.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.certification.evidence import (
    cross_checks_from_json,
    cross_checks_to_json,
    episode_from_json,
    episode_to_json,
    provenance_to_json,
)
from vcrt.certification.replay import EpisodeReplays, replay_from_json, replay_to_json
from vcrt.environments.contract import Versions
from vcrt.errors import DatasetError
from vcrt.hashing import Json, canonical_json, json_digest
from vcrt.records.anonymise import Anonymised

#: Rows that are written at a time; it bounds the memory, not the result.
ROWS_IN_MEMORY = 256
#: The columns of an audit file, in their order. All are UTF-8 strings; those after ``record_id`` hold canonical JSON.
AUDIT_COLUMNS = (
    "episode_id",
    "schema",
    "source",
    "content_hash",
    "record_id",
    "slot_of_operation",
    "episode",
    "versions",
    "replays",
    "certificates",
    "relations",
    "orbit",
    "cross_checks",
)


def audit_row(certified: CertifiedEpisode, anonymised: Anonymised) -> dict[str, str]:
    """One row of the audit view."""
    documents: dict[str, Json] = {
        "slot_of_operation": list(anonymised.slot_of_operation),
        **certified_documents(certified),
    }
    return {
        "episode_id": certified.episode.episode_id,
        "schema": certified.episode.schema,
        "source": certified.episode.provenance.source,
        "content_hash": certified.episode.content_hash(),
        "record_id": anonymised.record.record_id,
        **{name: canonical_json(value).decode() for name, value in documents.items()},
    }


def certified_documents(certified: CertifiedEpisode) -> dict[str, Json]:
    """What was executed and what it certifies, by the name of its audit column; it says nothing of policy records."""
    context: dict[str, Json] = {
        "episode": certified.episode.content_hash(),
        "provenance": provenance_to_json(certified.episode.provenance),
        "versions": json_digest(certified.versions.to_json()),
    }
    return {
        "episode": episode_to_json(certified.episode),
        "versions": certified.versions.to_json(),
        "replays": [replay_to_json(replay) for replay in certified.replays],
        # Each certificate says what its verdict rests on; episode and versions stand in full beside it.
        "certificates": [
            {**certificate.to_json(), **context} for certificate in certified.certificates
        ],
        "relations": [relation.to_json() for relation in certified.relations],
        "orbit": [list(order) for order in certified.orbit],
        "cross_checks": cross_checks_to_json(certified.cross_checks),
    }


def certified_from_row(row: Mapping[str, str], preset: Preset) -> CertifiedEpisode:
    """Certify a row's replays again; raises :class:`DatasetError` if they give no certified episode.

    Certificates, relations and orbit are derived, never taken from the row's text.
    """
    episode = episode_from_json(json.loads(row["episode"]))
    replays = tuple(replay_from_json(value) for value in json.loads(row["replays"]))
    outcome = certify_episode(
        EpisodeReplays(episode, replays),
        Versions(**json.loads(row["versions"])),
        preset,
        cross_checks_from_json(json.loads(row["cross_checks"])),
    )
    if isinstance(outcome, Exclusion):
        raise DatasetError(
            "an episode's replays do not certify it",
            where=f"episode {row['episode_id']}",
            found=f"{outcome.kind}: {outcome.detail}",
            remedy="make the dataset again with `vcrt certify`",
        )
    return outcome


def write_rows(rows: Iterable[Mapping[str, str]], columns: tuple[str, ...], path: Path) -> None:
    """Write string rows as one Parquet file, :data:`ROWS_IN_MEMORY` at a time."""
    schema = pa.schema([(name, pa.string()) for name in columns])
    remaining = iter(rows)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while some := list(islice(remaining, ROWS_IN_MEMORY)):
            writer.write_table(
                pa.table({name: [row[name] for row in some] for name in columns}, schema)
            )


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Read string rows; raises :class:`DatasetError` if the file is not such a table."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(
            "a dataset file cannot be read", where=str(path), found=str(error).splitlines()[0]
        ) from error
    if tuple(table.column_names) != columns or any(
        field.type != pa.string() for field in table.schema
    ):
        raise DatasetError(
            "a dataset file has other columns than it should",
            where=str(path),
            found=", ".join(table.column_names),
            expected=", ".join(columns),
        )
    rows: list[dict[str, str]] = table.to_pylist()
    return rows
