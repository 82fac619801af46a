"""Count what the supply chain pins, and build the wheel twice.

    python research/benchmarks/trust/supply_chain.py --short --output supply_chain.json

Short: the lock files against constraints.txt, pyproject.toml and this environment, and two builds of the wheel. Long:
pip also downloads every package of dev.txt again and checks its hash, and refuses one whose hash was altered.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "supply_chain"))

import distributions  # noqa: E402
import lock  # noqa: E402
from parts import part_parser, write_figures  # noqa: E402

NOT_COVERED = [
    "PyTorch (and NVIDIA's libraries with it) is pinned by version, not by hash: its index decides the build.",
    "pip, venv and Python itself come from the machine.",
    "The locks are for Linux x86-64 and Python 3.11; elsewhere versions are pinned, not files.",
    "Hashes say that a file is the one that was locked, not that it was harmless then.",
    "Known vulnerabilities: `make audit` needs PyPI's advisory service, not reachable where this was measured.",
    "The bill of materials lists Python packages and the embedded weights, not what is linked into their binaries.",
]
_LINE = re.compile(r"^([a-z0-9][a-z0-9.\-]*)==(\S+) --hash=sha256:[0-9a-f]{64}$")


def locked(name: str) -> dict[str, str]:
    """Version by package of one lock file; exits for a line without a hash."""
    found = {}
    path = ROOT / "supply_chain" / lock.platform() / f"{name}.txt"
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        matched = _LINE.match(line)
        if matched is None:
            raise SystemExit(f"{path}: not a version with its hash: {line}")
        found[matched[1]] = matched[2]
    return found


def compare() -> dict[str, Any]:
    """How many packages are locked, and where versions differ from constraints.txt or from this environment."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    constraints = dict(line.split("==") for line in lines if "==" in line)
    sets = {name: locked(name) for name in lock.SETS}
    different = [
        f"{name}: {package} {found}, not {constraints[package]}"
        for name, packages in sets.items()
        for package, found in packages.items()
        if constraints.get(package, found) != found
    ]
    here = {}
    for package in sets["dev"]:
        try:
            here[package] = version(package)
        except PackageNotFoundError:
            here[package] = "absent"
    return {
        "locked": {name: len(packages) for name, packages in sets.items()},
        "unhashed": sorted(set(constraints) - set().union(*sets.values())),
        "other_than_constraints": different,
        "other_than_installed": {p: v for p, v in here.items() if v != sets["dev"][p]},
    }


def wheels() -> dict[str, Any]:
    """Two builds of the last commit's wheel."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        built, _ = distributions.build_twice(Path(folder))
        data = built.read_bytes()
    seconds = round(time.perf_counter() - start, 1)
    digest = hashlib.sha256(data).hexdigest()
    return {
        "builds": 2,
        "same_bytes": True,
        "sha256": digest,
        "bytes": len(data),
        "seconds": seconds,
    }


def downloads() -> dict[str, Any]:
    """Whether pip takes every file of the lock, and refuses one under another hash."""
    path = ROOT / "supply_chain" / lock.platform() / "dev.txt"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "-d",
            folder,
        ]
        whole = subprocess.run([*pip, "-r", str(path)], capture_output=True, check=False)
        forged = Path(folder) / "forged.txt"
        one = next(line for line in lines if line.startswith("idna=="))
        forged.write_text(one[:-1] + ("0" if one[-1] != "0" else "1") + "\n")
        refused = subprocess.run(
            [*pip, "--no-cache-dir", "-r", str(forged)], capture_output=True, check=False
        )
    return {
        "files": len(lines),
        "accepted": whole.returncode == 0,
        "altered_hash_refused": refused.returncode != 0 and b"HASH" in refused.stderr.upper(),
    }


def main() -> None:
    options = part_parser(__doc__).parse_args()
    result: dict[str, Any] = {"locks": compare(), "wheel": wheels()}
    if options.long:
        result["downloads"] = downloads()
    result["not_covered"] = NOT_COVERED
    write_figures(result, options.output)
    downloaded = result.get("downloads", {})
    wrong = result["locks"]["other_than_constraints"]
    sys.exit(1 if wrong or not all(downloaded.values()) else 0)


if __name__ == "__main__":
    main()
