"""Make an embedded backbone from nothing: ``python -m vcrt_research.pretraining DIRECTORY [NAME]``.

The same recipe (:mod:`vcrt_research.pretraining_recipes`) on the same machine and library versions gives the same
bytes. What is taught is in :mod:`vcrt_research.pretraining_data` and
:mod:`vcrt_research.pretraining_long_data`: format and reading, never which orders are legal. Not covered:
accelerators.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from vcrt.hashing import Json
from vcrt.randomness import derive_seed
from vcrt_research.pretraining_data import Example
from vcrt_research.pretraining_recipes import QUESTION_SHARE, RECIPES, SHORT, Recipe
from vcrt_train.policy.backbone import blank_model, write_backbone
from vcrt_train.policy.tokenizer import embedded_tokenizer, token_ids
from vcrt_train.randomness import generator

#: Called after each step with the step's number (from 1), the number of steps and the loss in nats.
Progress: TypeAlias = Callable[[int, int, float], None]

WARMUP_STEPS = 50
DECAY_SHARE = 0.7
NUM_LAST_LOSSES = 100


def pretrain(
    output: Path,
    *,
    recipe: Recipe = SHORT,
    seed: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    num_card_records: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Pretrain an embedded backbone, measure it, write it to ``output``; returns the digest of its lock.

    What is given stands in the place of the recipe's own.
    """
    recipe = replace(
        recipe,
        seed=recipe.seed if seed is None else seed,
        steps=recipe.steps if steps is None else steps,
        batch_size=recipe.batch_size if batch_size is None else batch_size,
        num_card_records=recipe.num_card_records if num_card_records is None else num_card_records,
    )
    tokenizer = embedded_tokenizer(recipe.num_pointers)
    with _one_thread():
        model = initial_model(recipe.seed, recipe.config(len(tokenizer)))
        losses = _train(model, tokenizer, recipe, progress)
        measurements = recipe.measure(
            model,
            tokenizer,
            seed=derive_seed(recipe.seed, "card"),
            num_records=recipe.num_card_records,
        )
    card: dict[str, Json] = {
        "seed": recipe.seed,
        "steps": recipe.steps,
        recipe.batch_unit: recipe.batch_size,
        "learning_rate": recipe.learning_rate,
        "question_share": QUESTION_SHARE,
        "record_weight": recipe.record_weight,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "final_loss": round(float(np.mean(losses[-NUM_LAST_LOSSES:])), 4),
        "measurements": measurements,
        "versions": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }
    text = json.dumps(card, indent=2) + "\n"
    return write_backbone(output, model=model, tokenizer=tokenizer, card=text)


def initial_model(seed: int, config: Qwen3Config) -> Qwen3ForCausalLM:
    """A model with random weights drawn from a generator of its own, never from the global one."""
    model = blank_model(config)
    draw = torch.Generator().manual_seed(derive_seed(seed, "initial weights") % 2**63)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                # Queries and keys are normalised, so that this bounds how sharp attention can be.
                parameter.fill_(1.5)
            elif parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                # Larger than is usual: at a third of it, look-ups are not learnt in as many steps.
                scale = 0.8 if "embed_tokens" in name else 1.6
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    scale = 0.64
                parameter.normal_(0.0, scale / math.sqrt(parameter.shape[1]), generator=draw)
    return model


def _train(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    progress: Progress | None,
) -> list[float]:
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    losses = []
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe.steps)
        draw = generator(recipe.seed, "pretraining batch", step)
        examples = recipe.batch(
            draw, recipe.batch_size, question_share=QUESTION_SHARE, share=step / recipe.steps
        )
        loss = _loss(model, tokenizer, examples, recipe.record_weight)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if progress is not None:
            progress(step + 1, recipe.steps, losses[-1])
    return losses


def _schedule(step: int, steps: int) -> float:
    """Warm-up, then constant, then linearly down to zero: reading is learnt suddenly, and may be late."""
    remaining = (steps - step) / steps
    return min(1.0, (step + 1) / WARMUP_STEPS, remaining / DECAY_SHARE)


def _loss(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    examples: Sequence[Example],
    record_weight: float,
) -> Tensor:
    longest = max(len(example.words) for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    weights = torch.zeros(len(examples), longest)
    for row, example in enumerate(examples):
        length = len(example.words)
        ids[row, :length] = torch.tensor(token_ids(tokenizer, example.words))
        weights[row, :length] = torch.where(torch.tensor(example.is_answer), 1.0, record_weight)
    # Padding on the right is invisible under the causal mask and weighs nothing.
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    losses = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (losses * weights[:, 1:]).sum() / weights[:, 1:].sum()


@contextmanager
def _one_thread() -> Iterator[None]:
    # The number of threads changes the order of sums, and with it the last bits.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _print_progress(step: int, steps: int, loss: float) -> None:
    if step % 100 == 0 or step == steps:
        print(f"step {step}/{steps}  loss {loss:.3f}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or not {*sys.argv[2:]} <= set(RECIPES):
        raise SystemExit(
            f"usage: python -m vcrt_research.pretraining DIRECTORY [{' | '.join(RECIPES)}]"
        )
    chosen = RECIPES[[*sys.argv[2:], SHORT.name][0]]
    print(pretrain(Path(sys.argv[1]), recipe=chosen, progress=_print_progress))
