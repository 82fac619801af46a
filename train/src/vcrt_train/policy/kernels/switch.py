"""Switch faster ways of computing a layer off for a while, ours and other packages', to compare them with PyTorch's."""

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
    """Whether the library's own kernels may be used, such as :mod:`vcrt_train.policy.kernels.fused_norm`."""
    return _OWN.get()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Compute as the model's own classes do."""
    token = _OWN.set(False)
    try:
        yield
    finally:
        _OWN.reset(token)


@contextmanager
def reference_functions(model: nn.Module) -> Iterator[None]:
    """Compute what packages like flash-linear-attention speed up as the files of the model's classes write it out.

    Those packages round in ways of their own, or refuse float32. transformers wraps such functions where it can import
    the package (``use_kernel_func_from_hub_with_fallback``). They are the whole process's, so not for threads.
    """
    names = {type(part).__module__ for part in model.modules()}
    modules = [vars(sys.modules[name]) for name in names if name.startswith("transformers.models.")]
    kept = [
        (contents, name, value)
        for contents in modules
        for name, value in contents.items()
        if inspect.isfunction(value) and "torch_function" in value.__code__.co_freevars
    ]
    try:
        for contents, name, value in kept:
            contents[name] = _of_known_arguments(inspect.unwrap(value))
        yield
    finally:
        for contents, name, value in kept:
            contents[name] = value


def _of_known_arguments(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that leaves arguments out that it does not know, as the wrapped one does."""
    known = inspect.signature(function).parameters

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: kwargs[name] for name in kwargs if name in known})

    return called
