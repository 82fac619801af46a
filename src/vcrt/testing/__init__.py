"""Assert in tests that calls commute and that declarations of tools hold, as far as replay can tell.

``assert_commutes`` and ``assert_declared`` need no test framework. With pytest they are also the fixtures
``vcrt_commutes`` and ``vcrt_declared``, and ``pytest --vcrt-update`` records certificates beside the tests
(:mod:`vcrt.testing.pytest_plugin`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt.testing.assertions import VcrtWarning as VcrtWarning
    from vcrt.testing.assertions import assert_commutes as assert_commutes
    from vcrt.testing.assertions import assert_declared as assert_declared

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__, {"vcrt.testing.assertions": "VcrtWarning assert_commutes assert_declared"}
)

__all__ = sorted(_PLACE_OF)
