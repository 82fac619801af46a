"""Orbit-GRPO on a task of your own: an environment of 30 lines, a JSONL file of prompts, no certified dataset.

pip install 'vcrt[trl]' && vcrt backbone fetch smollm2-135m
python examples/own_task.py                       # some five minutes on a CPU
python examples/own_task.py --data MY.jsonl --model NAME_OR_FOLDER

The model is asked in which order to put clothes on. First it is taught what an answer looks like, in orders that need
not work. Then it learns which do: whatever order it finds, the environment tries which other orders of the same lines
would have worked as well, and they share the credit.
"""

import argparse
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

import vcrt
from vcrt.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt.policy.catalogue import fetched_folder

#: What has to be on before.
NEEDS = {
    "shoes": {"socks", "trousers"},
    "belt": {"trousers"},
    "jacket": {"shirt"},
    "coat": {"jacket", "shirt"},
}


class Dressing(vcrt.WrittenEnvironment):
    """Clothes are put on, one a line."""

    name = "dressing"

    def reset(self, task):
        """What is to be put on, and what is on."""
        return {"clothes": set(task["clothes"]), "on": set()}

    def read_step(self, task, line):
        """A line is a step if it is one of the clothes."""
        word = line.strip(" -*.0123456789").lower()
        return ("put_on", {"what": word}) if word in task["clothes"] else None

    def call(self, state, name, arguments):
        """Put one on."""
        what = arguments["what"]
        if what in state["on"]:
            raise vcrt.CallRefused(f"{what} is on already")
        late = NEEDS.get(what, set()) & state["clothes"] - state["on"]
        if late:
            raise vcrt.CallRefused(f"{what} before {min(late)}")
        state["on"].add(what)

    def solved(self, task, state):
        """Whether all of them are on."""
        return state["on"] == state["clothes"]


def in_any_order(row):
    """A row for learning what an answer looks like: its lines stand in an order that need not work."""
    lines = sorted(row["clothes"], key=lambda word: sha256(f"{word} {row}".encode()).digest())
    return {
        "prompt": row["prompt"],
        "completion": [{"role": "assistant", "content": "\n".join(lines)}],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(Path(__file__).with_name("own_task.jsonl")))
    parser.add_argument("--model", default=str(fetched_folder("smollm2-135m")))
    parser.add_argument("--steps", type=int, default=14)
    options = parser.parse_args()
    rows = load_dataset("json", data_files=options.data, split="train")
    common = {
        "output_dir": mkdtemp(),
        "use_cpu": not torch.cuda.is_available(),
        "report_to": "none",
    }
    lora = LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")

    taught = SFTTrainer(
        options.model,
        SFTConfig(**common, learning_rate=5e-4, num_train_epochs=1, logging_steps=5),
        train_dataset=rows.map(in_any_order, remove_columns=rows.column_names),
        peft_config=lora,
    )
    taught.train()

    settings = OrbitGRPOConfig(
        **common,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        max_completion_length=32,
        per_device_train_batch_size=32,
        num_generations=8,
        max_steps=options.steps,
        gradient_checkpointing=False,
        logging_steps=1,
    )
    trainer = OrbitGRPOTrainer(
        taught.model, args=settings, train_dataset=rows, environment=Dressing
    )
    trainer.train()
    for row in trainer.state.log_history[:-1]:
        print(
            f"step {row['step']:3}: solved {row['reward']:.2f}, credited with an orbit "
            f"{row['orbit/credited']:.2f}, orbit mass {row.get('orbit/mass', 0):.2f}"
        )
