"""The sealed audit view: everything that was executed, as rows of JSON columns.

A row holds an episode in its native form, the versions that judged it, every replay, every certificate, the relation
graph and the orbit, and the link to its policy record. It is what a certificate can be checked from, and what no
policy ever sees. Of an episode of too many operations for a replay of every order, ``replays`` is the tree of what was
replayed, ``certificates`` says for each pair in how many contexts it was compared, with examples, and ``orbit`` has the
certified order's pairs and the number of legal orders.
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
    replays_from_json,
    replays_to_json,
)
from vcrt.certification.replay_tree import EpisodeReplays, require_own_tree, tree_from_json
from vcrt.documents import in_a_line
from vcrt.environments.contract import Episode, Versions
from vcrt.errors import DatasetError
from vcrt.hashing import Json, canonical_json, json_digest
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.orders import all_orders
from vcrt.printable import counted
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
    # Each certificate says what its verdict rests on; episode and versions stand in full beside it.
    certificates: Json = [
        {**certificate.to_json(), **context} for certificate in certified.certificates
    ]
    orbit: Json = [list(order) for order in certified.orbit]
    if not certified.exhaustive:
        certificates = {
            "complete": certified.complete,
            "classes": certified.classes,
            "pairs": [pair.to_json(context) for pair in certified.pairs],
        }
        orbit = {
            "pairs": [list(pair) for pair in certified.order.pairs],
            "linear_extensions": certified.num_legal,
        }
    return {
        "episode": episode_to_json(certified.episode),
        "versions": certified.versions.to_json(),
        "replays": replays_to_json(certified.evidence),
        "certificates": certificates,
        "relations": [relation.to_json() for relation in certified.relations],
        "orbit": orbit,
        "cross_checks": cross_checks_to_json(certified.cross_checks),
    }


def certified_from_row(row: Mapping[str, str], preset: Preset) -> CertifiedEpisode:
    """Certify a row's replays again; raises :class:`DatasetError` if they give no certified episode.

    Certificates, relations and orbit are derived, never taken from the row's text.
    """
    name = f"episode {row['episode_id'][:200]}"
    episode = episode_of_json(row["episode"], name)
    with _in_due_form(name):
        evidence = _evidence(episode, row["replays"])
        versions = Versions(**_of(_VERSIONS, row["versions"]))
        cross_checks = cross_checks_from_json(_of(_CROSS_CHECKS, row["cross_checks"]))
    outcome = certify_episode(evidence, versions, preset, cross_checks)
    if isinstance(outcome, Exclusion):
        raise DatasetError(
            "an episode's replays do not certify it",
            where=f"episode {row['episode_id']}",
            found=f"{outcome.kind}: {outcome.detail}",
            remedy="make the dataset again with `vcrt certify`",
        )
    return outcome


def _evidence(episode: Episode, text: str) -> EpisodeReplays:
    """The replays in a row's text; raises ``ValueError`` if they are not those that its episode has."""
    if episode.num_operations > MAX_EXHAUSTIVE:
        return require_own_tree(EpisodeReplays(episode, tree_from_json(json.loads(text))))
    evidence = replays_from_json(episode, _of(_REPLAYS, text))
    orders = all_orders(episode.num_operations)
    replays = evidence.replays
    if tuple(replay.sequence for replay in replays) != orders:
        raise ValueError(
            f"{counted(len(replays), 'replay')} that are not those of all {counted(len(orders), 'order')}"
        )
    for replay in replays:
        missing = len(replay.sequence) + 1 - len(replay.state_hashes)
        if missing < 0 or (missing > 0 and replay.accepted):
            raise ValueError(
                f"{counted(len(replay.state_hashes), 'hash', 'hashes')} of order {replay.sequence}"
            )
    return evidence


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
