"""The seal: every byte, row and file of a dataset that is tampered with is found and named."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

import toy_environment as toy
from command_line import refused, run
from tampering import (
    blames,
    files_of,
    flips,
    folder_tamperings,
    line_tamperings,
    row_tamperings,
)
from vcrt.api.certifying import verify_proof
from vcrt.cli.verify import inclusion_line
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import AlteredError, DatasetError
from vcrt.hashing import canonical_json, json_digest, sha256_hex
from vcrt.records.audit import certified_from_row
from vcrt.records.certificate import certificate_document
from vcrt.records.dataset import open_dataset, read_audit, require_agreement
from vcrt.records.manifest import Manifest
from vcrt.records.sealing.envelopes import envelope_bytes, envelope_from_bytes, envelope_of
from vcrt.records.sealing.integrity import examine_integrity, require_integrity
from vcrt.records.sealing.seal import check_proof, make_proof, seal_dataset
from vcrt.records.sealing.statement import leaf_from_line, leaf_hash, leaf_of
from vcrt.replay.config import sampled

TOY = {"toy": toy.ToyEnvironment}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    path = tmp_path_factory.mktemp("sealed") / "toy"
    config = sampled({"toy": ("needs", "overwrite")}, 1, seed=7)
    dataset = make_dataset(config, path, jobs=1, factories=TOY)
    verify_agreement(dataset, jobs=1, factories=TOY)
    return dataset


@pytest.fixture
def copy(frozen, tmp_path):
    shutil.copytree(frozen.path, tmp_path / "copy")
    return tmp_path / "copy"


def one_mask(position):
    return (1 << position * 7 % 8,)


def sample_of_flips(path, every):
    total = 0
    for name in files_of(path):
        size = (path / name).stat().st_size
        for position, _, damage in flips(path, name, range(0, size, every(name)), one_mask):
            assert blames(damage, name), (name, position, damage)
            total += 1
    return total


def test_flipped_bytes_are_found_and_blamed_on_their_file_and_nothing_else(copy):
    assert examine_integrity(copy).damage == ()
    assert sample_of_flips(copy, lambda name: 127 if name.endswith("gz") else 19) > 350


def refuse_all(frozen, tmp_path, tamperings, prefix=""):
    count = 0
    for count, tampering in enumerate(tamperings, start=1):
        path = tmp_path / f"{count}"
        shutil.copytree(frozen.path, path)
        tampering.do(path)
        with pytest.raises(AlteredError) as caught:
            require_integrity(path)
        assert prefix in str(caught.value), (tampering.name, str(caught.value))
        assert tampering.blamed in str(caught.value), (tampering.name, str(caught.value))
        shutil.rmtree(path)
    return count


def test_rows_that_are_dropped_added_swapped_repeated_or_altered(frozen, tmp_path):
    for name in ("audit/toy.jsonl.gz", "policy/toy.jsonl.gz"):
        tamperings = row_tamperings(frozen.path, name)
        assert refuse_all(frozen, tmp_path, tamperings, prefix=name) > 12


def test_lines_that_are_dropped_repeated_or_swapped(frozen, tmp_path):
    for name in ("manifest.json", "leaves.jsonl", "seal.json"):
        assert refuse_all(frozen, tmp_path, line_tamperings(frozen.path, name), prefix=name) > 4


def test_files_that_are_removed_added_linked_swapped_or_cut(frozen, tmp_path):
    assert refuse_all(frozen, tmp_path, folder_tamperings(frozen.path)) > 60


def manifest_fields(value, field=()):
    """Every field of the manifest down to its last value."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from manifest_fields(inner, (*field, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from manifest_fields(inner, (*field, index))
    else:
        yield field, value


def test_whatever_field_of_the_manifest_is_altered_the_manifest_is_named(copy):
    original = (copy / "manifest.json").read_bytes()
    fields = list(manifest_fields(json.loads(original)))
    assert len(fields) > 40
    for field, value in fields:
        changed = json.loads(original)
        inner = changed
        for name in field[:-1]:
            inner = inner[name]
        inner[field[-1]] = value + "0" if isinstance(value, str) else 12345
        (copy / "manifest.json").write_text(json.dumps(changed, indent=2) + "\n")
        with pytest.raises(AlteredError, match="the manifest was altered") as caught:
            require_integrity(copy)
        (damage,) = examine_integrity(copy).damage
        assert damage.place == "manifest.json", (field, damage)
        assert sha256_hex(original) in damage.found
        assert damage.found in str(caught.value)


