"""Build the wheel of a commit twice, in other places and moods of the system, and keep it if both have the same bytes.

    python supply_chain/wheel.py --output dist

What is built is the commit, not what lies in the working tree. Time stamps are the commit's own, so that anybody gets
the same file from the same commit with the same version of hatchling, which the lock file has.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What the second build has otherwise: time zone, language, permissions of new files, seed of hashes.
MOODS = (
    {"TZ": "UTC", "LC_ALL": "C", "PYTHONHASHSEED": "0"},
    {"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "1"},
)


def build_twice(output: Path, *, commit: str = "HEAD", repository: Path = ROOT) -> Path:
    """The wheel of a commit in ``output``; exits if two builds differ."""
    git = ["git", "-C", str(repository)]
    archive = subprocess.run([*git, "archive", commit], stdout=subprocess.PIPE, check=True).stdout
    time = subprocess.run(
        [*git, "log", "-1", "--format=%ct", commit], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    built = []
    with tempfile.TemporaryDirectory() as temporary:
        for number, mood in enumerate(MOODS):
            tree = Path(temporary) / ("x" * (number + 1)) / f"tree{number}"
            tree.mkdir(parents=True)
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(tree, filter="data")
            _disturb(tree, number)
            built.append(_build(tree, {**mood, "SOURCE_DATE_EPOCH": time}))
        first, second = (wheel.read_bytes() for wheel in built)
        if first != second:
            raise SystemExit(f"two builds of {commit} differ: {_sha256(first)}, {_sha256(second)}")
        output.mkdir(parents=True, exist_ok=True)
        wheel = output / built[0].name
        wheel.write_bytes(first)
    return wheel


def _disturb(tree: Path, number: int) -> None:
    """Give every file another time and other permissions."""
    for file in tree.rglob("*"):
        if file.is_file():
            file.chmod((0o644, 0o600)[number])
            os.utime(file, (1_000_000_000 + number * 86_399,) * 2)


def _build(tree: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tree / "out")]
    done = subprocess.run(
        command, cwd=tree, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"the wheel cannot be built: {done.stderr}")
    (wheel,) = (tree / "out").glob("*.whl")
    return wheel


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Build, compare, keep, and print the digest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args()
    wheel = build_twice(options.output, commit=options.commit)
    print(f"{_sha256(wheel.read_bytes())}  {wheel.name} (two builds, the same bytes)")


if __name__ == "__main__":
    main()
