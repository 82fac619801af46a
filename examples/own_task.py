"""Orbit-GRPO on a task of your own, five minutes on a CPU (eight without avx512_bf16): how to put clothes on.

pip install . './train[trl]' && vcrt backbone fetch smollm2-135m && python examples/own_task.py
First the model is taught what an answer looks like, in orders that need not work. Then it learns which do: whatever
order it finds, the environment tries which other orders of its lines work as well, and they share the credit.
"""

import sys
from pathlib import Path

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

import vcrt
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.policy.reference import bfloat16_speed, fetched_folder

NEEDS = {"shoes": "socks trousers", "belt": "trousers", "jacket": "shirt", "coat": "jacket shirt"}


class Dressing(vcrt.WrittenEnvironment):
    """Clothes are put on, one a line."""

    name = "dressing"

    def reset(self, task):
        return {"clothes": set(task["clothes"]), "on": set()}

    def read_step(self, task, line):
        word = line.strip(" -*.0123456789").lower()
        return ("put_on", {"what": word}) if word in task["clothes"] else None

    def call(self, state, name, arguments):
        what = arguments["what"]
        late = set(NEEDS.get(what, "").split()) & state["clothes"] - state["on"]
        if what in state["on"] or late:
            raise vcrt.CallRefused(f"{what} is on already, or others go before: {sorted(late)}")
        state["on"].add(what)

    def solved(self, task, state):
        return state["on"] == state["clothes"]


if __name__ == "__main__":
    defaults = [Path(__file__).with_suffix(".jsonl"), fetched_folder("smollm2-135m"), 14]
    data, model, steps = map(str, sys.argv[1:] + defaults[len(sys.argv) - 1 :])
    rows = load_dataset("json", data_files=data, split="train")
    common = {"output_dir": "runs/own-task", "report_to": "none", "gradient_checkpointing": False}
    on_gpu = torch.cuda.is_available()
    common |= {"logging_steps": 1, "use_cpu": not on_gpu, "bf16": on_gpu or bfloat16_speed() > 1}
    lora = LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    settings = SFTConfig(**common, learning_rate=5e-4, num_train_epochs=1)
    form = rows.remove_columns("clothes")
    taught = SFTTrainer(model, settings, train_dataset=form, peft_config=lora)
    taught.train()
    settings = OrbitGRPOConfig(
        **common,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        max_completion_length=32,
        per_device_train_batch_size=32,
        max_steps=int(steps),
    )
    trainer = OrbitGRPOTrainer(
        taught.model, args=settings, train_dataset=rows, environment=Dressing
    )
    trainer.train()
    for row in trainer.state.log_history[:-1]:
        print(
            f"step {row['step']}: solved {row['reward']:.2f}, orbits {row.get('orbit/mass', 0):.2f}"
        )
