"""Every reader of outside bytes with valid inputs of it: what :mod:`fuzz` gives mutations to."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fuzz_watch import Target
from transformers import Qwen3Config

from vcrt.certification.config import sampled
from vcrt.certification.shard_results import FirstReplay
from vcrt.certification.store import IDENTITY, ShardStore, read_identity
from vcrt.environments.clrs.environment import ClrsEnvironment
from vcrt.environments.contract import Rejected
from vcrt.environments.lean import grammar
from vcrt.environments.lean.lifting import lift_file
from vcrt.environments.lean.program import read_program
from vcrt.environments.proofwriter.english import parse_question, parse_theory
from vcrt.environments.proofwriter.environment import ProofWriterEnvironment
from vcrt.environments.proofwriter.files import Refused, read_row, read_rows
from vcrt.environments.proofwriter.structured import parse_atom, parse_rule
from vcrt.errors import VcrtError
from vcrt.hashing import json_digest, sha256_hex
from vcrt.policy.backbone import EMBEDDED_DIRECTORY, blank_model, verify_lock
from vcrt.policy.language_model import _require_plain_weights
from vcrt.policy.locking import INDEX, Lock, model_files, read_lock
from vcrt.policy.reference import EMBEDDED
from vcrt.protocol.anonymity.result import AnonymityReport, read_report, report_bytes
from vcrt.protocol.evaluation import FoldPasses, Scores, openings, read_scores
from vcrt.protocol.experiment import create_experiment, open_experiment
from vcrt.protocol.ledger import GENESIS, Ledger
from vcrt.protocol.plan import PLAN_FILE, Plan, make_plan, read_plan
from vcrt.protocol.search import FORMAT as SEARCH_FORMAT
from vcrt.protocol.search import Search, Trial, read_search, settings_of_trial
from vcrt.protocol.trials import _read_trial
from vcrt.records import audit
from vcrt.records.agreement import verify_agreement
from vcrt.records.audit import AUDIT_COLUMNS, certified_documents, certified_from_row
from vcrt.records.certificate import certificate_document, read_certificate
from vcrt.records.dataset import (
    POLICY_COLUMNS,
    Dataset,
    audit_name,
    open_dataset,
    policy_name,
    read_policy_records,
    require_agreement,
    rows_digest,
)
from vcrt.records.freezing import make_dataset
from vcrt.records.manifest import AGREEMENT, MANIFEST, Manifest
from vcrt.records.policy_view import record_from_json
from vcrt.records.stated import read_stated
from vcrt.training.checkpoint import (
    HEAD,
    METRICS,
    TRAINER,
    WEIGHTS,
    load_checkpoint,
    save_checkpoint,
)
from vcrt.training.run import RunConfig
from vcrt.training.update import new_state

LEAN = """\
theorem and_swap (p q r : Prop) (hp : p) (hq : q) (hr : r) : (q ∧ p) ∧ r := by
  have h1 : q ∧ p := ⟨hq, hp⟩  -- a comment
  have h2 : p ∨ r := Or.inl hp
  have h3 : (q ∧ p) ∧ r := ⟨h1, hr⟩
  exact h3

/- a /- nested -/ comment -/
theorem pair (p q : Prop) (hp : p) (hq : q) : And p q := by
  refine And.intro ?a ?b
  case a => exact hp
  case b => exact hq
