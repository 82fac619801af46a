"""Source pass rates while a run trains: they change no result, survive an interruption, and flag destroyed runs."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from functools import wraps
from unittest.mock import patch

import pytest
import torch

import vcrt_train
import vcrt_train.training.run as module
from command_line import run
from configs import config
from documentation import ROOT
from training_fixtures import supervised_records
from vcrt.cli import main
from vcrt.records.dataset import open_dataset
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.protocol.source_validation import (
    ACCOUNTED,
    FLAGGED,
    FROZEN,
    HIGH,
    LOW,
    RATE,
    RULE,
    VARIANCE,
    SourceValidation,
    flagged_at,
    flagged_runs,
    is_too_short_to_flag,
    stratified,
    validations,
)
from vcrt_train.protocol.splits import split_sources
from vcrt_train.protocol.statistics import proportion_interval
from vcrt_train.training.checkpoint import TRAINER, WEIGHTS
from vcrt_train.training.gradient_variance import gradient_moments
from vcrt_train.training.items import OrderList, encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.process_group import ALONE
from vcrt_train.training.run import train_run
from vcrt_train.training.run_directory import PROGRESS_LOG, checkpoint_path

#: Ruins the policy that answers in free tokens: soon, hardly any answer is an order.
DESTROYING = 0.03
LOGGED = {RATE, LOW, HIGH, FROZEN, FLAGGED}


@dataclass(kw_only=True, slots=True)
class Scripted(SourceValidation):
    """Rates that are written down."""

    rates: list[float]

    def pass_rate(self, model):
        return self.rates.pop(0)

    def variance_shares(self, model, update):
        return {}


def logged(frozen, rates, num_items=50):
    """The log of a run with a validation at every update."""
    items = [None] * num_items
    one = Scripted(items=items, chosen=None, config=config(), rates=[frozen, *rates])
    one.begin(None)
    log = []
    for update in range(1, len(rates) + 1):
        log.append({"update": update, **one.measure(None, log, update)})
    return log


@pytest.mark.parametrize(
    ("frozen", "rates", "at"),
    [
        (0.6, [0.1, 0.1, 0.1], 3),
        (0.6, [0.1, 0.1], None),
        (0.6, [0.1, 0.1, 0.6, 0.1, 0.1], None),
        (0.6, [0.9, 0.1, 0.1, 0.1, 0.9, 0.9], 4),
        # 23 of 50 has an interval up to 0.607, and 22 of 50 one up to 0.588.
        (0.6, [0.46] * 5, None),
        (0.6, [0.44] * 3, 3),
        (0.0, [0.0] * 4, None),
    ],
)
def test_three_in_a_row_below_the_interval_flag_a_run(frozen, rates, at):
    log = logged(frozen, rates)
    flag = flagged_at(log)
    assert (None if flag is None else flag.update) == at
    # A flag stays.
    assert [line[FLAGGED] for line in log] == [
        float(at is not None and n >= at) for n in range(1, len(rates) + 1)
    ]
    low, high = proportion_interval(round(rates[0] * 50), 50)
    assert (log[0][LOW], log[0][HIGH], log[0][FROZEN]) == (low, high, frozen)


@pytest.mark.parametrize("every", [0, 1, 2, 3, 4, 5, 50])
def test_a_run_is_too_short_to_flag_if_it_is_validated_but_less_than_three_times(every):
    for updates in range(1, 12):
        schedule = config(updates=updates, validate_every=every).schedule
        times = sum(module._is_validated(schedule, one) for one in range(1, updates + 1))
        assert is_too_short_to_flag(schedule) == (0 < times < 3)


def schedule_of_demo(monkeypatch, arguments):
    """The schedule that a command line asks the demo for."""
    seen = []

    @wraps(vcrt_train.demo)
    def demo(**asked):
        sys.exit(seen.append(asked["config"]))

    monkeypatch.setattr(vcrt_train, "demo", demo)
    with pytest.raises(SystemExit):
        main(arguments)
    return seen[0].schedule


def test_runs_of_the_demo_on_a_language_model_can_be_flagged(monkeypatch):
    (line,) = re.findall(r"vcrt (demo --settings .*)", (ROOT / "Makefile").read_text())
    assert not is_too_short_to_flag(schedule_of_demo(monkeypatch, line.split()))


@pytest.mark.parametrize(
    ("options", "updates"),
    [((), 100), (("--updates", "7"), 7), (("--settings", "smollm2-135m"), 400)],
)
def test_the_demo_is_short_unless_settings_are_named(monkeypatch, options, updates):
    assert schedule_of_demo(monkeypatch, ["demo", *options]).updates == updates


@pytest.mark.parametrize("value", ["0.5", None, [], {}, float("nan"), float("inf")])
def test_what_is_no_validation_is_passed_over(value):
    whole = logged(0.6, [0.1])[0]
    for name in (*LOGGED, "update"):
        assert validations([{**whole, name: value}]) == []
    assert len(validations([{"update": 1, "loss": 0.5}, whole])) == 1
    bodies = {"a": {"source_validation": value}, "b": {"source_validation": {"flagged_at": value}}}
    assert flagged_runs({**bodies, "c": {}}) == {}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A verified dataset of two environments."""
    path = tmp_path_factory.mktemp("source-validation") / "data"
    schemas = ["--schemas", "clrs", "proofwriter"]
    main(["certify", "--output", str(path), *schemas, "--episodes", "10", "--jobs", "1"])
    main(["verify", str(path), "--jobs", "1"])
    return path


