"""Train on fixed samples, in any number of processes: ``python trl_processes.py MODEL OUTPUT ALPHA ORBITS``.

Orbits are those that the dataset lists, or ``online`` those of the samples, by an environment, or ``all`` orders of the
samples' steps.
The first process writes the losses and the final weights. Samples are a function of their place in the batch, so every
number of processes trains on the same ones.
"""

import os
import sys

import torch
from safetensors.torch import save_file

from letters import Letters
from trl_support import load_model, rows, settings, tokenizer, train
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer, certified_reward

#: All successes are in the first half, which is the first of two processes: the second has no orbit to score.
SAMPLES = ["a b c", "c a b", "b a c", "c c c", "b a c", "b c a", "c b a", "a a a"]


def fixed(prompts, trainer):
    known = tokenizer()
    end = [known.eos_token_id] * (trainer.max_completion_length - 3)
    first = trainer.accelerator.process_index * len(prompts)
    return {
        "prompt_ids": known(prompts)["input_ids"],
        "completion_ids": [
            known(SAMPLES[(first + i) % len(SAMPLES)])["input_ids"] + end
            for i in range(len(prompts))
        ],
        "logprobs": None,
    }


def main(model, output, alpha, orbits):
    online = orbits != "listed"
    dataset = rows(count=16)
    if online:
        dataset = dataset.remove_columns(["orbit", "illegal"]).add_column("letters", ["abc"] * 16)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    config = OrbitGRPOConfig(
        **settings(
            output + ".run",
            per_device_train_batch_size=8 // world,
            max_steps=4,
            shuffle_dataset=False,
            max_completion_length=4 if online else 3,
            generation_kwargs=None,
            scale_rewards="leave_one_out",
            # Plain steps: AdamW's first ones turn rounding into steps of full size.
            optim="sgd",
            learning_rate=0.1,
        ),
        orbit_alpha=float(alpha),
        orbit_batch_size=3,
        orbit_all_orders=orbits == "all",
    )
    trainer, logs, _ = train(
        OrbitGRPOTrainer,
        config,
        # In float32 a margin that pulls hard makes hundreds of times as much of rounding in four steps.
        load_model(model).double(),
        dataset,
        None if online else certified_reward,
        rollout_func=fixed,
        **({"environment": Letters} if online else {}),
    )
    if trainer.accelerator.is_main_process:
        kept = ("loss", "orbit/credited", "orbit/margin_loss")
        losses = torch.tensor([[row[name] for name in kept] for row in logs], dtype=torch.float64)
        weights = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
        save_file({"losses": losses, **weights}, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
