"""A tiny Qwen3.5 with adapters through the whole protocol, trained by two processes."""

from __future__ import annotations

import pytest

from language_models import byte_level_tokenizer, save_model
from two_toys import TWO_TOYS, trained
from vcrt.certification.config import sampled
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.protocol.experiment import open_experiment
from vcrt.protocol.scores import read_scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("distributed")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(frozen, jobs=1, factories=TWO_TOYS)
    save_model(path / "qwen", "qwen3_5", tokenizer=byte_level_tokenizer(chat=True))
    main(["backbone", "lock", str(path / "qwen"), "--revision", "made by a test"])
    return path


def planned(folder, name):
    experiment = folder / name
    main(
        [
            *("plan", str(folder / "data"), "--output", str(experiment), "--runs", "1"),
            *("--backbone", str(folder / "qwen"), "--held-out", "toy-b", "--methods", "vcrt"),
            *("--updates", "3", "--lora-rank", "2", "--learning-rate", "1e-3"),
            # Two processes add their gradients in another order: in bfloat16 that is more than rounding in float32.
            *("--dtype", "float32"),
        ]
    )
    return experiment


@pytest.fixture(scope="module")
def alone(folder):
    """What one process comes to."""
    experiment = planned(folder, "alone")
    main(["train", str(experiment), "--jobs", "1"])
    return trained(experiment)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), ("--sharded", "--prompts-at-a-time", "1", "--gradient-checkpointing")]
)
def test_two_processes_take_it_through_the_whole_protocol(folder, alone, options):
    shared = planned(folder, f"shared{len(options)}")
    main(["train", str(shared), "--num-processes", "2", *options])
    (weights, metrics), (others, lines) = trained(shared), alone
    for line, other in zip(metrics, lines, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-5, abs=1e-6)
    assert weights.keys() == others.keys()
    assert max(float((weights[n] - others[n]).abs().max()) for n in weights) < 1e-5
    (entry,) = open_experiment(shared).ledger.entries("run")
    assert entry.body["processes"] == 2
    assert entry.body.get("prompts_at_a_time") == (1 if options else None)
    assert entry.body.get("gradient_checkpointing") == (True if options else None)
    main(["evaluate", str(shared), "--jobs", "1"])
    main(["report", str(shared)])
    assert (shared / "report" / "report.html").is_file()
    assert set(read_scores(open_experiment(shared)).runs) == {"vcrt/toy-b/0"}
