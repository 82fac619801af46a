"""Turn a GGUF file into a folder of safetensors, with configuration, tokenizer and lock.

The header is read first, with bounds, so that a broken file or one too large for memory is refused before any tensor is
read. transformers then dequantizes. Nothing in the file is run or unpickled, and no other file is read. This module
refuses what the library would silently ignore: a weight that is missing or left out, a scaling of positions, or a
hyperparameter that :mod:`vcrt_train.policy.gguf_hyperparameters` cannot express. It does not fetch files
(:mod:`vcrt_train.policy.fetching`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError

from vcrt.errors import BackboneError, OutOfMemory
from vcrt.forms import in_a_line
from vcrt.memory import available_memory, is_out_of_memory, out_of_memory
from vcrt.printable import counted, printable
from vcrt.progress import stage
from vcrt.storage import publish_directory
from vcrt_train.config import Dtype
from vcrt_train.policy.gguf_hyperparameters import PLACES, reflect
from vcrt_train.policy.language_model import (
    DTYPES,
    load_language_model,
    quiet,
    require_every_weight,
)
from vcrt_train.policy.locking import make_lock, model_files
from vcrt_train.policy.reference import FOLDER_LOCK, BackboneReference

_MEMORY_REMEDY = (
    "free some memory, or raise its limit; imported with --dtype bfloat16 a model needs less"
)
_OTHER_FILES = "take the model's safetensors and `vcrt backbone lock` their folder"
#: The output matrix, which some GGUF files have in addition to an equal embedding.
_OUTPUT = "output.weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """The contents of a GGUF file's header; ``values`` has the number of values in each tensor."""

    architecture: str
    licence: str | None
    #: The storage formats of numbers, the most frequent one first: Q4_1, Q8_0, F32.
    forms: tuple[str, ...]
    #: The kind of scaling of positions; None without scaling.
    scaling: str | None
    #: Whether each token sees only earlier tokens.
    is_causal: bool
    #: The number of files that the model is split into.
    num_parts: int
    #: The values of the architecture's keys, by keys without its name; the value of a list of texts is its length.
    stated: Mapping[str, Any]
    values: Mapping[str, int]

    def read_as(self, dtype: Dtype) -> torch.dtype:
        """Return the format to dequantize in, so that weights are rounded to ``dtype`` only once.

        For some architectures, the library's newer loader computes in the format that it is given.
        """
        from transformers.integrations.gguf.utils import is_gguf_arch_supported

        return torch.float32 if is_gguf_arch_supported(self.architecture) else DTYPES[dtype]

    def num_bytes(self, dtype: Dtype) -> int:
        """Return the peak memory of dequantizing: the model as read and as written, and the largest tensor twice."""
        both = self.read_as(dtype).itemsize + DTYPES[dtype].itemsize
        return both * sum(self.values.values()) + 8 * max(self.values.values(), default=0)


def read_header(path: Path) -> GgufHeader:
    """Read a GGUF header; raises :class:`OutOfMemory`, and :class:`BackboneError` if it is missing or broken."""
    from gguf import GGUFReader
    from transformers.integrations.gguf.reader import read_gguf_metadata

    if not path.is_file():
        raise BackboneError("there is no such GGUF file", where=str(path))
    try:
        # This reader stops at the end of the file; the other one would go on counting what a broken header promises.
        metadata, _ = read_gguf_metadata(str(path))
        architecture = str(metadata["general.architecture"])
        values: dict[str, int] = {}
        forms: dict[str, int] = {}
        for tensor in GGUFReader(path).tensors:
            values[tensor.name] = tensor.n_elements
            form = tensor.tensor_type.name
            forms[form] = forms.get(form, 0) + tensor.n_elements
        # Otherwise, the library would start to make all of them.
        if not 0 <= int(metadata.get(f"{architecture}.block_count", 0)) <= len(values):
            raise ValueError("more layers than tensors")
        scaling = _scaling(metadata, architecture)
        num_parts = int(metadata.get("split.count", 1))
    # These readers raise errors of any class.
    except Exception as error:
        if is_out_of_memory(error):
            raise out_of_memory(error, where=str(path), remedy=_MEMORY_REMEDY) from error
        raise BackboneError(
            "the GGUF file cannot be read",
            where=str(path),
            found=f"{type(error).__name__}: {printable(in_a_line(error))[:300]}",
            expected="a whole GGUF file of version 2 or 3",
            remedy="compare its size and SHA-256 with those that its makers state, and download it again",
        ) from error
    licence = metadata.get("general.license")
    return GgufHeader(
        architecture=printable(architecture)[:80],
        licence=printable(licence)[:80] if isinstance(licence, str) else None,
        forms=tuple(sorted(forms, key=lambda form: (-forms[form], form))),
        scaling=scaling,
        is_causal=bool(metadata.get(f"{architecture}.attention.causal", True)),
        num_parts=num_parts,
        stated={
            key.removeprefix(f"{architecture}."): value
            for key, value in metadata.items()
            if key.startswith(f"{architecture}.")
        },
        values=values,
    )