def reseal(path):
    """Make manifest, leaves and seal consistent with the rows again, as a careful forger would."""
    value = json.loads((path / "manifest.json").read_bytes())
    from vcrt.hashing import file_digest
    from vcrt.records.audit import AUDIT_COLUMNS
    from vcrt.records.dataset import POLICY_COLUMNS, rows_digest
    from vcrt.records.manifest import model_bytes
    from vcrt.records.rows import read_rows

    for name in value["files"]:
        columns = AUDIT_COLUMNS if name.startswith("audit") else POLICY_COLUMNS
        value["content"][name] = rows_digest(read_rows(path / name, columns))
        size = (path / name).stat().st_size
        value["files"][name] = {"size": size, "sha256": file_digest(path / name)}
    value["root_hash"] = Manifest.model_validate(value).computed_root_hash()
    (path / "manifest.json").write_bytes(model_bytes(Manifest.model_validate(value)))
    for name in ("agreement.json", "leaves.jsonl", "seal.json"):
        (path / name).unlink()
    seal_dataset(path)


def test_a_whole_forgery_has_another_root_hash_and_does_not_replay(frozen, copy):
    (tampering,) = (
        t
        for t in row_tamperings(copy, "audit/toy.jsonl.gz")
        if t.name == "alter cross_checks of row 1"
    )
    tampering.do(copy)
    reseal(copy)
    assert examine_integrity(copy).damage == ()
    assert open_dataset(copy).manifest.root_hash != frozen.manifest.root_hash
    with pytest.raises(DatasetError, match="other values in cross_checks"):
        verify_agreement(open_dataset(copy), jobs=1, factories=TOY)


@pytest.mark.parametrize("field", ["audit", "certificate", "policy"])
def test_leaves_that_their_rows_do_not_give_are_named_even_under_a_seal_of_their_own(copy, field):
    from vcrt.records.sealing.seal import write_seal
    from vcrt.records.sealing.statement import leaves_from_bytes

    first, second = leaves_from_bytes((copy / "leaves.jsonl").read_bytes())
    from dataclasses import replace

    write_seal(copy, open_dataset(copy).manifest, [first, replace(second, **{field: "0" * 64})])
    (damage,) = examine_integrity(copy).damage
    assert damage.place == f"leaves.jsonl, line 2, episode {second.episode}"


def test_an_agreement_record_must_be_that_of_a_full_agreement(copy):
    path = copy / "agreement.json"
    value = json.loads(path.read_bytes())
    path.write_text(json.dumps({**value, "episodes": 3}, indent=2) + "\n")
    assert examine_integrity(copy).damage[0].place == "agreement.json"
    with pytest.raises(DatasetError, match="of 3 episodes"):
        require_agreement(open_dataset(copy))
    path.unlink()
    assert examine_integrity(copy).damage == ()


def test_what_a_killed_write_left_is_no_damage(copy):
    (copy / ".agreement.json.unfinished-abc").write_bytes(b"half")
    assert examine_integrity(copy).damage == ()
    open_dataset(copy)


def test_a_link_to_the_dataset_is_no_damage(copy, tmp_path):
    (tmp_path / "link").symlink_to(copy)
    assert examine_integrity(tmp_path / "link").damage == ()


def test_the_seal_is_a_statement_about_every_file_and_changes_no_root_hash(frozen):
    from vcrt.hashing import file_digest

    envelope = envelope_from_bytes((frozen.path / "seal.json").read_bytes())
    statement = json.loads(envelope.payload)
    assert canonical_json(statement) == envelope.payload
    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    outside = {"seal.json", "agreement.json"}
    assert named == {
        name: file_digest(frozen.path / name)
        for name in files_of(frozen.path)
        if name not in outside
    }
    predicate = statement["predicate"]
    assert predicate["root_hash"] == frozen.manifest.root_hash
    assert predicate["merkle"]["toy"]["certificates"] == 2
    assert predicate["manifest"].encode() == (frozen.path / "manifest.json").read_bytes()


def test_a_leaf_has_the_digest_of_the_certificate_that_show_prints(frozen):
    preset = frozen.manifest.preset
    for row in read_audit(frozen, "toy"):
        document = certificate_document(certified_from_row(row, preset), preset)
        leaf = leaf_of("toy", row, preset, policy="", audit=json_digest(row))
        assert leaf.certificate == document["sha256"]


