"""Matched controls: every run of a plan is trained and scored by the code that was planned, or it is on record.

A plan holds the hash of the source (:mod:`vcrt.protocol.source_code`); each finished run and the scores record the one
that they were made with. Whoever goes on with other code on purpose gives a reason, which the ledger keeps and every
report shows. Methods and libraries that are not as planned are refused in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcrt.errors import RunError
from vcrt.printable import counted
from vcrt.protocol.experiment import Experiment
from vcrt.protocol.ledger import Entry
from vcrt.protocol.plan import Plan, versions_of_training
from vcrt.protocol.source_code import code_hash
from vcrt.training.methods import method


def require_same_code(plan: Plan, *, reason: str | None = None) -> None:
    """Raise :class:`RunError` unless methods, libraries and source are those that were planned.

    With a ``reason`` the source may be another.
    """
    planned: dict[str, Any] = {f"method {name}": row for name, row in plan.definitions.items()}
    found: dict[str, Any] = {
        f"method {name}": method(name).definition() for name in plan.definitions
    }
    planned |= plan.versions
    found |= versions_of_training()
    for name, expected in planned.items():
        if found.get(name) != expected:
            raise RunError(
                "the code is not the one that was planned",
                where=name,
                found=str(found.get(name)),
                expected=str(expected),
                remedy="go on with the version that the plan was made with, or make a new plan",
            )
    if code_hash() != plan.code and not reason:
        raise RunError(
            "the code is not the one that was planned",
            where="source files of vcrt",
            found=f"hash {code_hash()}",
            expected=f"hash {plan.code}",
            remedy="restore the planned source, make a new plan, or go on all the same with --other-code REASON "
            "(in Python: other_code), which every later report shows",
        )


def record_other_code(
    experiment: Experiment, what: str, runs: Sequence[str], reason: str | None
) -> None:
    """Put into the ledger that ``runs`` are trained or scored (``what``) by other code, where they are; only once."""
    if code_hash() == experiment.plan.code or not reason:
        return
    body: dict[str, Any] = {
        "what": what,
        "runs": list(runs),
        "code": code_hash(),
        "reason": reason,
    }
    if body not in [entry.body for entry in experiment.ledger.entries("other-code")]:
        experiment.ledger.append("other-code", body)


def require_unchanged_code(expected: str) -> None:
    """Raise :class:`RunError` if this worker process has imported other code than the process that started it."""
    if code_hash() != expected:
        raise RunError(
            "the code changed while it ran",
            where="source files of vcrt",
            found=f"hash {code_hash()}",
            expected=f"hash {expected}",
            remedy="restore the source and give the same command again; `train` needs --resume",
        )


def other_code_sentences(experiment: Experiment) -> tuple[str, ...]:
    """Which runs were trained by other code than was planned, and whether the scores were made by it."""
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
        f"planned (source {code}, planned {plan.code[:12]}): {', '.join(names)}."
        f"{_reasons(said, 'train', code)} Differences between methods may come from that."
        for code, names in trained.items()
    ]
    scores = [entry for entry in entries if entry.kind == "scores"]
    if scores and scores[-1].body.get("code") != plan.code:
        code = _code_of(scores[-1])
        lines.append(
            f"The runs were scored by other code than was planned (source {code}, planned {plan.code[:12]})."
            f"{_reasons(said, 'evaluate', code)}"
        )
    return tuple(lines)


def report_sentences(plan: Plan) -> tuple[str, ...]:
    """Whether what is computed now, from scores that are fixed, is computed by other code than was planned."""
    if code_hash() == plan.code:
        return ()
    return (
        f"This report was made by other code than was planned (source {code_hash()[:12]}, planned {plan.code[:12]}).",
    )


def _code_of(entry: Entry) -> str:
    return str(entry.body.get("code") or "not recorded")[:12]


def _reasons(said: Sequence[Entry], what: str, code: str) -> str:
    reasons = dict.fromkeys(
        str(entry.body.get("reason"))
        for entry in said
        if entry.body.get("what") == what and _code_of(entry) == code
    )
    return f" The reason given: {'; '.join(reasons)}." if reasons else ""
