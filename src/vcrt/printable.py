"""Text from anywhere made harmless to whatever shows it; it imports nothing, so it also serves where much is broken."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters written as escapes, so that no terminal and no XML parser acts on them."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
