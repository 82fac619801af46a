"""Load a backbone: a causal language model with its tokenizer, checked against a lock before it is used.

``embedded`` and ``embedded-long`` come with the package: small Qwen3-architecture models that read policy records (of
up to four operations, and of many) and have never seen which orders are legal. Any other is a causal language model of
transformers with its own tokenizer, from a folder or the local hub cache. Weights are safetensors; nothing is unpickled
or downloaded. This module does not add adapters and does not move models to devices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from safetensors.torch import load_model, save
from transformers import PreTrainedTokenizerFast

from vcrt.documents import read_limited, strict_json
from vcrt.errors import BackboneError
from vcrt.hashing import file_digest, json_digest
from vcrt.progress import stage
from vcrt.records.policy_view import PolicyRecord, Serialisation
from vcrt.storage import make_directory, write_file
from vcrt_train.config import EMBEDDED_LONG_NAME, EMBEDDED_NAME, RelationNames
from vcrt_train.policy.causal_model import CausalModel, Prompt
from vcrt_train.policy.language_model import load_language_model
from vcrt_train.policy.locking import require_locked_files, verified
from vcrt_train.policy.model_provenance import (
    EMBEDDED_PROVENANCE,
    UNKNOWN,
    ModelProvenance,
    read_provenance,
)
from vcrt_train.policy.record_text import TextEncoder, TextForm, choose_pointers
from vcrt_train.policy.reference import EMBEDDED, BackboneReference, backbone_reference
from vcrt_train.policy.tokenizer import encode_record, num_pointers, read_tokenizer, write_tokenizer

if TYPE_CHECKING:
    from transformers import Qwen3Config, Qwen3ForCausalLM

#: Renders a record for one backbone; all of its randomness comes from the generator.
PromptEncoder: TypeAlias = Callable[[PolicyRecord, Serialisation, np.random.Generator], Prompt]

EMBEDDED_DIRECTORY = Path(__file__).parent / "embedded"
#: The folder of each backbone that comes with the package.
EMBEDDED_DIRECTORIES = {
    EMBEDDED_NAME: EMBEDDED_DIRECTORY,
    EMBEDDED_LONG_NAME: Path(__file__).parent / "embedded_long",
}
CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE = "config.json", "model.safetensors", "tokenizer.json"
CARD_FILE, LOCK_FILE = "card.json", "lock.json"
LOCKED_FILES = (CARD_FILE, CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A loaded backbone, in evaluation mode; ``digest`` is the lock's digest of all its files."""

    model: CausalModel
    tokenizer: PreTrainedTokenizerFast
    name: str
    digest: str
    #: Renders a record as this backbone's prompt.
    encode: PromptEncoder
    #: The revision in the lock, if it has one.
    revision: str | None = None
    #: The number of pointers that it knows, from 0 on; None for as many as its tokenizer has single tokens for.
    num_pointers: int | None = None
    #: Its earlier training, as far as its files state it.
    provenance: ModelProvenance = UNKNOWN
    #: The names of relations in a language model's prompts; None for a backbone that comes with the package.
    relation_names: RelationNames | None = None


def load_backbone(backbone: str | BackboneReference = EMBEDDED) -> Backbone:
    """Load a backbone by name or reference; each call returns a new model.

    Raises :class:`BackboneError` if it is not locked, if a file is missing or altered, or if its model, tokenizer or
    chat template cannot be used; :class:`vcrt.errors.UnknownNameError` for an unknown name.
    """
    reference = backbone_reference(backbone) if isinstance(backbone, str) else backbone
    if reference.is_embedded:
        shipped = EMBEDDED_DIRECTORIES[reference.name]
        with stage(f"loading the backbone {reference.name}"):
            loaded = load_backbone_directory(shipped, name=reference.name)
        return replace(loaded, provenance=EMBEDDED_PROVENANCE)
    with stage(f"checking the files of the backbone {reference.name} against their lock"):
        lock, folder = verified(reference)
    provenance = read_provenance(folder, lock.files)
    with stage(f"loading the backbone {reference.name}"):
        model, tokenizer = load_language_model(folder, lock.files, dtype=reference.dtype)
    return Backbone(
        model=model,
        tokenizer=tokenizer,
        name=reference.name,
        digest=lock.digest,
        encode=_text_encoder(model, tokenizer, reference),
        revision=lock.revision,
        provenance=provenance,
        relation_names=reference.relation_names,
    )


