"""Require that every run of a plan is trained and scored by the code that was planned, or put it on record.

A plan holds the hash of the source (:mod:`vcrt_train.protocol.source_code`); each finished run and the scores record
the one that they were made with. Whoever goes on with other code on purpose gives a reason, which the ledger keeps and
every report shows. Methods and libraries that are not as planned are refused in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vcrt.errors import RunError
from vcrt.printable import counted
from vcrt.records.ledger import Entry
from vcrt_train.protocol.experiment import Experiment
from vcrt_train.protocol.plan import Plan, versions_of_training
from vcrt_train.protocol.source_code import code_now, in_short
from vcrt_train.training.methods import method


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
    now = code_now(plan.code)
    if now != plan.code and not reason:
        other = [name for name in plan.code if now[name] != plan.code[name]]
        raise RunError(
            "the code is not the one that was planned",
            where=f"source files of {', '.join(other)}",
            found=", ".join(f"hash {now[name]}" for name in other),
            expected=", ".join(f"hash {plan.code[name]}" for name in other),
            remedy="restore the planned source, make a new plan, or go on all the same with --other-code REASON "
            "(in Python: other_code), which every later report shows",
        )


def record_other_code(
    experiment: Experiment, what: str, runs: Sequence[str], reason: str | None
) -> None:
    """Put into the ledger that ``runs`` are trained or scored (``what``) by other code, where they are; only once."""
    now = code_now(experiment.plan.code)
    if now == experiment.plan.code or not reason:
        return
    body: dict[str, Any] = {
        "what": what,
        "runs": list(runs),
        "code": now,
        "reason": reason,
    }
    if body not in [entry.body for entry in experiment.ledger.entries("other-code")]:
        experiment.ledger.append("other-code", body)


def require_unchanged_code(expected: Mapping[str, str]) -> None:
    """Raise :class:`RunError` if this worker process has imported other code than the process that started it."""
    now = code_now(expected)
    other = [name for name in expected if now[name] != expected[name]]
    if other:
        raise RunError(
            "the code changed while it ran",
            where=f"source files of {', '.join(other)}",
            found=", ".join(f"hash {now[name]}" for name in other),
            expected=", ".join(f"hash {expected[name]}" for name in other),
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
        f"planned (source {code}, planned {in_short(plan.code)}): {', '.join(names)}."
        f"{_reasons(said, 'train', code)} Differences between methods may come from that."
        for code, names in trained.items()
    ]
    scores = [entry for entry in entries if entry.kind == "scores"]
    if scores and scores[-1].body.get("code") != plan.code:
        code = _code_of(scores[-1])
        lines.append(
            f"The runs were scored by other code than was planned (source {code}, planned {in_short(plan.code)})."
            f"{_reasons(said, 'evaluate', code)}"
        )
    return tuple(lines)


def report_sentences(plan: Plan) -> tuple[str, ...]:
    """Whether what is computed now, from scores that are fixed, is computed by other code than was planned."""
    now = code_now(plan.code)
    if now == plan.code:
        return ()
    return (
        f"This report was made by other code than was planned (source {in_short(now)}, planned {in_short(plan.code)}).",
    )


def _code_of(entry: Entry) -> str:
    return in_short(entry.body.get("code"))


def _reasons(said: Sequence[Entry], what: str, code: str) -> str:
    reasons = dict.fromkeys(
        str(entry.body.get("reason"))
        for entry in said
        if entry.body.get("what") == what and _code_of(entry) == code
    )
    return f" The reason given: {'; '.join(reasons)}." if reasons else ""
