"""Orbit-GRPO with TRL: certify CLRS episodes, make a dataset of them, train on whole orbits.

pip install . './train[trl]'
python examples/trl_orbit_grpo.py                        # vcrt's own small model: under a minute on a CPU
python examples/trl_orbit_grpo.py --model NAME_OR_FOLDER  # a causal language model with a chat template
"""

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from vcrt.datasets.freezing import make_dataset
from vcrt.replay.config import sampled, select_schemas
from vcrt_train.integrations.datasets import to_dataset
from vcrt_train.integrations.text import Rendering
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer, certified_reward
from vcrt_train.policy.backbone import load_backbone

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--model", help="name or folder; without it, the model that comes with vcrt")
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()
own, folder = options.model is None, Path(tempfile.mkdtemp())

certified = make_dataset(sampled(select_schemas(("clrs",)), 8, seed=0), folder / "data", jobs=1)
records = to_dataset(
    certified, rendering=Rendering(form="tokens" if own else "words"), chat=not own
)

model, tokenizer = options.model, None
if own:
    torch.set_num_threads(1)
    backbone = load_backbone()
    model, raw = backbone.model, backbone.tokenizer.backend_tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<pad>")

settings = OrbitGRPOConfig(
    output_dir=str(folder / "run"),
    use_cpu=not torch.cuda.is_available(),
    bf16=torch.cuda.is_available(),
    learning_rate=3e-4 if own else 5e-6,
    lr_scheduler_type="constant",
    gradient_checkpointing=not own,
    max_completion_length=4 if own else 24,
    per_device_train_batch_size=64 if own else 16,
    num_iterations=2,
    max_steps=options.steps,
    report_to="none",
)
trainer = OrbitGRPOTrainer(model, certified_reward, settings, records, processing_class=tokenizer)
trainer.train()
for row in trainer.state.log_history[:-1]:
    print(f"step {row['step']:3}: reward {row['reward']:.2f}, orbit mass {row['orbit/mass']:.2f}")