def test_items_are_drawn_by_name_and_from_every_environment(data):
    dataset = open_dataset(data)
    split = split_sources(dataset, "none of them", 0.5, 0)
    items = split.retention
    some = stratified(items, 10, seed=0)
    assert [sum(i.environment == name for i in some) for name in dataset.environments] == [5, 5]
    assert len({item.episode_id for item in some}) == 10
    assert stratified(list(items), 10, seed=0) == some
    assert stratified(items, 10, seed=1) != some
    assert stratified(items, 4, seed=0) == some[:4]
    assert sorted(i.episode_id for i in stratified(items, 10**6, seed=0)) == sorted(
        item.episode_id for item in items
    )
    # One that has few gives what it has.
    few = [i for i in items if i.environment == "clrs"][:2]
    mixed = stratified([*few, *(i for i in items if i.environment != "clrs")], 10, seed=0)
    assert (len(mixed), sum(item.environment == "clrs" for item in mixed)) == (10, 2)
    trained = {item.source for item in split.training}
    assert not trained & {item.source for item in some}


def trained(directory, name, *, every, rate=1e-3, **options):
    chosen, backbone = method(name), load_backbone("embedded")
    settings = config(
        updates=7, checkpoints=(3, 7), learning_rate=rate, validate_every=max(every, 0)
    )
    aside = encode_items(supervised_records(40)[6:], chosen, seed=0, encode=backbone.encode)
    measured = SourceValidation(items=aside, chosen=chosen, config=settings)
    return train_run(
        settings,
        chosen,
        backbone,
        supervised_records(6),
        directory,
        seed=1,
        encode_seed=0,
        validation=None if every < 0 else measured,
        **options,
    )


def state(finished):
    """The bytes of everything that a run learns."""
    return [
        (checkpoint_path(finished.directory, number) / name).read_bytes()
        for number in (3, 7)
        for name in (WEIGHTS, TRAINER)
    ]


def log(finished):
    return (finished.directory / PROGRESS_LOG).read_bytes()


@pytest.mark.parametrize("name", ["vcrt", "outcome-grpo"])
def test_validations_change_nothing_and_survive_an_interruption(tmp_path, name):
    plain = trained(tmp_path / "plain", name, every=-1, rate=DESTROYING)
    never = trained(tmp_path / "never", name, every=0, rate=DESTROYING)
    assert never.digests == plain.digests
    seen = []
    whole = trained(
        tmp_path / "whole", name, every=2, rate=DESTROYING, on_update=lambda m, _: seen.append(m)
    )
    assert state(whole) == state(plain)
    assert [
        {key: value for key, value in line.items() if key not in {*LOGGED, *VARIANCE.values()}}
        for line in whole.metrics
    ] == list(plain.metrics)
    assert [one.update for one in validations(whole.metrics)] == [2, 4, 6, 7]
    assert [one.to_json() for one in seen] == list(whole.metrics)
    if name == "outcome-grpo":
        assert flagged_at(whole.metrics).update == 6

    class Killed(BaseException):
        """The moment at which the process ends."""

    original = module.update

    def until(state, *args, **options):
        if state.update_index == 5:
            raise Killed
        return original(state, *args, **options)

    # After two of the three validations that flag it.
    with (
        patch.object(module, "KEPT_EVERY_S", -1.0),
        patch.object(module, "update", until),
        pytest.raises(Killed),
    ):
        trained(tmp_path / "cut", name, every=2, rate=DESTROYING)
    resumed = trained(tmp_path / "cut", name, every=2, rate=DESTROYING)
    assert (resumed.digests, resumed.metrics) == (whole.digests, whole.metrics)
    assert log(resumed) == log(whole)


def test_the_rate_is_the_share_of_greedy_orders_that_are_legal():
    """The frozen backbone's, by decoding one pointer after another."""
    chosen, backbone = method("vcrt"), load_backbone("embedded")
    items = encode_items(supervised_records(30), chosen, seed=0, encode=backbone.encode)
    one = SourceValidation(items=items, chosen=chosen, config=config())
    one.begin(backbone.model)
    one_at_a_time = config(prompts_at_a_time=1)
    again = SourceValidation(items=items, chosen=chosen, config=one_at_a_time)
    assert again.pass_rate(backbone.model) == one.frozen
    assert 0 < one.frozen < 1
    passed = 0
    for item in items:
        tokens, order, left = list(item.prompt.token_ids), [], [0, 1, 2, 3]
        while left:
            with torch.no_grad():
                found = backbone.model(input_ids=torch.tensor([tokens]), use_cache=False)
            best = max(left, key=lambda s: float(found.logits[0, -1, item.prompt.pointer_ids[s]]))
            left.remove(best)
            order.append(best)
            tokens.append(item.prompt.pointer_ids[best])
        passed += item.listed.allows(tuple(order))
    assert one.frozen == passed / 30