def test_a_dataset_without_a_seal_gets_the_same_one_again(frozen, copy):
    for name in ("leaves.jsonl", "seal.json"):
        (copy / name).unlink()
    open_dataset(copy)
    with pytest.raises(AlteredError, match="vcrt seal"):
        require_integrity(copy)
    seal_dataset(copy)
    for name in ("leaves.jsonl", "seal.json"):
        assert (copy / name).read_bytes() == (frozen.path / name).read_bytes()


def test_nothing_altered_is_sealed(copy):
    (copy / "leaves.jsonl").unlink()
    with pytest.raises(AlteredError, match=r"leaves\.jsonl"):
        seal_dataset(copy)
    (copy / "seal.json").unlink()
    data = bytearray((copy / "audit" / "toy.jsonl.gz").read_bytes())
    data[500] ^= 1
    (copy / "audit" / "toy.jsonl.gz").write_bytes(data)
    with pytest.raises(DatasetError, match=r"audit/toy\.jsonl\.gz"):
        seal_dataset(copy)
    assert not (copy / "seal.json").exists()


@pytest.fixture
def proven(frozen, tmp_path):
    """A certificate's digest and the file of its proof."""
    preset = frozen.manifest.preset
    row = read_audit(frozen, "toy")[1]
    proof = tmp_path / "proof.json"
    proof.write_text(make_proof(frozen.path, row["episode_id"]))
    return certificate_document(certified_from_row(row, preset), preset)["sha256"], proof


def test_a_proof_leads_from_one_certificate_to_the_root(frozen, proven):
    included = check_proof(proven[1], proven[0])
    assert (included.index, included.size) == (1, 2)
    assert included.root_hash == frozen.manifest.root_hash
    with pytest.raises(AlteredError, match="another certificate"):
        check_proof(proven[1], "0" * 64)
    with pytest.raises(DatasetError, match="no episode"):
        make_proof(frozen.path, "toy/needs/12345678")


def test_an_unsigned_seal_with_other_trees_proves_nothing(frozen, proven, capsys, tmp_path):
    """The root hash of a published dataset can be put beside a tree of one's own; it must have its size at least."""
    proof = proven[1]
    value = json.loads(proof.read_text())
    statement = json.loads(envelope_from_bytes(value["seal"].encode()).payload)
    leaf = leaf_from_line(value["leaf"].encode())
    foreign = replace(leaf, certificate="f" * 64)

    def forged(size):
        tree = {"certificates": size, "root": leaf_hash(foreign.data()).hex()}
        other = statement | {"predicate": statement["predicate"] | {"merkle": {"toy": tree}}}
        seal = envelope_bytes(envelope_of(canonical_json(other))).decode()
        return value | {"leaf": foreign.data().decode(), "index": 0, "path": [], "seal": seal}

    for size in (1, 2, 3):
        proof.write_text(json.dumps(forged(size)))
        with pytest.raises(AlteredError):
            check_proof(proof, "f" * 64)
    # Nor is a true one said to be more than it is.
    certificate = tmp_path / "certificate.json"
    preset = frozen.manifest.preset
    found = certificate_document(certified_from_row(read_audit(frozen, "toy")[1], preset), preset)
    certificate.write_text(json.dumps(found))
    proof.write_text(json.dumps(value))
    assert "which nobody signed" in inclusion_line(*verify_proof(certificate, proof))


def says(proof):
    """What a proof says, apart from the digest of the list of all leaves."""
    value = json.loads(proof)
    statement = json.loads(envelope_from_bytes(value.pop("seal").encode()).payload)
    (leaves,) = (one for one in statement["subject"] if one["name"] == "leaves.jsonl")
    leaves["digest"] = None
    return value, statement


def test_every_byte_of_a_proof_that_says_something_else_is_refused(proven):
    digest, proof = proven
    original = proof.read_bytes()
    flipped = harmless = 0
    for position in range(0, len(original), 7):
        data = bytearray(original)
        data[position] ^= 1 << position % 7
        proof.write_bytes(data)
        flipped += 1
        try:
            check_proof(proof, digest)
        except DatasetError:
            continue
        # White space between the fields says nothing; of all leaves only the digest, which is not needed here.
        assert says(data) == says(original)
        harmless += 1
    assert flipped > 600
    assert harmless < 40


