"""Readers of plans, searches, ledgers and scores, with valid inputs of each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz_watch import Target

from readers.forms import dumped, json_value
from vcrt.errors import VcrtError
from vcrt.hashing import json_digest
from vcrt.records.dataset import (
    Dataset,
)
from vcrt.records.ledger import GENESIS, Ledger
from vcrt_train.config import RunConfig
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.plan import PLAN_FILE, Plan, read_plan
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.scores import FoldPasses, Scores, openings, read_scores
from vcrt_train.protocol.search import FORMAT as SEARCH_FORMAT
from vcrt_train.protocol.search import (
    Search,
    Trial,
    read_search,
    settings_of_trial,
    shared_settings,
)
from vcrt_train.protocol.trials import _read_trial


def experiment_readers(place: Path, dataset: Dataset) -> Iterator[Target]:
    plan = make_plan(
        dataset, backbone=EMBEDDED, backbone_digest="d", methods=("vcrt", "canonical-grpo"), seeds=(0,),
        config=EMBEDDED.resolved(RunConfig().override({"schedule.updates": 2, "data.retention_share": 0.3})),
    )  # fmt: skip
    experiment = create_experiment(plan, place / "experiment")
    path = experiment.path / PLAN_FILE
    original = path.read_bytes()

    def resealed(value: Any) -> Any:
        return {**value, "plan_hash": Plan.model_validate(value["plan"]).plan_hash}

    def planned(data: bytes) -> object:
        path.write_bytes(data)
        try:
            found = read_plan(path)
            return [found.config_of(run) for run in found.runs]
        finally:
            path.write_bytes(original)

    yield Target(
        name="plan",
        form="JSON",
        seeds=(original,),
        read=planned,
        weight=4,
        is_json=True,
        reseal=resealed,
    )
    yield _search(place, plan)
    trial = Trial(
        method="vcrt", held_out="clrs", number=0, settings=settings_of_trial(0, 0), pass_rate=0.5, orbit_mass=0.5
    )  # fmt: skip
    trial_file = place / "trial.json"
    job: Any = SimpleNamespace(method="vcrt", held_out="clrs", number=0)

    def tried(data: bytes) -> object:
        trial_file.write_bytes(data)
        return _read_trial(trial_file, job)

    yield Target(
        name="trial",
        form="JSON",
        seeds=(trial.model_dump_json().encode(),),
        read=tried,
        weight=6,
        is_json=True,
    )
    yield from _ledgers(place, plan)


def _search(place: Path, plan: Plan) -> Target:
    methods, folds = ("vcrt",), ("clrs", "proofwriter")
    trials = tuple(
        Trial(
            method=m, held_out=f, number=n, settings=settings_of_trial(3, n), pass_rate=0.5, orbit_mass=0.2
        )
        for f in folds for m in methods for n in range(2)
    )  # fmt: skip
    search = Search(
        format=SEARCH_FORMAT, root_hash=plan.root_hash, backbone=EMBEDDED, backbone_digest="d", methods=methods,
        definitions={}, held_out=folds, num_trials=2, seed=3,
        learning_rate=1e-3, config=shared_settings(plan.config), code={"vcrt": "c"}, trials=trials,
    )  # fmt: skip
    file = place / "search.json"

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return read_search(file)

    value = {"search": search.model_dump(mode="json"), "digest": search.digest}
    return Target(
        name="search",
        form="JSON",
        seeds=dumped(value),
        read=read,
        weight=4,
        is_json=True,
        reseal=lambda v: {**v, "digest": Search.model_validate(v["search"]).digest},
    )


def _ledgers(place: Path, plan: Plan) -> Iterator[Target]:
    digests = {str(n): "a" * 64 for n in (1, 2)}
    rows: list[Any] = [
        ["plan", {"plan_hash": plan.plan_hash}],
        ["run", {"run": "vcrt/clrs/0", "checkpoints": digests, "cpu_seconds": 1.5}],
        ["opening", {"at": "2026-01-01T00:00:00+00:00", "reason": None}],
        ["scores", {"digest": "b" * 64}],
    ]
    other = create_experiment(plan, place / "other")
    clean = other.ledger.path.with_name("clean.sqlite")
    for kind, body in rows:
        Ledger(clean).append(kind, body)
    _fold(clean)
    target = other.ledger.path

    def read_all() -> object:
        found = open_experiment(other.path)
        return found.finished_runs(), openings(found), found.ledger.entries()

    def read_file(data: bytes) -> object:
        for suffix in ("-wal", "-shm", "-journal"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        target.write_bytes(data)
        return read_all()

    def read_chained(data: bytes) -> object:
        value = json_value(data)
        if not isinstance(value, list):
            raise VcrtError("not a list")
        target.unlink(missing_ok=True)
        # In memory first: fsync is not what is measured here.
        read_file(_chained(value))
        return None

    yield Target(
        name="ledger file", form="SQLite", seeds=(clean.read_bytes(),), read=read_file, weight=1
    )
    yield Target(
        name="ledger rows with hashes",
        form="SQLite",
        seeds=dumped(rows),
        read=read_chained,
        weight=1,
        is_json=True,
    )
    yield _scores(place, plan)


def _fold(path: Path) -> None:
    """One file again, without the write-ahead log."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


def _chained(rows: list[Any]) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE TABLE entries (position INTEGER PRIMARY KEY, "
        "kind TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)"
    )
    previous = GENESIS
    for place, row in enumerate(rows[:50]):
        try:
            kind, body = row
            found = json_digest({"previous": previous, "kind": kind, "body": body})
            values = (place, kind, json.dumps(body), found)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", values)
        except (ValueError, TypeError, OverflowError, sqlite3.Error):
            continue
        previous = found
    connection.commit()
    data = connection.serialize()
    connection.close()
    return data


def _scores(place: Path, plan: Plan) -> Target:
    passes = FoldPasses(held_out="0110", retention="01")
    scores = Scores(
        frozen={"pointers, sorted": {"clrs": passes, "proofwriter": passes}},
        runs={run.name: passes for run in plan.runs},
        checkpoints={run.name: {1: passes} for run in plan.runs},
    )
    folder = place / "scored"
    folder.mkdir()
    recorded: list[str] = []
    ledger = SimpleNamespace(
        entries=lambda kind: [
            SimpleNamespace(body={"digest": digest}, kind=kind) for digest in recorded
        ],
        path=folder / "ledger.sqlite",
    )
    experiment: Any = SimpleNamespace(path=folder, ledger=ledger, plan=plan)

    def read(data: bytes) -> object:
        (folder / "scores.json").write_bytes(data)
        try:
            digest = Scores.model_validate_json(data).digest
        except ValueError:
            digest = "0" * 64
        recorded[:] = [digest]
        return read_scores(experiment)

    return Target(
        name="scores",
        form="JSON",
        seeds=(scores.model_dump_json().encode(),),
        read=read,
        weight=6,
        is_json=True,
    )
