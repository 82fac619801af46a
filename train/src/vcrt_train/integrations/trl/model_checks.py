"""Look at a model before training: whether trees of tokens score it, and whether text leaves parts of it unused.

Not covered: the checks themselves (:mod:`vcrt_train.policy.self_check`).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from transformers import PretrainedConfig, ProcessorMixin
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

from vcrt.errors import BackboneError
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.prompts import unwrapped
from vcrt_train.policy.self_check import padding_check, text_check


def find_exact_trees(model: Any, accelerator: Any, padding: int) -> bool:
    """Whether trees of tokens score this model as texts by themselves do; warns if they were thought to and do not.

    All processes come to the same answer, or they would wait for each other for ever. Raises :class:`BackboneError` for
    a model without exact trees whose scores depend on the padding before a text.
    """
    # Beyond a few tokens it depends on the lengths. In DeepSpeed's third stage no process has the weights.
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
    """Whether a model reads images too, so that text alone leaves some of its parameters without a gradient.

    TRL tells such models by their processors, which are no part of training on text.
    """
    if isinstance(processing_class, ProcessorMixin):
        return True
    if not isinstance(model, str):
        return hasattr(model.config, "vision_config")
    revision = (args.model_init_kwargs or {}).get("revision")
    # As data: a configuration's own code has no part in it.
    config, _ = PretrainedConfig.get_config_dict(model, revision=revision)
    return "vision_config" in config