"""
LEAN_FILE = """\
class Cls1 (α : Type) where f : α
inductive Ty1 : Type where | con1 | con2
theorem thm1 (p q : Prop) (h : And p q) : q := h.right
def def1 : N → N := fun n => N.s n
noncomputable instance ins1 : Cls1 Bool := Cls1.mk Bool.true
"""
STRUCTURED = {
    "id": "AttNeg-OWA-D2-1",
    "triples": {
        "triple1": {"text": "Bob is red.", "representation": '("Bob" "is" "red" "+")'},
        "triple2": {"text": "x", "representation": '("the cat" "likes" "Bob" "+")'},
    },
    "rules": {
        "rule1": {
            "text": "x",
            "representation": '((("someone" "is" "red" "+") ("someone" "is" "big" "~"))'
            ' -> ("someone" "is" "kind" "+"))',
        }
    },
    "questions": {
        "Q1": {
            "question": "Bob is kind.",
            "answer": True,
            "QDep": "1",
            "QLen": "",
            "representation": '("Bob" "is" "kind" "+")',
        }
    },
}
ENGLISH = {
    "id": "RelNeg-OWA-D1-7",
    "theory": "Bob is red. The cat likes Bob. If someone is red and not big then they are kind. "
    "All red, kind people are quiet. If something likes the cat then it does not see Bob.",
    "questions": [{"question": "Bob is not red.", "answer": "False"}],
}
BY_HAND = {
    "operations": ["a", "b", "c"],
    "relations": [["a", "c", "precedes"], ["a", "b", "commutes"]],
}
LIFTED = [
    {
        "theorems": [
            {
                "name": "t",
                "steps": [{"label": "h1"}, {"label": "h2"}],
                "pairs": [{"first": 0, "second": 1, "relation": "precedes", "before": 0}],
            }
        ]
    }
]


def make_targets(place: Path) -> list[Target]:
    """All readers, over a small dataset, experiment and checkpoint that are made in ``place`` on real verifiers."""
    torch.set_num_threads(1)
    dataset = _dataset(place / "data")
    return [
        *_proofwriter(place),
        *_lean(place),
        *_episodes(dataset),
        *_records(place, dataset),
        *_tables(place, dataset),
        *_experiments(place, dataset),
        *_models(place),
    ]


def _dataset(path: Path) -> Dataset:
    schemas = {"clrs": ("bubble_sort",), "proofwriter": ("attribute_chain",)}
    dataset = make_dataset(sampled(schemas, 4), path, jobs=1)
    verify_agreement(dataset, jobs=1)
    return dataset


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _refusal(row: object) -> object:
    """A refusal is a value of lifting; here it is the named error that it holds."""
    if isinstance(row, Refused):
        raise row.error
    return row


def _dumped(*values: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _proofwriter(place: Path) -> Iterator[Target]:
    file = place / "rows.jsonl"

    def rows(data: bytes) -> object:
        file.write_bytes(data)
        found = list(read_rows(file))
        return _refusal(found[-1]) if found else None

    yield Target(
        name="ProofWriter structured row",
        form="JSON line",
        seeds=_dumped(STRUCTURED),
        read=lambda data: _refusal(read_row(_text(data), "fuzz")),
        weight=25,
        is_json=True,
    )
    yield Target(
        name="ProofWriter English row",
        form="JSON line",
        seeds=_dumped(ENGLISH),
        read=lambda data: _refusal(read_row(_text(data), "fuzz")),
        weight=25,
        is_json=True,
    )
    yield Target(
        name="ProofWriter file",
        form="JSON lines",
        seeds=(b"\n".join(_dumped(STRUCTURED, ENGLISH)) + b"\n",),
        read=rows,
        weight=6,
    )
    yield Target(
        name="s-expression",
        form="text",
        seeds=(
            b'("Bob" "is" "red" "+")',
            b'((("someone" "is" "red" "+") ("someone" "is" "big" "~")) -> ("someone" "is" "kind" "+"))',
        ),
        read=lambda data: (parse_rule if b"->" in data else parse_atom)(_text(data)),
        weight=80,
    )
    yield Target(
        name="English theory",
        form="text",
        seeds=(
            ENGLISH["theory"].encode(),
            b"Anne is big. If Anne is big and not red then Anne is kind.",
        ),  # type: ignore[attr-defined]
        read=lambda data: parse_theory(_text(data), assumption="OWA"),
        weight=40,
    )
    yield Target(
        name="English question",
        form="text",
        seeds=(b"Bob is not red.", b"The bald eagle does not see the cat."),
        read=lambda data: parse_question(_text(data)),
        weight=50,
    )


def _lean(place: Path) -> Iterator[Target]:
    file = place / "Fuzz.lean"

    def lift(data: bytes) -> object:
        file.write_bytes(data)
        found = lift_file(file)
        if found.refused:
            # As for theories: what is refused is named, with its line.
            raise VcrtError(found.refused[0].found, where=found.refused[0].where)
        return found

    def line(data: bytes) -> object:
        text = _text(data)
        read: Callable[..., object] = (
            grammar.read_tactic if text[:4] in ("case", "have") else grammar.read_declaration
        )
        return read(text, where="fuzz", max_chars=2000)

    yield Target(
        name="Lean file",
        form="text",
        seeds=(LEAN.encode(), LEAN_FILE.encode()),
        read=lift,
        weight=10,
    )
    yield Target(
        name="Lean step",
        form="text",
        seeds=(
            "have h1 : And q p := ⟨b, a⟩".encode(),
            b"case a => exact Or.inl h",
            b"theorem thm1 (p q : Prop) (h : And p q) : q := h.right",
            "noncomputable def def1 : N → N := fun n => N.s n".encode(),
            b"inductive Ty1 : Type where | con1 | con2",
        ),
        read=line,
        weight=60,
    )


def _episodes(dataset: Dataset) -> Iterator[Target]:
    """Native episodes, as certificates and datasets bring them: read and replayed forwards and backwards."""
    lean_episode = {
        "environment": "lean",
        "schema": "lift",
        "initial": {
            "form": "tactics",
            "statement": "theorem thm1 (p q : Prop) (h1 : p) (h2 : q) : And p q",
            "opening": "refine And.intro ?a ?b",
            "closing": None,
        },
        "operations": [
            {"signature": "a", "payload": "case a => exact h1"},
            {"signature": "b", "payload": "case b => exact h2"},
        ],
        "provenance": {"source": "s", "generator": "g", "seed": 1},
    }
    lean_declarations = {
        **lean_episode,
        "initial": {
            "form": "declarations",
            "setup": ["class Cls1 (α : Type) where f : α"],
            "probes": ["Cls1 Bool"],
        },
        "operations": [
            {"signature": "ins1", "payload": "instance ins1 : Cls1 Bool := Cls1.mk Bool.true"},
            {"signature": "def1", "payload": "def def1 : N → N := fun n => N.s n"},
        ],
    }

    def replay(environment: Any) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            episode = audit.episode_of_json(data.decode("utf-8", "replace"), "fuzz")
            places = list(range(len(episode.operations)))
            for sequence in (places, places[::-1]):
                state = environment.initial_state(episode)
                for place in sequence:
                    answer = environment.step(state, episode.operations[place])
                    if isinstance(answer, Rejected):
                        break
                    state = answer.state
                environment.canonical(state)
            return episode

        return read

    for name, environment in (
        ("clrs", ClrsEnvironment()),
        ("proofwriter", ProofWriterEnvironment()),
    ):
        rows = audit.read_rows(dataset.path / audit_name(name), AUDIT_COLUMNS)
        yield Target(
            name=f"{name} episode",
            form="JSON",
            seeds=tuple(row["episode"].encode() for row in rows[:2]),
            read=replay(environment),
            weight=6,
            is_json=True,
        )
    yield Target(
        name="Lean episode",
        form="JSON",
        seeds=_dumped(lean_episode, lean_declarations),
        read=lambda data: read_program(
            audit.episode_of_json(data.decode("utf-8", "replace"), "fuzz"), max_chars=2000
        ),
        weight=10,
        is_json=True,
    )


def _records(place: Path, dataset: Dataset) -> Iterator[Target]:
    row = audit.read_rows(dataset.path / audit_name("clrs"), AUDIT_COLUMNS)[0]
    preset = dataset.manifest.preset
    certified = certified_from_row(row, preset)
    certificate = certificate_document(certified, preset)
    file = place / "certificate.json"

    def sealed(value: Any) -> Any:
        return {**value, "sha256": json_digest({n: v for n, v in value.items() if n != "sha256"})}

    def read_sealed(data: bytes) -> object:
        file.write_bytes(data)
        return read_certificate(file)

    yield Target(
        name="certificate",
        form="JSON",
        seeds=_dumped(certificate),
        read=read_sealed,
        weight=2,
        is_json=True,
        reseal=sealed,
    )
    yield Target(
        name="stated record",
        form="JSON",
        seeds=_dumped(BY_HAND, LIFTED, LIFTED[0]["theorems"][0]),
        read=lambda data: read_stated(data, "fuzz"),
        weight=20,
        is_json=True,
    )
    records = read_policy_records(dataset, "clrs")
    yield Target(
        name="policy record",
        form="JSON",
        seeds=_dumped(
            *[record.to_json() for record in list(records.values())[:1]],
            {"record_id": "0" * 16, "pointers": [1, 4], "relations": [[0, 1, "precedes"]],
             "distractors": [[0, 2, "conflicts"]]},
        ),
        read=lambda data: record_from_json(_json(data)),
        weight=30,
        is_json=True,
    )  # fmt: skip
    columns = ("episode", "versions", "replays", "cross_checks")

    def audit_row(data: bytes) -> object:
        value = _json(data)
        if not isinstance(value, dict):
            raise VcrtError("not an object")
        texts = {name: json.dumps(value.get(name)) for name in columns}
        return certified_from_row({**row, **texts}, preset)

    documents = certified_documents(certified)
    yield Target(
        name="audit row",
        form="JSON",
        seeds=_dumped({name: documents[name] for name in columns}),
        read=audit_row,
        weight=4,
        is_json=True,
    )
    yield from _dataset_files(place, dataset)


def _json(data: bytes) -> Any:
    """What Parquet's text columns give: the readers below take values; what is no JSON is another reader's."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise VcrtError("no JSON") from error


