"""Switch the library's own ways of computing a layer off for a while, to compare them with PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEAN: ContextVar[bool] = ContextVar("lean kernels", default=True)


def is_lean() -> bool:
    """Whether the library's own kernels may be used: of :mod:`vcrt.policy.fused_norm`, ``adapted_linear`` and so on."""
    return _LEAN.get()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Compute as the model's own classes do."""
    token = _LEAN.set(False)
    try:
        yield
    finally:
        _LEAN.reset(token)
