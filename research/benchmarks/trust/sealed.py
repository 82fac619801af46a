"""Tamper with a small sealed dataset in every way there is a name for, and count what is found and rightly named.

    python research/benchmarks/trust/sealed.py --short --output sealed.json

Short: one flip of every byte of every file of a dataset of two episodes. Long: every bit of every byte. Both: rows,
lines and files that are dropped, added, swapped, repeated, altered, linked; signatures, if the library cryptography is
there; and the ledger of openings, which is no part of the seal.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "src")]

from parts import part_parser, write_figures  # noqa: E402
from securesystemslib.dsse import Envelope  # noqa: E402
from securesystemslib.signer import Signature  # noqa: E402

import tampering  # noqa: E402
import toy_environment  # noqa: E402
from vcrt.datasets.agreement import verify_agreement  # noqa: E402
from vcrt.datasets.freezing import make_dataset  # noqa: E402
from vcrt.errors import RunError, SignatureError  # noqa: E402
from vcrt.records.ledger import Ledger  # noqa: E402
from vcrt.records.sealing.envelopes import (  # noqa: E402
    can_check_signatures,
    envelope_from_bytes,
    require_signatures_hold,
)
from vcrt.records.sealing.integrity import examine_integrity  # noqa: E402
from vcrt.records.sealing.seal import seal_dataset  # noqa: E402
from vcrt.replay.config import sampled  # noqa: E402

NOT_COVERED = [
    "Somebody who alters the evidence and makes manifest, leaves and an unsigned seal anew: only another root hash, a "
    "signature or the replay shows it.",
    "The root hash does not hold the Merkle roots: without a signature a proof shows that a certificate is under a "
    "Merkle root, not that this is the root of the dataset.",
    "A private key that was stolen, and a public key that was taken from the wrong person.",
    "The agreement record beyond its content: anybody can write one; `vcrt verify` makes it anew.",
    "The ledger of openings beside the dataset: rows removed from its end, and the whole file, can vanish.",
    "Whether an episode is where it says it is from: no digest and no replay tells its source.",
    "Files that a killed write left in the folder (.NAME.unfinished-...): they are ignored and never read.",
    "Owner, permissions, times and other metadata of the files.",
]


def flips(path: Path, *, every_bit: bool) -> dict[str, Any]:
    """Flip bytes of every file, one at a time."""
    found: dict[str, Any] = {}
    for name in tampering.files_of(path):
        tried = detected = named = 0
        pieces: Counter[str] = Counter()
        masks = (
            (lambda at: [1 << b for b in range(8)]) if every_bit else (lambda at: [1 << at * 5 % 8])
        )
        for _, _, damage in tampering.flips(path, name, None, masks):
            tried += 1
            detected += bool(damage)
            named += tampering.blames(damage, name)
            pieces[damage[0].what if damage else "nothing"] += 1
        size = (path / name).stat().st_size
        found[name] = {"bytes": size, "flips": tried, "detected": detected, "named": named}
        found[name]["as"] = dict(pieces)
    return found


def tamperings(path: Path) -> dict[str, Any]:
    """Everything that is done to rows, lines and files; named if the damage says where it was done."""
    kinds = {
        "rows": [
            t
            for n in tampering.files_of(path)
            if "/" in n
            for t in tampering.row_tamperings(path, n)
        ],
        "lines": [
            t
            for n in ("manifest.json", "leaves.jsonl", "seal.json")
            for t in tampering.line_tamperings(path, n)
        ],
        "files": list(tampering.folder_tamperings(path)),
    }
    found: dict[str, Any] = {}
    for kind, some in kinds.items():
        detected = named = 0
        with tempfile.TemporaryDirectory() as folder:
            for number, one in enumerate(some):
                copy = Path(folder) / str(number)
                shutil.copytree(path, copy)
                one.do(copy)
                damage = examine_integrity(copy).damage
                detected += bool(damage)
                named += any(one.blamed in d.place for d in damage)
                shutil.rmtree(copy)
        found[kind] = {"tried": len(some), "detected": detected, "named": named}
    return found


def signatures(path: Path) -> dict[str, Any]:
    """Flip every bit of a signature and of its key's name."""
    if not can_check_signatures():
        return {"skipped": "the library cryptography is not installed"}
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ed25519

    with tempfile.TemporaryDirectory() as folder:
        copy, key = Path(folder) / "copy", Path(folder) / "key.pem"
        shutil.copytree(path, copy)
        pem = (s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        key.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*pem))
        seal_dataset(copy, key)
        envelope = envelope_from_bytes((copy / "seal.json").read_bytes())
    ((keyid, signature),) = envelope.signatures.items()
    require_signatures_hold(envelope, "seal")
    tried = refused = 0
    for bit in range(8 * 64):
        data = bytearray.fromhex(signature.signature)
        data[bit // 8] ^= 1 << bit % 8
        tried += 1
        forged = {keyid: Signature(keyid, data.hex())}
        refused += _refuses(Envelope(envelope.payload, envelope.payload_type, forged))
    for bit in range(8 * len(envelope.payload)):
        if bit % 8 != bit // 8 % 8:
            continue
        data = bytearray(envelope.payload)
        data[bit // 8] ^= 1 << bit % 8
        tried += 1
        refused += _refuses(Envelope(bytes(data), envelope.payload_type, envelope.signatures))
    return {"tried": tried, "refused": refused}


def _refuses(envelope: Envelope) -> bool:
    try:
        require_signatures_hold(envelope, "seal")
    except SignatureError:
        return True
    return False


def ledger(every: int) -> dict[str, int]:
    """Flip bytes of a ledger of openings: what is refused, what changes nothing that is read, and what is missed."""
    counts = Counter({"flips": 0, "refused": 0, "same rows": 0, "fewer rows": 0, "other rows": 0})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.openings.sqlite"
        for number in range(3):
            Ledger(path).append("opening", {"plan_hash": f"{number}" * 64, "at": "now"})
        rows = Ledger(path).entries()
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        original = path.read_bytes()
        for position in range(0, len(original), every):
            data = bytearray(original)
            data[position] ^= 1 << position % 8
            for leftover in Path(folder).iterdir():
                leftover.unlink()
            path.write_bytes(data)
            counts["flips"] += 1
            try:
                read = Ledger(path).entries()
            except RunError:
                counts["refused"] += 1
                continue
            if read == rows:
                counts["same rows"] += 1
            else:
                counts["fewer rows" if read == rows[: len(read)] else "other rows"] += 1
    return dict(counts)


def measure(*, long: bool) -> dict[str, Any]:
    """All counts."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy"
        config = sampled({"toy": ("needs", "overwrite")}, 1, seed=7)
        factories = {"toy": toy_environment.ToyEnvironment}
        dataset = make_dataset(config, path, jobs=1, factories=factories)
        verify_agreement(dataset, jobs=1, factories=factories)
        assert examine_integrity(path).damage == ()
        result: dict[str, Any] = {
            "flips": flips(path, every_bit=long),
            "tamperings": tamperings(path),
            "signatures": signatures(path),
            "openings_ledger": ledger(1 if long else 23),
        }
    for name in ("flips", "detected", "named"):
        result[f"total_{name}"] = sum(one[name] for one in result["flips"].values())
    result["seconds"] = round(time.perf_counter() - start, 1)
    result["not_covered"] = NOT_COVERED
    return result


def main() -> None:
    options = part_parser(__doc__).parse_args()
    result = measure(long=options.long)
    write_figures(result, options.output)
    everything = [result["total_flips"] == result["total_detected"] == result["total_named"]]
    everything += [t["tried"] == t["detected"] == t["named"] for t in result["tamperings"].values()]
    everything.append(result["signatures"].get("tried") == result["signatures"].get("refused"))
    everything.append(result["openings_ledger"]["other rows"] == 0)
    sys.exit(0 if all(everything) else 1)


if __name__ == "__main__":
    main()
