"""Switch off faster kernels for a while, this package's and those of others, to compare them with PyTorch's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn

_OWN: ContextVar[bool] = ContextVar("own kernels", default=True)


def own_kernels_are_used() -> bool:
    """Return whether the library's own kernels may be used, such as :mod:`vcrt_train.policy.kernels.fused_norm`."""
    return _OWN.get()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Compute as the model's own classes do, inside the context."""
    token = _OWN.set(False)
    try:
        yield
    finally:
        _OWN.reset(token)


@contextmanager
def reference_functions(model: nn.Module) -> Iterator[None]:
    """Compute with the functions in the files of the model's classes, instead of packages like flash-linear-attention.

    Those packages round differently, or refuse float32. transformers wraps such functions if it can import the package
    (``use_kernel_func_from_hub_with_fallback``). The change affects the whole process: do not use threads.
    """
    kept = _replaceable(model)
    try:
        for contents, name, value in kept:
            contents[name] = _of_known_arguments(inspect.unwrap(value))
        yield
    finally:
        for contents, name, value in kept:
            contents[name] = value


def implementations(model: nn.Module) -> dict[str, str]:
    """Return the package that computes each function for which the model's file would take another package's.

    It is ``PyTorch`` where that package is not installed, or cannot be imported.
    """
    found = {}
    for _, _, value in _replaceable(model):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        kept = {name: cell.cell_contents for name, cell in cells}
        is_own = kept["implementation"] is kept["torch_function"]
        found[kept["func_name"]] = "PyTorch" if is_own else kept["implementation"].__module__
    return {name: package.partition(".")[0] for name, package in sorted(found.items())}


def _replaceable(model: nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """Return the functions that transformers wraps, with their names, in the files of the model's classes."""
    names = {type(part).__module__ for part in model.modules()}
    modules = [vars(sys.modules[name]) for name in names if name.startswith("transformers.models.")]
    return [
        (contents, name, value)
        for contents in modules
        for name, value in contents.items()
        if inspect.isfunction(value) and "torch_function" in value.__code__.co_freevars
    ]


def _of_known_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that omits arguments unknown to ``function``, as the wrapped one does."""
    known = inspect.signature(function).parameters

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: kwargs[name] for name in kwargs if name in known})

    return called
