"""Build wheels and sdists of a commit twice, in other places and moods of the system; keep them if the bytes are equal.

    python supply_chain/distributions.py --output dist

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


def build_twice(output: Path, *, commit: str = "HEAD", repository: Path = ROOT) -> list[Path]:
    """The wheel and the sdist of each package of a commit in ``output``, the root first; exits if two builds differ."""
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
        output.mkdir(parents=True, exist_ok=True)
        kept = []
        for one, other in zip(*built, strict=True):
            first, second = one.read_bytes(), other.read_bytes()
            if first != second:
                digests = f"{_sha256(first)}, {_sha256(second)}"
                raise SystemExit(f"two builds of {one.name} at {commit} differ: {digests}")
            kept.append(output / one.name)
            kept[-1].write_bytes(first)
    return kept


def _disturb(tree: Path, number: int) -> None:
    """Give every file another time and other permissions."""
    for file in tree.rglob("*"):
        if file.is_file():
            file.chmod((0o644, 0o600)[number])
            os.utime(file, (1_000_000_000 + number * 86_399,) * 2)


def _build(tree: Path, environment: dict[str, str]) -> list[Path]:
    built = []
    for folder in (tree, tree / "train", *sorted((tree / "environments").glob("*"))):
        out = tree / "out" / folder.name
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the package in {folder} cannot be built: {done.stderr}")
        (wheel,), (sdist,) = (out.glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
        built += [wheel, sdist]
    return built


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main() -> None:
    """Build, compare, keep, and print the digest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args()
    for built in build_twice(options.output, commit=options.commit):
        print(f"{_sha256(built.read_bytes())}  {built.name} (two builds, the same bytes)")


if __name__ == "__main__":
    main()
