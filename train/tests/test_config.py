"""One configuration: the same in Python, in TOML, on the command line and in a plan."""

from __future__ import annotations

import tomllib
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
import torch

import vcrt_train
from command_line import refused, run
from training_fixtures import tiny_model
from vcrt.errors import ConfigError, UnknownNameError, VcrtError
from vcrt_train.config import (
    DEFAULTS,
    MAX_UPDATES,
    AdapterConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimiserConfig,
    RunConfig,
    ScheduleConfig,
    setting_names,
)
from vcrt_train.config_files import (
    checked,
    how_settings_were_chosen,
    load_config,
    settings_names,
    to_toml,
)
from vcrt_train.policy.reference import CATALOGUE
from vcrt_train.training.update import learning_rate_at, new_state

PAPER_PRESETS = ("granite-4.1-3b", "qwen3.5-2b")
#: For every setting, another value than the default.
OTHER = {
    "data.retention_share": 0.3,
    "data.validation_share": 0.4,
    "model.backbone": "embedded-long",
    "model.lock": "a lock",
    "model.dtype": "bfloat16",
    "model.prompt_style": "chat",
    "model.relation_names": "words",
    "model.scoring": "naive",
    "adapter.rank": 4,
    "adapter.alpha": 4.0,
    "adapter.dropout": 0.1,
    "adapter.recurrent": True,
    "optimiser.learning_rate": 0.5,
    "optimiser.weight_decay": 0.1,
    "optimiser.betas": (0.5, 0.75),
    "optimiser.eps": 1e-6,
    "optimiser.max_gradient_norm": 2.0,
    "sampling.prompts_per_update": 3,
    "sampling.samples_per_prompt": 5,
    "objective.clip": 0.5,
    "objective.alpha": 0.25,
    "objective.margin": 3.0,
    "objective.mu": 4.0,
    "objective.commutation_cap": 0.125,
    "objective.retention_cap": 0.25,
    "objective.action_kl_cap": 0.5,
    "estimator.max_legal_prefixes": 7,
    "estimator.num_paths": 8,
    "estimator.scheme": "independent",
    "estimator.num_swaps": 9,
    "schedule.updates": 20,
    "schedule.epochs_per_update": 3,
    "schedule.dual_steps": "epoch",
    "schedule.warmup_updates": 5,
    "schedule.decay": "cosine",
    "schedule.checkpoints": (10, 20),
    "schedule.validate_every": 7,
    "memory.prompts_at_a_time": 1,
    "memory.gradient_checkpointing": True,
}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def flags(values):
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            yield flag
        else:
            yield from (flag, *(map(str, value) if isinstance(value, tuple) else [str(value)]))


def test_every_setting_has_another_value_here():
    assert tuple(OTHER) == setting_names()
    for name, value in OTHER.items():
        assert DEFAULTS.value(name) != value


def test_python_a_file_and_the_command_line_give_the_same(tmp_path, capsys):
    in_python = DEFAULTS.override(OTHER)
    assert all(in_python.value(name) == value for name, value in OTHER.items())
    from_file = load_config(written(tmp_path, to_toml(in_python)))
    assert from_file == in_python
    code, out, _ = run(capsys, "plan", "data", "--output", "e", *flags(OTHER), "--print-config")
    assert code == 0
    assert tomllib.loads(out) == tomllib.loads(to_toml(in_python))
    assert not Path("e").exists()


@pytest.mark.parametrize("command", ["plan", "search", "reproduce"])
def test_what_is_printed_is_what_would_run(capsys, tmp_path, command):
    place = ["data"] if command != "reproduce" else []
    code, out, _ = run(capsys, command, *place, "--output", "e", "--print-config")
    assert code == 0
    assert load_config(written(tmp_path, out)).resolved() == DEFAULTS.resolved()


def test_the_command_line_stands_above_the_file_and_that_above_named_settings(tmp_path, capsys):
    path = written(
        tmp_path, 'settings = "granite-4.1-3b"\n[adapter]\nrank = 8\n[objective]\nmargin = 5\n'
    )
    place = ("plan", "data", "--output", "e", "--print-config", "--config", str(path))
    _, out, _ = run(capsys, *place, "--objective.margin", "2.0")
    found = tomllib.loads(out)
    # Equal to the library's default, and yet given.
    assert found["objective"]["margin"] == 2.0
    assert found["adapter"] == {"rank": 8, "alpha": 128.0, "dropout": 0.05, "recurrent": False}
    assert found["model"]["backbone"] == "ibm-granite/granite-4.1-3b"
    assert found["optimiser"]["learning_rate"] == 5e-6
    _, out, _ = run(capsys, *place[:-2], f"--config={path}", "--lora-rank", "4")
    assert tomllib.loads(out)["adapter"]["rank"] == 4
    assert tomllib.loads(out)["objective"]["margin"] == 5.0


