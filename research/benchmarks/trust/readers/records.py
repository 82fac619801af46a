"""Readers of datasets, certificates, records and shards, with valid inputs of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz_watch import Target

from readers.forms import dumped, json_value
from vcrt.certificates.episodes import preset_named
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import VcrtError
from vcrt.hashing import json_digest, sha256_hex
from vcrt.records.audit import AUDIT_COLUMNS, certified_from_row
from vcrt.records.certificate import certificate_document, read_certificate
from vcrt.records.dataset import (
    POLICY_COLUMNS,
    Dataset,
    open_dataset,
    read_policy_records,
    require_agreement,
    rows_digest,
)
from vcrt.records.manifest import AGREEMENT, MANIFEST, Manifest, audit_name, policy_name
from vcrt.records.policy_view import record_from_json
from vcrt.records.rows import read_rows, write_rows
from vcrt.replay.config import sampled
from vcrt.replay.evidence import FirstReplay, certified_documents
from vcrt.replay.store import IDENTITY, ShardStore, read_identity
from vcrt_research.anonymity.result import AnonymityReport, read_report, report_bytes
from vcrt_train.protocol.relation_records import read_relation_record

BY_HAND = {
    "operations": ["a", "b", "c"],
    "relations": [["a", "c", "precedes"], ["a", "b", "commutes"]],
}


LIFTED = [
    {
        "theorems": [
            {
                "name": "t",
                "steps": [{"label": "h1"}, {"label": "h2"}],
                "pairs": [{"first": 0, "second": 1, "relation": "precedes", "before": 0}],
            }
        ]
    }
]


#: Of as many operations that neither their orders nor their pairs fit into a line.
MANY = {
    "operations": [f"step {number}" for number in range(12)],
    "relations": [[f"step {one}", f"step {one + 3}", "precedes"] for one in range(9)],
}


def record_readers(place: Path, dataset: Dataset) -> Iterator[Target]:
    long = make_dataset(
        sampled({"clrs": ("posets6",)}, 1, preset=preset_named("posets6")), place / "long", jobs=1
    )
    yield from _evidence_readers(place, dataset, "")
    yield from _evidence_readers(place, long, " of a long episode")
    yield Target(
        name="stated record",
        form="JSON",
        seeds=dumped(BY_HAND, MANY, LIFTED, LIFTED[0]["theorems"][0]),
        read=lambda data: read_relation_record(data, "fuzz"),
        weight=20,
        is_json=True,
    )
    records = [*read_policy_records(dataset, "clrs").values()][:1]
    records += read_policy_records(long, "clrs").values()
    yield Target(
        name="policy record",
        form="JSON",
        seeds=dumped(
            *[record.to_json() for record in records],
            {"record_id": "0" * 16, "pointers": [1, 4], "relations": [[0, 1, "precedes"]],
             "distractors": [[0, 2, "conflicts"]]},
        ),
        read=lambda data: record_from_json(json_value(data)),
        weight=30,
        is_json=True,
    )  # fmt: skip
    yield from _dataset_files(place, dataset)


def _evidence_readers(place: Path, dataset: Dataset, of_what: str) -> Iterator[Target]:
    row = read_rows(dataset.path / audit_name("clrs"), AUDIT_COLUMNS)[0]
    preset = dataset.manifest.preset
    certified = certified_from_row(row, preset)
    certificate = certificate_document(certified, preset)
    file = place / "certificate.json"

    def sealed(value: Any) -> Any:
        return {**value, "sha256": json_digest({n: v for n, v in value.items() if n != "sha256"})}

    def read_sealed(data: bytes) -> object:
        file.write_bytes(data)
        return read_certificate(file)

    yield Target(
        name=f"certificate{of_what}",
        form="JSON",
        seeds=dumped(certificate),
        read=read_sealed,
        weight=2,
        is_json=True,
        reseal=sealed,
    )
    columns = ("episode", "versions", "replays", "cross_checks")

    def audit_row(data: bytes) -> object:
        value = json_value(data)
        if not isinstance(value, dict):
            raise VcrtError("not an object")
        texts = {name: json.dumps(value.get(name)) for name in columns}
        return certified_from_row({**row, **texts}, preset)

    documents = certified_documents(certified)
    yield Target(
        name=f"audit row{of_what}",
        form="JSON",
        seeds=dumped({name: documents[name] for name in columns}),
        read=audit_row,
        weight=4,
        is_json=True,
    )


def _dataset_files(place: Path, dataset: Dataset) -> Iterator[Target]:
    manifest, agreement = dataset.path / MANIFEST, dataset.path / AGREEMENT
    original = manifest.read_bytes()

    def resealed(value: Any) -> Any:
        return {**value, "root_hash": Manifest.model_validate(value).computed_root_hash()}

    def opened(data: bytes) -> object:
        manifest.write_bytes(data)
        try:
            return open_dataset(dataset.path)
        finally:
            manifest.write_bytes(original)

    def agreed(data: bytes) -> object:
        agreement.write_bytes(data)
        return require_agreement(dataset)

    yield Target(
        name="manifest",
        form="JSON",
        seeds=(original,),
        read=opened,
        weight=4,
        is_json=True,
        reseal=resealed,
    )
    yield Target(
        name="agreement",
        form="JSON",
        seeds=(agreement.read_bytes(),),
        read=agreed,
        weight=6,
        is_json=True,
    )
    report = AnonymityReport(
        root_hash="0" * 64, backbone_digest="1" * 64, seed=0, level=0.05, results=(), controls=(),
        unmeasured=(), findings=("one",),
    )  # fmt: skip
    probe = place / "anonymity.json"

    def probed(data: bytes) -> object:
        probe.write_bytes(data)
        return read_report(probe)

    yield Target(
        name="anonymity report",
        form="JSON",
        seeds=(report_bytes(report),),
        read=probed,
        weight=1,
        is_json=True,
    )
    yield from _shards(place)


def _shards(place: Path) -> Iterator[Target]:
    folder = place / "data.shards"
    folder.mkdir()
    store = ShardStore(folder, "identity")
    piece = folder / "piece.json"
    replay: dict[str, Any] = {
        "versions": [{"environment": "e", "adapter": "1", "canonicalizer": "1", "verifier": "v", "libraries": {}}],
        "outcomes": [
            {
                "kind": "duplicate",
                "episode_id": "e/s/0",
                "detail": "",
                "cross_checks": [{"checker": "c", "checked": 1, "agreed": 1}],
            },
            {"columns": {"episode": "{}"}, "num_legal": 1, "replayed": None},
        ],
        "process": "p",
    }  # fmt: skip

    def sealed(data: bytes) -> bytes:
        header = {"identity": "identity", "name": "piece.json", "sha256": sha256_hex(data)}
        return json.dumps(header).encode() + b"\n" + data

    def read(data: bytes) -> object:
        piece.write_bytes(sealed(data))
        return FirstReplay.from_json(store.read("piece.json"))

    def identity(data: bytes) -> object:
        (folder / IDENTITY).write_bytes(data)
        return read_identity(folder)

    yield Target(name="shard", form="JSON", seeds=dumped(replay), read=read, weight=6, is_json=True)
    yield Target(
        name="shard identity",
        form="JSON",
        seeds=dumped({"format": "vcrt-shards/2", "config": {}}),
        read=identity,
        weight=4,
        is_json=True,
    )


def table_readers(place: Path, dataset: Dataset) -> Iterator[Target]:
    audit, policy = (dataset.path / name("clrs") for name in (audit_name, policy_name))
    table = place / "rows"

    def rows_of(data: bytes) -> object:
        table.write_bytes(data)
        return read_rows(table, AUDIT_COLUMNS)

    def rows_of_lines(data: bytes) -> object:
        table.write_bytes(gzip.compress(data, 1))
        return read_rows(table, POLICY_COLUMNS)

    yield Target(
        name="audit file",
        form="gzip",
        seeds=(audit.read_bytes(),),
        read=rows_of,
        weight=2,
    )
    yield Target(
        name="lines of a policy file",
        form="JSON lines",
        seeds=(gzip.decompress(policy.read_bytes()),),
        read=rows_of_lines,
        weight=2,
    )
    # The whole way of a policy file whose digests agree with what is in it.
    original = policy.read_bytes()

    def records(data: bytes) -> object:
        record = data.decode("utf-8", "replace")
        rows = [{"record_id": "0" * 16, "record": record}]
        write_rows(rows, policy)
        content = {**dataset.manifest.content, policy_name("clrs"): rows_digest(rows)}
        forged = replace(dataset, manifest=dataset.manifest.model_copy(update={"content": content}))
        try:
            return read_policy_records(forged, "clrs")
        finally:
            policy.write_bytes(original)

    (row, *_) = read_rows(policy, POLICY_COLUMNS)
    yield Target(
        name="policy file with digests",
        form="JSON lines",
        seeds=(row["record"].encode(),),
        read=records,
        weight=1,
        is_json=True,
    )