def test_an_envelope_has_one_spelling():
    data = envelope_bytes(envelope_of(b"a"))
    assert b'"YQ=="' in data
    assert envelope_bytes(envelope_from_bytes(data)) == data
    for other, why in {
        data.replace(b"YQ==", b"YR=="): "other bytes",
        data.replace(b"YQ==", b"YQ"): "padding",
        data.replace(b"YQ==", b"Y Q=="): "base64",
        data.replace(b"YQ==", b"_Q=="): "other bytes",
        data.replace(b"\n", b"\r\n"): "other bytes",
        data.replace(b"in-toto", b"other"): "payloadType",
        data.replace(b'"application/vnd.in-toto+json"', b"1"): "payloadType",
        data.replace(b"[]", b"[1]"): r"signatures\.0",
        data.replace(b"[]", b'[{"keyid": 1, "sig": ""}]'): r"signatures\.0\.keyid",
        data.replace(b"[]", b'[{"keyid": "a", "sig": "", "more": ""}]'): r"signatures\.0\.more",
        data.replace(b"[]", b'[{"keyid": "a", "sig": ""}, {"keyid": "a", "sig": ""}]'): "keyid a",
        data.replace(b"[]", b'[{"keyid": "b", "sig": ""}, {"keyid": "a", "sig": ""}]'): "sorted",
        data.replace(b"}", b',"payload":"YQ=="}'): "twice",
        data.replace(b'"signatures": []', b'"signatures": [], "more": 1'): "more",
        b"[]": "an object",
        b"\xff": "utf-8",
    }.items():
        with pytest.raises(ValueError, match=why):
            envelope_from_bytes(other)


def test_the_command_names_what_was_altered_before_it_replays(copy, capsys):
    code, out, _ = run(capsys, "verify", copy, "--no-replay")
    assert code == 0
    assert "2 certificates as they were frozen, not signed" in out
    value = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(value.replace('"seed": 7', '"seed": 8'))
    message = refused(capsys, "verify", copy, code=4)
    assert "where: " in message
    assert "manifest.json\n" in message
    assert "found: SHA-256 " in message


def test_the_command_checks_the_ledger_of_openings_beside_the_dataset(copy, capsys):
    import sqlite3

    from vcrt.records.ledger import Ledger, openings_path

    Ledger(openings_path(copy)).append("opening", {"plan_hash": "x"})
    assert "opened    1 time" in run(capsys, "verify", copy, "--no-replay")[1]
    with sqlite3.connect(openings_path(copy)) as connection:
        connection.execute("UPDATE entries SET body = '{}'")
    connection.close()
    assert "ledger was altered" in refused(capsys, "verify", copy, "--no-replay")


def test_a_damaged_ledger_is_a_named_error_and_gives_no_other_rows(tmp_path):
    import sqlite3

    from vcrt.errors import RunError
    from vcrt.records.ledger import Ledger

    path = tmp_path / "ledger.sqlite"
    for number in range(2):
        Ledger(path).append("opening", {"plan_hash": f"{number}"})
    rows = Ledger(path).entries()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    original = path.read_bytes()
    first = original.index(b"CREATE TABLE")
    last = original.rindex(b"opening")
    refused = 0
    # The header, the schema and the rows; between them there is nothing.
    for position in [*range(0, 100, 3), *range(first, first + 60), *range(last, len(original), 3)]:
        data = bytearray(original)
        data[position] ^= 0x80
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(data)
        try:
            found = Ledger(path).entries()
        except RunError:
            refused += 1
        else:
            assert found == rows[: len(found)]
    assert refused > 50


def test_certificate_and_proof_by_the_command(tmp_path, capsys):
    data, certificate, proof = tmp_path / "data", tmp_path / "c.json", tmp_path / "p.json"
    schema = "proofwriter/attribute_chain"
    run(capsys, "certify", "--output", data, "--schemas", schema, "--episodes", 3, "--jobs", 1)
    episode = read_audit(open_dataset(data), "proofwriter")[0]["episode_id"]
    certificate.write_text(run(capsys, "show", episode, "--dataset", data, "--json")[1])
    proof.write_text(run(capsys, "prove", episode, "--dataset", data)[1])
    code, out, err = run(capsys, "verify", "--certificate", certificate, "--proof", proof)
    assert code == 0, err
    assert "included    as number 1 of 3" in out
    refused(capsys, "verify", "--certificate", certificate, "--public-key", proof)
    refused(capsys, "verify", data, "--proof", proof)
