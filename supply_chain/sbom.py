"""Write the bill of materials of a release: CycloneDX JSON, from the environment that was tested.

    python supply_chain/sbom.py --environment .venv --lock LOCK --wheel dist/vcrt-....whl --output dist/vcrt.cdx.json

It runs in an environment of its own that has cyclonedx-bom. To what that finds (packages, versions, licences, and what
needs what) it adds the SHA-256 of each package's file from the lock, and those of the wheel and of the
weights in the wheel of training, which lies beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parent.parent
#: The embedded weights in the wheel, by what they are called in the bill.
WEIGHTS = {
    "embedded": "vcrt_train/policy/embedded/model.safetensors",
    "embedded-long": "vcrt_train/policy/embedded_long/model.safetensors",
}
_LOCKED = re.compile(r"^([^=\s]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


def locked_hashes(lock: Path) -> dict[tuple[str, str], str]:
    """SHA-256 by name and version."""
    return {(name, version): sha for name, version, sha in _LOCKED.findall(lock.read_text())}


def bill(environment: Path, lock: Path, wheel: Path) -> dict[str, Any]:
    """The bill as JSON."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    command += ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"]
    command += ["--of", "JSON", str(environment / "bin" / "python")]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    value: dict[str, Any] = json.loads(done.stdout)
    hashes = locked_hashes(lock)
    for component in value["components"]:
        name = re.sub(r"[-_.]+", "-", component["name"]).lower()
        sha = hashes.get((name, component["version"]))
        if sha is not None:
            component["hashes"] = [_hash(sha)]
    value["metadata"]["component"]["hashes"] = [
        _hash(hashlib.sha256(wheel.read_bytes()).hexdigest())
    ]
    with zipfile.ZipFile(wheel.with_name(f"vcrt_train{wheel.name.removeprefix('vcrt')}")) as files:
        for name, path in WEIGHTS.items():
            value["components"].append(
                {
                    "type": "machine-learning-model",
                    "bom-ref": f"vcrt-{name}-backbone",
                    "name": f"vcrt {name} backbone",
                    "version": value["metadata"]["component"]["version"],
                    "hashes": [_hash(hashlib.sha256(files.read(path)).hexdigest())],
                }
            )
    return value


def require_valid(text: str) -> None:
    """Exit unless the bill follows the schema of CycloneDX 1.6."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        raise SystemExit(f"the bill of materials is not valid: {error}")


def _hash(sha: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha}


def main() -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("environment", "lock", "wheel", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    value = bill(options.environment, options.lock, options.wheel)
    text = json.dumps(value, indent=2, sort_keys=True) + "\n"
    require_valid(text)
    options.output.write_text(text)
    hashed = sum("hashes" in component for component in value["components"])
    print(f"{options.output}: {len(value['components'])} components, {hashed} with SHA-256")


if __name__ == "__main__":
    main()
