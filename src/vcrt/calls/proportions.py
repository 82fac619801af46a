"""Count how often something was seen, and bound its chance exactly."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from math import exp, fsum, lgamma, log, log1p

from vcrt.hashing import Json

#: The confidence of the one-sided bounds.
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Proportion:
    """``count`` of ``total`` cases."""

    count: int
    total: int

    @property
    def bound(self) -> float:
        """The upper end of the one-sided exact interval (Clopper and Pearson 1934); 1 for no cases.

        With a greater chance, fewer than one of twenty samples of independent cases would have had so few. The bound
        is therefore only valid for independent cases: for units, as :func:`of_units` counts them.

        >>> round(Proportion(0, 59).bound, 4)
        0.0495
        """
        if self.count == self.total:
            return 1.0
        low, high = self.count / self.total, 1.0
        while low < (middle := (low + high) / 2) < high:
            if _chance_of_few(self.count, self.total, middle) > 1 - LEVEL:
                low = middle
            else:
                high = middle
        return high

    @property
    def opposite(self) -> Proportion:
        """The other cases."""
        return Proportion(self.total - self.count, self.total)

    def __add__(self, other: Proportion) -> Proportion:
        return Proportion(self.count + other.count, self.total + other.total)

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        return {"count": self.count, "total": self.total}


def _chance_of_few(count: int, total: int, share: float) -> float:
    """The chance of at most ``count`` of ``total`` independent cases, each with the chance ``share``, below 1."""
    ways = (lgamma(total + 1) - lgamma(k + 1) - lgamma(total - k + 1) for k in range(count + 1))
    kept, other = log(share), log1p(-share)
    return fsum(exp(way + k * kept + (total - k) * other) for k, way in enumerate(ways))


def of_units(cases: Iterable[tuple[Hashable, Collection[str], bool]]) -> Proportion:
    """Count the independent units behind cases, and the units that have a case that counts.

    A case has a name (a state and the calls in it), the sources that have it, and a flag whether it counts. The
    contexts of one trace depend on each other: the later ones mostly repeat what the first shows, and a longer trace
    has more of them. Sources are what is sampled. So each source is one unit, which counts if any of its cases
    counts, and the bound is on the chance that the next source has such a case. A source whose cases another source
    also has adds nothing: it is a copy, or an earlier part of the same conversation, and its replay gives the same
    again. There cannot be more units than cases.

    >>> of_units([("put in {}", ["monday"], False), ("put in {1}", ["monday"], True), ("put in {2}", ["today"], False)])
    Proportion(count=1, total=2)
    """
    counting: dict[Hashable, bool] = {}
    of_source: dict[str, set[Hashable]] = {}
    for case, sources, counts in cases:
        counting[case] = counts or counting.get(case, False)
        for source in sources:
            of_source.setdefault(source, set()).add(case)
    units = _largest({frozenset(some) for some in of_source.values()})
    if len(counting) < len(units):
        units = [frozenset({case}) for case in counting]
    return Proportion(sum(any(counting[case] for case in unit) for unit in units), len(units))


def _largest(units: Collection[frozenset[Hashable]]) -> list[frozenset[Hashable]]:
    """Return the sets that are not contained in another."""
    kept: list[frozenset[Hashable]] = []
    having: dict[Hashable, list[frozenset[Hashable]]] = {}
    for unit in sorted(units, key=len, reverse=True):
        rarest = min(unit, key=lambda case: len(having.get(case, ())), default=None)
        if not any(unit <= other for other in having.get(rarest, ())):
            kept.append(unit)
            for case in unit:
                having.setdefault(case, []).append(unit)
    return kept


#: No cases.
NONE = Proportion(0, 0)
