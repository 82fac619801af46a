"""Lean 4 as the verifier of an environment, and windows of the proofs in a user's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_lean.lift import lift_lean as lift_lean

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_lean.lift": "lift_lean",
    },
)

__all__ = sorted(_PLACE_OF)