def _dataset_files(place: Path, dataset: Dataset) -> Iterator[Target]:
    manifest, agreement = dataset.path / MANIFEST, dataset.path / AGREEMENT
    original = manifest.read_bytes()

    def resealed(value: Any) -> Any:
        return {**value, "root_hash": Manifest.model_validate(value).computed_root_hash()}

    def opened(data: bytes) -> object:
        manifest.write_bytes(data)
        try:
            return open_dataset(dataset.path)
        finally:
            manifest.write_bytes(original)

    def agreed(data: bytes) -> object:
        agreement.write_bytes(data)
        return require_agreement(dataset)

    yield Target(
        name="manifest",
        form="JSON",
        seeds=(original,),
        read=opened,
        weight=4,
        is_json=True,
        reseal=resealed,
    )
    yield Target(
        name="agreement",
        form="JSON",
        seeds=(agreement.read_bytes(),),
        read=agreed,
        weight=6,
        is_json=True,
    )
    report = AnonymityReport(
        root_hash="0" * 64, backbone_digest="1" * 64, seed=0, level=0.05, results=(), controls=(),
        unmeasured=(), findings=("one",),
    )  # fmt: skip
    probe = place / "anonymity.json"

    def probed(data: bytes) -> object:
        probe.write_bytes(data)
        return read_report(probe)

    yield Target(
        name="anonymity report",
        form="JSON",
        seeds=(report_bytes(report),),
        read=probed,
        weight=1,
        is_json=True,
    )
    yield from _shards(place)


