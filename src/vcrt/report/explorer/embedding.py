"""Values as JSON within an HTML page, so that no text of theirs can end the element or begin another."""

from __future__ import annotations

import json
from typing import Any

#: What an HTML parser would act on inside a script element, and line ends of JavaScript that are none of JSON.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embedded(value: Any) -> str:
    """The value as JSON for a ``<script type="application/json">``: it holds no ``<``, ``>`` or ``&``.

    Raises ``ValueError`` for a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)
