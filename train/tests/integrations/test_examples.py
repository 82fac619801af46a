"""The example script and the page's snippet run as they stand, on the own model and on a chat model from a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

import toy_environment as toy
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.replay.config import sampled

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "trl_orbit_grpo.py"
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    """A folder with a tiny model and a byte-level tokenizer with a chat template."""
    folder = tmp_path_factory.mktemp("chat")
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        ["p0 p1 p2 p3 p4 p5 p6 p7 must come before in any order."] * 9,
        trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=["<pad>", "<|start|>", "<|end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token="<|end|>",
        chat_template=TEMPLATE,
        padding_side="left",
    )
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=8,
                max_position_embeddings=1024,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=0,
            )
        ).save_pretrained(folder)
    return folder


def python(*arguments, cwd):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(cwd / "home"),
    }
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_example_is_short_and_runs(tmp_path):
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
    out = python(EXAMPLE, "--steps", "10", cwd=tmp_path)
    (line,) = [line for line in out.splitlines() if line.startswith("step")]
    reward, mass = (float(word.strip(",")) for word in re.findall(r"\d\.\d+", line))
    # The own model reads records but knows no rule yet: about half of its answers are legal.
    assert 0.3 < reward < 0.9
    assert 0.3 < mass < 0.9


@pytest.mark.slow
def test_the_example_takes_a_chat_model(chat_model, tmp_path):
    out = python(EXAMPLE, "--model", chat_model, "--steps", "10", cwd=tmp_path)
    assert "step  10: reward 0.00" in out


@pytest.mark.slow
def test_the_snippet_of_the_page_runs(chat_model, tmp_path):
    text = (ROOT / "docs" / "trl.md").read_text(encoding="utf-8")
    name = "Qwen/Qwen3.5-2B"
    (snippet,) = (s for s in re.findall(r"```py\n(.*?)```", text, re.DOTALL) if name in s)
    # What differs from what a reader runs: a model that is here, three steps, and a toy in the place of CLRS.
    snippet = snippet.replace(name, str(chat_model)).replace('"clrs"', '"toy-b"')
    snippet = snippet.replace(
        "num_iterations=2", "num_iterations=2, max_steps=3, use_cpu=True, bf16=False"
    )
    factories = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
    config = sampled(dict.fromkeys(factories, ("needs",)), 2, seed=0)
    dataset = make_dataset(config, tmp_path / "runs" / "data", jobs=1, factories=factories)
    verify_agreement(dataset, jobs=1, factories=factories)
    (tmp_path / "snippet.py").write_text(snippet, encoding="utf-8")
    python(tmp_path / "snippet.py", cwd=tmp_path)
