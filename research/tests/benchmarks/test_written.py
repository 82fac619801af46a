"""The experiment on written traces: its sampler draws what the adapted model says, and its page pairs runs."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from tiny_models import tiny_model
from vcrt_train.policy.adapters import with_adapters

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "written"))

import page
from sampling import Sampler

PROMPTS = [[5, 9, 2], [7, 3, 11, 4, 8, 6], [12, 1]]
MOST = 9


@pytest.fixture(scope="module")
def adapted():
    """A model whose adapters change what it says."""
    model = with_adapters(tiny_model("llama", sharpness=3.0), rank=2, scale=2.0, seed=0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3, generator=draw)
    return model


@pytest.fixture(scope="module")
def sampler(adapted, tmp_path_factory):
    """A sampler of the model's own weights that follows the adapted one."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama", sharpness=3.0).save_pretrained(folder)
    made = Sampler(folder, torch.float32, torch.device("cpu"))
    made.follow(adapted)
    return made


def most_probable(model, prompt, ends=()):
    """The most probable answer, by whole passes over everything that was written before each token."""
    answer = []
    while len(answer) < MOST and not (answer and answer[-1] in ends):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, -1]
        answer.append(int(logits.argmax()))
    return answer


def test_answers_are_those_of_the_adapted_model_whoever_else_is_in_the_batch(adapted, sampler):
    whole = [most_probable(adapted, prompt) for prompt in PROMPTS]
    assert sampler(PROMPTS, each=1, most=MOST, ends=[]) == whole
    # Each of these ends one of the answers before the others.
    ends = {answer[place] for answer, place in zip(whole, (2, 5, 8), strict=True)}
    expected = [most_probable(adapted, prompt, ends) for prompt in PROMPTS]
    assert len({len(answer) for answer in expected}) > 1
    assert sampler(PROMPTS, each=2, most=MOST, ends=list(ends)) == [
        answer for answer in expected for _ in range(2)
    ]


def test_draws_have_the_models_probabilities_and_are_repeated_by_their_seed(adapted, sampler):
    def drawn(each, most):
        draw = torch.Generator().manual_seed(3)
        return sampler(PROMPTS[:1], each=each, most=most, ends=[], draw=draw)

    assert drawn(4, MOST) == drawn(4, MOST)
    counts = torch.zeros(adapted.config.vocab_size)
    for answer in drawn(20_000, 2):
        counts[answer[1]] += 1
    with torch.no_grad():
        first = adapted(input_ids=torch.tensor(PROMPTS[:1])).logits[0, -1].softmax(-1)
        rows = torch.tensor([[*PROMPTS[0], token] for token in range(len(first))])
        second = adapted(input_ids=rows).logits[:, -1].softmax(-1)
    torch.testing.assert_close(counts / 20_000, first @ second, atol=0.015, rtol=0)


def one_run(fold, method, seed, environments, passes):
    names = [f"{name}/{kind}" for name in environments for kind in ("known", "new")]
    # On tasks of new sources one fewer.
    passes = {name: passes[name.split("/")[0]] - name.endswith("/new") for name in names}
    return {
        "fold": fold,
        "method": method,
        "seed": seed,
        # In the fold of two environments, each seed on another machine.
        "dtype": "float32" if fold == "clrs" and seed else "bfloat16",
        "size": {"prompts": 2, "samples": 8},
        "sources": {name: [str(item) for item in range(8)] for name in names},
        "scores": {
            "before": {name: [0] * 8 for name in names},
            "after": {name: [1] * passes[name] + [0] * (8 - passes[name]) for name in names},
        },
        # Orbits solve 10 and 30 points more.
        "log": [
            {
                "reward": 0.5 + (method == "orbit") * (0.1 + 0.2 * seed),
                "step_time": 4.0 if method == "orbit-margin" else 2.0,
            }
        ]
        * (2 * page.BLOCK),
    }


def test_the_page_tells_what_was_trained_from_what_was_held_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    folds = {"tools": ["bfcl"], "clrs": ["clrs", "proofwriter", "bfcl"]}
    for fold, names in folds.items():
        (tmp_path / fold).mkdir()
        for method in page.METHODS:
            better = 2 * (method == "orbit")
            passes = {"bfcl": 2 + better, "proofwriter": 2 + better, "clrs": 6 - better}
            for seed in (0, 1):
                found = gzip.compress(
                    json.dumps(one_run(fold, method, seed, names, passes)).encode()
                )
                (tmp_path / fold / f"{method}-{seed}.json.gz").write_bytes(found)
    # A run without its companions is in no table.
    (tmp_path / "clrs" / "grpo-2.json.gz").write_bytes(
        gzip.compress(json.dumps(one_run("clrs", "grpo", 2, folds["clrs"], passes)).encode())
    )
    page.main()
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("| orbit |")]
    after = [line.split("|")[4].split()[0] for line in lines]
    gained = [line.split("|")[5].split()[0] for line in lines]
    difference = [line.split("|")[6].split()[0] for line in lines]
    assert [line.split("|")[2].strip() for line in lines] == ["2"] * 5
    # Tool calls alone, then what was trained on: of known sources and of new ones; then what was held out.
    assert after == ["50.0", "37.5", "50.0", "37.5", "43.8"]
    assert gained == after  # From nothing.
    assert difference == ["25.0", "25.0", "25.0", "25.0", "-25.0"]
    assert printed.count("clrs held out (times are of different machines)\n") == 2
    assert printed.count("tool calls alone\n") == 2
    # 20 points in the mean of two runs, give or take 12.706 (t, one degree of freedom) times 14.14 / sqrt(2).
    assert printed.count("  orbit (2 runs): 160: 70, 320: 70; +20.0 [-107.1, +147.1];") == 2
    # In quarters of GRPO's 40 seconds; an update that takes twice as long is made half as often.
    assert printed.count("  orbit: 0.2: 70, 0.3: 70, 0.5: 70, 0.7: 70; 100% of its updates") == 2
    assert (
        printed.count("  orbit-margin: 0.2: 50, 0.3: 50, 0.5: 50, 0.7: 50; 50% of its updates") == 2
    )
