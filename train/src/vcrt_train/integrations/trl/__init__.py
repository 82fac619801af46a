"""Run Orbit-GRPO in an existing TRL script: a GRPO trainer whose successes stand for their whole certified orbit.

For orbits of one completion, loss and gradients are TRL's own. Columns of the dataset beside ``prompt``:

``orbit``    the certified completions of the prompt, as texts or as lists of token ids; None or empty: no credit
``illegal``  the completions that the anti-diamond margin compares with them; needed only if ``orbit_alpha`` is not 0

A text is tokenized by itself and gets the tokenizer's end token unless it fills ``max_completion_length``; a list of
token ids is taken as it is. A sample is credited with the orbit's ratio ``Z_new(O) / Z_old(O)`` if its tokens are
those of a member and its reward is above ``orbit_success``; every other sample keeps TRL's ratio.

The trained model scores all members exactly, with the whole vocabulary and the configured temperature, as TRL scores
its samples (``top_p``, ``top_k``, ``min_p`` and penalties affect only the samples). With vLLM, the behaviour mass
``Z_old`` is thus that of the trained model at the time of sampling; TRL's importance sampling corrects each sample for
its different probability in vLLM. Not covered: tools, images, environments of TRL.

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
