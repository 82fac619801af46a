"""Migrations of Django as an environment, and the branches of a project of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_django.lift import lift_django as lift_django

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_django.lift": "lift_django",
    },
)

__all__ = sorted(_PLACE_OF)
