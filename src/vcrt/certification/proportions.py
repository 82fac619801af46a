"""Count how often something was seen, with the exact bound of the chance that this leaves."""

from __future__ import annotations

from dataclasses import dataclass

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

        A greater chance would have given so few in less than one of twenty samples of independent cases.

        >>> round(Proportion(0, 59).bound, 3)
        0.049
        """
        if self.count == self.total:
            return 1.0
        from scipy.special import betaincinv

        return float(betaincinv(self.count + 1, self.total - self.count, LEVEL))

    @property
    def opposite(self) -> Proportion:
        """The other cases."""
        return Proportion(self.total - self.count, self.total)

    def __add__(self, other: Proportion) -> Proportion:
        return Proportion(self.count + other.count, self.total + other.total)

    def to_json(self) -> dict[str, Json]:
        """The JSON form, with the bound of the chance of the counted case."""
        return {"count": self.count, "total": self.total, "bound": round(self.bound, 6)}


#: No cases.
NONE = Proportion(0, 0)
