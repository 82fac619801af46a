"""Attempts on the held-out fold: each is refused, or the report says what was done.

What is here goes on from test_protocol.py beside it (files of the held-out environment removed, ledgers and plans
altered, code that was not planned) and train/tests/cli/test_experiments.py (second openings, other plans on one
dataset, changed scores and checkpoints).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from datetime import UTC, datetime

import pytest
import torch

import toy_environment as toy
from configs import config
from one_process import in_this_process
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import BackboneError, DatasetError, RunError
from vcrt.records.dataset import load_items, open_dataset, read_audit, read_policy_records
from vcrt.records.ledger import GENESIS, Ledger, recorded_openings
from vcrt.replay.config import sampled
from vcrt_train.policy import backends
from vcrt_train.policy import self_check as self_check_module
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.protocol import evaluation
from vcrt_train.protocol import scores as scores_module
from vcrt_train.protocol.evaluation import evaluate
from vcrt_train.protocol.experiment import (
    create_experiment,
    load_sources,
    open_experiment,
    planned_dataset,
)
from vcrt_train.protocol.plan import PLAN_FILE, Plan
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.scores import Scores, openings, openings_of_dataset
from vcrt_train.randomness import generator
from vcrt_train.report.analysis import analyse
from vcrt_train.report.gather import gather
from vcrt_train.report.summary import summary
from vcrt_train.training.methods import method

TOYS = toy.THREE_TOYS
HELD_OUT = "toy-b"


@pytest.fixture(scope="module", autouse=True)
def quick():
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory, quick):
    """A dataset, and an experiment on it that was trained while the held-out files were canaries, then evaluated."""
    folder = tmp_path_factory.mktemp("closed")
    asked = sampled(dict.fromkeys(TOYS, ("needs", "overwrite")), 4)
    dataset = make_dataset(asked, folder / "data", jobs=1, factories=TOYS)
    verify_agreement(dataset, jobs=1, factories=TOYS)
    plan = make_plan(
        dataset,
        backbone=EMBEDDED,
        backbone_digest=load_backbone("embedded").digest,
        methods=("vcrt",),
        seeds=(0,),
        held_out=(HELD_OUT,),
        config=EMBEDDED.resolved(config(updates=1, retention_share=0.3)),
    )
    experiment = create_experiment(plan, folder / "experiment")
    untrained = folder / "untrained"
    shutil.copytree(experiment.path, untrained)
    closed = [path for path in dataset.path.rglob("*") if path.stem == HELD_OUT]
    contents = {path: path.read_bytes() for path in closed}
    for path in closed:
        path.write_bytes(b"a canary that nobody may read")
    train(experiment, jobs=1)
    for path, data in contents.items():
        path.write_bytes(data)
    trained = folder / "trained"
    shutil.copytree(experiment.path, trained)
    evaluate(experiment, jobs=1)
    return folder


@pytest.fixture
def copy(whole, tmp_path):
    folder = tmp_path / "whole"
    shutil.copytree(whole, folder)
    for path in folder.glob(f"*/{PLAN_FILE}"):
        # Where the dataset lies is no part of the plan's hash.
        value = json.loads(path.read_text())
        value["plan"]["dataset"] = str(folder / "data")
        path.write_text(json.dumps(value))
    return folder


def edit(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def said(folder, name="experiment"):
    return "\n".join(summary(analyse(gather(open_experiment(folder / name)))))


def test_an_honest_experiment_has_nothing_to_say(whole):
    contents = gather(open_experiment(whole / "experiment"))
    assert not contents.opening["reopened"]
    assert contents.opening["by_copies"] == contents.opening["unknown_to_dataset"] == 0
    assert "ledger" not in said(whole)


@pytest.mark.parametrize("read", [read_audit, read_policy_records, load_items])
def test_training_code_that_asks_for_held_out_items_is_refused(whole, read):
    plan = open_experiment(whole / "experiment").plan
    dataset = planned_dataset(plan, without=(HELD_OUT,))
    with pytest.raises(DatasetError, match="stays closed"):
        read(dataset, HELD_OUT)
    split = load_sources(plan, dataset, HELD_OUT)
    assert {item.environment for item in (*split.training, *split.retention)} == {"toy-a", "toy-c"}


def test_a_cache_that_was_filled_by_an_evaluation_is_no_way_in(whole):
    plan = open_experiment(whole / "experiment").plan
    evaluation._held_out_items(planned_dataset(plan), HELD_OUT)
    dataset = planned_dataset(plan, without=(HELD_OUT,))
    with pytest.raises(DatasetError, match="stays closed"):
        load_items(dataset, HELD_OUT)
    split = load_sources(plan, dataset, HELD_OUT)
    assert all(item.environment != HELD_OUT for item in (*split.training, *split.retention))


@pytest.mark.parametrize("name", ["untrained", "trained"])
def test_nothing_is_opened_before_training_is_finished(copy, name):
    experiment = open_experiment(copy / name)
    if name == "trained":
        edit(experiment.ledger.path, "DELETE FROM entries WHERE position = 1")
    with pytest.raises(RunError, match="a run is not finished"):
        evaluate(experiment, jobs=1)
    assert openings(experiment) == []


@pytest.mark.parametrize("where", ["everywhere", "in held-out records alone"])
def test_a_model_that_is_scored_wrongly_spends_no_opening(copy, monkeypatch, where):
    """A mask under which no step sees those before it, as another version of a library might bring."""
    trained = open_experiment(copy / "trained")
    held_out = read_policy_records(planned_dataset(trained.plan), HELD_OUT)
    asked = {
        load_backbone("embedded")
        .encode(
            record, method("vcrt").serialisation, generator(trained.plan.seed, "self-check", name)
        )
        .token_ids
        for name, record in held_out.items()
    }

    def alone(lengths, trees, dtype, device, mask=backends.tree_mask):
        wrong = mask(lengths, trees, dtype, device).clone()
        nodes = slice(max(lengths), None)
        size = wrong[:, :, nodes, nodes].shape[-1]
        unseen = ~torch.eye(size, dtype=torch.bool)
        wrong[:, :, nodes, nodes] = torch.zeros(()).masked_fill(unseen, torch.finfo(dtype).min)
        return wrong

    score = self_check_module.score_orders

    def scored(model, prompts, **options):
        with monkeypatch.context() as patch:
            if where == "everywhere" or any(prompt.token_ids in asked for prompt in prompts):
                patch.setattr(backends, "tree_mask", alone)
            return score(model, prompts, **options)

    monkeypatch.setattr(self_check_module, "score_orders", scored)
    with pytest.raises(BackboneError, match="does not agree with scoring each order by itself"):
        evaluate(trained, jobs=1)
    assert openings(trained) == []
    # Another experiment on this dataset has opened it; this plan has not.
    assert gather(open_experiment(copy / "experiment")).opening["by_copies"] == 0


def test_a_run_that_the_ledger_only_claims_is_not_opened(copy):
    experiment = open_experiment(copy / "untrained")
    experiment.ledger.append("run", {"run": "vcrt/toy-b/0", "checkpoints": {"1": "0" * 64}})
    with pytest.raises(RunError, match="checkpoint file is missing"):
        evaluate(experiment, jobs=1)
    for checkpoints in ({}, {"x": "0"}, [], {"1": 1}):
        shutil.rmtree(copy / "claims", ignore_errors=True)
        shutil.copytree(copy / "experiment", copy / "claims")
        claims = open_experiment(copy / "claims")
        claims.ledger.append("run", {"run": "vcrt/toy-b/0", "checkpoints": checkpoints})
        with pytest.raises(RunError, match="documented form"):
            gather(claims)


@pytest.mark.parametrize(("name", "when"), [("experiment", "after the"), ("trained", "twice")])
def test_a_run_that_is_entered_again_is_refused(copy, name, when):
    """Else a checkpoint that was made with the scores in sight could be scored under the opening that gave them."""
    experiment = open_experiment(copy / name)
    (run,) = experiment.ledger.entries("run")
    experiment.ledger.append("run", run.body)
    with pytest.raises(RunError, match=f"finished again(.|\n)*{when}"):
        evaluate(experiment, jobs=1, reopen_reason="because")
    with pytest.raises(RunError, match="finished again" if name == "experiment" else "evaluated"):
        gather(experiment)


def test_a_dataset_behind_a_link_has_one_ledger_of_openings(copy):
    (copy / "data").rename(copy / "store")
    (copy / "data").symlink_to("store")
    # What was opened before the move stands beside the link, what is opened from now on beside the dataset.
    trained = open_experiment(copy / "trained")
    evaluate(trained, jobs=1)
    assert gather(trained).opening["by_copies"] == 1
    assert [len(recorded_openings(copy / name)) for name in ("store", "data")] == [1, 2]
    other = make_plan(
        open_dataset(copy / "store"),
        **{
            name: getattr(trained.plan, name)
            for name in ("backbone", "backbone_digest", "methods", "held_out")
        },
        seeds=(0,),
        config=EMBEDDED.resolved(config(updates=2, retention_share=0.3)),
    )
    experiment = create_experiment(other, copy / "other")
    train(experiment, jobs=1)
    evaluate(experiment, jobs=1)
    assert gather(experiment).opening["by_other_plans"] == 1
    assert gather(trained).opening["by_other_plans"] == 1


def test_the_clock_opens_nothing(copy, monkeypatch):
    class Earlier(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2001, 1, 1, tzinfo=tz)

    monkeypatch.setattr(scores_module, "datetime", Earlier)
    experiment = open_experiment(copy / "experiment")
    with pytest.raises(RunError, match="opened before"):
        evaluate(experiment, jobs=1)
    # An opening under an earlier date stands behind the first one all the same.
    scores_module.record_opening(experiment, [open_dataset(copy / "data")], "because")
    first, second = openings(experiment)
    assert second["at"] == datetime(2001, 1, 1, tzinfo=UTC).isoformat() < first["at"]
    assert "more than once: because" in said(copy)


def test_rows_taken_from_the_end_of_the_ledger_are_refused_or_seen(copy):
    experiment = open_experiment(copy / "experiment")
    edit(experiment.ledger.path, "DELETE FROM entries WHERE kind IN ('opening', 'scores')")
    with pytest.raises(RunError, match="there are scores, but the ledger records no opening"):
        evaluate(experiment, jobs=1)
    # Whoever removes the scores too can open again, but not in secret.
    (experiment.path / "scores.json").unlink()
    evaluate(experiment, jobs=1)
    assert gather(experiment).opening["by_copies"] == 1
    assert "1 opening of this plan that the experiment's own ledger does not" in said(copy)


def test_a_copy_of_the_experiment_that_is_opened_first_is_seen(copy):
    trained = open_experiment(copy / "trained")
    evaluate(trained, jobs=1)
    assert gather(trained).opening["by_copies"] == 1
    assert gather(open_experiment(copy / "experiment")).opening["by_copies"] == 1


def test_openings_at_the_same_moment_are_two(copy, monkeypatch):
    trained, moment = (
        open_experiment(copy / "trained"),
        openings(open_experiment(copy / "experiment"))[0]["at"],
    )

    class Then(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromisoformat(moment)

    monkeypatch.setattr(scores_module, "datetime", Then)
    evaluate(trained, jobs=1)
    assert gather(trained).opening["by_copies"] == 1


def test_a_copy_of_the_dataset_without_its_ledger_is_seen(copy):
    openings_of_dataset(open_dataset(copy / "data")).path.unlink()
    shutil.move(copy / "data", copy / "elsewhere")
    shutil.copytree(copy / "elsewhere", copy / "data")
    assert gather(open_experiment(copy / "experiment")).opening["unknown_to_dataset"] == 1
    assert "does not record this opening" in said(copy)


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE entries SET body = replace(body, '20', '19')",
        "UPDATE entries SET kind = 'run'",
        "DROP TABLE entries",
        "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "CREATE VIEW v AS SELECT 1",
    ],
)
def test_an_edited_ledger_beside_the_dataset_is_refused_or_seen(copy, attack):
    path = openings_of_dataset(open_dataset(copy / "data")).path
    edit(path, attack)
    if attack.startswith("DROP"):
        assert "does not record this opening" in said(copy)
        return
    with pytest.raises(
        RunError, match=r"ledger (was altered|holds something else than its table of entries)"
    ):
        gather(open_experiment(copy / "experiment"))


def test_a_view_in_the_place_of_the_table_is_refused_at_once(tmp_path):
    """It would answer without end: a database may bring a program."""
    path = tmp_path / "ledger.sqlite"
    edit(
        path,
        "CREATE VIEW entries AS WITH RECURSIVE n(position) AS (SELECT 0 UNION ALL SELECT position + 1 FROM n) "
        "SELECT position, 'run' AS kind, '{}' AS body, '' AS hash FROM n",
    )
    with pytest.raises(RunError, match="something else than its table of entries"):
        Ledger(path).entries()


def rechained(ledger, change):
    """All rows anew, with hashes that hold: what a forger does who knows how the chain is made."""
    rows = [[entry.kind, entry.body] for entry in ledger.entries()]
    change(rows)
    ledger.path.unlink()
    for kind, body in rows:
        ledger.append(kind, body)


def test_a_plan_and_a_ledger_forged_together_do_not_fit_the_checkpoints(copy):
    experiment = open_experiment(copy / "trained")
    path = experiment.path / PLAN_FILE
    value = json.loads(path.read_text())
    value["plan"]["how_chosen"] = "on source items alone"
    value["plan_hash"] = Plan.model_validate(value["plan"]).plan_hash
    path.write_text(json.dumps(value))

    def replan(rows):
        rows[0][1]["plan_hash"] = value["plan_hash"]

    rechained(experiment.ledger, replan)
    forged = open_experiment(experiment.path)
    with pytest.raises(RunError, match="belongs to another run"):
        evaluate(forged, jobs=1)


def test_scores_from_elsewhere_are_refused(copy):
    experiment = open_experiment(copy / "experiment")
    scores = json.loads((experiment.path / "scores.json").read_text())
    run = scores["runs"].pop("vcrt/toy-b/0")
    scores["runs"]["better/toy-b/0"] = {**run, "held_out": "1" * len(run["held_out"])}
    forged = Scores.model_validate(scores)
    (experiment.path / "scores.json").write_text(forged.model_dump_json())
    experiment.ledger.append("scores", {"digest": forged.digest})
    with pytest.raises(RunError, match="scores were changed"):
        gather(experiment)


def test_policy_records_hold_no_canary_of_the_audit_view(whole):
    """Every text, number and identity of the evidence is a canary; none may be in a record but by its meaning."""
    dataset = open_dataset(whole / "data")
    words = {"record_id", "pointers", "relations", "commutes", "precedes", "conflicts"}
    checked = 0
    for environment in dataset.environments:
        records = read_policy_records(dataset, environment)
        text = "\n".join(json.dumps(record.to_json()) for record in records.values())
        numbers = {
            n
            for r in records.values()
            for n in (*r.pointers, *(p for q in r.relations for p in (q.first, q.second)))
        }
        for row in read_audit(dataset, environment):
            # The identity of its record is the one thing that a row shares with it, on purpose.
            row.pop("record_id")
            for canary in canaries_in(row):
                checked += 1
                if isinstance(canary, int):
                    assert canary < 8 or canary not in numbers
                elif len(canary) > 2 and canary not in words:
                    assert canary not in text, canary
    assert checked > 1000
    assert GENESIS not in text


def canaries_in(row):
    """All texts and numbers of an audit row, of its JSON and of its names."""
    waiting = [json.loads(v) if v[:1] in "[{" else v for v in row.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [
                *value.values(),
                *(k for k in value if k.startswith("v") and k[1:].isdigit()),
            ]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, (str, int)) and not isinstance(value, bool):
            yield value
