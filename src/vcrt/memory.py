"""Name the error of running out of memory. The libraries have no common class for it; PyTorch is not imported here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vcrt.errors import OutOfMemory

#: By the names of their classes: PyTorch's for GPUs.
_CLASSES = {"OutOfMemoryError"}
#: What a RuntimeError says when the processor's memory, or that of a library on a GPU, is spent.
_WORDS = (
    "DefaultCPUAllocator",
    "out of memory",
    "ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, PyTorch or a library below it says that memory is spent."""
    if isinstance(error, MemoryError) or type(error).__name__ in _CLASSES:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WORDS)


def out_of_memory(
    error: BaseException, *, where: str | None = None, remedy: str | None = None
) -> OutOfMemory:
    """The named error for one that :func:`is_out_of_memory` knows."""
    lines = str(error).strip().splitlines()
    return OutOfMemory(
        "memory ran out",
        where=where,
        found=f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__,
        remedy=remedy or "free some memory and give the same command again, or use fewer --jobs",
    )


@contextmanager
def naming_out_of_memory(where: str, remedy: str) -> Iterator[None]:
    """Raise :class:`vcrt.errors.OutOfMemory`, with these words, where memory runs out within."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, where=where, remedy=remedy) from error
