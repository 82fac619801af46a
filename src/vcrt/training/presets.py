"""The paper's settings for its two language models, as a table.

LoRA of rank 64 and scale 128 (``lora_alpha``; an adapter's product is multiplied by 128 / 64), dropout 0.05, AdamW at
5e-6, 400 updates, bfloat16. A preset names a model of the hub; a local copy of it can take its place. Source: the
paper's section on training. Not covered: other settings, which are those of :class:`vcrt.training.run.RunConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcrt.errors import UnknownNameError
from vcrt.policy.reference import Dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """One model with the paper's settings."""

    #: The model's name on the hub.
    hub_name: str
    dtype: Dtype = "bfloat16"
    num_updates: int = 400
    learning_rate: float = 5e-6
    lora_rank: int = 64
    lora_alpha: float = 128.0
    lora_dropout: float = 0.05

    @property
    def lora_scale(self) -> float:
        """What an adapter's product is multiplied by."""
        return self.lora_alpha / self.lora_rank


PRESETS: Mapping[str, Preset] = {
    "qwen3.5-2b": Preset(hub_name="Qwen/Qwen3.5-2B"),
    "granite-4.1-3b": Preset(hub_name="ibm-granite/granite-4.1-3b"),
}
#: The paper's learning rate, which language models get unless another is given.
LANGUAGE_MODEL_LEARNING_RATE = 5e-6


def preset(name: str) -> Preset:
    """A preset by name; raises :class:`UnknownNameError`."""
    if name not in PRESETS:
        raise UnknownNameError.of("preset", name, PRESETS)
    return PRESETS[name]
