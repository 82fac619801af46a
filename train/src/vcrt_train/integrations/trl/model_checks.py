"""Check a model before training, find its tokenizer, and keep the state from which a run can continue.

A check (:mod:`vcrt_train.policy.self_check`) finds out whether trees of tokens score the model exactly. A run continues
from the start of a step of the trainer, with the states of its random generators.
"""

from __future__ import annotations

import random
import warnings
from copy import copy
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, PretrainedConfig, ProcessorMixin, TrainerCallback
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.modeling_utils import PreTrainedModel

from vcrt.errors import BackboneError
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.causal_model import unwrapped
from vcrt_train.policy.self_check import padding_check, text_check


def find_exact_trees(model: Any, accelerator: Any, padding: int) -> bool:
    """Return whether trees of tokens score this model like single texts; warn if they should but do not.

    All processes return the same answer; otherwise they would wait for each other forever. Raises
    :class:`BackboneError` for a model without exact trees whose scores depend on the padding before a text.
    """
    # Above a few tokens, the backend depends on the length. In DeepSpeed's third stage no process has the weights.
    is_whole = not is_deepspeed_zero3_enabled()  # type: ignore[no-untyped-call]
    fits = is_whole and choose_backend(model, "auto", longest=1) == "tree"
    if fits:
        try:
            text_check(model)
        except BackboneError as error:
            fits = False
            warnings.warn(
                f"{type(unwrapped(model)).__name__} is scored completion by completion, which is exact and "
                f"slower: a tree of their tokens does not fit it ({error.found})",
                stacklevel=3,
            )
    misfits = torch.tensor([int(not fits)], device=accelerator.device)
    has_trees = not int(accelerator.gather(misfits).sum())
    if not has_trees and is_whole:
        padding_check(model, padding)
    return has_trees


def leaves_parts_unused(model: Any, processing_class: Any, args: Any) -> bool:
    """Return whether a model also reads images, so that text alone leaves some of its parameters without a gradient.

    TRL recognises such models by their processors, which training on text does not use.
    """
    if isinstance(processing_class, ProcessorMixin):
        return True
    if not isinstance(model, str):
        return hasattr(model.config, "vision_config")
    revision = (args.model_init_kwargs or {}).get("revision")
    # This reads the configuration as data, without running its own code.
    config, _ = PretrainedConfig.get_config_dict(model, revision=revision)
    return "vision_config" in config


def text_tokenizer(model: str | PreTrainedModel, processing_class: Any, args: Any) -> Any:
    """Return the given tokenizer, the given processor's tokenizer with its chat template, or else the model's.

    TRL would take the processor of a model that has one, such as Qwen3.5, whose images need further packages. A
    tokenizer with its own code is not loaded here: give it as ``processing_class``.
    """
    if isinstance(processing_class, ProcessorMixin):
        tokenizer = copy(processing_class.tokenizer)
        if processing_class.chat_template is not None:
            tokenizer.chat_template = processing_class.chat_template
        return tokenizer
    if processing_class is not None:
        return processing_class
    name = model if isinstance(model, str) else model.config._name_or_path
    given = args.model_init_kwargs if isinstance(model, str) else None
    return AutoTokenizer.from_pretrained(
        name,
        revision=(given or {}).get("revision"),
        truncation_side="left",
        padding_side="left",
        trust_remote_code=False,
    )


def random_states() -> tuple[Any, ...]:
    """Return the states of all generators from which the library's trainer draws, which are those of the process."""
    on_gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    of_numpy = np.random.get_state()  # noqa: NPY002
    return random.getstate(), of_numpy, torch.get_rng_state(), on_gpu


def set_random_states(states: tuple[Any, ...]) -> None:
    """Restore the states from :func:`random_states`."""
    own, of_numpy, of_torch, on_gpu = states
    random.setstate(own)
    np.random.set_state(of_numpy)  # noqa: NPY002
    torch.set_rng_state(of_torch)
    if on_gpu:
        torch.cuda.set_rng_state_all(on_gpu)


class StepBegins(TrainerCallback):
    """Record at which micro-batch a trainer began its last step, because an epoch's last step may have fewer."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        #: The number of micro-batches before the last step.
        self.first = 0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Record the number of micro-batches so far."""
        self.first = self._trainer._step
