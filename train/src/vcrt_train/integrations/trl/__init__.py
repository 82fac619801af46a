"""Run Orbit-GRPO in an existing TRL script: a GRPO trainer whose successes stand for their whole certified orbit.

Promises TRL's own loss and gradients for orbits of one completion. Columns of the dataset beside ``prompt``:

``orbit``    the certified completions of the prompt, as texts or as lists of token ids; None or empty: no credit
``illegal``  the completions that the anti-diamond margin sets against them; needed only if ``orbit_alpha`` is not 0

A text is tokenized by itself and ended by the tokenizer's end token unless it fills ``max_completion_length``; a list
of token ids is taken as it is. A sample is credited with the orbit's ratio ``Z_new(O) / Z_old(O)`` if its tokens are
those of a member and its reward is above ``orbit_success``; every other sample keeps TRL's ratio.

All members are scored by the trained model, exactly, with the whole vocabulary and the configured temperature, as TRL
scores its samples (``top_p``, ``top_k``, ``min_p`` and penalties shape the samples only). With vLLM the behaviour mass
``Z_old`` is thus that of the trained model when it sampled; how far vLLM's own probability of a sample differs is
corrected by TRL's importance sampling of that sample. Not covered: tools, images, environments.

Source: the paper's Section "Orbit-GRPO"; TRL's hooks ``_generate_and_score_completions`` and ``_compute_loss``.
"""

from vcrt_train.integrations.text import certified_reward
from vcrt_train.integrations.trl.orbit_grpo_config import ILLEGAL, LEVELS, ORBIT, OrbitGRPOConfig
from vcrt_train.integrations.trl.orbit_grpo_trainer import OrbitGRPOTrainer

__all__ = [
    "ILLEGAL",
    "LEVELS",
    "ORBIT",
    "OrbitGRPOConfig",
    "OrbitGRPOTrainer",
    "certified_reward",
]