def _shards(place: Path) -> Iterator[Target]:
    folder = place / "data.shards"
    folder.mkdir()
    store = ShardStore(folder, "identity")
    piece = folder / "piece.json"
    replay: dict[str, Any] = {
        "versions": [{"environment": "e", "adapter": "1", "canonicalizer": "1", "verifier": "v", "libraries": {}}],
        "outcomes": [{"exclusion": "duplicate", "episode_id": "e/s/0", "detail": "", "cross_checks": [["c", 1, 1]]}],
        "process": "p",
    }  # fmt: skip

    def sealed(data: bytes) -> bytes:
        header = {"identity": "identity", "name": "piece.json", "sha256": sha256_hex(data)}
        return json.dumps(header).encode() + b"\n" + data

    def read(data: bytes) -> object:
        piece.write_bytes(sealed(data))
        return FirstReplay.from_json(store.read("piece.json"))

    def identity(data: bytes) -> object:
        (folder / IDENTITY).write_bytes(data)
        return read_identity(folder)

    yield Target(
        name="shard", form="JSON", seeds=_dumped(replay), read=read, weight=6, is_json=True
    )
    yield Target(
        name="shard identity",
        form="JSON",
        seeds=_dumped({"format": "vcrt-shards/1", "config": {}}),
        read=identity,
        weight=4,
        is_json=True,
    )


def _tables(place: Path, dataset: Dataset) -> Iterator[Target]:
    for name, columns in (
        (audit_name("clrs"), AUDIT_COLUMNS),
        (policy_name("clrs"), POLICY_COLUMNS),
    ):
        table = place / f"{Path(name).parts[0]}.parquet"

        def read(data: bytes, table: Path = table, columns: tuple[str, ...] = columns) -> object:
            table.write_bytes(data)
            return audit.read_rows(table, columns)

        yield Target(
            name=f"{Path(name).parts[0]} file",
            form="Parquet",
            seeds=((dataset.path / name).read_bytes(),),
            read=read,
            weight=2,
        )
    # The whole way of a policy file whose digests agree with what is in it.
    path = dataset.path / policy_name("clrs")
    original = path.read_bytes()

    def records(data: bytes) -> object:
        record = data.decode("utf-8", "replace")
        rows = [{"record_id": "0" * 16, "record": record}]
        audit.write_rows(rows, POLICY_COLUMNS, path)
        content = {**dataset.manifest.content, policy_name("clrs"): rows_digest(rows)}
        forged = replace(dataset, manifest=dataset.manifest.model_copy(update={"content": content}))
        try:
            return read_policy_records(forged, "clrs")
        finally:
            path.write_bytes(original)

    (row, *_) = audit.read_rows(path, POLICY_COLUMNS)
    yield Target(
        name="policy file with digests",
        form="Parquet",
        seeds=(row["record"].encode(),),
        read=records,
        weight=1,
        is_json=True,
    )