def _text_encoder(
    model: CausalModel, tokenizer: PreTrainedTokenizerFast, reference: BackboneReference
) -> TextEncoder:
    form = TextForm(
        tokenizer=tokenizer,
        style=reference.prompt_style,
        relation_names=reference.relation_names,
    )
    return TextEncoder(
        form=form,
        pointers=choose_pointers(form),
        more_pointers=cache(partial(choose_pointers, form)),
        num_embeddings=model.get_input_embeddings().num_embeddings,
        max_length=getattr(model.config.get_text_config(), "max_position_embeddings", None),
    )


def device_of(reference: BackboneReference) -> str:
    """Return the device, "cuda" or "cpu", on which a single process runs a backbone.

    Embedded backbones run on the CPU, where runs repeat bit for bit; a language model runs on a GPU if there is one.
    """
    return "cuda" if torch.cuda.is_available() and not reference.is_embedded else "cpu"


def load_backbone_directory(directory: Path, *, name: str) -> Backbone:
    """Load the backbone that :func:`write_backbone` wrote to ``directory``; raises as :func:`load_backbone`."""
    from transformers import Qwen3Config

    digest = verify_lock(directory)
    config = Qwen3Config.from_json_file(directory / CONFIG_FILE)
    model = blank_model(config)
    load_model(model, directory / WEIGHTS_FILE, strict=True)
    tokenizer = read_tokenizer(directory / TOKENIZER_FILE)
    return Backbone(
        model=model.eval(),  # type: ignore[no-untyped-call]
        tokenizer=tokenizer,
        name=name,
        digest=digest,
        encode=partial(encode_record, tokenizer),
        num_pointers=num_pointers(tokenizer),
    )


def blank_model(config: Qwen3Config) -> Qwen3ForCausalLM:
    """Return a float32 model of this configuration with untrained weights."""
    from transformers import Qwen3ForCausalLM

    # The library draws from the global generator: restore its state.
    with torch.random.fork_rng(devices=[]):
        model = Qwen3ForCausalLM._from_config(  # type: ignore[no-untyped-call]
            config, dtype=torch.float32, attn_implementation="sdpa"
        )
    if not isinstance(model, Qwen3ForCausalLM):
        raise AssertionError("the library built another class")
    return model


def write_backbone(
    directory: Path,
    *,
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    card: str,
) -> str:
    """Write weights, configuration, tokenizer and the ``card`` (JSON text), then the lock; return its digest."""
    make_directory(directory)
    # Parameters, unlike the state dictionary, name tied weights once.
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    write_file(directory / WEIGHTS_FILE, save(weights, metadata={"format": "pt"}))
    write_file(directory / CONFIG_FILE, model.config.to_json_string(use_diff=True).encode())
    write_tokenizer(tokenizer, directory / TOKENIZER_FILE)
    write_file(directory / CARD_FILE, card.encode())
    return write_lock(directory)


def write_lock(directory: Path) -> str:
    """Write the lock of the files in ``directory``; return the digest of all of them."""
    files = {name: file_digest(directory / name) for name in LOCKED_FILES}
    digest = json_digest(files)
    lock = json.dumps({"files": files, "digest": digest}, indent=2) + "\n"
    write_file(directory / LOCK_FILE, lock.encode())
    return digest


def verify_lock(directory: Path) -> str:
    """Return the digest of a backbone's files; raises :class:`BackboneError`, which names the first altered file."""
    where = str(directory)
    try:
        lock = strict_json(read_limited(directory / LOCK_FILE))
        files, digest = dict(lock["files"]), str(lock["digest"])
        found_digest = json_digest(files)
    except FileNotFoundError as error:
        raise BackboneError(
            "a backbone without a lock",
            where=where,
            found=f"no {LOCK_FILE}",
            expected=f"{LOCK_FILE} with the SHA-256 of {', '.join(LOCKED_FILES)}",
            remedy=_REMEDY,
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BackboneError(
            f"{LOCK_FILE} cannot be read",
            where=where,
            found=f"{type(error).__name__}: {str(error)[:300]}",
            expected='{"files": {name: SHA-256}, "digest": SHA-256}',
            remedy=_REMEDY,
        ) from error
    if sorted(files) != sorted(LOCKED_FILES) or found_digest != digest:
        raise BackboneError(
            f"{LOCK_FILE} does not agree with itself",
            where=where,
            found=f"digest {digest:.80} of {', '.join(sorted(files))[:300]}",
            expected=f"digest {found_digest} of {', '.join(LOCKED_FILES)}",
            remedy=_REMEDY,
        )
    require_locked_files(directory, files, _REMEDY)
    return digest


_REMEDY = "reinstall vcrt-train"
