"""Load dm-clrs without its heavy dependencies: the genuine samplers and algorithms on NumPy, attrs and absl alone.

The metadata of dm-clrs requires TensorFlow, JAX, Haiku and more, but the parts used here (samplers, specifications,
probes, algorithms) need from them only one class for an ``isinstance`` test, one tree map and one rank assertion.
:func:`load_dm_clrs` replaces those of ``tensorflow``, ``jax`` and ``chex`` that are not installed by stand-ins while it
imports the modules of dm-clrs (see :mod:`vcrt.environments.partial_imports`). The imported modules keep the stand-ins
they were bound to. An installed ``tensorflow``, ``jax`` or ``chex`` is used as it is.

This does not support models, processors, losses and datasets of dm-clrs, the permutation helpers of its ``probing``
module (they need JAX itself), and threads that import TensorFlow, JAX or chex during the first call.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from vcrt.environments.partial_imports import Distribution

#: Another version may sample other graphs from the same seed; then certificates would not be comparable.
DM_CLRS = Distribution(name="dm-clrs", version="2.0.3", package="clrs", needs="numpy attrs absl-py")

#: The modules whose code determines an episode and its genuine trace.
USED_MODULES = (
    "clrs._src.algorithms.dynamic_programming",
    "clrs._src.algorithms.graphs",
    "clrs._src.algorithms.sorting",
    "clrs._src.probing",
    "clrs._src.samplers",
    "clrs._src.specs",
)


@lru_cache(maxsize=1)
def load_dm_clrs() -> Mapping[str, ModuleType]:
    """Return the used modules of dm-clrs by their full names; import them once in the process.

    Raise :class:`vcrt.errors.UnavailableError` if dm-clrs is missing, of another version, or cannot be imported.
    """
    stand_ins = {
        name: members
        for name, members in _STAND_INS.items()
        if not _is_installed(name.partition(".")[0])
    }
    # `clrs/__init__.py` imports every neural model; its submodules do not need it.
    return DM_CLRS.load(USED_MODULES, bare=["clrs"], stand_ins=stand_ins)


def source_digests() -> dict[str, str]:
    """Return the SHA-256 of each used source file, by its path within the distribution."""
    return DM_CLRS.digests([Path(str(module.__file__)) for module in load_dm_clrs().values()])


def _is_installed(name: str) -> bool:
    # Python prevents the import of a module by setting it to None.
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


class _NeverAnInstance:
    """A stand-in for array classes without instances, since their library is not installed."""


def _needs_jax(function: Callable[..., Any], *, signature: str) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        raise RuntimeError(f"{function.__name__}{signature} of dm-clrs needs JAX")

    return refuse


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply JAX's ``tree_map`` to lists and to nodes with ``tree_flatten``; anything else is a leaf."""
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
    """Raise ``AssertionError`` unless one array, or each of a list, has that rank, as ``assert_rank`` of chex."""
    for array in arrays if isinstance(arrays, list | tuple) else [arrays]:
        if np.ndim(array) != rank:
            raise AssertionError(f"expected rank {rank}, found {np.ndim(array)}")


_TREE_UTIL = {"register_pytree_node_class": lambda cls: cls, "tree_map": tree_map}
_JAX_NUMPY = {"ndarray": np.ndarray, "vectorize": _needs_jax}
#: The members that dm-clrs uses of modules that may be missing.
_STAND_INS: Mapping[str, Mapping[str, object]] = {
    "tensorflow": {"Tensor": _NeverAnInstance},
    "jax": {
        "Array": _NeverAnInstance,
        "tree_util": SimpleNamespace(**_TREE_UTIL),
        "numpy": SimpleNamespace(**_JAX_NUMPY),
    },
    "jax.numpy": _JAX_NUMPY,
    "jax.tree_util": _TREE_UTIL,
    "chex": {"assert_rank": assert_rank},
}
