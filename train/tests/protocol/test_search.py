"""The search: source items alone, equal effort, the same result whatever interrupts it, and a plan that takes it up."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import toy_environment as toy
import vcrt_train
from configs import config, setting
from pretended_device import DEVICE, PretendedDevice
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import ConfigError, RunError, UnknownNameError, VcrtError
from vcrt.records.dataset import open_dataset
from vcrt.replay.config import sampled
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.protocol import trials
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.search import (
    LEARNING_RATE,
    RANGES,
    SEARCH_FILE,
    chosen_for,
    read_search,
    settings_of_trial,
    write_search,
)
from vcrt_train.protocol.trials import _run_trial, _split, _TrialJob, check_search, run_search
from vcrt_train.training import methods as methods_module
from vcrt_train.training.methods import METHODS

TOYS = toy.THREE_TOYS
RUN = config(updates=2)
OPTIONS = {
    "backbone": EMBEDDED,
    "methods": ("canonical-grpo", "vcrt"),
    "held_out": ("toy-b",),
    "num_trials": 2,
    "config": RUN,
    "jobs": 1,
    "seed": 3,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    asked = sampled(dict.fromkeys(TOYS, ("needs", "overwrite")), 12)
    path = tmp_path_factory.mktemp("search") / "data"
    frozen = make_dataset(asked, path, jobs=1, factories=TOYS)
    verify_agreement(frozen, jobs=1, factories=TOYS)
    return frozen


@pytest.fixture(scope="module")
def searched(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / SEARCH_FILE
    return run_search(dataset, path, **OPTIONS), path


def test_a_trial_is_run_on_the_device_that_there_is(dataset, searched, monkeypatch):
    search, _ = searched
    expected = search.trials[-1]
    job = _TrialJob(
        code={},
        dataset=dataset.path,
        root_hash=search.root_hash,
        backbone=EMBEDDED,
        backbone_digest=search.backbone_digest,
        method=expected.method,
        held_out=expected.held_out,
        number=expected.number,
        config=RUN.override(expected.settings).resolved(),
        base_rate=search.learning_rate,
        seed=search.seed,
    )
    monkeypatch.setattr(trials, "device_of", lambda _: DEVICE)
    with PretendedDevice() as device:
        assert _run_trial((job, True)) == expected
        assert device.has_computed


def test_every_method_tries_the_same_settings(searched):
    search, path = searched
    assert read_search(path) == search
    tried = {
        name: [t.settings for t in search.trials if t.method == name] for name in search.methods
    }
    assert tried["vcrt"] == tried["canonical-grpo"] == [settings_of_trial(3, n) for n in (0, 1)]
    assert tried["vcrt"][0] == {name: config().resolved().value(name) for name in RANGES}
    assert all(0 <= t.pass_rate <= 1 and 0 < t.orbit_mass < 1 for t in search.trials)
    assert not path.with_name(f"{SEARCH_FILE}.trials").exists()


def test_settings_cover_the_whole_of_their_ranges_evenly():
    for seed in (0, 1):
        drawn = [settings_of_trial(seed, number) for number in range(1, 65)]
        for name, (low, high) in RANGES.items():
            shares = sorted(np.log([one[name] / low for one in drawn]) / np.log(high / low))
            # Independent draws are 0.1 away from a grid, as a rule.
            assert np.abs(shares - (np.arange(64) + 0.5) / 64).max() < 0.06
        few = sorted(one["optimiser.learning_rate"] for one in drawn[:7])
        assert few[0] < 3e-4
        assert few[-1] > 1.5e-3
    assert settings_of_trial(0, 3) != settings_of_trial(1, 3)


def test_the_best_is_that_with_most_passes_then_most_mass_then_the_first(searched):
    search, _ = searched
    first, second = search.trials[:2]
    rows = [(0.5, 0.9), (0.7, 0.1)], [(0.5, 0.6), (0.5, 0.7)], [(0.5, 0.6), (0.5, 0.6)]
    for scores, expected in zip(rows, (1, 1, 0), strict=True):
        trials = [
            trial.model_copy(update={"pass_rate": rate, "orbit_mass": mass})
            for trial, (rate, mass) in zip((first, second), scores, strict=True)
        ]
        changed = search.model_copy(update={"trials": (*trials, *search.trials[2:])})
        assert changed.best(first.method, "toy-b").number == expected


def test_trials_see_source_items_alone_and_score_other_sources(dataset):
    job = _TrialJob(
        code={},
        dataset=dataset.path,
        root_hash=dataset.manifest.root_hash,
        backbone=EMBEDDED,
        backbone_digest="",
        method="vcrt",
        held_out="toy-b",
        number=0,
        config=RUN.resolved(),
        base_rate=RUN.resolved().optimiser.learning_rate,
        seed=3,
    )
    training, validation = _split(dataset, job)
    assert {i.environment for i in (*training, *validation)} == {"toy-a", "toy-c"}
    assert not {i.source for i in training} & {i.source for i in validation}
    assert len(validation) >= RUN.data.validation_share * (len(training) + len(validation))
    plan = plan_with(dataset, None)
    from vcrt_train.protocol.experiment import load_sources

    retention = load_sources(plan, dataset, "toy-b").retention
    assert not {i.source for i in retention} & {i.source for i in (*training, *validation)}


@pytest.mark.slow
def test_the_held_out_environment_is_not_opened(dataset, searched, tmp_path):
    search, _ = searched
    options = {name: value for name, value in OPTIONS.items() if name != "config"}
    closed = [*dataset.path.glob("*/toy-b*"), *dataset.path.glob("toy-b*")]
    assert closed
    contents = {path: path.read_bytes() for path in closed}
    try:
        for path in closed:
            path.write_bytes(b"nobody may read this")
        opened = open_dataset(dataset.path, without=("toy-b",))
        again = run_search(opened, tmp_path / SEARCH_FILE, config=RUN, **options)
        from vcrt.cli import main

        command = ["search", str(dataset.path), "--output", str(tmp_path / "cli.json")]
        command += ["--held-out", "toy-b", "--trials", "1", "--updates", "2", "--jobs", "1"]
        main([*command, "--methods", "vcrt"])
    finally:
        for path, data in contents.items():
            path.write_bytes(data)
    assert again == search


@pytest.mark.slow
def test_a_folder_that_is_not_the_search_s_own_is_left_alone(dataset, searched, tmp_path):
    output = tmp_path / SEARCH_FILE
    folder = tmp_path / f"{SEARCH_FILE}.trials"
    folder.mkdir()
    mine = [folder / name for name in ("notes.txt", "lock", f"vcrt-toy-b-0-{'0' * 16}.json")]
    for content in (b"mine too", searched[1].read_bytes()):
        for path in mine:
            path.write_text("mine")
        output.write_bytes(content)
        with pytest.raises(RunError, match="exists already"):
            run_search(dataset, output, **OPTIONS)
        assert mine[0].read_text() == "mine"
        # Beside a search that is whole, single trials are what a killed call left.
        assert mine[2].exists() == (content == b"mine too")
    output.unlink()
    run_search(dataset, output, **{**OPTIONS, "methods": ("vcrt",), "num_trials": 1})
    assert list(folder.iterdir()) == [mine[0]]


@pytest.mark.slow
def test_an_interrupted_search_goes_on_to_the_same_bytes(dataset, searched, tmp_path, monkeypatch):
    _, path = searched
    output = tmp_path / SEARCH_FILE
    from vcrt_train.protocol import trials

    real, done = trials.write_file, []

    def break_off(where, data):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(where)
        real(where, data)

    monkeypatch.setattr(trials, "write_file", break_off)
    with pytest.raises(KeyboardInterrupt):
        run_search(dataset, output, **OPTIONS)
    monkeypatch.setattr(trials, "write_file", real)
    kept = sorted(output.with_name(f"{SEARCH_FILE}.trials").glob("*.json"))
    assert len(kept) == 2
    # What cannot be read is run again; what can be is not.
    kept[0].write_bytes(kept[0].read_bytes()[:20])
    before = kept[1].stat().st_mtime_ns
    os.utime(kept[1], ns=(before - 10**9, before - 10**9))
    seen = []
    real_run = trials.in_fresh_processes
    monkeypatch.setattr(
        trials,
        "in_fresh_processes",
        lambda function, work, **options: seen.extend(work) or real_run(function, work, **options),
    )
    run_search(dataset, output, **OPTIONS)
    assert len(seen) == 3
    assert output.read_bytes() == path.read_bytes()


def plan_with(dataset, search, **changes):
    options = {
        "backbone": EMBEDDED,
        "backbone_digest": load_backbone("embedded").digest,
        "methods": ("canonical-grpo", "vcrt"),
        "held_out": ("toy-b",),
        "seeds": (0,),
        "seed": 3,
        "config": RUN,
        "search": search,
    }
    options |= changes
    options["config"] = EMBEDDED.resolved(options["config"])
    return make_plan(dataset, **options)


def test_a_plan_takes_up_what_was_chosen(dataset, searched, tmp_path):
    search, path = searched
    plan = plan_with(dataset, search)
    for run in plan.runs:
        best = search.best(run.method, run.held_out).settings
        assert plan.config_of(run) == EMBEDDED.resolved(RUN).override(best)
    assert (
        plan.config_of(plan.runs[0]).objective.mu
        == search.best(plan.runs[0].method, "toy-b").settings["objective.mu"]
    )
    assert plan.search == search.digest
    assert "2 settings" in plan.how_chosen
    experiment = create_experiment(plan, tmp_path / "e", search=search)
    assert (experiment.path / SEARCH_FILE).read_bytes() == path.read_bytes()
    assert open_experiment(experiment.path).plan == plan
    for other in (None, search.model_copy(update={"seed": 4})):
        with pytest.raises(RunError, match="another search"):
            create_experiment(plan, tmp_path / "f", search=other)


def test_a_search_of_something_else_is_refused(dataset, searched):
    search, _ = searched
    with pytest.raises(RunError, match="not of this experiment") as error:
        plan_with(dataset, search.model_copy(update={"root_hash": "0" * 64}))
    assert error.value.where == "root hash"
    with pytest.raises(RunError, match="not of this experiment"):
        plan_with(dataset, search, seed=4)
    with pytest.raises(RunError, match="trained with another setting") as error:
        plan_with(dataset, search, config=config(updates=2, retention_share=0.2))
    assert error.value.where == "data.retention_share"
    with pytest.raises(UnknownNameError, match="searched method"):
        plan_with(dataset, search, methods=("no-anti",))
    with pytest.raises(UnknownNameError, match="searched environment"):
        chosen_for(search, ("vcrt",), ("toy-a",))


@pytest.mark.parametrize(
    ("other", "where"),
    [
        ({"rank": 4}, "adapter.rank"),
        ({"clip": 0.1}, "objective.clip"),
        ({"validation_share": 0.3}, "data.validation_share"),
        ({"weight_decay": 0.1}, "optimiser.weight_decay"),
        ({"decay": "cosine"}, "schedule.decay"),
    ],
)
def test_a_search_of_other_training_is_refused(dataset, searched, other, where):
    search, _ = searched
    with pytest.raises(RunError, match="trained with another setting") as error:
        plan_with(dataset, search, config=config(**{"updates": 2, **other}))
    assert error.value.where == where
    # When a run is kept, how it saves memory, and what the search chooses itself, may differ.
    plan_with(
        dataset,
        search,
        config=config(updates=2, checkpoints=(1, 2), prompts_at_a_time=1, learning_rate=0.5),
    )


def test_runs_may_be_longer_than_trials_and_the_plan_says_so(dataset, searched):
    search, _ = searched
    longer = config(updates=3)
    plan = plan_with(dataset, search, config=longer)
    assert plan.config.schedule.updates == 3
    assert "after one run of 2 updates each" in plan.how_chosen
    for updates in (4, 0, 2.0, None):
        changed = {**search.config, "schedule": {**search.config["schedule"], "updates": updates}}
        with pytest.raises(RunError, match="number of updates") as error:
            plan_with(dataset, search.model_copy(update={"config": changed}), config=longer)
        assert error.value.where == "schedule.updates"
    # A trial that is run again is as long as it was.
    options = {"backbone": EMBEDDED, "config": EMBEDDED.resolved(longer), "number": 1, "jobs": 1}
    assert check_search(search, dataset, **options).trials == 1


def test_trials_are_not_run_again_on_a_gpu(dataset, searched, monkeypatch):
    search, _ = searched
    options = {"backbone": EMBEDDED, "config": EMBEDDED.resolved(RUN), "number": 1, "jobs": 1}
    monkeypatch.setattr(trials, "device_of", lambda _: "cuda")
    monkeypatch.setattr(trials, "in_fresh_processes", lambda *_, **__: pytest.fail("a trial ran"))
    with pytest.raises(RunError, match="cannot be checked on a GPU") as error:
        check_search(search, dataset, **options)
    assert "CUDA_VISIBLE_DEVICES= " in error.value.remedy


def test_a_search_of_another_method_of_the_name_is_refused(dataset, searched, monkeypatch):
    search, _ = searched
    changed = {**METHODS, "vcrt": replace(METHODS["vcrt"], terms=("policy_loss",))}
    monkeypatch.setattr(methods_module, "METHODS", changed)
    with pytest.raises(RunError, match="trained with another setting") as error:
        plan_with(dataset, search)
    assert error.value.where == "method vcrt"


def test_a_trial_that_leaves_the_finite_numbers_is_kept_as_such(dataset, tmp_path, monkeypatch):
    from vcrt_train.protocol import trials

    def wild(seed, number, learning_rate):
        settings = settings_of_trial(seed, 0)
        return settings | ({"optimiser.learning_rate": 1e30} if number else {})

    monkeypatch.setattr(trials, "settings_of_trial", wild)
    monkeypatch.setattr(
        trials, "in_fresh_processes", lambda function, work, **options: map(function, work)
    )
    options = {**OPTIONS, "methods": ("vcrt",), "config": config(updates=4)}
    search = run_search(dataset, tmp_path / SEARCH_FILE, **options)
    good, bad = search.trials
    assert (good.diverged, bad.diverged) == (False, True)
    assert (bad.pass_rate, bad.orbit_mass) == (0.0, 0.0)
    assert search.best("vcrt", "toy-b").number == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"held_out": ("toy_b",)}, "did you mean 'toy-b'"),
        ({"methods": ("vcrtt",)}, "did you mean 'vcrt'"),
        ({"methods": ("vcrt", "vcrt")}, "named twice"),
        ({"held_out": ("toy-b", "toy-b")}, "named twice"),
    ],
)
def test_names_are_checked_before_anything_is_tried(dataset, tmp_path, wrong, message):
    with pytest.raises(VcrtError, match=message):
        run_search(dataset, tmp_path / SEARCH_FILE, **{**OPTIONS, **wrong})
    assert list(tmp_path.iterdir()) == []


def test_an_altered_or_unequal_search_is_refused(searched, tmp_path):
    search, original = searched
    path = tmp_path / SEARCH_FILE
    with pytest.raises(RunError, match="no such search"):
        read_search(path)
    value = json.loads(original.read_text())
    value["search"]["trials"][0]["pass_rate"] = 1.0
    path.write_text(json.dumps(value))
    with pytest.raises(RunError, match="changed after it was made"):
        read_search(path)
    for broken in ("", "{", "[]", '{"search": {}}'):
        path.write_text(broken)
        with pytest.raises(RunError, match="search cannot be read"):
            read_search(path)
    # A forger who also mends the digest: fewer trials for one method, or other settings for it.
    better = search.trials[0].model_copy(
        update={"settings": search.trials[0].settings | {"optimiser.learning_rate": 2e-3}}
    )
    for some in (search.trials[:-1], (better, *search.trials[1:]), ()):
        write_search(search.model_copy(update={"trials": some}), path)
        with pytest.raises(RunError, match="does not have the trials"):
            read_search(path)


@pytest.mark.parametrize("wrong", [{"num_trials": 0}, {"methods": ()}, {"held_out": ()}])
def test_there_must_be_something_to_search(dataset, tmp_path, wrong):
    with pytest.raises(RunError, match="nothing to search"):
        run_search(dataset, tmp_path / SEARCH_FILE, **{**OPTIONS, **wrong})


def test_an_existing_search_is_not_overwritten(dataset, tmp_path):
    path = tmp_path / SEARCH_FILE
    path.write_text("mine")
    with pytest.raises(RunError, match="exists"):
        run_search(dataset, path, **OPTIONS)
    assert path.read_text() == "mine"


def test_an_unverified_dataset_is_not_searched_on(dataset, tmp_path):
    from vcrt.errors import DatasetError
    from vcrt.records.manifest import AGREEMENT

    record = dataset.path / AGREEMENT
    data = record.read_bytes()
    record.unlink()
    try:
        with pytest.raises(DatasetError, match="not verified"):
            run_search(open_dataset(dataset.path), tmp_path / SEARCH_FILE, **OPTIONS)
    finally:
        record.write_bytes(data)


def test_chosen_settings_reach_the_update():
    values = {"learning_rate": 2e-4, "alpha": 0.3, "margin": 1.5, "mu": 4.0}
    settings = {setting(name): value for name, value in values.items()}
    assert settings.keys() == RANGES.keys()
    found = config(rank=3).override(settings)
    assert (found.optimiser.learning_rate, found.adapter.rank) == (2e-4, 3)
    objective = found.objective
    assert (objective.alpha, objective.margin, objective.mu) == (0.3, 1.5, 4.0)
    defaults = {name: config().value(name) for name in RANGES}
    assert found.override(defaults) == config(rank=3)


def test_the_commands_print_methods_and_what_was_chosen(searched, dataset, capsys, tmp_path):
    from rich.console import Console

    from vcrt.cli import main
    from vcrt_train.cli.plan import print_search

    main(["methods"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in METHODS)
    search, _ = searched
    console = Console(width=120, record=True)
    print_search(console, search)
    rows = [line.split("│")[1:-1] for line in console.export_text().splitlines() if "│" in line]
    cells = {row[0].strip(): [cell.strip() for cell in row] for row in rows}
    best = search.best("vcrt", "toy-b")
    assert cells["vcrt"][2] == f"{best.settings['optimiser.learning_rate']:.3g}"
    assert cells["vcrt"][6] == f"{100 * best.pass_rate:.2f}%"
    # What a method has no use for is not shown as chosen.
    assert cells["canonical-grpo"][3:6] == ["-", "-", "-"]


@pytest.mark.parametrize("name", RANGES)
def test_what_a_search_chooses_is_not_given_as_well(searched, dataset, capsys, tmp_path, name):
    from vcrt.cli import main

    plan = ["plan", str(dataset.path), "--output", str(tmp_path / "e"), "--search"]
    with pytest.raises(SystemExit):
        main([*plan, str(searched[1]), f"--{name}", "0.5"])
    error = capsys.readouterr().err
    assert "chosen twice" in error
    assert name in error
    given = RUN.override({name: 0.5})
    if name == LEARNING_RATE:
        return  # Around the one that is given, the others are drawn.
    with pytest.raises(ConfigError, match="chosen twice"):
        run_search(dataset, tmp_path / SEARCH_FILE, **{**OPTIONS, "config": given})
    assert not list(tmp_path.iterdir())


def test_the_rate_that_a_search_started_from_may_be_given_again(dataset, tmp_path):
    """As that of a preset is; any other is chosen twice."""
    given = RUN.override({LEARNING_RATE: 3e-4})
    path = tmp_path / SEARCH_FILE
    options = {**OPTIONS, "config": given, "methods": ("vcrt",), "num_trials": 1}
    assert run_search(dataset, path, **options).learning_rate == 3e-4
    with pytest.raises(ConfigError, match="learning rate would be chosen twice"):
        vcrt_train.plan(
            dataset,
            tmp_path / "other",
            search=path,
            config=given.override({LEARNING_RATE: 4e-4}),
            seed=3,
        )
    planned = vcrt_train.plan(dataset, tmp_path / "same", search=path, config=given, seed=3)
    assert planned.plan.methods == ("vcrt",)
