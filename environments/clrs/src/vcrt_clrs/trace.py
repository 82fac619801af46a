"""Run dm-clrs's own algorithm on the input that its own sampler draws, and keep the genuine trace.

An instance names everything that the draw depends on, so a trace can be derived again from an episode's provenance.
dm-clrs draws from a ``numpy.random.RandomState`` of its own, whose stream NumPy keeps fixed; the global random state
is neither read nor changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vcrt.errors import MalformedInputError
from vcrt_clrs.reading import MAX_LENGTH
from vcrt_clrs.shim import DmClrs

_SOURCE = re.compile(
    r"clrs\.([a-z_]+)/length=([0-9]{1,4})(?:/p=([01]\.[0-9]{1,6}))?/seed=([0-9]{1,10})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """One draw of a dm-clrs sampler; ``seed`` is a 32-bit seed of ``numpy.random.RandomState``.

    ``edge_probability`` is the ``p`` of the samplers of graphs, None for all others. It draws each direction of an edge
    by itself and keeps those that come up both ways, so an undirected edge has probability ``p`` squared.
    """

    algorithm: str
    length: int
    edge_probability: float | None = None
    seed: int

    @property
    def source(self) -> str:
        """The name of the sampled input, as it stands in an episode's provenance."""
        p = "" if self.edge_probability is None else f"/p={self.edge_probability}"
        return f"clrs.{self.algorithm}/length={self.length}{p}/seed={self.seed}"

    @classmethod
    def parse(cls, source: str) -> Instance:
        """The instance that ``source`` names; raises :class:`MalformedInputError`."""
        match = _SOURCE.fullmatch(source)
        if match is not None:
            algorithm, length, probability, seed = match.groups()
            instance = cls(
                algorithm=algorithm,
                length=int(length),
                edge_probability=None if probability is None else float(probability),
                seed=int(seed),
            )
            in_range = 2 <= instance.length <= MAX_LENGTH and instance.seed < 2**32
            if in_range and float(probability or 0) <= 1 and instance.source == source:
                return instance
        raise MalformedInputError(
            "an episode's provenance does not name a sampled input",
            where="provenance.source",
            found=repr(source),
            expected="clrs.ALGORITHM/length=N[/p=P]/seed=S",
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trace:
    """Inputs, hint rows and outputs of one run, by dm-clrs's names and without its batch axis.

    ``hints[name]`` has shape ``[num_rows, ...]``; all arrays are read-only.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    hints: Mapping[str, npt.NDArray[Any]]
    outputs: Mapping[str, npt.NDArray[Any]]

    @property
    def num_rows(self) -> int:
        """How many hint rows the run has."""
        return min(len(rows) for rows in self.hints.values())


def genuine_trace(library: DmClrs, instance: Instance) -> Trace:
    """Draw the instance with dm-clrs's sampler, which runs dm-clrs's algorithm on it."""
    p = instance.edge_probability
    sampler, _ = library.build_sampler(
        instance.algorithm,
        num_samples=1,
        seed=instance.seed,
        length=instance.length,
        **({} if p is None else {"p": (p,)}),
    )
    feedback = sampler.next()
    return Trace(
        inputs=_unbatched(feedback.features.inputs, axis=0),
        hints=_unbatched(feedback.features.hints, axis=1),
        outputs=_unbatched(feedback.outputs, axis=0),
    )


def _unbatched(points: Iterable[Any], axis: int) -> dict[str, npt.NDArray[Any]]:
    arrays = {point.name: np.squeeze(np.asarray(point.data), axis=axis) for point in points}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
