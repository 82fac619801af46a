"""Freezing, loading and verifying datasets, and every way in which one can be broken."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import toy_environment as toy
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import freeze, make_dataset
from vcrt.errors import DatasetError, VcrtError
from vcrt.orders import all_orders
from vcrt.records.audit import AUDIT_COLUMNS
from vcrt.records.dataset import (
    POLICY_COLUMNS,
    load_items,
    open_dataset,
    read_audit,
    read_policy_records,
    require_agreement,
    rows_digest,
)
from vcrt.records.policy_view import render
from vcrt.records.rows import read_rows, write_rows
from vcrt.records.sealing.integrity import require_integrity
from vcrt.records.sealing.seal import seal_dataset, verify_seal
from vcrt.replay.config import sampled

CONFIG = sampled({"toy": ("needs", "overwrite")}, 4, seed=7)
TOY = {"toy": toy.ToyEnvironment}
#: The root hash of CONFIG under the toy environment. It changes only when the content of a dataset changes.
GOLDEN_ROOT_HASH = "33a2a5117d72c94e8f2d4ac72294db69ac301b19335f4a0767e482d7ab340a49"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    path = tmp_path_factory.mktemp("dataset") / "toy"
    dataset = make_dataset(CONFIG, path, jobs=1, factories=TOY)
    verify_agreement(dataset, jobs=1, factories=TOY)
    return dataset


@pytest.fixture
def copy(frozen, tmp_path):
    shutil.copytree(frozen.path, tmp_path / "copy")
    return tmp_path / "copy"


def test_golden_root_hash(frozen):
    assert frozen.manifest.root_hash == GOLDEN_ROOT_HASH


def test_the_same_seed_gives_the_same_root_hash_in_any_number_of_processes(frozen, tmp_path):
    again = make_dataset(CONFIG, tmp_path / "again", jobs=3, factories=TOY)
    assert again.manifest == frozen.manifest


def test_counts_and_conformance(frozen):
    counts = frozen.manifest.counts["toy"]["needs"]
    assert (counts.episodes, counts.orders, counts.legal_orders) == (4, 96, 48)
    assert counts.relations == {"commutes": 20, "precedes": 4}
    check = frozen.manifest.conformance["toy"]["toy twice"]
    assert (check.checked, check.agreed) == (8, 8)


def test_agreement_is_demanded_and_bound_to_the_dataset(frozen, copy):
    assert require_agreement(frozen).replays == 8 * 24
    agreement = copy / "agreement.json"
    value = json.loads(agreement.read_text())
    for change in ({"agreed": 191}, {"root_hash": "0" * 64}, {"replays": 1, "agreed": 1}):
        agreement.write_text(json.dumps({**value, **change}))
        with pytest.raises(DatasetError, match="vcrt verify"):
            require_agreement(open_dataset(copy))
    agreement.unlink()
    with pytest.raises(DatasetError, match="was not verified"):
        require_agreement(open_dataset(copy))


def test_every_file_is_guarded_byte_by_byte(frozen, copy):
    rng = np.random.default_rng(0)
    for name in ("manifest.json", *frozen.manifest.files):
        original = (copy / name).read_bytes()
        for position in rng.integers(0, len(original), 25):
            changed = bytearray(original)
            changed[position] ^= 1 << int(rng.integers(8))
            (copy / name).write_bytes(changed)
            with pytest.raises(DatasetError) as caught:
                open_dataset(copy)
            assert name in str(caught.value)
        (copy / name).write_bytes(original)
    open_dataset(copy)


def test_missing_and_foreign_files_are_named(copy):
    (copy / "audit" / "other.jsonl.gz").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"other\.jsonl\.gz"):
        open_dataset(copy)
    (copy / "audit" / "other.jsonl.gz").unlink()
    (copy / "policy" / "toy.jsonl.gz").unlink()
    with pytest.raises(DatasetError, match=r"policy/toy\.jsonl\.gz"):
        open_dataset(copy)


def test_not_a_dataset(tmp_path):
    with pytest.raises(DatasetError, match="no such directory"):
        open_dataset(tmp_path / "absent")
    with pytest.raises(DatasetError, match=r"no manifest\.json"):
        open_dataset(tmp_path)


def test_nothing_is_overwritten_and_a_failed_freeze_leaves_nothing(frozen, tmp_path):
    with pytest.raises(VcrtError, match="not overwritten"):
        freeze(CONFIG, [], frozen.path)
    with pytest.raises(AttributeError):
        freeze(CONFIG, [None], tmp_path / "failed")
    assert list(tmp_path.iterdir()) == []


def forge(path, name, columns, change):
    """Change rows and make the manifest consistent again, as a careful forger would."""
    rows = read_rows(path / name, columns)
    change(rows)
    write_rows(rows, path / name)
    from vcrt.hashing import file_digest
    from vcrt.records.manifest import Manifest

    value = json.loads((path / "manifest.json").read_text())
    value["content"][name] = rows_digest(rows)
    value["files"][name] = {
        "size": (path / name).stat().st_size,
        "sha256": file_digest(path / name),
    }
    value["root_hash"] = Manifest.model_validate(value).computed_root_hash()
    (path / "manifest.json").write_text(json.dumps(value))


def test_verification_finds_a_forged_verdict(copy):
    def legalise(rows):
        replays = json.loads(rows[0]["replays"])
        refused = next(r for r in replays if r["rejection"])
        refused["rejection"] = None
        refused["state_hashes"] = replays[0]["state_hashes"]
        rows[0]["replays"] = json.dumps(replays, sort_keys=True, separators=(",", ":"))

    forge(copy, "audit/toy.jsonl.gz", AUDIT_COLUMNS, legalise)
    dataset = open_dataset(copy)
    with pytest.raises(DatasetError, match="agreement record belongs to another"):
        require_agreement(dataset)
    with pytest.raises(DatasetError, match="other values in replays"):
        verify_agreement(dataset, jobs=1, factories=TOY)


def test_verification_finds_a_forged_policy_record(copy):
    def reverse(rows):
        record = json.loads(rows[0]["record"])
        for relation in record["relations"]:
            if relation[2] != "commutes":
                relation[0], relation[1] = relation[1], relation[0]
        record["relations"].sort()
        rows[0]["record"] = json.dumps(record, sort_keys=True, separators=(",", ":"))

    forge(copy, "policy/toy.jsonl.gz", POLICY_COLUMNS, reverse)
    with pytest.raises(DatasetError, match="policy record is not the one"):
        verify_agreement(open_dataset(copy), jobs=1, factories=TOY)
    with pytest.raises(DatasetError, match="policy record is not the one"):
        load_items(open_dataset(copy), "toy")


def test_verification_refuses_other_versions(frozen):
    with pytest.raises(DatasetError, match="other versions"):
        verify_agreement(frozen, jobs=1, factories={"toy": toy.ChangingVersions})


def test_every_certificate_carries_its_evidence(frozen):
    from vcrt.hashing import json_digest

    for row in read_audit(frozen, "toy"):
        found = json.loads(row["certificates"])
        # 6 pairs, each in the 5 contexts of the other two operations, less those that nothing accepted reaches.
        assert 20 <= len(found) <= 30
        for certificate in found:
            assert certificate["episode"] == row["content_hash"]
            assert certificate["versions"] == json_digest(json.loads(row["versions"]))
            assert certificate["provenance"]["source"] == row["source"]
            for path in (certificate["forward"], certificate["reverse"]):
                complete = len(path["state_hashes"]) == 2
                assert complete == (path["rejection"] is None)
            assert certificate["verdict"] in ("diamond", "precedes", "conflicts", "vacuous")


def test_supervision_is_the_orbit_in_slots(frozen):
    for row, item in zip(read_audit(frozen, "toy"), load_items(frozen, "toy"), strict=True):
        slots = json.loads(row["slot_of_operation"])
        orbit = {tuple(slots[i] for i in order) for order in json.loads(row["orbit"])}
        legal = {o for o, ok in zip(all_orders(4), item.supervised.legal, strict=True) if ok}
        assert legal == orbit
        (anti,) = [r for r in item.supervised.record.relations if r.kind != "commutes"]
        assert all(o.index(anti.first) < o.index(anti.second) for o in legal)
        # Every pair of two first steps that may stand in either order is a history, and no other.
        starts = {o[:2] for o in legal}
        assert set(item.supervised.histories) == {
            (p, (p[1], p[0])) for p in starts if p < (p[1], p[0]) and (p[1], p[0]) in starts
        }


def test_the_policy_view_says_nothing_of_where_it_comes_from(frozen):
    records = read_policy_records(frozen, "toy")
    text = gzip.decompress((frozen.path / "policy" / "toy.jsonl.gz").read_bytes())
    rows = read_audit(frozen, "toy")
    for row in rows:
        record = records[row["record_id"]]
        assert set(record.to_json()) == {"record_id", "pointers", "relations"}
        for secret in (row["episode_id"], row["schema"], row["source"], row["content_hash"]):
            assert secret not in json.dumps(record.to_json())
            assert secret.encode() not in text
    assert list(records) == sorted(records)


def test_rendering_is_by_named_generator_and_keeps_the_relations(frozen):
    for record in read_policy_records(frozen, "toy").values():
        tokens = render(record, "sorted", np.random.default_rng(1))
        assert tokens == render(record, "sorted", np.random.default_rng(1))
        shuffled = render(record, "shuffled", np.random.default_rng(2))
        for rendered in (tokens, shuffled):
            assert parse(rendered) == {
                (record.pointers[r.first], record.pointers[r.second], r.kind)
                for r in record.relations
            }


def parse(tokens):
    """Read a rendering back: relations as (first pointer, second pointer, kind), commuting pairs ascending."""
    body = tokens[tokens.index("<relations>") + 1 : tokens.index("<order>")]
    found = set()
    for k in range(0, len(body), 4):
        left, token, right = int(body[k][1:]), body[k + 1], int(body[k + 2][1:])
        assert body[k + 3] == ";"
        if token == "r0":
            found.add((min(left, right), max(left, right), "commutes"))
        else:
            kind = {"r1": "precedes", "r2": "precedes", "r3": "conflicts", "r4": "conflicts"}[token]
            found.add((left, right, kind) if token in ("r1", "r3") else (right, left, kind))
    return found


OLD = Path(__file__).parents[1] / "support" / "dataset_of_format_2"


def test_a_dataset_of_the_old_format_is_refused_with_the_command_that_makes_it_anew(tmp_path):
    """A real one, which the last version that wrote Parquet made."""
    path = tmp_path / "old"
    shutil.copytree(OLD, path)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for read in (open_dataset, require_integrity, seal_dataset, verify_seal):
        with pytest.raises(DatasetError, match="older format") as caught:
            read(path)
        assert caught.value.found == "vcrt-dataset/2"
        assert caught.value.remedy.startswith(
            "make it anew, with the same root hash: `vcrt certify "
        )
        assert "--schemas toy/needs toy/overwrite --episodes 1 --seed 7" in caught.value.remedy
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_dataset_made_anew_has_the_root_hash_of_its_old_format(tmp_path):
    config = sampled({"toy": ("needs", "overwrite")}, 1, seed=7)
    again = make_dataset(config, tmp_path / "again", jobs=1, factories=TOY)
    old = json.loads((OLD / "manifest.json").read_text())
    assert again.manifest.root_hash == old["root_hash"]
    assert again.manifest.computed_root_hash() == old["root_hash"]
    assert (again.path / "leaves.jsonl").read_bytes() == (OLD / "leaves.jsonl").read_bytes()
    assert list(again.manifest.content.values()) == list(old["content"].values())
