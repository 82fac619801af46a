"""The example of a task of one's own, run as its reader does, on a tiny model that knows letters alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

EXAMPLES = Path(__file__).parents[3] / "examples"


def save_model(folder):
    """One token a byte, the end of a text, and as little between them as a model may have."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: i for i, word in enumerate(("<end>", "<pad>", *letters))}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Split("", "isolated")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<end>", pad_token="<pad>", padding_side="left"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(vocabulary),
                hidden_size=16,
                intermediate_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=8,
                eos_token_id=0,
                pad_token_id=1,
            )
        ).save_pretrained(folder)


@pytest.mark.slow
def test_the_example_teaches_the_form_and_trains(tmp_path):
    save_model(tmp_path / "model")
    rows = (EXAMPLES / "own_task.jsonl").read_text().splitlines()[:8]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    script, model, data = EXAMPLES / "own_task.py", tmp_path / "model", tmp_path / "rows.jsonl"
    run = subprocess.run(
        [sys.executable, script, data, model, "2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    told = [line for line in run.stdout.splitlines() if line.startswith("step")]
    assert [line.split(",")[0] for line in told] == ["step 1: solved 0.00", "step 2: solved 0.00"]
