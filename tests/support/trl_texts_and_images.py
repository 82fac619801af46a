"""Train a model of texts and images on texts, in any number of processes: ``python trl_texts_and_images.py MODEL``."""

import sys

from trl_support import rows, settings
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer


def main(model):
    prompts = [[{"role": "user", "content": f"in which order? {i}"}] for i in range(16)]
    dataset = rows(orbit=["ab", "ba"], illegal=["aa"], count=16).remove_columns("prompt")
    options = settings(
        model + ".run",
        max_steps=2,
        num_iterations=1,
        generation_kwargs=None,
        # As TRL has it by default.
        gradient_checkpointing=True,
        per_device_train_batch_size=4,
    )
    trainer = OrbitGRPOTrainer(
        model,
        lambda completions, **_: [float(len(text[0]["content"]) % 3) for text in completions],
        OrbitGRPOConfig(**options),
        dataset.add_column("prompt", prompts),
    )
    trainer.train()
    assert trainer.state.global_step == 2


if __name__ == "__main__":
    main(*sys.argv[1:])
