"""Rule theories in the manner of ProofWriter as an environment, and theories of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_proofwriter.answers import theories as theories
    from vcrt_proofwriter.lift import lift_proofwriter as lift_proofwriter

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_proofwriter.answers": "theories",
        "vcrt_proofwriter.lift": "lift_proofwriter",
    },
)

__all__ = sorted(_PLACE_OF)
