"""Orbit-GRPO on a task of your own, some five minutes on a CPU: in which order to put clothes on.

pip install 'vcrt[trl]' && vcrt backbone fetch smollm2-135m && python examples/own_task.py
First the model is taught what an answer looks like, in orders that need not work. Then it learns which do: whatever
order it finds, the environment tries which other orders of its lines work as well, and they share the credit.
"""

import argparse
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import torch
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

import vcrt
from vcrt.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt.policy.catalogue import fetched_folder

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
        """The state before the first step."""
        return {"clothes": set(task["clothes"]), "on": set()}

    def read_step(self, task, line):
        """The call that a line is; None for free text."""
        word = line.strip(" -*.0123456789").lower()
        return ("put_on", {"what": word}) if word in task["clothes"] else None

    def call(self, state, name, arguments):
        """One step."""
        what = arguments["what"]
        late = NEEDS.get(what, set()) & state["clothes"] - state["on"]
        if what in state["on"] or late:
            raise vcrt.CallRefused(f"{what} is on already, or others go before: {sorted(late)}")
        state["on"].add(what)

    def solved(self, task, state):
        """Whether that is what was asked for."""
        return state["on"] == state["clothes"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(Path(__file__).with_name("own_task.jsonl")))
    parser.add_argument("--model", default=str(fetched_folder("smollm2-135m")))
    parser.add_argument("--steps", type=int, default=14)
    options = parser.parse_args()
    rows = load_dataset("json", data_files=options.data, split="train")
    common = {"output_dir": mkdtemp(), "report_to": "none", "logging_steps": 1}
    common["use_cpu"] = not torch.cuda.is_available()

    def in_any_order(row, number):
        """A row for learning what an answer looks like."""
        lines = Random(number).sample(row["clothes"], len(row["clothes"]))
        return {"completion": [{"role": "assistant", "content": "\n".join(lines)}]}

    lora = LoraConfig(r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM")
    taught = SFTTrainer(
        options.model,
        SFTConfig(**common, learning_rate=5e-4, num_train_epochs=1),
        train_dataset=rows.map(in_any_order, with_indices=True).remove_columns("clothes"),
        peft_config=lora,
    )
    taught.train()

    settings = OrbitGRPOConfig(
        **common,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        max_completion_length=32,
        gradient_checkpointing=False,
        per_device_train_batch_size=32,
        num_generations=8,
        max_steps=options.steps,
    )
    trainer = OrbitGRPOTrainer(
        taught.model, args=settings, train_dataset=rows, environment=Dressing
    )
    trainer.train()
    for row in trainer.state.log_history[:-1]:
        print(
            f"step {row['step']}: solved {row['reward']:.2f}, orbit mass {row.get('orbit/mass', 0):.2f}"
        )
