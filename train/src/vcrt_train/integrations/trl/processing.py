"""Find the tokenizer of a trainer's texts, also where a model comes with a processor of images."""

from __future__ import annotations

from copy import copy
from typing import Any

from transformers import AutoTokenizer, ProcessorMixin
from transformers.modeling_utils import PreTrainedModel


def text_tokenizer(model: str | PreTrainedModel, processing_class: Any, args: Any) -> Any:
    """What reads and writes text: what is given, of a processor its tokenizer with its template, else the model's.

    TRL would take a processor where a model has one, such as Qwen3.5's, whose images need packages of their own. A
    tokenizer that brings code of its own is not loaded here: give it as ``processing_class``.
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
