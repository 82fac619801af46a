"""Hash which code an experiment runs: over the source files of this package that decide its results.

Those are all that make data, score, train and evaluate. Reports, the command line and the connections to other
libraries decide nothing and are left out. Not covered: the libraries (:func:`vcrt.protocol.plan.versions_of_training`)
and environments of other packages, whose versions a dataset states.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import vcrt
from vcrt.hashing import json_digest, sha256_hex

#: The folders of the package that count, and the modules beside them.
ROOMS = (
    *("environments", "certification", "records", "datasets"),
    *("policy", "objective", "training", "protocol"),
)
MODULES = (
    *("documents.py", "hashing.py", "limits.py"),
    *("orders.py", "partial_orders.py", "randomness.py"),
)
_SUFFIXES = (".py", ".lean")


@cache
def code_hash(package: Path = Path(vcrt.__file__).parent) -> str:
    """SHA-256 over the names and texts of the files that count, wherever the package lies and however lines end.

    A process computes it once, since what it has imported does not change any more.
    """
    files = [package / name for name in MODULES]
    for room in ROOMS:
        files += [path for path in (package / room).rglob("*") if path.suffix in _SUFFIXES]
    return json_digest(
        {path.relative_to(package).as_posix(): sha256_hex(_text(path)) for path in files}
    )


def _text(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
