"""Write the lock files: every package that `make` installs, with its version and the SHA-256 of its file.

    python supply_chain/lock.py [NAME...]

pip resolves each set under constraints.txt in a fresh environment, and what it would install is written down, for this
platform and Python alone. PyTorch is left out, because which build of it comes is the index's choice; what its
CPU build depends on is not. dm-clrs, bfcl-eval and agentdojo are added as they are, without what they depend on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
#: The sets, by the name of their lock file: extras of the project, or requirements of their own.
MEMBERS = ["./train", *(f"./environments/{p.name}" for p in sorted(ROOT.glob("environments/*")))]
SETS = {
    "dev": [".[dev]", *MEMBERS],
    "clusters": [".[dev,ray,dask]", *MEMBERS],
    "bench": [".[dev]", "./train[bench]", *MEMBERS],
    "integrations": [
        ".[dev,mcp]",
        "./train[trl,verifiers,tracking]",
        "./environments/django[django]",
        *MEMBERS,
    ],
    "pages": [".[dev,browser,docs]", *MEMBERS],
    "release": ["build", "hatchling", "cyclonedx-bom", "pip-audit"],
}
#: Installed by steps of their own.
LEFT_OUT = {
    "torch",
    "vcrt",
    "vcrt-train",
    "vcrt-research",
    *(f"vcrt-{Path(name).name}" for name in MEMBERS),
}
WITHOUT_DEPENDENCIES = ["dm-clrs==2.0.3", "bfcl-eval==2026.3.23", "agentdojo==0.1.35"]
HEADER = """\
# Made by supply_chain/lock.py: do not edit. For {platform} only.
# Installed by: pip install --require-hashes --no-deps -r THIS_FILE
"""


def platform() -> str:
    """The platform and Python that a lock file is for, as its folder is called."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    import sysconfig

    return f"{sysconfig.get_platform()}-{version}"


def resolved(python: Path, requirements: list[str], *options: str) -> dict[str, tuple[str, str]]:
    """What pip would install: version and SHA-256 by name."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["-c", str(ROOT / "constraints.txt"), "--report", "-", *options, *requirements]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = {}
    for item in json.loads(done.stdout)["install"]:
        metadata = item["metadata"]
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        found[metadata["name"].lower().replace("_", "-")] = (
            metadata["version"],
            hashes.get("sha256", ""),
        )
    return found


def main(names: list[str]) -> None:
    """Write the lock files of the named sets; of all if none is named."""
    folder = HERE / platform()
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        venv.create(temporary, with_pip=True)
        python = Path(temporary) / "bin" / "python"
        for name in names or SETS:
            packages = resolved(python, SETS[name])
            if name != "release":
                packages |= resolved(python, WITHOUT_DEPENDENCIES, "--no-deps")
            lines = [
                f"{package}=={version} --hash=sha256:{digest}"
                for package, (version, digest) in sorted(packages.items())
                if package not in LEFT_OUT
            ]
            if any(not line.rpartition(":")[2] for line in lines):
                raise SystemExit(f"a package without a file: {lines}")
            text = HEADER.format(platform=platform()) + "\n".join(lines) + "\n"
            (folder / f"{name}.txt").write_text(text)
            print(f"{folder / name}.txt: {len(lines)} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
