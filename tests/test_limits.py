"""Files that cost more than they say: small ones that take much memory, endless ones, and folders that never end.

What is measured is the memory of a process of its own, since the peak of this one is long past.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from vcrt.cli.main import main
from vcrt.cli.options import named_path
from vcrt.documents import MAX_BYTES, read_limited
from vcrt.errors import DatasetError, RunError, VcrtError
from vcrt.forms import first_error, in_a_line
from vcrt.records.manifest import (
    AGREEMENT,
    LEAVES,
    MANIFEST,
    SEAL,
    CheckCounts,
    Manifest,
    kinds_of_entries,
)
from vcrt.records.manifest import MAX_BYTES as LIMITS
from vcrt.records.sealing.integrity import read_sealed
from vcrt.records.sealing.statement import leaves_from_bytes
from vcrt.replay.store import read_identity
from vcrt.storage import sole_user
from vcrt_research.anonymity.result import read_report
from vcrt_train.training.checkpoint import HEAD, read_metrics

#: What each reader may take for a megabyte of JSON, in MB: pydantic's copies took hundreds.
MAX_MB = 120
_MEASURE = """
import resource, sys
from pathlib import Path
from vcrt.errors import VcrtError
from vcrt.records.certificate import read_certificate
from vcrt.records.dataset import open_dataset
from vcrt.records.sealing.seal import check_proof
from vcrt.records.sealing.integrity import read_sealed
from vcrt_train.protocol.relation_records import read_relation_record
from vcrt_research.anonymity.result import read_report
file = Path(sys.argv[1])
readers = [lambda: read_certificate(file), lambda: check_proof(file, ""), lambda: open_dataset(file.parent),
           lambda: read_sealed(file.parent), lambda: read_relation_record(file.read_bytes(), "x"),
           lambda: read_report(file)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for reader in readers:
    try:
        reader()
    except VcrtError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_a_megabyte_of_json_does_not_take_hundreds(tmp_path: Path) -> None:
    file = tmp_path / MANIFEST
    file.write_bytes(b'{"a":[' + b"{}," * (2**20 // 3) + b"{}]}")
    told = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(file)], capture_output=True, text=True, check=True
    )
    assert int(told.stdout) < MAX_MB


def test_the_first_error_names_its_field_and_holds_no_input() -> None:
    with pytest.raises(ValidationError) as raised:
        CheckCounts.model_validate({"episodes": "x" * 1000})
    error = raised.value
    assert in_a_line(error).startswith("field episodes: Input should be a valid integer")
    assert "xxx" not in in_a_line(error)
    with pytest.raises(ValidationError) as raised:
        Manifest.model_validate({str(number): 0 for number in range(20_000)})
    assert in_a_line(raised.value) == "field (root): 20,011 faults"
    with pytest.raises(ValidationError) as raised:
        CheckCounts.model_validate([])
    assert first_error(raised.value) == ("(root)", "Input should be an object")


@pytest.mark.parametrize("name", [MANIFEST, LEAVES, SEAL, AGREEMENT])
def test_a_file_too_large_for_a_dataset_is_not_read(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as stream:
        stream.truncate(LIMITS[name] + 1)
    (damage,) = read_sealed(tmp_path).damage
    assert (damage.place, damage.found) == (name, f"more than {LIMITS[name]:,} bytes")


def test_a_report_of_probes_has_a_limit_too(tmp_path: Path) -> None:
    file = tmp_path / "anonymity.json"
    with file.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(DatasetError, match="more than"):
        read_report(file)


def test_leaves_end_at_the_first_line_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^line 1:"):
        leaves_from_bytes(b"\n" * 2**20)


def test_nothing_waits_for_a_pipe_or_reads_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(ValueError, match="no file"):
            read_limited(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_limited(tmp_path)


def test_a_linked_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert read_limited(tmp_path / "link", 1) == b"1"


def test_a_checkpoint_without_end_is_damaged(tmp_path: Path) -> None:
    (tmp_path / HEAD).symlink_to("/dev/zero")
    with pytest.raises(RunError, match="missing or damaged"):
        read_metrics(tmp_path)


def test_a_store_with_a_pipe_for_its_identity_belongs_to_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "identity.json")
    assert read_identity(tmp_path) == {}


@pytest.mark.parametrize("kind", ["pipe", "dangling link", "link", "folder"])
def test_a_lock_is_a_plain_file(tmp_path: Path, kind: str) -> None:
    lock, elsewhere = tmp_path / "lock", tmp_path / "elsewhere"
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(elsewhere if kind == "dangling link" else "/dev/null")
    with (
        pytest.raises(RunError, match="not a plain file"),
        sole_user(lock, "this", RunError),
    ):
        pass
    assert not elsewhere.exists()


def test_a_manifest_with_a_number_that_is_none_is_damage(tmp_path: Path) -> None:
    manifest = {
        "format": "vcrt-dataset/2",
        "seed": 0,
        "num_operations": 4,
        "orbit_size": 12,
        "series": [{"x": float("nan")}],
        **{name: {} for name in ("counts", "conformance", "versions", "content")},
        "root_hash": "0" * 64,
        "files": {},
    }
    (tmp_path / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    (damage,) = read_sealed(tmp_path).damage
    assert damage.place == MANIFEST


def test_a_folder_deeper_than_python_goes_is_listed(tmp_path: Path) -> None:
    depth = 1200
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=place)
        below = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    assert len(kinds_of_entries(tmp_path)) == depth
    subprocess.run(["rm", "-r", str(tmp_path / "a")], check=True)


def test_locks_of_the_usual_kind_hold(tmp_path: Path) -> None:
    with sole_user(tmp_path / "lock", "this", VcrtError):
        assert (tmp_path / "lock").is_file()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["certify", "--output", ".", "--episodes", "1"], "exists already"),
        (["certify", "--output", "..", "--episodes", "1"], "exists already"),
    ],
)
def test_the_folder_that_one_is_in_has_a_name(
    command: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(command)
    assert said in capsys.readouterr().err


def test_paths_without_a_name_get_one_and_links_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    monkeypatch.chdir(tmp_path / "folder")
    given = (Path(), Path(".."), Path("../link"))
    assert [*map(named_path, given)] == [tmp_path / "folder", tmp_path, Path("../link")]
