"""Signatures of a seal: a wrong key, a signature that was stripped or altered, and a payload that was altered."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest

import toy_environment as toy
import vcrt
from command_line import refused, run
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import SignatureError, UnavailableError
from vcrt.records.sealing.envelopes import (
    envelope_bytes,
    envelope_from_bytes,
    require_signatures_hold,
    require_signed_by,
)
from vcrt.records.sealing.integrity import examine_integrity
from vcrt.records.sealing.seal import check_proof, make_proof, seal_dataset
from vcrt.replay.config import sampled

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")

OPENSSL = shutil.which("openssl")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The PEM files of two key pairs: private and public of the signer, and of somebody else."""
    from cryptography.hazmat.primitives import serialization as s

    folder = tmp_path_factory.mktemp("keys")
    for name in ("signer", "other"):
        key = ed25519.Ed25519PrivateKey.generate()
        private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        public = key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
        (folder / f"{name}.pem").write_bytes(private)
        (folder / f"{name}.pub").write_bytes(public)
    return folder


@pytest.fixture(scope="module")
def signed(tmp_path_factory, keys):
    path = tmp_path_factory.mktemp("signed") / "toy"
    config = sampled({"toy": ("needs",)}, 2, seed=7)
    make_dataset(config, path, jobs=1, factories={"toy": toy.ToyEnvironment})
    seal_dataset(path, keys / "signer.pem")
    return path


@pytest.fixture
def copy(signed, tmp_path):
    shutil.copytree(signed, tmp_path / "copy")
    return tmp_path / "copy"


def envelope_of(path):
    return envelope_from_bytes((path / "seal.json").read_bytes())


def rewrite(path, change):
    value = json.loads((path / "seal.json").read_bytes())
    change(value)
    (path / "seal.json").write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def test_a_signature_holds_and_signing_twice_changes_nothing(signed, copy, keys):
    assert examine_integrity(signed).damage == ()
    keyid = require_signed_by(envelope_of(signed), keys / "signer.pub", "here")
    assert keyid.startswith("ed25519:")
    seal_dataset(copy, keys / "signer.pem")
    assert (copy / "seal.json").read_bytes() == (signed / "seal.json").read_bytes()
    seal_dataset(copy, keys / "other.pem")
    for name in ("signer.pub", "other.pub"):
        require_signed_by(envelope_of(copy), keys / name, "here")


def test_wrong_key(signed, keys, capsys):
    with pytest.raises(SignatureError, match="signed by another key"):
        require_signed_by(envelope_of(signed), keys / "other.pub", "here")
    message = refused(
        capsys, "verify", signed, "--no-replay", "--public-key", keys / "other.pub", code=4
    )
    assert "signed by another key" in message
    code, out, _ = run(capsys, "verify", signed, "--no-replay", "--public-key", keys / "signer.pub")
    assert code == 0
    assert "signed by ed25519:" in out


def test_stripped_signature(copy, keys, capsys):
    rewrite(copy, lambda value: value.update(signatures=[]))
    message = refused(
        capsys, "verify", copy, "--no-replay", "--public-key", keys / "signer.pub", code=4
    )
    assert "not signed" in message


def test_every_byte_of_a_signature_and_of_its_keys_name(copy, keys):
    envelope = envelope_of(copy)
    ((keyid, signature),) = envelope.signatures.items()
    raw = bytes.fromhex(signature.signature)
    count = 0
    for position in range(64):
        for bit in range(8):
            data = bytearray(raw)
            data[position] ^= 1 << bit
            forged = base64.b64encode(data).decode()
            rewrite(copy, lambda value, sig=forged: value["signatures"][0].update(sig=sig))
            with pytest.raises(SignatureError, match="does not hold"):
                require_signatures_hold(envelope_of(copy), "here")
            count += 1
    assert count == 512
    for position, digit in enumerate(keyid):
        other = keyid[:position] + chr(ord(digit) ^ 1) + keyid[position + 1 :]
        rewrite(
            copy,
            lambda value, other=other: value.update(
                signatures=[{"keyid": other, "sig": base64.b64encode(raw).decode()}]
            ),
        )
        with pytest.raises(SignatureError):
            require_signatures_hold(envelope_of(copy), "here")


def test_a_forged_signature_is_neither_printed_nor_kept(copy, keys, capsys):
    forged = base64.b64encode(bytes(64)).decode()
    rewrite(copy, lambda value: value["signatures"][0].update(sig=forged))
    before = (copy / "seal.json").read_bytes()
    for options in ((), ("--key", keys / "other.pem")):
        assert "does not hold" in refused(capsys, "seal", copy, *options, code=4)
    assert (copy / "seal.json").read_bytes() == before