@pytest.mark.parametrize("name", ["canonical-grpo", "outcome-grpo"])
def test_the_log_says_what_an_orbit_is_worth(name):
    """The shares of the variance, over the first items together."""
    chosen, backbone = method(name), load_backbone("embedded")
    items = encode_items(supervised_records(5), chosen, seed=0, encode=backbone.encode)
    asked = config(samples_per_prompt=4)
    one = SourceValidation(items=items, chosen=chosen, config=asked)
    found = one.measure(backbone.model, (), 3)
    assert not {*found} & {*VARIANCE.values()}
    log = [{"update": n, **found} for n in (1, 2, 3)]
    assert {*VARIANCE.values()} <= {*one.measure(backbone.model, log, 4)}
    found = one.measure(backbone.model, (), asked.schedule.updates)
    parts = [
        gradient_moments(backbone.model, item, interface=chosen.interface).variance(4)
        for item in items[:ACCOUNTED]
    ]
    total = sum(part.total for part in parts)
    for part, field in VARIANCE.items():
        assert found[field] == pytest.approx(sum(getattr(p, part) for p in parts) / total)
        assert 0 <= found[field] <= 1
    assert sum(found[field] for field in VARIANCE.values()) == pytest.approx(1)
    # Nothing varies if nothing can fail, and shards hold no gradient that could be read.
    certain = [replace(i, orbit=OrderList(members=torch.ones(24, dtype=torch.bool))) for i in items]
    if name == "canonical-grpo":
        alone = replace(one, items=certain)
        assert not alone.variance_shares(backbone.model, 3)
    together = type(ALONE)()
    together.is_sharded = True
    assert not replace(one, group=together).variance_shares(backbone.model, 3)


def planned(capsys, data, experiment, name, *, rate):
    options = ("--runs", 1, "--updates", 6, "--held-out", "clrs", "--methods", name)
    options += ("--learning-rate", rate, "--schedule.validate-every", 2)
    options += ("--data.retention-share", 0.5)
    code, _, err = run(capsys, "plan", data, "--output", experiment, *options)
    assert (code, err) == (0, "")
    code, out, err = run(capsys, "train", experiment, "--jobs", 1)
    assert (code, err) == (0, "")
    return out.splitlines()


def reported(capsys, experiment):
    """The page, the table of validations and what the terminal shows."""
    assert run(capsys, "evaluate", experiment, "--jobs", 1)[0] == 0
    code, out, _ = run(capsys, "report", experiment)
    assert code == 0
    page = (experiment / "report" / "report.html").read_text()
    return page, (experiment / "report" / "source-validation.csv").read_text(), out


@pytest.mark.slow
def test_a_destroyed_policy_is_flagged_wherever_people_look(data, tmp_path, capsys):
    experiment = tmp_path / "destroyed"
    lines = planned(capsys, data, experiment, "outcome-grpo", rate=DESTROYING)
    (warned,) = (line for line in lines if line.startswith("warning: outcome-grpo/clrs/0 is flag"))
    assert "at update 6, 0% [0, " in warned
    (last,) = (line for line in lines if line.startswith("warning: 1 run flagged: "))
    assert last == f"warning: 1 run flagged: outcome-grpo/clrs/0 (at update 6). {RULE}"
    (entry,) = open_experiment(experiment).ledger.entries("run")
    found = entry.body["source_validation"]
    assert (found["flagged_at"], found["last"]) == (6, 0.0)
    assert found["items"] >= 20
    # A second call trains nothing, and says it all the same.
    code, out, _ = run(capsys, "train", experiment, "--jobs", 1)
    assert code == 0
    assert last in out
    page, table, shown = reported(capsys, experiment)
    said = "1 of 1 run is flagged: outcome-grpo/clrs/0 at update 6, 0% [0, "
    assert said in page
    assert said in " ".join(shown.split())
    assert "Source pass rate on untrained items" in page
    assert "frozen backbone on the same items" in page
    header, row = table.splitlines()[:2]
    cells = dict(zip(header.split(","), row.split(","), strict=False))
    assert float(cells["Frozen"]) == pytest.approx(100 * found["frozen"], abs=0.01)
    assert row.endswith("at update 6")


@pytest.mark.slow
def test_a_good_run_is_not_flagged(data, tmp_path, capsys):
    experiment = tmp_path / "good"
    lines = planned(capsys, data, experiment, "vcrt", rate=1e-3)
    assert [line for line in lines if "is flagged" in line or "flagged:" in line] == []
    told = [line for line in lines if "source items set aside that pass" in line]
    assert len(told) == 3
    (entry,) = open_experiment(experiment).ledger.entries("run")
    found = entry.body["source_validation"]
    assert found["flagged_at"] is None
    assert f"the frozen backbone {100 * found['frozen']:.0f}%" in told[0]
