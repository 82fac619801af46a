"""Rocq as the verifier of an environment, and windows of the proofs in its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_rocq.lift import lift_rocq as lift_rocq

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_rocq.lift": "lift_rocq",
    },
)

__all__ = sorted(_PLACE_OF)