def _experiments(place: Path, dataset: Dataset) -> Iterator[Target]:
    plan = make_plan(
        dataset, backbone=EMBEDDED, backbone_digest="d", methods=("vcrt", "canonical-grpo"), seeds=(0,),
        run=RunConfig(num_updates=2), retention_share=0.3,
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
        definitions={}, held_out=folds, num_trials=2, seed=3, retention_share=0.1, validation_share=0.2,
        learning_rate=1e-3, run={"num_updates": 2}, trials=trials,
    )  # fmt: skip
    file = place / "search.json"

    def read(data: bytes) -> object:
        file.write_bytes(data)
        return read_search(file)

    value = {"search": search.model_dump(mode="json"), "digest": search.digest}
    return Target(
        name="search",
        form="JSON",
        seeds=_dumped(value),
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
        value = _json(data)
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
        seeds=_dumped(rows),
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


def _models(place: Path) -> Iterator[Target]:
    folder = place / "model"
    folder.mkdir()
    lock_file = folder / "vcrt-lock.json"
    lock = Lock(
        name="model", revision=None, files={"config.json": "0" * 64, "tokenizer.json": "1" * 64}
    )

    def resealed(value: Any) -> Any:
        return {**value, "digest": json_digest(value["files"])}

    def read_locked(data: bytes) -> object:
        lock_file.write_bytes(data)
        found = read_lock(lock_file)
        return [(folder / name).is_file() for name in found.files]

    def read_index(data: bytes) -> object:
        (folder / INDEX).write_bytes(data)
        return model_files(folder)

    def read_config(data: bytes) -> object:
        (folder / "config.json").write_bytes(data)
        return _require_plain_weights(folder)

    for name in ("config.json", "tokenizer.json", "a.safetensors", "b.safetensors"):
        (folder / name).write_bytes(b"{}")
    yield Target(
        name="backbone lock",
        form="JSON",
        seeds=_dumped(lock.to_json()),
        read=read_locked,
        weight=8,
        is_json=True,
        reseal=resealed,
    )
    index = {
        "metadata": {"total_size": 8},
        "weight_map": {"w": "a.safetensors", "v": "b.safetensors"},
    }
    yield Target(
        name="weight index",
        form="JSON",
        seeds=_dumped(index),
        read=read_index,
        weight=8,
        is_json=True,
    )
    yield Target(
        name="model configuration",
        form="JSON",
        seeds=_dumped({"model_type": "qwen3", "text_config": {"hidden_size": 8}}),
        read=read_config,
        weight=8,
        is_json=True,
    )
    embedded = place / "embedded"
    embedded.mkdir()
    lock_data = (EMBEDDED_DIRECTORY / "lock.json").read_bytes()
    for source in EMBEDDED_DIRECTORY.iterdir():
        if source.is_file():
            (embedded / source.name).symlink_to(source)
    (embedded / "lock.json").unlink()

    def read_embedded(data: bytes) -> object:
        (embedded / "lock.json").write_bytes(data)
        return verify_lock(embedded)

    yield Target(
        name="embedded lock",
        form="JSON",
        seeds=(lock_data,),
        read=read_embedded,
        weight=4,
        is_json=True,
        reseal=resealed,
    )
    yield from _checkpoints(place)


def _checkpoints(place: Path) -> Iterator[Target]:
    config = Qwen3Config(
        vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=16, tie_word_embeddings=True,
    )  # fmt: skip
    state = new_state(blank_model(config), seed=0, learning_rate=1e-3)
    loss = state.model(input_ids=torch.tensor([[1, 2, 3]])).logits.sum()
    loss.backward()
    state.optimizer.step()
    folder = place / "update-000001"
    save_checkpoint(state, folder, [{"update": 1, "loss": 0.5}])
    files = {name: (folder / name).read_bytes() for name in (WEIGHTS, TRAINER, METRICS, HEAD)}

    def load(name: str) -> Callable[[bytes], object]:
        """One changed file, in a checkpoint whose digests agree with it."""

        def read(data: bytes) -> object:
            (folder / name).write_bytes(data)
            if name != HEAD:
                head = json.loads(files[HEAD])
                head["files"][name] = sha256_hex(data)
                (folder / HEAD).write_bytes(json.dumps(head).encode())
            try:
                return load_checkpoint(state, folder)
            finally:
                (folder / name).write_bytes(files[name])
                (folder / HEAD).write_bytes(files[HEAD])

        return read

    for name, is_json, weight in (
        (HEAD, True, 3),
        (METRICS, True, 2),
        (WEIGHTS, False, 2),
        (TRAINER, False, 2),
    ):
        yield Target(
            name=f"checkpoint {name}",
            form="JSON" if is_json else "safetensors",
            seeds=(files[name],),
            read=load(name),
            weight=weight,
            is_json=is_json,
        )
