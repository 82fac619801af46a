"""Load a causal language model of transformers, with its tokenizer, from locked files.

The library sees only a folder of links to the locked files, so it cannot read a pickle, remote code, an adapter or a
template that is not locked. Every weight must be in the files, because the library would fill a missing one with random
numbers. Multimodal checkpoints (Qwen3.5) give their text model. This module refuses quantised weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from vcrt.errors import BackboneError
from vcrt.memory import is_out_of_memory, out_of_memory
from vcrt_train.config import Dtype
from vcrt_train.policy.causal_model import CausalModel, unwrapped
from vcrt_train.policy.kernels.fused_norm import fuse_norms
from vcrt_train.policy.kernels.grouped_attention import group_attention
from vcrt_train.policy.locking import CONFIG

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
#: The first that the model's class has is used. Both read an additive mask (:mod:`vcrt_train.policy.backends`).
ATTENTION = ("sdpa", "eager")
#: The order in half precision on a processor, where the backward pass of fused kernels is slower than plain products.
HALF_ATTENTION = ("eager", "sdpa")


def load_language_model(
    folder: Path, files: Iterable[str], *, dtype: Dtype
) -> tuple[CausalModel, PreTrainedTokenizerFast]:
    """Return the model in evaluation mode and its tokenizer, from only these files of ``folder``.

    Raises :class:`BackboneError` if the library does not know the architecture, if a weight is missing, left over or of
    another shape, or if the weights are quantised.
    """
    from transformers import AutoTokenizer

    _require_plain_weights(folder)
    with TemporaryDirectory(prefix="vcrt-backbone-") as place, quiet():
        staged = Path(place)
        for name in files:
            (staged / name).symlink_to((folder / name).resolve())
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                staged, local_files_only=True, trust_remote_code=False
            )
            if not isinstance(tokenizer, PreTrainedTokenizerFast):
                raise BackboneError(
                    "the tokenizer is not one of the tokenizers library",
                    where=str(folder),
                    found=type(tokenizer).__name__,
                    expected="tokenizer.json",
                    remedy="load it with AutoTokenizer and `save_pretrained` it with tokenizer.json",
                )
            model = _load_model(staged, dtype)
        except BackboneError:
            raise
        # For faulty files, the library raises errors of no fixed class.
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory(error, where=str(folder)) from error
            raise BackboneError(
                "the library cannot load the backbone",
                where=str(folder),
                found=f"{type(error).__name__}: {_first_line(error)}",
                expected="a causal language model that this version of transformers knows, in safetensors, with its "
                "tokenizer",
                remedy="look whether the files are whole, and whether a newer transformers knows the architecture",
            ) from error
    return model.eval(), tokenizer


def _load_model(staged: Path, dtype: Dtype) -> CausalModel:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(staged, local_files_only=True, trust_remote_code=False)
    text = config.get_text_config()
    if text is not config and getattr(config, "tie_word_embeddings", False):
        # A multimodal configuration may tie head and embedding only at its top; the text model reads its own part.
        text.tie_word_embeddings = True
    # The library draws from the global generator: restore its state.
    with torch.random.fork_rng(devices=[]):
        model, report = _with_known_attention(staged, config, dtype)
    require_every_weight(model, report)
    fuse_norms(unwrapped(model))
    group_attention(unwrapped(model))
    return model


def require_every_weight(model: object, report: Mapping[str, Iterable[object]]) -> None:
    """Raise :class:`BackboneError` if the library's report on loading names a weight that does not fit."""
    problems = {
        "missing": sorted(map(str, report["missing_keys"])),
        "left over": sorted(map(str, report["unexpected_keys"])),
        "of another shape": sorted(map(str, report["mismatched_keys"])),
        "unreadable": sorted(map(str, report["error_msgs"])),
    }
    found = [f"{what}: {', '.join(keys[:3])}" for what, keys in problems.items() if keys]
    if found:
        raise BackboneError(
            "the weights are not those of the model that the configuration describes",
            where=type(model).__name__,
            found="; ".join(found),
            expected="every weight once",
            remedy="use the configuration and the weights of one revision",
        )


def _with_known_attention(
    staged: Path, config: object, dtype: Dtype
) -> tuple[CausalModel, dict[str, set[str]]]:
    from transformers import AutoModelForCausalLM

    on_processor = DTYPES[dtype] != torch.float32 and not torch.cuda.is_available()
    kinds = HALF_ATTENTION if on_processor else ATTENTION
    for last, attention in enumerate(kinds, start=1):
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                staged,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=DTYPES[dtype],
                attn_implementation=attention,
                output_loading_info=True,
                # The report then names every weight that does not fit, and require_every_weight refuses it.
                ignore_mismatched_sizes=True,
            )
            model, report = loaded
            return model, report
        except ValueError as error:
            if last == len(kinds) or "attn_implementation" not in str(error):
                raise
    raise AssertionError("unreachable")


def _require_plain_weights(folder: Path) -> None:
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        quantised = [
            c for c in (config, config.get("text_config") or {}) if c.get("quantization_config")
        ]
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise BackboneError(
            "the configuration cannot be read",
            where=str(folder / CONFIG),
            found=f"{type(error).__name__}: {_first_line(error)}",
        ) from error
    if quantised:
        raise BackboneError(
            "the backbone's weights are quantised",
            where=str(folder / CONFIG),
            found="quantization_config",
            expected="weights in float32, bfloat16 or float16",
            remedy="use the model's unquantised revision",
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Run without the library's progress bars and reports; vcrt raises errors for important reports."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
