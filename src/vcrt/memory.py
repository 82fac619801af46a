"""Say how much memory is left, and name the error of running out of it.

The libraries have no common class for that error; PyTorch is not imported here.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from vcrt.errors import OutOfMemory

#: Where a container finds its limits.
CGROUP = Path("/sys/fs/cgroup")

#: By the names of their classes: PyTorch's for GPUs.
_CLASSES = {"OutOfMemoryError"}
#: What a RuntimeError says when the processor's memory, or that of a library on a GPU, is spent.
_WORDS = (
    "DefaultCPUAllocator",
    "out of memory",
    "ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)


def available_memory(cgroup: Path = CGROUP) -> int:
    """The bytes that may still be taken: of the machine, or of a limit that leaves less (container, ``ulimit -v``)."""
    left: list[int] = [
        psutil.virtual_memory().available,
        # Of control groups of the second version, and of the first.
        *_left_of_limit(cgroup, "memory.max", "memory.current", ""),
        *_left_of_limit(
            cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
        ),
    ]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        left.append(limit - psutil.Process().memory_info().vms)
    return max(min(left), 0)


def _left_of_limit(folder: Path, limit: str, used: str, prefix: str) -> Iterator[int]:
    """What a limit leaves, if there is one; cached files count as used there, and make room."""
    with suppress(OSError, ValueError):
        left = int((folder / limit).read_text()) - int((folder / used).read_text())
        with suppress(OSError, ValueError):
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            left += sum(int(stat.get(f"{prefix}{name}_file", 0)) for name in ("active", "inactive"))
        yield left


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, PyTorch or a library below it says that memory is spent."""
    if isinstance(error, MemoryError) or type(error).__name__ in _CLASSES:
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
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
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, where=where, remedy=remedy) from error
