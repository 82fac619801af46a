"""TRL's GRPOTrainer on the model and prompts of the GPU benchmark; needs TRL and datasets."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from vcrt.orders import all_orders
from vcrt_train.config import LANGUAGE_MODEL_LEARNING_RATE
from vcrt_train.training.items import EncodedItem


class _Steps(TrainerCallback):
    """Seconds of each optimiser step, generation included where a step begins with it."""

    def __init__(
        self, synchronise: Callable[[], None], epochs: int, after_update: Callable[[], None]
    ) -> None:
        self.epochs, self.after_update = epochs, after_update
        self.seconds: list[float] = []
        self._began = 0.0
        self._synchronise = synchronise

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._synchronise()
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._synchronise()
        self.seconds.append(time.perf_counter() - self._began)
        if len(self.seconds) % self.epochs == 0:
            self.after_update()


def trl_seconds(
    model: Any,
    items: list[EncodedItem],
    *,
    updates: int,
    warm_up: int,
    sizes: tuple[int, int, int, int],
    synchronise: Callable[[], None],
    on_cpu: bool,
    after_update: Callable[[], None] = lambda: None,
) -> list[float]:
    """Seconds of each update after the warm-up; ``sizes`` are prompts, samples, epochs and tokens of an answer.

    ``after_update`` is called after each, on nobody's time: what is measured beside TRL takes its turn there.
    """
    prompts, samples, epochs, tokens = sizes
    steps = _Steps(synchronise, epochs, after_update)
    legal = [
        {
            tuple(item.prompt.pointer_ids[slot] for slot in order)
            for order, flag in zip(
                all_orders(item.prompt.num_operations), item.orbit.members, strict=True
            )
            if flag
        }
        for item in items
    ]

    def reward(completion_ids: Any, item: Any, **kwargs: Any) -> list[float]:
        pairs = zip(completion_ids, item, strict=True)
        return [float(tuple(ids) in legal[index]) for ids, index in pairs]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            train_dataset=Dataset.from_list(
                [
                    {"prompt": " ".join(f"t{t}" for t in item.prompt.token_ids), "item": index}
                    for index, item in enumerate(items)
                ]
            ),
            processing_class=_tokenizer(items),
            callbacks=[steps],
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=on_cpu,
                # The weights are in their own format already, adapters in float32.
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=prompts * samples,
                num_generations=samples,
                num_iterations=epochs,
                max_completion_length=tokens,
                max_steps=epochs * (updates + warm_up),
                shuffle_dataset=False,
                learning_rate=LANGUAGE_MODEL_LEARNING_RATE,
                lr_scheduler_type="constant",
                weight_decay=0.0,
                max_grad_norm=1.0,
                beta=0.0,
                epsilon=0.2,
                loss_type="grpo",
                scale_rewards="none",
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
        )
        trainer.train()
    whole = [
        sum(steps.seconds[start : start + epochs])
        for start in range(0, epochs * (updates + warm_up), epochs)
    ]
    return whole[warm_up:]


def _tokenizer(items: list[EncodedItem]) -> PreTrainedTokenizerFast:
    """One word for each token that a prompt has, so that its text gives the same tokens back."""
    used = sorted({token for item in items for token in item.prompt.token_ids})
    words = {"<pad>": 0, "<end>": 1} | {f"t{token}": token for token in used}
    raw = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