def test_an_altered_payload_is_named_and_so_is_one_that_fits_altered_files(copy, keys, capsys):
    original = envelope_of(copy)

    def alter(value):
        payload = base64.b64decode(value["payload"]).replace(b'"orders":48', b'"orders":49')
        value["payload"] = base64.b64encode(payload).decode()

    rewrite(copy, alter)
    message = refused(
        capsys, "verify", copy, "--no-replay", "--public-key", keys / "signer.pub", code=4
    )
    assert "seal.json\n" in message
    # Everything made anew from other files, under the old signature.
    other = copy.with_name("other")
    config = sampled({"toy": ("needs",)}, 2, seed=8)
    make_dataset(config, other, jobs=1, factories={"toy": toy.ToyEnvironment})
    moved = envelope_of(other)
    moved.signatures = original.signatures
    (other / "seal.json").write_bytes(envelope_bytes(moved))
    message = refused(capsys, "verify", other, "--public-key", keys / "signer.pub", code=4)
    assert "a signature does not hold" in message
    # Without a public key too: the signature names its own.
    assert "a signature does not hold" in refused(capsys, "verify", other, code=4)


def test_keys_that_are_none(signed, keys, tmp_path):
    (tmp_path / "text").write_text("no key")
    # A key of Ed25519 that has 31 bytes.
    short = bytes.fromhex("302d020100300506032b65700421041f") + bytes(31)
    lines = base64.encodebytes(short).decode()
    (tmp_path / "short").write_text(
        f"-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n"
    )
    none = ("absent", "text", "short")
    for path in (*(tmp_path / name for name in none), keys / "signer.pub", tmp_path):
        with pytest.raises(SignatureError, match="private"):
            seal_dataset(signed, path)
    for path in (tmp_path / "absent", tmp_path / "text", keys / "signer.pem"):
        with pytest.raises(SignatureError, match="public"):
            require_signed_by(envelope_of(signed), path, "here")


def test_a_key_of_another_kind(signed, tmp_path):
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    (tmp_path / "ec.pem").write_bytes(private)
    with pytest.raises(SignatureError, match="Ed25519"):
        seal_dataset(signed, tmp_path / "ec.pem")


def test_without_the_library_signing_says_what_to_install(signed, keys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(UnavailableError, match="pip install 'cryptography>=42'"):
        require_signed_by(envelope_of(signed), keys / "signer.pub", "here")


def test_a_proof_carries_the_signature(signed, keys, tmp_path):
    leaf = json.loads((signed / "leaves.jsonl").read_text().splitlines()[0])
    (tmp_path / "proof.json").write_text(make_proof(signed, leaf["episode"]))
    included = check_proof(tmp_path / "proof.json", leaf["certificate"])
    require_signed_by(included.envelope, keys / "signer.pub", "here")


@pytest.mark.skipif(OPENSSL is None, reason="no openssl command")
def test_openssl_makes_the_keys_and_agrees_about_the_signature(copy, tmp_path):
    key, public = tmp_path / "key.pem", tmp_path / "key.pub"
    subprocess.run([OPENSSL, "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run([OPENSSL, "pkey", "-in", key, "-pubout", "-out", public], check=True)
    envelope = seal_dataset(copy, key)
    keyid = require_signed_by(envelope, public, "here")
    (tmp_path / "signature").write_bytes(bytes.fromhex(envelope.signatures[keyid].signature))
    (tmp_path / "message").write_bytes(envelope.pae())
    verify = [OPENSSL, "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin"]
    verify += ["-in", tmp_path / "message", "-sigfile", tmp_path / "signature"]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0
    (tmp_path / "message").write_bytes(envelope.pae()[:-1])
    assert subprocess.run(verify, capture_output=True, check=False).returncode != 0


def test_a_signature_is_made_over_type_and_payload_as_dsse_has_them(signed):
    envelope = envelope_of(signed)
    kind, payload = envelope.payload_type.encode(), envelope.payload
    assert envelope.pae() == b"DSSEv1 28 %s %d %s" % (kind, len(payload), payload)


def test_from_python_a_dataset_is_verified_with_a_key(copy, keys):
    toys = {"toy": toy.ToyEnvironment}
    agreement = vcrt.verify(copy, public_key=keys / "signer.pub", environments=toys, jobs=1)
    assert agreement.agreed == agreement.replays
    with pytest.raises(SignatureError, match="by another key"):
        vcrt.verify(copy, public_key=keys / "other.pub", environments=toys, jobs=1)
    rewrite(
        copy, lambda value: value["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode())
    )
    with pytest.raises(SignatureError, match="does not hold"):
        vcrt.verify(copy, environments=toys, jobs=1)