def test_the_settings_of_a_model_that_is_no_paper_s_say_so():
    assert set(settings_names()) == {*PAPER_PRESETS, "smollm2-135m"}
    assert all("the paper's" in how_settings_were_chosen(name) for name in PAPER_PRESETS)
    assert "Nothing was searched for." in how_settings_were_chosen("smollm2-135m")
    found = load_config(settings="smollm2-135m")
    assert found.model.backbone in CATALOGUE
    assert found.optimiser.learning_rate == 5e-5


@pytest.mark.parametrize("name", PAPER_PRESETS)
def test_named_settings_are_the_papers(name):
    found = load_config(settings=name)
    assert found.adapter == AdapterConfig(rank=64, alpha=128.0, dropout=0.05)
    assert found.resolved().adapter.scale == 2.0
    assert (found.optimiser.learning_rate, found.schedule.updates) == (5e-6, 400)
    assert found.model.dtype == "bfloat16"
    assert found.objective == ObjectiveConfig()


@pytest.mark.parametrize(
    ("text", "line", "said", "remedy"),
    [
        ("[objective]\nmargn = 3", 2, "objective.margn", "did you mean 'objective.margin'?"),
        ("\n[objectiv]\nmargin = 3", 2, "objectiv", "did you mean 'objective'?"),
        ("margin = 3", 1, "margin", "did you mean 'objective.margin'?"),
        ("[model]\nlora_rank = 3", 2, "model.lora_rank", "did you mean 'adapter.rank'?"),
        ("objective.clip = 7.0", 1, "objective.clip is not possible", None),
        ("[objective]\nmu = 1\nclip = nan", 3, "objective.clip is not possible", None),
        ('[schedule]\nupdates = "3"', 2, "schedule.updates is not possible", None),
        ("[schedule]\nupdates = 3.5", 2, "schedule.updates is not possible", None),
        ("[schedule]\nupdates = true", 2, "schedule.updates is not possible", None),
        ("[memory]\ngradient_checkpointing = 1", 2, "memory.gradient_checkpointing", None),
        ('[schedule]\n# a comment\n"decay" = "cos"', 3, "schedule.decay is not possible", None),
        ("[schedule]\nupdates = 10\ncheckpoints = [5]", 3, "schedule.checkpoints", None),
        ("objective = 3", 1, "objective is not possible", None),
        (
            'settings = "gwen3.5-2b"',
            1,
            "unknown name of settings 'gwen3.5-2b'",
            "did you mean 'qwen3.5-2b'?",
        ),
        ("[adapter]\nalpha = 3.0", 2, "adapter.alpha is not possible", None),
        ("[optimiser]\nbetas = [0.9]", 2, "optimiser.betas", None),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path, text, line, said, remedy):
    path = written(tmp_path, text)
    with pytest.raises(VcrtError) as error:
        load_config(path)
    assert isinstance(error.value, ConfigError | UnknownNameError)
    assert said in error.value.what
    assert error.value.where == f"{path}, line {line}"
    assert error.value.remedy == remedy
    assert error.value.expected
    assert f"line {line}" in str(error.value)


@pytest.mark.parametrize(
    "text",
    ["a = ", "[objective]\nmargin = 1\nmargin = 2", "x = 2026-01-01", "\x00", "[[objective]]"],
)
def test_no_file_ends_in_a_traceback(tmp_path, text):
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        load_config(written(tmp_path, text))
    assert str(tmp_path) in str(error.value)
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    for wrong in (path, tmp_path / "none.toml", tmp_path):
        with pytest.raises(VcrtError, match=str(wrong)):
            load_config(wrong)


def test_two_sources_that_disagree(tmp_path, capsys):
    path = written(tmp_path, 'settings = "granite-4.1-3b"')
    with pytest.raises(ConfigError, match="two different settings were named") as error:
        load_config(path, settings="qwen3.5-2b")
    assert error.value.where == f"{path}, line 1"
    assert load_config(path, settings="granite-4.1-3b") == load_config(path)
    said = refused(capsys, "plan", "d", "--output", "e", f"--config={path}", "--settings", "qwen")
    assert "two different settings were named" in said


def test_the_command_line_names_what_is_wrong(tmp_path, capsys):
    place = ("plan", "d", "--output", "e")
    assert "objective.clip is not possible" in refused(capsys, *place, "--objective.clip", "2")
    path = written(tmp_path, "[objective]\nmargn = 3")
    said = refused(capsys, *place, "--config", str(path))
    assert f"{path}, line 2" in said
    assert "did you mean 'objective.margin'?" in said
    code, _, err = run(capsys, *place, "--objective.margn", "3")
    assert code == 2
    assert "--objective.margin" in err


def test_overrides_are_by_name():
    with pytest.raises(UnknownNameError, match="objective"):
        DEFAULTS.override({"objective.margn": 3.0})
    with pytest.raises(FrozenInstanceError):
        DEFAULTS.objective.margin = 3.0  # type: ignore[misc]
    # Several at once are judged together: neither alone would be possible.
    longer = {"schedule.updates": 900, "schedule.checkpoints": (900,)}
    kept = DEFAULTS.override({"schedule.checkpoints": (400,)})
    assert kept.override(longer).schedule == ScheduleConfig(updates=900, checkpoints=(900,))


def test_types_are_checked_before_anything_is_planned():
    wrong = replace(DEFAULTS, objective=replace(DEFAULTS.objective, margin=True))
    with pytest.raises(ConfigError, match="objective"):
        checked(wrong)
    assert checked(DEFAULTS.override(OTHER)) == DEFAULTS.override(OTHER)


def test_defaults_that_depend_on_the_model():
    language_model = RunConfig(model=ModelConfig(backbone="OWNER/MODEL"))
    assert DEFAULTS.optimiser.learning_rate is None
    assert DEFAULTS.resolved().optimiser.learning_rate == 1e-3
    assert language_model.resolved().optimiser.learning_rate == 5e-6
    assert DEFAULTS.resolved().schedule.checkpoints == (50, 100, 150, 400)
    adapted = RunConfig(adapter=AdapterConfig(rank=8)).resolved()
    assert (adapted.adapter.alpha, adapted.adapter.scale) == (16.0, 2.0)
    assert adapted.resolved() == adapted
    assert DEFAULTS.resolved().adapter.alpha == 0.0
    with pytest.raises(ConfigError, match="checkpoints"):
        adapted.override({"schedule.checkpoints": ()})


def test_every_setting_is_told_in_help(capsys):
    code, out, _ = run(capsys, "plan", "--help")
    assert code == 0
    for name in setting_names():
        section, key = name.replace("_", "-").split(".")
        assert f"--{section}.{key}" in out
    for section in fields(RunConfig):
        for setting in fields(section.default_factory):
            assert setting.name != "help"


def rates(updates=10, **schedule):
    config = DEFAULTS.override(
        {"optimiser.learning_rate": 1.0, "schedule.updates": updates}
        | {f"schedule.{name}": value for name, value in schedule.items()}
    )
    return [learning_rate_at(number, config.resolved()) for number in range(updates)]


def test_the_learning_rate_rises_and_falls():
    assert rates() == [1.0] * 10
    assert rates(4, warmup_updates=4) == [0.25, 0.5, 0.75, 1.0]
    assert rates(4, decay="linear") == [1.0, 0.75, 0.5, 0.25]
    cosine = rates(8, warmup_updates=4, decay="cosine")
    assert cosine[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert cosine[4:] == sorted(cosine[4:], reverse=True)
    assert cosine[6] == pytest.approx(0.5)
    assert all(rate > 0 for rate in rates(MAX_UPDATES // 1000, decay="cosine"))


def test_the_optimiser_gets_its_settings():
    values = {name: value for name, value in OTHER.items() if name.startswith("optimiser.")}
    group = new_state(
        tiny_model(), DEFAULTS.override(values).resolved(), seed=0
    ).optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.5, 0.75), 1e-6)
    assert group["weight_decay"] == 0.1
    plain = new_state(tiny_model(), DEFAULTS.resolved(), seed=0).optimizer
    assert plain.defaults["betas"] == torch.optim.AdamW([torch.zeros(1)]).defaults["betas"]
    assert OptimiserConfig().eps == torch.optim.AdamW([torch.zeros(1)]).defaults["eps"]


def test_it_is_public():
    assert vcrt_train.RunConfig is RunConfig
    assert vcrt_train.load_config is load_config


@pytest.mark.parametrize("value", ["16", None, 16.5, True, [16]])
def test_overrides_of_a_wrong_type_are_named(value):
    with pytest.raises(ConfigError, match="samples_per_prompt is not possible"):
        load_config(overrides={"sampling.samples_per_prompt": value})


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("group_size", "sampling.samples_per_prompt"),
        ("sampling.num_generations", "sampling.samples_per_prompt"),
        ("optimiser.lr", "optimiser.learning_rate"),
        ("schedule.max_steps", "schedule.updates"),
        ("schedule.eval_steps", "schedule.validate_every"),
    ],
)
def test_names_of_other_libraries_lead_to_ours(name, ours):
    for asked in (load_config, lambda *, overrides: DEFAULTS.override(overrides)):
        with pytest.raises(UnknownNameError) as error:
            asked(overrides={name: 1})
        assert error.value.remedy == f"did you mean {ours!r}?"
