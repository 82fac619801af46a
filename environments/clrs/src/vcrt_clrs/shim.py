"""Load dm-clrs without its heavy dependencies: the genuine samplers and algorithms on NumPy, attrs and absl alone.

The metadata of dm-clrs asks for TensorFlow, JAX, Haiku and more, but what is used here (samplers, specifications,
probes, algorithms) needs from them only one class for an ``isinstance`` test, one tree map and one rank assertion.
:func:`load_dm_clrs` stands in for whichever of ``tensorflow``, ``jax`` and ``chex`` is not installed, and only while
the modules of dm-clrs are being imported. Afterwards ``sys.modules`` is as it was: no stand-in, and no ``clrs`` that a
later ``import clrs`` could mistake for the whole package. The imported modules stay reachable through
:attr:`DmClrs.modules` and keep the stand-ins they were bound to. An installed ``tensorflow``, ``jax`` or ``chex`` is
used as it is.

Not covered: models, processors, losses and data sets of dm-clrs, the permutation helpers of its ``probing`` module
(they need JAX itself), and threads that import TensorFlow, JAX or chex during the first call.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from vcrt.environments.partial_imports import own_modules
from vcrt.errors import UnavailableError
from vcrt.hashing import file_digest

DISTRIBUTION = "dm-clrs"
SUPPORTED_VERSION = "2.0.3"
INSTALL_COMMAND = f"pip install --no-deps {DISTRIBUTION}=={SUPPORTED_VERSION}"
INSTALL_LIGHT_DEPENDENCIES = "pip install numpy attrs absl-py"

#: The modules whose code decides what an episode and its genuine trace are.
USED_MODULES = (
    "clrs._src.algorithms.dynamic_programming",
    "clrs._src.algorithms.graphs",
    "clrs._src.algorithms.sorting",
    "clrs._src.probing",
    "clrs._src.samplers",
    "clrs._src.specs",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DmClrs:
    """The imported part of dm-clrs: its version and its modules by their full names."""

    version: str
    modules: Mapping[str, ModuleType]

    @property
    def build_sampler(self) -> Callable[..., Any]:
        """dm-clrs's own ``build_sampler(name, num_samples, seed=..., **sizes)``."""
        build: Callable[..., Any] = self.modules["clrs._src.samplers"].build_sampler
        return build

    def source_digests(self) -> dict[str, str]:
        """SHA-256 of each used source file, by its path within the distribution."""
        return {
            f"{name.replace('.', '/')}.py": file_digest(Path(str(module.__file__)))
            for name, module in self.modules.items()
        }


@lru_cache(maxsize=1)
def load_dm_clrs() -> DmClrs:
    """Import the used modules of dm-clrs once for the process.

    Raises :class:`UnavailableError` if dm-clrs is missing, of another version, or cannot be imported. Only the tested
    version is accepted: another one may sample other graphs from the same seed, and the certificates of a dataset
    would no longer be comparable.
    """
    version = _supported_version()
    heavy = [name for name in _STAND_INS if not _is_installed(name)]
    try:
        with own_modules("clrs", *heavy):
            for name in heavy:
                sys.modules.update(_STAND_INS[name]())
            sys.modules["clrs"] = _package_without_init()
            modules = {name: importlib.import_module(name) for name in USED_MODULES}
    except ImportError as error:
        raise _unavailable(
            "dm-clrs cannot be imported", found=str(error), remedy=INSTALL_LIGHT_DEPENDENCIES
        ) from error
    return DmClrs(version=version, modules=MappingProxyType(modules))


def _supported_version() -> str:
    try:
        version = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError as error:
        raise _unavailable("dm-clrs is not installed", found="no such distribution") from error
    if version != SUPPORTED_VERSION:
        raise _unavailable("dm-clrs has an unsupported version", found=f"{DISTRIBUTION} {version}")
    return version


def _unavailable(what: str, *, found: str, remedy: str = INSTALL_COMMAND) -> UnavailableError:
    return UnavailableError(
        what,
        where=f"Python environment {sys.prefix}",
        found=found,
        expected=f"{DISTRIBUTION} {SUPPORTED_VERSION}",
        remedy=remedy,
    )


def _package_without_init() -> ModuleType:
    spec = importlib.util.find_spec("clrs")
    if spec is None or spec.submodule_search_locations is None:
        raise _unavailable("the package `clrs` of dm-clrs is missing", found="its metadata only")
    # `clrs/__init__.py` imports every neural model; its submodules do not need it.
    package = ModuleType("clrs")
    package.__spec__ = spec
    package.__path__ = list(spec.submodule_search_locations)
    return package


def _is_installed(name: str) -> bool:
    # A module set to None is Python's own way to keep a library from being imported.
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


class _NeverAnInstance:
    """Stands in for array classes that no value has when their library is not installed."""


def _jax() -> dict[str, ModuleType]:
    tree_util = _module(
        "jax.tree_util", register_pytree_node_class=lambda cls: cls, tree_map=tree_map
    )
    numpy = _module("jax.numpy", ndarray=np.ndarray, vectorize=_needs_jax)
    jax = _module("jax", Array=_NeverAnInstance, tree_util=tree_util, numpy=numpy)
    return {"jax": jax, "jax.numpy": numpy, "jax.tree_util": tree_util}


_STAND_INS: Mapping[str, Callable[[], dict[str, ModuleType]]] = {
    "tensorflow": lambda: {"tensorflow": _module("tensorflow", Tensor=_NeverAnInstance)},
    "jax": _jax,
    "chex": lambda: {"chex": _module("chex", assert_rank=assert_rank)},
}


def _module(name: str, **members: object) -> ModuleType:
    module = ModuleType(name, "Stand-in used by vcrt while dm-clrs is imported.")
    module.__dict__.update(members)
    return module


def _needs_jax(function: Callable[..., Any], *, signature: str) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        raise RuntimeError(f"{function.__name__}{signature} of dm-clrs needs JAX")

    return refuse


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """JAX's ``tree_map`` on lists and on nodes with ``tree_flatten``; anything else is a leaf."""
    trees = (tree, *rest)
    if isinstance(tree, list):
        return [tree_map(function, *branches) for branches in zip(*trees, strict=True)]
    if hasattr(tree, "tree_flatten"):
        flat = [node.tree_flatten() for node in trees]
        children = zip(*(leaves for leaves, _ in flat), strict=True)
        mapped = tuple(tree_map(function, *branches) for branches in children)
        return type(tree).tree_unflatten(flat[0][1], mapped)
    return function(*trees)


def assert_rank(arrays: Any, rank: int) -> None:
    """``assert_rank`` of chex for one array or a list: ``AssertionError`` unless each has that rank."""
    for array in arrays if isinstance(arrays, list | tuple) else [arrays]:
        if np.ndim(array) != rank:
            raise AssertionError(f"expected rank {rank}, found {np.ndim(array)}")
