"""The sealed audit view: everything that was executed, as rows of JSON columns.

A row holds an episode in its native form, the versions that judged it, every replay, every certificate, the relation
graph and the orbit, and the link to its policy record. It is what a certificate can be checked from, and what no
policy ever sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from vcrt.certification.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.certification.evidence import (
    cross_checks_from_json,
    cross_checks_to_json,
    episode_from_json,
    episode_to_json,
    provenance_to_json,
)
from vcrt.certification.replay import EpisodeReplays, replay_from_json, replay_to_json
from vcrt.documents import in_a_line
from vcrt.environments.contract import Episode, Versions
from vcrt.errors import DatasetError
from vcrt.hashing import Json, canonical_json, json_digest
from vcrt.orders import all_orders
from vcrt.records.anonymise import Anonymised
from vcrt.records.forms import CrossCheckForm, EpisodeForm, ReplayForm, VersionsForm
from vcrt.records.tables import BROKEN, open_table

_EPISODE: TypeAdapter[Any] = TypeAdapter(EpisodeForm)
_REPLAYS: TypeAdapter[Any] = TypeAdapter(list[ReplayForm])
_VERSIONS: TypeAdapter[Any] = TypeAdapter(VersionsForm)
_CROSS_CHECKS: TypeAdapter[Any] = TypeAdapter(list[CrossCheckForm])
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
    name = f"episode {row['episode_id'][:200]}"
    episode = episode_of_json(row["episode"], name)
    with _in_due_form(name):
        replays = tuple(replay_from_json(value) for value in _of(_REPLAYS, row["replays"]))
        versions = Versions(**_of(_VERSIONS, row["versions"]))
        cross_checks = cross_checks_from_json(_of(_CROSS_CHECKS, row["cross_checks"]))
        orders = all_orders(episode.num_operations)
        if tuple(replay.sequence for replay in replays) != orders:
            raise ValueError(
                f"{len(replays)} replays that are not those of all {len(orders)} orders"
            )
        for replay in replays:
            missing = len(replay.sequence) + 1 - len(replay.state_hashes)
            if missing < 0 or (missing > 0 and replay.accepted):
                raise ValueError(f"{len(replay.state_hashes)} hashes of order {replay.sequence}")
    outcome = certify_episode(EpisodeReplays(episode, replays), versions, preset, cross_checks)
    if isinstance(outcome, Exclusion):
        raise DatasetError(
            "an episode's replays do not certify it",
            where=f"episode {row['episode_id']}",
            found=f"{outcome.kind}: {outcome.detail}",
            remedy="make the dataset again with `vcrt certify`",
        )
    return outcome


def episode_of_json(text: str, where: str) -> Episode:
    """The episode in an audit row's text; raises :class:`DatasetError` if it does not have the form of one."""
    with _in_due_form(where):
        episode = episode_from_json(_of(_EPISODE, text))
        episode.content_hash()
    return episode


def _of(form: TypeAdapter[Any], text: str) -> Any:
    form.validate_json(text)
    return json.loads(text)


@contextmanager
def _in_due_form(where: str) -> Iterator[None]:
    """Whatever is wrong with a row's JSON is one named error."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            "an audit row does not have the documented form",
            where=where,
            found=f"{type(error).__name__}: {in_a_line(error)[:300]}",
            remedy="restore the original, or make the dataset again with `vcrt certify`",
        ) from error


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
        with open_table(path, columns) as table:
            return [row for group in range(len(table.groups)) for row in table.rows(group)]
    except DatasetError:
        raise
    except BROKEN as error:
        raise DatasetError(
            "a dataset file cannot be read",
            where=str(path),
            found=next(iter(str(error).splitlines()), type(error).__name__),
        ) from error