def _scaling(metadata: Mapping[str, Any], architecture: str) -> str | None:
    """Return the kind of scaling of positions in a file; a factor without a kind means linear, as for llama.cpp."""
    kind = metadata.get(f"{architecture}.rope.scaling.type", "linear")
    older = metadata.get(f"{architecture}.rope.scale_linear", 1.0)
    factor = float(metadata.get(f"{architecture}.rope.scaling.factor", older))
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return None
    return printable(str(kind))[:80]


def write_model(gguf: Path, folder: Path, header: GgufHeader, *, dtype: Dtype) -> None:
    """Dequantize a file into ``folder``: safetensors in ``dtype``, configuration and tokenizer.

    Raises :class:`OutOfMemory` if there is too little memory, and ``OSError`` if there is too little space, both before
    anything is loaded; :class:`BackboneError` if transformers does not read the file exactly as a causal language
    model; and ``OSError`` or ``SafetensorError`` if the folder cannot be written to.
    """
    _require_readable(gguf, header)
    needed, available = header.num_bytes(dtype), available_memory()
    if needed > available:
        raise OutOfMemory(
            "there is too little memory to dequantize the model",
            where=str(gguf),
            found=f"{available / 1e9:.1f} GB available",
            expected=f"{needed / 1e9:.1f} GB for {counted(sum(header.values.values()), 'parameter')} in {dtype}",
            remedy=_MEMORY_REMEDY,
        )
    size, free = DTYPES[dtype].itemsize * sum(header.values.values()), disk_usage(folder).free
    if size > free:
        raise OSError(
            errno.ENOSPC,
            f"No space left for the weights: {free / 1e6:,.1f} MB of {size / 1e6:,.1f} MB",
        )
    with quiet():
        try:
            model, weights, tokenizer = _loaded(gguf, folder, header, dtype)
        except BackboneError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory(error, where=str(gguf), remedy=_MEMORY_REMEDY) from error
            raise BackboneError(
                "the library cannot read the GGUF file as a causal language model",
                where=str(gguf),
                found=f"architecture {header.architecture}; "
                f"{type(error).__name__}: {printable(in_a_line(error))[:300]}",
                expected="a causal language model, with its tokenizer, of an architecture that this version of "
                "transformers reads from GGUF",
                remedy=_OTHER_FILES,
            ) from error
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)


def _require_readable(gguf: Path, header: GgufHeader) -> None:
    """Raise :class:`BackboneError` for contents of a header that transformers ignores."""
    if header.num_parts > 1:
        raise BackboneError(
            "the GGUF file is one part of a model",
            where=str(gguf),
            found=f"split.count {header.num_parts}",
            expected="a file with the whole model",
            remedy=f"join them (llama.cpp: `llama-gguf-split --merge`), or {_OTHER_FILES}",
        )
    if not header.is_causal:
        raise BackboneError(
            "the model of the GGUF file is not causal",
            where=str(gguf),
            found="attention in both directions, as models of embeddings have",
            expected="a causal language model, in which each token sees those before it alone",
            remedy="take a model that writes text",
        )
    if header.architecture not in PLACES:
        raise BackboneError(
            "the GGUF file is of an architecture that is not read from GGUF",
            where=str(gguf),
            found=f"architecture {header.architecture}",
            expected=f"one of {', '.join(PLACES)}",
            remedy=_OTHER_FILES,
        )
    if header.scaling is not None:
        _refuse_part(gguf, f"positions scaled by {header.scaling}")


