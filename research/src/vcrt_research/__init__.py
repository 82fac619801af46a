"""Ask questions that are not part of a product: what records give away, and what is guessed without replay.

What stands here is public in this repository alone: it is not released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_research.probing import probe as probe
    from vcrt_research.rebuilding import pretrain as pretrain
    from vcrt_research.relation_inference import relations as relations

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_research.probing": "probe",
        "vcrt_research.rebuilding": "pretrain",
        "vcrt_research.relation_inference": "relations",
    },
)

__all__ = sorted(_PLACE_OF)
