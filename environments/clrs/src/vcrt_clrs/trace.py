"""Run dm-clrs's own algorithm on an input of its own sampler, and keep the genuine trace; encode own rows alike.

An instance names everything that the draw depends on, so an episode's provenance is enough to derive its trace again.
dm-clrs draws from its own ``numpy.random.RandomState``, whose stream NumPy keeps fixed; it neither reads nor changes
the global random state.

Legend: ``R`` rows of one trace, ``N`` places (nodes or positions), ``C`` classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vcrt.errors import MalformedInputError
from vcrt_clrs.shim import load_dm_clrs

Array: TypeAlias = npt.NDArray[Any]
#: Stacked rows of a trace: by hint or output name, an array ``[num_rows, ...]``.
Rows: TypeAlias = Mapping[str, Array]

#: Larger inputs are refused: places (nodes, positions) are one byte wide in states. No sampler here needs more.
MAX_LENGTH = 256
#: The seeds of dm-clrs are below this number.
NUM_SEEDS = 2**32
_SOURCE = re.compile(
    r"clrs\.([a-z_]+)/length=([0-9]{1,4})(?:/p=([01]\.[0-9]{1,6}))?/seed=([0-9]{1,10})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """One draw of a dm-clrs sampler; ``seed`` is a 32-bit seed of ``numpy.random.RandomState``.

    ``edge_probability`` is the ``p`` of the samplers of graphs, None for all others. dm-clrs draws each direction of an
    edge by itself and keeps the edges with both, so an undirected edge has probability ``p`` squared.
    """

    algorithm: str
    length: int
    edge_probability: float | None = None
    seed: int

    @property
    def source(self) -> str:
        """The name of the sampled input, as an episode's provenance has it."""
        p = "" if self.edge_probability is None else f"/p={self.edge_probability}"
        return f"clrs.{self.algorithm}/length={self.length}{p}/seed={self.seed}"

    @classmethod
    def parse(cls, source: str) -> Instance:
        """Return the instance that ``source`` names; raise :class:`MalformedInputError` for another form."""
        match = _SOURCE.fullmatch(source)
        if match is not None:
            algorithm, length, probability, seed = match.groups()
            instance = cls(
                algorithm=algorithm,
                length=int(length),
                edge_probability=None if probability is None else float(probability),
                seed=int(seed),
            )
            in_range = 2 <= instance.length <= MAX_LENGTH and instance.seed < NUM_SEEDS
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

    inputs: Rows
    hints: Rows
    outputs: Rows

    @property
    def num_rows(self) -> int:
        """The number of hint rows of the run."""
        return min(len(rows) for rows in self.hints.values())


def genuine_trace(instance: Instance) -> Trace:
    """Draw the instance with dm-clrs's sampler, which runs dm-clrs's algorithm on it."""
    p = instance.edge_probability
    sampler, _ = load_dm_clrs()["clrs._src.samplers"].build_sampler(
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


def _unbatched(points: Iterable[Any], axis: int) -> dict[str, Array]:
    arrays = {point.name: np.squeeze(np.asarray(point.data), axis=axis) for point in points}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays


def byte_rows(rows: Sequence[bytes]) -> Array:
    """Return ``[R, N]`` integers from ``R`` byte strings of equal length."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1).astype(np.int64)


def mask_one(places: Sequence[int] | Array, size: int) -> Array:
    """Return ``[R, size]`` zeros with a single 1 in each row, at the given place."""
    return np.equal.outer(np.asarray(places, dtype=np.int64), np.arange(size)).astype(np.int64)


def masks(bits: Sequence[int], size: int) -> Array:
    """Return ``[R, size]`` zeros and ones from bit sets."""
    width = (size + 7) // 8
    packed = byte_rows([b.to_bytes(width, "little") for b in bits]).astype(np.uint8)
    return np.unpackbits(packed, axis=1, count=size, bitorder="little").astype(np.int64)


def edge_matrices(bits: Sequence[int], num_nodes: int) -> Array:
    """Return ``[R, N, N]`` symmetric matrices of sets of edges u < v, bit ``u * N + v``."""
    upper = masks(bits, num_nodes * num_nodes).reshape(-1, num_nodes, num_nodes)
    return upper | upper.transpose(0, 2, 1)


def chain_pointers(orders: Array) -> Array:
    """Return ``[R, N]``: each element points to the previous one; the first to itself (dm-clrs's ``array`` probe)."""
    return _pointers(orders, np.concatenate([orders[:, :1], orders[:, :-1]], axis=1))


def heap_pointers(orders: Array, heap_sizes: Array) -> Array:
    """Return ``[R, N]``: each element of the heap points to its parent, others to themselves (``heap`` probe).

    ``heap_sizes`` has shape ``[R]``.
    """
    places = np.arange(orders.shape[1])
    parents = orders[:, np.maximum(places - 1, 0) // 2]
    in_heap = places < heap_sizes[:, None]
    return _pointers(orders, np.where(in_heap, parents, orders))


def _pointers(orders: Array, targets: Array) -> Array:
    pointers = np.empty_like(orders)
    np.put_along_axis(pointers, orders, targets, axis=1)
    return pointers