def _loaded(
    gguf: Path, folder: Path, header: GgufHeader, dtype: Dtype
) -> tuple[Any, dict[str, Any], Any]:
    """Return the model without weights (the library does not save those from GGUF), the weights and the tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with (
        TemporaryDirectory(dir=folder) as place,
        redirect_stderr(StringIO()),
        _without_hub_kernels(),
        # The library draws from the global generator: restore its state.
        torch.random.fork_rng(devices=[]),
    ):
        name = "model.gguf"
        (Path(place) / name).symlink_to(gguf.resolve())
        config = AutoConfig.from_pretrained(
            place, gguf_file=name, local_files_only=True, trust_remote_code=False
        )
        if wrong := reflect(header.architecture, header.stated, header.values, config):
            _refuse_part(gguf, "; ".join(wrong))
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, dtype=DTYPES[dtype], trust_remote_code=False
            )
        # This comes before the library makes missing weights, of any size.
        _require_all_of_it(gguf, header, model)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place,
            gguf_file=name,
            config=deepcopy(config),
            local_files_only=True,
            trust_remote_code=False,
            dtype=header.read_as(dtype),
            # Otherwise, weights stay packed if the library finds a kernel for them.
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
        )
        read, report = loaded
        require_every_weight(read, report)
        tokenizer = AutoTokenizer.from_pretrained(
            place, gguf_file=name, local_files_only=True, trust_remote_code=False
        )
    as_read = header.read_as(dtype)
    broken = [name for name, weight in read.state_dict().items() if not weight.isfinite().all()]
    if broken:
        raise BackboneError(
            "the GGUF file has weights that are no numbers",
            where=str(gguf),
            found=f"{counted(len(broken), 'tensor')} with nan or infinity, such as {broken[0]}",
            remedy="download the file again, or another quantization of it",
        )
    # A weight that the library keeps in another format is not changed.
    weights = {
        name: weight.to(DTYPES[dtype]) if weight.dtype == as_read else weight
        for name, weight in read.state_dict().items()
    }
    return model, weights, tokenizer


@contextmanager
def _without_hub_kernels() -> Iterator[None]:
    """Dequantize with PyTorch alone.

    If the package kernels is installed, the library fetches native code from the hub and runs it, even for weights on
    the processor, and USE_HUB_KERNELS does not prevent that.
    """
    kernels: Any = import_module("transformers.integrations.gguf.kernels")
    kept = kernels.get_gguf_kernel, kernels.is_kernels_available
    kernels.get_gguf_kernel = kernels.is_kernels_available = lambda: False
    try:
        yield
    finally:
        kernels.get_gguf_kernel, kernels.is_kernels_available = kept


def _require_all_of_it(gguf: Path, header: GgufHeader, model: Any) -> None:
    """Raise :class:`BackboneError` unless file and model have equally many weights."""
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    in_file = sum(number for name, number in header.values.items() if not tied or name != _OUTPUT)
    in_model = sum(parameter.numel() for parameter in model.parameters())
    if in_file < in_model:
        raise BackboneError(
            "the GGUF file is not the whole of a model",
            where=str(gguf),
            found=f"{in_file:,} weights in the file, {in_model:,} in the model that it describes",
            expected="every weight; a file of adapters, or one part of several, is no model by itself",
            remedy="download the whole model",
        )
    if in_file > in_model:
        _refuse_part(gguf, f"{in_file:,} weights in the file, {in_model:,} in the model")


def _refuse_part(gguf: Path, found: str) -> NoReturn:
    raise BackboneError(
        "the library leaves out a part of the GGUF file",
        where=str(gguf),
        found=found,
        expected="a model that is the whole of its file",
        remedy=_OTHER_FILES,
    )


def publish_backbone(
    folder: Path, write: Callable[[Path], str], *, dtype: Dtype, remedy: str
) -> None:
    """Let ``write`` fill a new folder with a model and return its origin; load it once, lock it and publish it.

    The folder appears complete or not at all. Raises :class:`BackboneError`, with ``remedy`` if it cannot be written.
    """

    def fill(partial: Path) -> None:
        note = write(partial)
        with stage("loading what was written"):
            load_language_model(partial, model_files(partial), dtype=dtype)
        made = BackboneReference(
            name=folder.name, folder=str(partial), lock=str(partial / FOLDER_LOCK)
        )
        make_lock(made, revision=note)
        for file in partial.iterdir():
            file.chmod(partial.stat().st_mode & 0o666)

    try:
        publish_directory(folder, fill, BackboneError)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or in_a_line(error)
        raise BackboneError(
            "the backbone cannot be written",
            where=str(folder),
            found=f"{reason}; nothing is left of it",
            expected="a place that can be written to, with space left",
            remedy=remedy,
        ) from error
