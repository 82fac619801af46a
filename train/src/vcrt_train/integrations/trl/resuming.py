"""Keep what a run goes on from: where a step of the trainer begins, and the states of its random generators."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback


def random_states() -> tuple[Any, ...]:
    """The states of all generators that the library's trainer draws from, which are those of the process."""
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    of_numpy = np.random.get_state()  # noqa: NPY002
    return random.getstate(), of_numpy, torch.get_rng_state(), on_gpu


def set_random_states(states: tuple[Any, ...]) -> None:
    """Go back to the states that :func:`random_states` gave."""
    own, of_numpy, of_torch, on_gpu = states
    random.setstate(own)
    np.random.set_state(of_numpy)  # noqa: NPY002
    torch.set_rng_state(of_torch)
    if on_gpu:
        torch.cuda.set_rng_state_all(on_gpu)


class StepBegins(TrainerCallback):
    """Notes at which of its micro-batches a trainer began its last step: an epoch's last step may have fewer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        #: The number of micro-batches before it.
        self.first = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Note it."""
        self.first = self._trainer._step
