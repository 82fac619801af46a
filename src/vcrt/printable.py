"""Make untrusted text safe to show, and write numbers with their nouns.

It imports nothing of vcrt, so it also serves where much is broken.
"""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    """Write control characters of the text as escapes, so that no terminal and no XML parser acts on them."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """``1 run``, ``3 runs``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def listed(items: Sequence[str]) -> str:
    """``a``, ``a and b`` or ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def duration(seconds: float) -> str:
    """A duration to two digits or so.

    >>> duration(44.2), duration(160), duration(9000)
    ('44 s', '3 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
