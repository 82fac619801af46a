"""Five algorithms of the CLRS benchmark as environments, and windows of their genuine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_clrs.lift import lift_clrs as lift_clrs

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_clrs.lift": "lift_clrs",
    },
)

__all__ = sorted(_PLACE_OF)
