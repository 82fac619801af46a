"""Draw arrays at random: NumPy's generators, from seeds and names as in :mod:`vcrt.randomness`."""

from __future__ import annotations

import numpy as np

from vcrt.randomness import derive_seed


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return NumPy's PCG64 generator for a named purpose; it draws the numbers of :func:`vcrt.randomness.generator`."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))
