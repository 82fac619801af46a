"""Require that the planned code trains and scores every run of a plan, or record that other code did.

A plan holds one hash for each package whose source files decide its results; each finished run and the scores record
the hashes of the code that made them. The hashes cover those files of the certifier and of training that make data,
score, train and evaluate, and all files of an environment's package. Reports, the command line and the connections to
other libraries decide nothing. To continue with other code on purpose, give a reason, which the ledger keeps and every
report shows. Other methods or libraries than the planned ones are refused in any case. Not covered: environments of
others, whose versions a dataset states.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vcrt
from vcrt.errors import RunError, UnavailableError
from vcrt.hashing import json_digest, sha256_hex
from vcrt.plugins import ENVIRONMENTS, folder_with, known_names, plugins
from vcrt.printable import counted
from vcrt.records.ledger import Entry

if TYPE_CHECKING:
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.protocol.plan import Plan

#: The hashed folders and modules, of packages that are not hashed as a whole.
COUNTED = {
    "vcrt": (
        *("environments", "certificates", "replay", "records", "datasets"),
        *("documents.py", "hashing.py", "limits.py"),
        *("orders.py", "partial_orders.py", "randomness.py"),
    ),
    "vcrt_train": ("policy", "objective", "training", "protocol"),
}
_SUFFIXES = (".py", ".lean")


def code_of(environments: Iterable[str]) -> dict[str, str]:
    """Return the hash of each package that decides an experiment on these environments, by the package's name."""
    registered, ours = plugins(ENVIRONMENTS), known_names(ENVIRONMENTS)
    members = {
        registered[name].module.partition(".")[0]
        for name in environments
        if name in registered and name in ours
    }
    return code_now({*COUNTED, *members})


def code_now(planned: Iterable[str]) -> dict[str, str]:
    """Return the hash of each planned package, as it is installed now.

    Raises :class:`UnavailableError` for a package that is not installed.
    """
    return {name: package_hash(name) for name in sorted(planned)}


def _in_short(code: object) -> str:
    """Return the first 12 characters of a digest over all packages, to distinguish one code from another."""
    return json_digest(code)[:12] if isinstance(code, dict) else "not recorded"


@cache
def package_hash(name: str, folder: Path | None = None) -> str:
    """Return SHA-256 over the names and texts of a package's hashed files, for any place and any line ends.

    A process computes it once, because its imported code does not change.
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


def versions_of_training() -> dict[str, str]:
    """Return the versions of everything on which a run's bits depend, besides the machine."""
    # The imports take seconds, and reading a plan needs none of them.
    import numpy as np
    import torch
    import transformers

    return {
        "vcrt": vcrt.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def require_same_code(plan: Plan, *, reason: str | None = None) -> None:
    """Raise :class:`RunError` unless methods, libraries and source are the planned ones.

    With a ``reason``, the source may differ.
    """
    from vcrt_train.training.methods import method

    what = "the code is not the one that was planned"
    versions = versions_of_training()
    found: dict[str, tuple[Any, Any]] = {
        **{f"method {n}": (method(n).definition(), row) for n, row in plan.definitions.items()},
        **{name: (versions.get(name), planned) for name, planned in plan.versions.items()},
    }
    for name, (now, planned) in found.items():
        if now != planned:
            raise RunError(
                what,
                where=name,
                found=str(now),
                expected=str(planned),
                remedy="go on with the version that the plan was made with, or make a new plan",
            )
    if not reason:
        _require_hashes(
            plan.code,
            what,
            "restore the planned source, make a new plan, or go on all the same with --other-code REASON (in Python: "
            "other_code), which every later report shows",
        )


def require_unchanged_code(expected: Mapping[str, str]) -> None:
    """Raise :class:`RunError` if this worker process has imported other code than the process that started it."""
    _require_hashes(
        expected,
        "the code changed while it ran",
        "restore the source and give the same command again; `train` needs --resume",
    )


def _require_hashes(expected: Mapping[str, str], what: str, remedy: str) -> None:
    now = code_now(expected)
    other = [name for name in expected if now[name] != expected[name]]
    if other:
        raise RunError(
            what,
            where=f"source files of {', '.join(other)}",
            found=", ".join(f"hash {now[name]}" for name in other),
            expected=", ".join(f"hash {expected[name]}" for name in other),
            remedy=remedy,
        )


def record_other_code(
    experiment: Experiment, what: str, runs: Sequence[str], reason: str | None
) -> None:
    """If the code is not the planned one, record once in the ledger that it trains or scores (``what``) ``runs``."""
    now = code_now(experiment.plan.code)
    if now == experiment.plan.code or not reason:
        return
    body: dict[str, Any] = {"what": what, "runs": list(runs), "code": now, "reason": reason}
    if body not in [entry.body for entry in experiment.ledger.entries("other-code")]:
        experiment.ledger.append("other-code", body)


def other_code_sentences(experiment: Experiment) -> tuple[str, ...]:
    """Say which runs were trained by other code than the planned one, and whether the scores were."""
    plan, entries = experiment.plan, experiment.ledger.entries()
    said = [entry for entry in entries if entry.kind == "other-code"]
    trained: dict[str, list[str]] = {}
    for entry in entries:
        if entry.kind == "run" and entry.body.get("code") != plan.code:
            trained.setdefault(_code_of(entry), []).append(str(entry.body.get("run")))
    for entry in said:
        if entry.body.get("what") == "train":
            names = trained.setdefault(_code_of(entry), [])
            names += [name for name in entry.body.get("runs", []) if name not in names]
    lines = [
        f"{len(names)} of {counted(len(plan.runs), 'run')} trained, in whole or in part, by other code than was "
        f"planned (source {code}, planned {_in_short(plan.code)}): {', '.join(names)}."
        f"{_reasons(said, 'train', code)} Differences between methods may come from that."
        for code, names in trained.items()
    ]
    scores = [entry for entry in entries if entry.kind == "scores"]
    if scores and scores[-1].body.get("code") != plan.code:
        code = _code_of(scores[-1])
        lines.append(
            f"The runs were scored by other code than was planned (source {code}, planned {_in_short(plan.code)})."
            f"{_reasons(said, 'evaluate', code)}"
        )
    return tuple(lines)


def report_sentences(plan: Plan) -> tuple[str, ...]:
    """Say so if the present code, which computes the report from fixed scores, is not the planned one."""
    now = code_now(plan.code)
    if now == plan.code:
        return ()
    return (
        "This report was made by other code than was planned "
        f"(source {_in_short(now)}, planned {_in_short(plan.code)}).",
    )


def _code_of(entry: Entry) -> str:
    return _in_short(entry.body.get("code"))


def _reasons(said: Sequence[Entry], what: str, code: str) -> str:
    reasons = dict.fromkeys(
        str(entry.body.get("reason"))
        for entry in said
        if entry.body.get("what") == what and _code_of(entry) == code
    )
    return f" The reason given: {'; '.join(reasons)}." if reasons else ""
