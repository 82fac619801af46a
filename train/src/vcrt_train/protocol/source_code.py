"""Hash which code an experiment runs: one hash for each package whose source files decide its results.

Of the certifier and of training those files count that make data, score, train and evaluate; of an environment's
package all do. Reports, the command line and the connections to other libraries decide nothing and are left out. Not
covered: the libraries (:func:`vcrt_train.protocol.plan.versions_of_training`) and environments of others, whose
versions a dataset states.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from vcrt.errors import UnavailableError
from vcrt.hashing import json_digest, sha256_hex
from vcrt.plugins import ENVIRONMENTS, folder_with, known_names, plugins

#: The folders and modules that count, of the packages of which not all do.
COUNTED = {
    "vcrt": (
        *("environments", "certification", "records", "datasets"),
        *("documents.py", "hashing.py", "limits.py"),
        *("orders.py", "partial_orders.py", "randomness.py"),
    ),
    "vcrt_train": ("policy", "objective", "training", "protocol"),
}
_SUFFIXES = (".py", ".lean")


def code_of(environments: Iterable[str]) -> dict[str, str]:
    """The hash of each package that decides an experiment on these environments, by the package's name."""
    registered, ours = plugins(ENVIRONMENTS), known_names(ENVIRONMENTS)
    members = {
        registered[name].module.partition(".")[0]
        for name in environments
        if name in registered and name in ours
    }
    return {name: package_hash(name) for name in sorted({*COUNTED, *members})}


def code_now(planned: Mapping[str, str]) -> dict[str, str]:
    """The hash of each package that was planned, as it is installed now.

    Raises :class:`UnavailableError` for one that is not installed.
    """
    return {name: package_hash(name) for name in planned}


def in_short(code: object) -> str:
    """The first characters of a digest over all packages, to tell one code from another."""
    return json_digest(code)[:12] if isinstance(code, dict) else "not recorded"


@cache
def package_hash(name: str, folder: Path | None = None) -> str:
    """SHA-256 over the names and texts of a package's files that count, wherever it lies and however lines end.

    A process computes it once, since what it has imported does not change any more.
    """
    folder = _folder_of(name) if folder is None else folder
    files: list[Path] = []
    for part in COUNTED.get(name, (".",)):
        place = folder / part
        files += [place] if place.suffix else [p for p in place.rglob("*") if p.suffix in _SUFFIXES]
    return json_digest(
        {path.relative_to(folder).as_posix(): sha256_hex(_text(path)) for path in files}
    )


def _folder_of(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        where = folder_with(ENVIRONMENTS, name.removeprefix("vcrt_"))
        raise UnavailableError(
            "a package that the plan was made with is not installed here",
            found=f"no package {name}",
            expected="the packages of the plan's environments",
            remedy=f"pip install ./{where}" if where else "install it again",
        )
    return Path(spec.origin).parent


def _text(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
